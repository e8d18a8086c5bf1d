//! containerd's configuration: read as TOML, changed by blocks and files that are ours alone.
//!
//! Foreign bytes are never written anew. A block of ours is appended between two marks, a drop-in is a file
//! of ours; taking either away gives back what was there, byte for byte.
//!
//! | who reads what | here |
//! |---|---|
//! | `version` says 1 to 4; a file without it is of version 1 | the table is the one that this version has |
//! | containerd 2 merges imported tables | a drop-in where the main file imports such files |
//! | containerd 1 lets an imported file replace a plugin's whole table | a block in the last file that has it |
//! | containerd 1 forgets its own `runc` once a file names any runtime | a block that says it, where none did |

mod block;
mod conflicts;
mod error;
mod imports;
mod plan;
mod version;

pub(crate) use block::ours_as_in;
pub use block::{Entry, add, blocks, remove};
pub use error::ConfigError;
pub use imports::{Loaded, load};
pub use plan::{Change, Layout, Look, install, uninstall};
pub(crate) use plan::{one_as_in, own_text, same_foreign};
pub use version::{Version, handler_table, parse};

/// More than any configuration has.
pub const MAX_FILE: u64 = 4 << 20;

#[cfg(test)]
mod tests;
