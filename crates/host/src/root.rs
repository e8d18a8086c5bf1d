//! Reading files below a root directory as the machine itself would: its links are followed
//! inside the root, and nothing outside is touched however they point.
//!
//! The kernel is asked to walk (`openat2`, since Linux 5.6); where it cannot, the walk is done
//! here, with an open directory for each step and no path named twice, so that a root that
//! changes meanwhile cannot lead it astray.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::fact::Unread;

/// As many links as Linux follows in one path.
const MAX_LINKS: usize = 40;

/// More entries than any directory has that is looked into: a busy node has thousands of
/// network devices, not more.
const MAX_ENTRIES: usize = 20_000;

/// One value in sysfs is a page at most, and the largest page is this.
pub(crate) const VALUE: u64 = 64 << 10;

/// The number of procfs.
const PROC: rustix::fs::FsWord = 0x9fa0;

/// An open root directory.
#[derive(Debug)]
pub(crate) struct Root {
    dir: OwnedFd,
    /// Whether the kernel can walk for us; found out at the first try.
    kernel_walks: Cell<bool>,
    unread: RefCell<Vec<Unread>>,
}

/// Why there is nothing to read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum NotRead {
    /// It is not there, or no longer.
    Missing,
    /// It is there and cannot be read.
    Unreadable(String),
}

impl NotRead {
    /// In words, about `path`.
    pub(crate) fn about(&self, path: &str) -> String {
        match self {
            Self::Missing => format!("there is no {path}"),
            Self::Unreadable(why) => format!("{path} cannot be read: {why}"),
        }
    }
}

impl From<Errno> for NotRead {
    fn from(errno: Errno) -> Self {
        match errno {
            // What is unplugged while it is looked at says that there is no such device.
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO => Self::Missing,
            errno => Self::Unreadable(io::Error::from(errno).to_string()),
        }
    }
}

impl Root {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())?;
        Ok(Self { dir, kernel_walks: Cell::new(true), unread: RefCell::default() })
    }

    /// The whole ordinary file at `path`, which must not be longer than `limit`.
    pub(crate) fn load(&self, path: &str, limit: u64) -> Result<Vec<u8>, NotRead> {
        read_whole(&self.file(path)?, limit)
    }

    /// [`Root::load`], as text without surrounding space. Bytes that are no text are replaced.
    pub(crate) fn text(&self, path: &str, limit: u64) -> Result<String, NotRead> {
        Ok(as_text(&self.load(path, limit)?))
    }

    /// Up to `limit` bytes of the ordinary file at `path`, or none if it is not there or cannot
    /// be read; the latter is noted.
    pub(crate) fn read(&self, path: &str, limit: u64) -> Option<Vec<u8>> {
        let read = || read_some(&self.file(path)?, limit);
        read().map_err(|why| self.note(path, &why)).ok()
    }

    /// [`Root::read`], as text without surrounding space. Bytes that are no text are replaced.
    pub(crate) fn read_text(&self, path: &str, limit: u64) -> Option<String> {
        Some(as_text(&self.read(path, limit)?))
    }

    /// Whether there is anything at `path`; none where that could not be found out.
    pub(crate) fn exists(&self, path: &str) -> Option<bool> {
        match self.open_at(path, OFlags::PATH) {
            Ok(_) => Some(true),
            Err(errno) => match NotRead::from(errno) {
                NotRead::Missing => Some(false),
                why @ NotRead::Unreadable(_) => {
                    self.note(path, &why);
                    None
                }
            },
        }
    }

    /// The directory at `path`.
    pub(crate) fn dir(&self, path: &str) -> Result<Dir<'_>, NotRead> {
        let fd = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        Ok(Dir { fd, path: path.to_owned(), root: self })
    }

    /// Whether `path` is in a file system that the running kernel makes up itself, and not in a
    /// copy: there, what is missing is what the kernel does not have.
    pub(crate) fn is_proc(&self, path: &str) -> bool {
        let opened = self.open_at(path, OFlags::PATH);
        opened.and_then(rustix::fs::fstatfs).is_ok_and(|fs| fs.f_type == PROC)
    }

    /// What was there and could not be read.
    pub(crate) fn unread(&self) -> Vec<Unread> {
        self.unread.borrow().clone()
    }

    /// Remembers what could not be read.
    pub(crate) fn note(&self, path: &str, why: &NotRead) {
        let NotRead::Unreadable(reason) = why else { return };
        let unread = Unread { path: path.into(), reason: reason.clone() };
        let mut noted = self.unread.borrow_mut();
        if !noted.contains(&unread) {
            noted.push(unread);
        }
    }

    /// Opens the ordinary file at `path`. What it is, is looked at before it is opened: opening
    /// a device may already do something, and opening a pipe may block.
    fn file(&self, path: &str) -> Result<OwnedFd, NotRead> {
        ordinary(&self.open_at(path, OFlags::PATH)?)?;
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY)?;
        ordinary(&file)?;
        Ok(file)
    }

    /// Opens what is at `path`, however links point inside the root.
    fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        if self.kernel_walks.get() {
            // Links such as /proc/1/root lead to other roots: only those made of text count.
            let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
            match rustix::fs::openat2(&self.dir, path, flags, Mode::empty(), resolve) {
                // An old kernel, or one that may not be asked: some sandboxes say EPERM.
                Err(Errno::NOSYS | Errno::PERM) => self.kernel_walks.set(false),
                // Something was renamed meanwhile, and the kernel is not sure.
                Err(Errno::AGAIN) => {}
                result => return result,
            }
        }
        match self.walk(path)? {
            Place::Root => rustix::fs::openat(&self.dir, ".", flags, Mode::empty()),
            Place::Below(parent, name) => {
                let parent = parent.as_ref().map_or_else(|| self.dir.as_fd(), AsFd::as_fd);
                rustix::fs::openat(parent, name.as_str(), flags | OFlags::NOFOLLOW, Mode::empty())
            }
        }
    }

    /// Follows `path` to its last step.
    fn walk(&self, path: &str) -> Result<Place, Errno> {
        let mut above: Vec<(OwnedFd, String)> = Vec::new();
        let mut todo: Vec<String> = steps(path);
        let mut links = 0;
        while let Some(step) = todo.pop() {
            if step == ".." {
                above.pop();
                continue;
            }
            let here = above.last().map_or_else(|| self.dir.as_fd(), |(fd, _)| fd.as_fd());
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
                FileType::Directory => above.push((next, step)),
                _ if todo.is_empty() => {
                    return Ok(Place::Below(above.pop().map(|(fd, _)| fd), step));
                }
                _ => return Err(Errno::NOTDIR),
            }
        }
        // The path ended at a directory.
        match above.pop() {
            Some((_, name)) => Ok(Place::Below(above.pop().map(|(fd, _)| fd), name)),
            None => Ok(Place::Root),
        }
    }
}

/// Where a path leads.
enum Place {
    /// To the root itself.
    Root,
    /// To this name, which is no link, in this directory (none is the root).
    Below(Option<OwnedFd>, String),
}

/// An open directory below a root.
#[derive(Debug)]
pub(crate) struct Dir<'r> {
    fd: OwnedFd,
    path: String,
    root: &'r Root,
}

impl<'r> Dir<'r> {
    /// The names in it, in order. Names that are no text are nobody's.
    pub(crate) fn names(&self) -> Result<Vec<String>, NotRead> {
        self.names_within(MAX_ENTRIES)
    }

    /// [`Dir::names`] of a directory with at most `limit` of them.
    pub(crate) fn names_within(&self, limit: usize) -> Result<Vec<String>, NotRead> {
        let mut names = Vec::new();
        for entry in rustix::fs::Dir::read_from(&self.fd)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            if names.len() == limit {
                let why = format!("there are more than {limit} entries in it");
                return Err(NotRead::Unreadable(why));
            }
            names.push(name.to_owned());
        }
        names.sort_unstable();
        Ok(names)
    }

    /// The ordinary file `name` in it, as text without surrounding space.
    pub(crate) fn text(&self, name: &str) -> Result<String, NotRead> {
        self.text_within(name, VALUE)
    }

    /// [`Dir::text`] of a file that is no longer than `limit`.
    pub(crate) fn text_within(&self, name: &str, limit: u64) -> Result<String, NotRead> {
        let stat = rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW)?;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => {
                let flags = OFlags::RDONLY
                    | OFlags::NOFOLLOW
                    | OFlags::NONBLOCK
                    | OFlags::NOCTTY
                    | OFlags::CLOEXEC;
                let file = rustix::fs::openat(&self.fd, name, flags, Mode::empty())?;
                ordinary(&file)?;
                Ok(as_text(&read_whole(&file, limit)?))
            }
            FileType::Symlink => self.root.text(&self.inside(name), limit),
            _ => Err(NotRead::Unreadable(NOT_ORDINARY.to_owned())),
        }
    }

    /// The ordinary file at `path` below it, no longer than `limit`, through whatever links.
    pub(crate) fn text_behind(&self, path: &str, limit: u64) -> Result<String, NotRead> {
        self.root.text(&self.inside(path), limit)
    }

    /// The directory `name` in it, or where a link of that name points.
    pub(crate) fn dir(&self, name: &str) -> Result<Dir<'r>, NotRead> {
        self.root.dir(&self.inside(name))
    }

    /// Whether there is a `name` in it, if only a link to nowhere.
    pub(crate) fn has(&self, name: &str) -> Result<bool, NotRead> {
        match rustix::fs::statat(&self.fd, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Ok(true),
            Err(errno) => match NotRead::from(errno) {
                NotRead::Missing => Ok(false),
                why @ NotRead::Unreadable(_) => Err(why),
            },
        }
    }

    /// The path of `name` in it.
    pub(crate) fn inside(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }
}

const NOT_ORDINARY: &str = "not an ordinary file";

/// What the kernel calls an invalid argument, though nobody gave one.
const NOT_NOW: &str = "the driver does not tell it now, perhaps because the device is down";

fn ordinary(file: &OwnedFd) -> Result<(), NotRead> {
    let stat = rustix::fs::fstat(file)?;
    if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile {
        Ok(())
    } else {
        Err(NotRead::Unreadable(NOT_ORDINARY.to_owned()))
    }
}

fn read_whole(file: &OwnedFd, limit: u64) -> Result<Vec<u8>, NotRead> {
    let bytes = read_some(file, limit.saturating_add(1))?;
    if bytes.len() as u64 > limit {
        return Err(NotRead::Unreadable(format!("it is longer than {limit} bytes")));
    }
    Ok(bytes)
}

/// Up to `limit` bytes. Sizes are not asked for: those that proc and sysfs tell are made up.
///
/// A driver that has nothing to tell at the moment refuses to (`speed` of a network device that is
/// down). That is no value, and not that there is none: it may be the fastest once it is up.
fn read_some(file: &OwnedFd, limit: u64) -> Result<Vec<u8>, NotRead> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let mut bytes = Vec::new();
    let mut chunk = [0; 8 << 10];
    while bytes.len() < limit {
        let most = chunk.len().min(limit - bytes.len());
        match rustix::io::read(file, &mut chunk[..most]) {
            Ok(0) => break,
            Ok(n) => bytes.extend_from_slice(&chunk[..n]),
            Err(Errno::INTR) => {}
            Err(Errno::INVAL) => return Err(NotRead::Unreadable(NOT_NOW.to_owned())),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(bytes)
}

fn as_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
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

#[cfg(test)]
mod tests;
