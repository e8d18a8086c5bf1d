//! Shims: the right runtime binary on every node.
//!
//! | module | what it holds |
//! |---|---|
//! | `resolve` | which artifact a node gets, and whether policy lets it; pure |
//! | `desired` | what a node should have, as one hash; pure |
//! | `lint` | what in a Shim cannot work, or deserves a look; pure |
//! | `node` | the node's side: fetch, check, place, configure, restart, and back |
//! | `report` | what a node says of an install, an uninstall or a look: the one thing that both sides share |

#![warn(missing_docs)]

pub mod desired;
pub mod lint;
pub mod node;
pub mod report;
pub mod resolve;
