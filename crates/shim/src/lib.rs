//! Shims: the right runtime binary on every node.
//!
//! | module | what it holds |
//! |---|---|
//! | `node` | the node's side: fetch, check, place, configure, restart, and back |
//! | `report` | what a node says of an install, an uninstall or a look: the one thing that both sides share |

#![warn(missing_docs)]

pub mod node;
pub mod report;
