//! One installer at a time on a node.
//!
//! A node has one runtime and one configuration however many install directories there are, so the lock is the
//! host's: a file that only root can open, where nothing stays over a boot. On a mere tree of files nothing is
//! made for it: there it is on the root directory. Either ends with the process.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::time::Duration;

use portolan_registry::durable::{DirLock, DurableError};
use rustix::fs::OFlags;

use super::exec::Context;
use super::root::HostRoot;

/// On a host. Whoever can open a file can lock it, and anybody can open a directory.
const FILE: &str = "run/portolan-node.lock";

/// Waits so long for the others.
pub(crate) fn lock(
    root: &HostRoot,
    context: &Context,
    patience: Duration,
) -> Result<DirLock, DurableError> {
    let file = root.dir().join(FILE);
    if !context.is_host() || !file.parent().is_some_and(std::path::Path::is_dir) {
        return DirLock::within(root.dir(), patience);
    }
    let flags = OFlags::NOFOLLOW.bits().cast_signed();
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(false).mode(0o600).custom_flags(flags);
    options.open(&file).map_err(|e| DurableError::io("open", &file, e))?;
    DirLock::within(&file, patience)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_hosts_lock_is_roots_alone_and_a_trees_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let root = HostRoot::open(dir.path()).unwrap();
        std::fs::create_dir(dir.path().join("run")).unwrap();
        let _tree = lock(&root, &Context::Files, Duration::ZERO).unwrap();
        assert!(!dir.path().join(FILE).exists());
        let held = lock(&root, &Context::Here, Duration::ZERO).unwrap();
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let second = lock(&root, &Context::Here, Duration::ZERO);
        assert!(matches!(second, Err(DurableError::Locked { .. })));
        drop(held);
        lock(&root, &Context::Here, Duration::ZERO).unwrap();
    }
}
