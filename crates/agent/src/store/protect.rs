//! The root is its owner's alone: layers of private images, what guests wrote, and the environment
//! of workloads lie in it.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use crate::paths::Paths;

/// Its owner may do everything with it, others nothing.
const OWN: u32 = 0o700;

/// Closes the root to others. One that somebody else made and no agent has used yet (`ours` is
/// false) stays as it is, lest a mistyped `--root` closes a directory that many need; what is made
/// in it is closed all the same.
pub(super) fn root(root: &Path, ours: bool) {
    if ours {
        close(root);
    } else if mode(root).is_some_and(|mode| mode & 0o077 != 0) {
        tracing::warn!(
            root = %root.display(),
            "others may look into the agent's root, though not into what the agent makes there; chmod 0700 it"
        );
    }
}

/// Lets those pass through the root, without a look at what is in it, whom a mode names beside its
/// owner.
pub(crate) fn let_through(root: &Path, bits: u32) {
    let Some(now) = mode(root) else { return };
    if now & bits != bits
        && let Err(error) = fs::set_permissions(root, Permissions::from_mode(now & 0o777 | bits))
    {
        tracing::warn!(root = %root.display(), %error, "the socket may be out of reach for its group");
    }
}

/// Closes the directories of the root.
pub(super) fn below(paths: &Paths) {
    for dir in ["oci", "rootdisks"] {
        close(&paths.root().join(dir));
    }
    close(&paths.instances());
    close(&paths.tmp());
}

fn mode(path: &Path) -> Option<u32> {
    fs::metadata(path).ok().map(|found| found.permissions().mode())
}

/// Trouble is told and no reason not to start: who may not change the mode may still read.
fn close(path: &Path) {
    if mode(path).is_some_and(|mode| mode & 0o077 == 0) {
        return;
    }
    if let Err(error) = fs::set_permissions(path, Permissions::from_mode(OWN)) {
        tracing::warn!(path = %path.display(), %error, "others may be able to look into this");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    fn bits(path: &Path) -> u32 {
        mode(path).unwrap() & 0o777
    }

    fn made(dir: &Path, bits: u32) {
        fs::create_dir_all(dir).unwrap();
        fs::set_permissions(dir, Permissions::from_mode(bits)).unwrap();
    }

    #[test]
    fn a_root_is_its_owners_alone_and_a_directory_that_is_no_root_yet_stays_as_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let new = dir.path().join("new");
        drop(Store::open(&new).unwrap());
        assert_eq!(bits(&new), 0o700);
        for below in ["oci", "rootdisks", "instances", "tmp"] {
            assert_eq!(bits(&new.join(below)), 0o700, "{below}");
        }
        // An older agent's, open to all.
        made(&new, 0o755);
        made(&new.join("oci"), 0o755);
        drop(Store::open(&new).unwrap());
        assert_eq!((bits(&new), bits(&new.join("oci"))), (0o700, 0o700));
        // Somebody's own directory.
        let shared = dir.path().join("shared");
        made(&shared, 0o755);
        drop(Store::open(&shared).unwrap());
        assert_eq!((bits(&shared), bits(&shared.join("instances"))), (0o755, 0o700));
    }
}
