//! One installer at a time on a node.
//!
//! The lock is on the host's root directory: a node has one runtime and one configuration however many
//! install directories there are, nothing has to be made for it, and it ends with the process.

use std::time::Duration;

use portolan_registry::durable::{DirLock, DurableError};

use super::root::HostRoot;

/// Waits so long for the others.
pub(crate) fn lock(root: &HostRoot, patience: Duration) -> Result<DirLock, DurableError> {
    DirLock::within(root.dir(), patience)
}
