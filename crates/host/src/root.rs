//! Reading files below a root directory as the machine itself would: its links are followed
//! inside the root, and nothing outside is touched however they point.
//!
//! The walk holds an open directory for each step and never names a path twice, so a root that
//! changes meanwhile cannot lead it astray.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::fact::Unread;

/// As many links as Linux follows in one path.
const MAX_LINKS: usize = 40;

/// An open root directory.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    unread: RefCell<Vec<Unread>>,
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir, unread: RefCell::default() })
    }

    /// Up to `limit` bytes of the ordinary file at `path`, or none if it is not there or cannot
    /// be read; the latter is noted.
    pub(crate) fn read(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let read = || -> io::Result<Vec<u8>> {
            let mut bytes = Vec::new();
            File::from(self.file(path)?).take(limit).read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Some(bytes),
            Err(error) => {
                self.note(path, &error);
                None
            }
        }
    }

    /// [`Root::read`], as text without surrounding space. Bytes that are no text are replaced.
    pub(crate) fn read_text(&self, path: &str, limit: u64) -> Option<String> {
        let bytes = self.read(path, limit)?;
        Some(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// Whether there is anything at `path`; none where that could not be found out.
    pub(crate) fn exists(&self, path: &str) -> Option<bool> {
        match self.walk(path) {
            Ok(_) => Some(true),
            Err(Errno::NOENT | Errno::NOTDIR) => Some(false),
            Err(error) => {
                self.note(path, &error.into());
                None
            }
        }
    }

    /// What was there and could not be read.
    pub(crate) fn unread(self) -> Vec<Unread> {
        self.unread.into_inner()
    }

    fn note(&self, path: &str, error: &io::Error) {
        if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) {
            return;
        }
        let unread = Unread { path: path.into(), reason: error.to_string() };
        let mut noted = self.unread.borrow_mut();
        if !noted.contains(&unread) {
            noted.push(unread);
        }
    }

    /// Opens the ordinary file at `path`. A pipe or a device is refused before it could block.
    fn file(&self, path: &str) -> io::Result<OwnedFd> {
        let (parent, name) = self.walk(path)?;
        let parent = parent.as_ref().map_or_else(|| self.dir.as_fd(), AsFd::as_fd);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::openat(parent, name.as_str(), flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::other("not an ordinary file"));
        }
        Ok(file)
    }

    /// Follows `path` to its last step: the directory it is in (none is the root) and its name
    /// there, which is no link.
    fn walk(&self, path: &str) -> Result<(Option<OwnedFd>, String), Errno> {
        let mut above: Vec<OwnedFd> = Vec::new();
        let mut todo: Vec<String> = steps(path);
        let mut links = 0;
        while let Some(step) = todo.pop() {
            if step == ".." {
                above.pop();
                continue;
            }
            let here = above.last().map_or_else(|| self.dir.as_fd(), AsFd::as_fd);
            let next = open_step(here, &step)?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&next)?.st_mode);
            match kind {
                FileType::Symlink => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP);
                    }
                    let target = rustix::fs::readlinkat(&next, "", Vec::new())?;
                    let target = target.into_string().map_err(|_| Errno::ILSEQ)?;
                    if target.starts_with('/') {
                        above.clear();
                    }
                    todo.extend(steps(&target));
                }
                _ if todo.is_empty() => return Ok((above.pop(), step)),
                FileType::Directory => above.push(next),
                _ => return Err(Errno::NOTDIR),
            }
        }
        // The path ended at a directory: the root itself or one reached by `..`.
        Err(Errno::ISDIR)
    }
}

/// The parts of a path, last first, so that the next one is popped.
fn steps(path: &str) -> Vec<String> {
    let parts = path.split('/').filter(|part| !part.is_empty() && *part != ".");
    parts.rev().map(str::to_owned).collect()
}

/// The thing called `step` itself, not what it points to.
fn open_step(dir: BorrowedFd<'_>, step: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    rustix::fs::openat(dir, step, flags, Mode::empty())
}
