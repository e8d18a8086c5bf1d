//! Disks that are full or read-only, mounted for one test.

use std::path::PathBuf;
use std::process::Command;

use super::busy::once_not_busy;
use super::skip::skip;

/// A small tmpfs below a temporary directory, gone when dropped.
pub struct Mount {
    dir: tempfile::TempDir,
}

impl Mount {
    /// A file system of this many bytes, or none, with the skip noted, where this user may not
    /// mount one.
    pub fn tmpfs(bytes: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip("it mounts a small tmpfs, which needs root");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        let size = format!("size={bytes}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(dir.path()));
        Some(Self { dir })
    }

    /// Makes it read-only, content and all. `chmod` would not do: root writes anyway.
    pub fn make_read_only(&self) {
        run(Command::new("mount").args(["-o", "remount,ro"]).arg(self.dir.path()));
    }

    pub fn join(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // Lazily: a file still open in a thread that is ending must not keep the mount.
        let _ = Command::new("umount").arg("-l").arg(self.dir.path()).status();
    }
}

fn run(command: &mut Command) {
    let output = once_not_busy(command);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {said}", output.status);
}
