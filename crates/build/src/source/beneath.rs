//! Names in a directory that somebody else filled: followed as far as they stay in it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

/// A pipe that is there instead of a file is not waited for.
const READ: OFlags = OFlags::RDONLY.union(OFlags::CLOEXEC).union(OFlags::NONBLOCK);

/// Opens the regular file that `path` means in `dir`. Links are followed while they stay in there.
pub(crate) fn open(dir: &Path, path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let opened = rustix::fs::open(dir, flags, Mode::empty())?;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let file = match rustix::fs::openat2(&opened, path, READ, Mode::empty(), how) {
        // Kernels before 5.6, and filters that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => {
            let flags = READ | OFlags::NOFOLLOW;
            rustix::fs::open(resolve(dir, path)?, flags, Mode::empty())?
        }
        Err(Errno::XDEV) => return Err(leads_out()),
        opened => opened?,
    };
    let file = File::from(file);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file")),
    }
}

/// Where `path` really is, in a directory that nobody changes meanwhile.
pub(crate) fn resolve(dir: &Path, path: &Path) -> io::Result<PathBuf> {
    let root = dir.canonicalize()?;
    let found = root.join(path).canonicalize()?;
    match found.starts_with(&root) {
        true => Ok(found),
        false => Err(leads_out()),
    }
}

fn leads_out() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, "it leads out of the directory")
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn files_are_opened_through_links_that_stay_inside_and_no_others() {
        let all = tempfile::tempdir().unwrap();
        let dir = all.path().join("dir");
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::fs::write(dir.join("a/file"), "inside").unwrap();
        std::fs::write(all.path().join("secret"), "outside").unwrap();
        symlink("../..", dir.join("a/b/top")).unwrap();
        symlink("a/b/top/a/file", dir.join("good")).unwrap();
        symlink("a/b/top/../secret", dir.join("bad")).unwrap();
        symlink(all.path().join("secret"), dir.join("rooted")).unwrap();
        for path in ["a/file", "good", "a/b/top/good"] {
            let path = Path::new(path);
            for mut file in
                [open(&dir, path).unwrap(), File::open(resolve(&dir, path).unwrap()).unwrap()]
            {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                assert_eq!(text, "inside");
            }
        }
        for path in ["bad", "rooted", "../secret", "a/b/top/bad"] {
            let path = Path::new(path);
            for error in [open(&dir, path).unwrap_err(), resolve(&dir, path).unwrap_err()] {
                assert!(error.to_string().contains("leads out"), "{path:?}: {error}");
            }
        }
        assert!(open(&dir, Path::new("a")).is_err(), "a directory is no file");
    }
}
