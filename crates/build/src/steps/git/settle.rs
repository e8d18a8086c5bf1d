//! A clone that is the same whenever and wherever it is made, so that its source artifact is, too.
//!
//! | what differs | what becomes of it |
//! |---|---|
//! | times of files | the commit's |
//! | modes by the umask of who clones | what the owner may do, others may read and execute |
//! | `.git/index`: inodes and times of the files here | written again without them |
//! | `.git/logs`: when and by whom it was cloned | never written |
//! | samples of hooks, as the version of git has them | never written |
//!
//! The index stays, since without one every file is new and deleted at once, and what asks `git status` (as Go does for
//! its binaries) would call the source changed. Without inodes and times git looks at the content of a file the first time that it is
//! asked, which it would have to in any pod: there the files are others than those that were cloned.
//!
//! Objects stay as the host packed them. A host that packs one commit in two ways gives two artifacts; to pack them
//! again, with a whole history, would take longer than most builds.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Timespec, Timestamps};

use super::command::Git;
use super::reason::OTHER;
use crate::steps::StepError;

/// Makes a clone what any other of this commit is.
pub(super) fn settle(git: &Git<'_>, committed: i64) -> Result<(), StepError> {
    git.run(&["read-tree", "HEAD"])?;
    if git.target().join(".gitmodules").symlink_metadata().is_ok() {
        git.run(&["submodule", "--quiet", "foreach", "--recursive", "git read-tree HEAD"])?;
    }
    // An artifact has no time before 1970.
    let time = Timespec { tv_sec: committed.max(0), tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    let root = git.target();
    // The directory itself may be somebody else's, who made the volume; it is no part of the source.
    below(root, &times).map_err(|source| {
        StepError::local(OTHER, format!("cannot settle {}", root.display()), source)
    })
}

/// The names first: a directory that stays open on the way down costs a file handle for each level.
fn below(dir: &Path, times: &Timestamps) -> std::io::Result<()> {
    let entries: Vec<PathBuf> =
        fs::read_dir(dir)?.map(|entry| Ok(entry?.path())).collect::<std::io::Result<_>>()?;
    entries.iter().try_for_each(|entry| alike(entry, times))
}

/// What is below a directory first, since that changes the directory's own time. Links are not followed.
fn alike(path: &Path, times: &Timestamps) -> std::io::Result<()> {
    let metadata = path.symlink_metadata()?;
    if metadata.is_dir() {
        below(path, times)?;
    }
    if !metadata.is_symlink() {
        let mode = metadata.permissions().mode() & 0o7777;
        let owner = mode >> 6 & 7;
        let wanted = owner << 6 | (owner & 5) << 3 | owner & 5;
        if mode != wanted {
            fs::set_permissions(path, Permissions::from_mode(wanted))?;
        }
    }
    Ok(rustix::fs::utimensat(CWD, path, times, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    /// Where the test below is started once more, with few file handles.
    const TREE: &str = "PORTOLAN_TEST_DEEP_TREE";

    #[test]
    fn a_deep_tree_is_settled_with_few_file_handles() {
        let time = Timespec { tv_sec: 7, tv_nsec: 0 };
        let times = Timestamps { last_access: time, last_modification: time };
        if let Some(tree) = std::env::var_os(TREE) {
            below(Path::new(&tree), &times).unwrap();
            return;
        }
        let dir = tempfile::tempdir().unwrap();
        let deep = dir.path().join("d/".repeat(200));
        fs::create_dir_all(&deep).unwrap();
        fs::write(deep.join("file"), "").unwrap();
        let again =
            ["--exact", "steps::git::settle::tests::a_deep_tree_is_settled_with_few_file_handles"];
        let few = Command::new("sh")
            .args(["-c", "ulimit -n 100 && exec \"$@\"", "sh"])
            .arg(std::env::current_exe().unwrap())
            .args(again)
            .env(TREE, dir.path())
            .output()
            .unwrap();
        assert!(few.status.success(), "{few:?}");
        let told = String::from_utf8_lossy(&few.stdout).into_owned();
        assert!(told.contains("1 passed"), "{told}");
        let found = fs::metadata(deep.join("file")).unwrap().modified().unwrap();
        assert_eq!(found.duration_since(std::time::UNIX_EPOCH).unwrap().as_secs(), 7);
    }
}
