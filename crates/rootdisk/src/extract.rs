//! A disk's tree to a directory: the way back, for people and for tests.
//!
//! Nothing is ever written outside the directory (see `place`). Modes, times, hard links, holes and
//! what attributes may be set are kept. What this user or this file system may not set (owners,
//! devices, capabilities) is counted in the [`Report`], never passed over in silence.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::Path;

use rustix::fs::{AtFlags, FileType, Mode};
use rustix::io::Errno;

pub use self::outcome::{ExtractError, Report, Skipped};
use self::place::Object;
use crate::ext4::read::{Budget, FileKind, Filesystem, Follow, Inode, ReadAt, ReadError};

mod outcome;
mod place;

/// How to extract.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only this file or directory, which gets its own name in the target; links on the way to it
    /// are followed inside the disk.
    pub path: Option<Vec<u8>>,
    /// Write into a directory that has something in it; what is there is never replaced.
    pub into_non_empty: bool,
    /// Leave the target itself as it is: it may be somebody else's, who lets us write into it.
    pub keep_target: bool,
    /// Set owners and the bits that lend them (setuid, setgid), make devices and set attributes
    /// other than `user.*` and ACLs.
    pub privileged: bool,
    /// Bytes of content to write at most; without it as many as the disk has, since no sound disk
    /// holds more.
    pub max_bytes: Option<u64>,
}

impl Default for Options {
    /// All of it into an empty directory, and what only root may do if this is root.
    fn default() -> Self {
        Self {
            path: None,
            into_non_empty: false,
            keep_target: false,
            privileged: rustix::process::geteuid().is_root(),
            max_bytes: None,
        }
    }
}

/// Writes a disk's tree, or a part of it, to a directory, which is made if it is not there.
///
/// The directory itself becomes the disk's root, with its mode and times.
pub fn extract<R: ReadAt>(
    fs: &Filesystem<R>,
    target: &Path,
    options: &Options,
) -> Result<Report, ExtractError> {
    let (start, name) = start(fs, options)?;
    let trouble = |source| ExtractError::Target { path: target.to_owned(), source };
    let root = place::open_target(target).map_err(trouble)?;
    if !options.into_non_empty && !place::is_empty(&root).map_err(trouble)? {
        return Err(ExtractError::NotEmpty { path: target.to_owned() });
    }
    let limit = options.max_bytes.unwrap_or_else(|| fs.readable_bytes());
    let mut work = Work {
        fs,
        root,
        privileged: options.privileged,
        limit,
        budget: fs.budget(),
        report: Report::default(),
        first_names: HashMap::new(),
        directories: Vec::new(),
        parent: None,
    };
    match &name {
        Some(name) => work.put(name, &start)?,
        None if options.keep_target => {}
        None => work.directories.push((Vec::new(), start.number)),
    }
    if start.kind == FileKind::Directory {
        let walk = fs.walk(&start).map_err(reading(b""))?;
        for entry in walk {
            let entry = entry.map_err(reading(name.as_deref().unwrap_or_default()))?;
            match &name {
                Some(name) => work.put(&[name, &b"/"[..], &entry.path].concat(), &entry.inode)?,
                None => work.put(&entry.path, &entry.inode)?,
            }
        }
    }
    work.finish()
}

/// Where to begin, and what it is called in the target if it is not the root.
fn start<R: ReadAt>(
    fs: &Filesystem<R>,
    options: &Options,
) -> Result<(Inode, Option<Vec<u8>>), ExtractError> {
    let path = options.path.as_deref().unwrap_or_default();
    let inode = fs.find(path, Follow::Parents).map_err(reading(path))?;
    let root = fs.root().map_err(reading(b""))?;
    if inode.number == root.number {
        return Ok((inode, None));
    }
    let mut names =
        path.split(|byte| *byte == b'/').filter(|name| !name.is_empty() && name != b".");
    match names.next_back() {
        Some(name) if name != b".." => Ok((inode, Some(name.to_vec()))),
        // A way back up has no name of its own to give.
        _ => Err(reading(path)(ReadError::NotFound { path: text(path) })),
    }
}

fn reading(path: &[u8]) -> impl FnOnce(ReadError) -> ExtractError {
    let path = text(path);
    move |source| ExtractError::Read { path, source }
}

fn writing(step: &'static str, path: &[u8]) -> impl FnOnce(io::Error) -> ExtractError {
    let path = text(path);
    move |source| ExtractError::Write { step, path, source }
}

fn text(path: &[u8]) -> String {
    String::from_utf8_lossy(path).into_owned()
}

/// The directory of a path, empty for the target itself, and the last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// What another user, or a file system without attributes, is told.
fn not_allowed(error: Errno) -> bool {
    matches!(
        error,
        Errno::PERM | Errno::ACCESS | Errno::INVAL | Errno::NOTSUP | Errno::NOSYS | Errno::NOENT
    )
}

struct Work<'a, R> {
    fs: &'a Filesystem<R>,
    root: OwnedFd,
    privileged: bool,
    limit: u64,
    /// Every block has one owner: all files together take no more of the disk than there is.
    budget: Budget,
    report: Report,
    /// Where an inode with several names was written first.
    first_names: HashMap<u32, Vec<u8>>,
    /// Their modes and times are set last, when nothing more goes into them.
    directories: Vec<(Vec<u8>, u32)>,
    /// The directory in hand: all names of one directory come in a row.
    parent: Option<(Vec<u8>, OwnedFd)>,
}

impl<R: ReadAt> Work<'_, R> {
    fn put(&mut self, path: &[u8], inode: &Inode) -> Result<(), ExtractError> {
        let (directory, name) = split(path);
        let parent = match self.parent.take() {
            Some((open, parent)) if open == directory => parent,
            _ => place::open_beneath(&self.root, directory)
                .map_err(writing("open the directory", directory))?,
        };
        let done = self.put_in(&parent, name, path, inode);
        self.parent = Some((directory.to_vec(), parent));
        done
    }

    fn put_in(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
    ) -> Result<(), ExtractError> {
        if inode.kind == FileKind::Directory {
            place::make_directory(parent, name).map_err(writing("make the directory", path))?;
            self.directories.push((path.to_vec(), inode.number));
            self.report.directories += 1;
            return Ok(());
        }
        if let Some(first) = self.first_names.get(&inode.number) {
            let (directory, first_name) = split(first);
            let other = place::open_beneath(&self.root, directory)
                .map_err(writing("open the directory", directory))?;
            rustix::fs::linkat(&other, first_name, parent, name, AtFlags::empty())
                .map_err(io::Error::from)
                .map_err(writing("link", path))?;
            self.report.hard_links += 1;
            return Ok(());
        }
        let written = match inode.kind {
            FileKind::File => self.file(parent, name, path, inode)?,
            FileKind::Symlink => self.symlink(parent, name, path, inode)?,
            _ => self.special(parent, name, path, inode)?,
        };
        if written && inode.links > 1 {
            self.first_names.insert(inode.number, path.to_vec());
        }
        Ok(())
    }

    fn file(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
    ) -> Result<bool, ExtractError> {
        let file = place::make_file(parent, name).map_err(writing("make the file", path))?;
        self.content(&file, path, inode)?;
        self.report.files += 1;
        self.attributes(&Object::Open(file.as_fd()), path, inode)?;
        Ok(true)
    }

    fn content(&mut self, file: &File, path: &[u8], inode: &Inode) -> Result<(), ExtractError> {
        let (limit, bytes, budget) = (self.limit, &mut self.report.bytes, &mut self.budget);
        let mut too_large = false;
        let read = self.fs.read_file_within(inode, 0..inode.size, budget, &mut |offset, data| {
            *bytes += data.len() as u64;
            too_large = *bytes > limit;
            if too_large {
                return Err(io::ErrorKind::FileTooLarge.into());
            }
            file.write_all_at(data, offset)
        });
        if too_large {
            return Err(ExtractError::TooLarge { limit });
        }
        read.map_err(reading(path))?;
        // What was not written is a hole, the end included.
        file.set_len(inode.size).map_err(writing("set the size of", path))
    }

    fn symlink(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
    ) -> Result<bool, ExtractError> {
        let target = self.fs.read_link(inode).map_err(reading(path))?;
        rustix::fs::symlinkat(target, parent, name)
            .map_err(io::Error::from)
            .map_err(writing("make the link", path))?;
        self.report.symlinks += 1;
        self.attributes(&Object::Name(parent, name), path, inode)?;
        Ok(true)
    }

    fn special(
        &mut self,
        parent: &OwnedFd,
        name: &[u8],
        path: &[u8],
        inode: &Inode,
    ) -> Result<bool, ExtractError> {
        let kind = match inode.kind {
            FileKind::CharDevice => FileType::CharacterDevice,
            FileKind::BlockDevice => FileType::BlockDevice,
            FileKind::Socket => FileType::Socket,
            _ => FileType::Fifo,
        };
        let device = inode.device.map(|device| rustix::fs::makedev(device.major, device.minor));
        let made = match device {
            Some(_) if !self.privileged => Err(Errno::PERM),
            _ => rustix::fs::mknodat(parent, name, kind, Mode::RUSR, device.unwrap_or(0)),
        };
        match made {
            Err(error) if device.is_some() && not_allowed(error) => {
                self.report.skipped.devices += 1;
                self.report.skipped.note(path, "device");
                Ok(false)
            }
            made => {
                made.map_err(io::Error::from).map_err(writing("make", path))?;
                self.report.special += 1;
                self.attributes(&Object::Name(parent, name), path, inode)?;
                Ok(true)
            }
        }
    }

    /// Owner first, for changing it takes away setuid bits and capabilities; times last.
    fn attributes(
        &mut self,
        object: &Object<'_>,
        path: &[u8],
        inode: &Inode,
    ) -> Result<(), ExtractError> {
        let owned = self.own(object, path, inode)?;
        for xattr in self.fs.xattrs(inode).map_err(reading(path))? {
            let anyones = xattr.name.starts_with(b"user.") || xattr.name.starts_with(b"system.");
            let set = if anyones || self.privileged {
                object.set_xattr(&xattr)
            } else {
                Err(Errno::PERM)
            };
            match set {
                Err(error) if not_allowed(error) => {
                    self.report.skipped.xattrs += 1;
                    self.report.skipped.note(path, &String::from_utf8_lossy(&xattr.name));
                }
                set => {
                    set.map_err(io::Error::from).map_err(writing("set an attribute of", path))?
                }
            }
        }
        if inode.kind != FileKind::Symlink {
            // A program of a stranger's disk never runs as somebody because it was looked at:
            // only root, who asked for owners, gets these bits.
            let trusted = owned && self.privileged;
            let mode = if trusted { inode.mode } else { inode.mode & 0o1777 };
            if mode != inode.mode {
                self.report.skipped.set_id_bits += 1;
                self.report.skipped.note(path, "setuid or setgid");
            }
            object
                .set_mode(mode)
                .map_err(io::Error::from)
                .map_err(writing("set the mode of", path))?;
        }
        object.set_times(inode).map_err(io::Error::from).map_err(writing("set the times of", path))
    }

    fn own(
        &mut self,
        object: &Object<'_>,
        path: &[u8],
        inode: &Inode,
    ) -> Result<bool, ExtractError> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let set = if self.privileged {
            object.own(inode)
        } else if (uid.as_raw(), gid.as_raw()) == (inode.uid, inode.gid) {
            Ok(())
        } else {
            Err(Errno::PERM)
        };
        match set {
            Err(error) if not_allowed(error) => {
                self.report.skipped.owners += 1;
                self.report.skipped.note(path, "owner");
                Ok(false)
            }
            set => set
                .map(|()| true)
                .map_err(io::Error::from)
                .map_err(writing("set the owner of", path)),
        }
    }

    /// Children before parents: a parent may get a mode that lets nobody in.
    fn finish(mut self) -> Result<Report, ExtractError> {
        while let Some((path, number)) = self.directories.pop() {
            let inode = self.fs.inode(number).map_err(reading(&path))?;
            let directory = place::open_beneath(&self.root, &path)
                .map_err(writing("open the directory", &path))?;
            self.attributes(&Object::Open(directory.as_fd()), &path, &inode)?;
        }
        Ok(self.report)
    }
}
