//! Shims: the right runtime binary on every node.
//!
//! | module | what it holds |
//! |---|---|
//! | `report` | what a node says of an install, an uninstall or a look: the one thing that both sides share |

#![warn(missing_docs)]

pub mod report;
