//! A directory that is written into and never out of.
//!
//! Every name is made relative to an open directory, and every directory is opened without
//! following a link, so neither a link that came from the disk nor one that someone puts there
//! meanwhile can lead elsewhere.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use crate::ext4::read::Inode;
use crate::tree::{Time, Xattr};

/// Until all is in it, a directory is for its owner alone.
const PRIVATE_DIRECTORY: Mode = Mode::RWXU;
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Opens the directory everything goes into, making it if need be.
pub(super) fn open_target(path: &Path) -> io::Result<OwnedFd> {
    match rustix::fs::mkdir(path, PRIVATE_DIRECTORY) {
        Ok(()) | Err(Errno::EXIST) => {}
        Err(error) => return Err(error.into()),
    }
    // The person named it, so here, and only here, a link may be followed.
    let flags = DIRECTORY.difference(OFlags::NOFOLLOW);
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

pub(super) fn is_empty(directory: &OwnedFd) -> io::Result<bool> {
    for entry in rustix::fs::Dir::read_from(directory)? {
        if !matches!(entry?.file_name().to_bytes(), b"." | b"..") {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Opens a directory below the target, through no link.
pub(super) fn open_beneath(target: &OwnedFd, path: &[u8]) -> io::Result<OwnedFd> {
    if path.is_empty() {
        return target.try_clone();
    }
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    match rustix::fs::openat2(target, path, DIRECTORY, Mode::empty(), how) {
        // Kernels before 5.6, and filters that do not know the call.
        Err(Errno::NOSYS | Errno::PERM) => step_by_step(target, path),
        opened => Ok(opened?),
    }
}

fn step_by_step(target: &OwnedFd, path: &[u8]) -> io::Result<OwnedFd> {
    let mut here = target.try_clone()?;
    for name in path.split(|byte| *byte == b'/') {
        if name.is_empty() || name == b".." {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        here = rustix::fs::openat(&here, name, DIRECTORY, Mode::empty())?;
    }
    Ok(here)
}

/// Makes a directory. One that is there already is taken, anything else is in the way.
pub(super) fn make_directory(parent: &OwnedFd, name: &[u8]) -> io::Result<()> {
    match rustix::fs::mkdirat(parent, name, PRIVATE_DIRECTORY) {
        Ok(()) => Ok(()),
        Err(Errno::EXIST) => {
            rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// A new file; one that is there already is in the way.
pub(super) fn make_file(parent: &OwnedFd, name: &[u8]) -> io::Result<File> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = rustix::fs::openat(parent, name, flags, Mode::RUSR | Mode::WUSR)?;
    Ok(File::from(file))
}

/// What attributes are set on: an open file, or a name in an open directory, which is not
/// followed if it is a link.
pub(super) enum Object<'a> {
    Open(BorrowedFd<'a>),
    Name(&'a OwnedFd, &'a [u8]),
}

impl Object<'_> {
    pub(super) fn own(&self, inode: &Inode) -> rustix::io::Result<()> {
        // All ones would mean to leave it as it is.
        if inode.uid == u32::MAX || inode.gid == u32::MAX {
            return Err(Errno::INVAL);
        }
        let (uid, gid) = (Some(Uid::from_raw(inode.uid)), Some(Gid::from_raw(inode.gid)));
        match self {
            Self::Open(file) => rustix::fs::fchown(file, uid, gid),
            Self::Name(parent, name) => {
                rustix::fs::chownat(parent, *name, uid, gid, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }

    pub(super) fn set_xattr(&self, xattr: &Xattr) -> rustix::io::Result<()> {
        let (name, value) = (&*xattr.name, &*xattr.value);
        match self {
            Self::Open(file) => rustix::fs::fsetxattr(file, name, value, XattrFlags::empty()),
            Self::Name(parent, file) => {
                // There is no call that takes a directory and a name.
                let mut path =
                    PathBuf::from(format!("/proc/self/fd/{}", parent.as_fd().as_raw_fd()));
                path.push(std::ffi::OsStr::from_bytes(file));
                rustix::fs::lsetxattr(path, name, value, XattrFlags::empty())
            }
        }
    }

    /// Never called for a link, which has no mode.
    pub(super) fn set_mode(&self, mode: u16) -> rustix::io::Result<()> {
        let mode = Mode::from_raw_mode(u32::from(mode));
        match self {
            Self::Open(file) => rustix::fs::fchmod(file, mode),
            Self::Name(parent, name) => {
                // No call older than Linux 6.6 sets the mode of a name without following it, but
                // a handle on what has the name now can be had, and refuses if that is a link.
                let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let held = rustix::fs::openat(parent, *name, flags, Mode::empty())?;
                rustix::fs::chmod(format!("/proc/self/fd/{}", held.as_raw_fd()), mode)
            }
        }
    }

    pub(super) fn set_times(&self, inode: &Inode) -> rustix::io::Result<()> {
        let timespec =
            |time: Time| Timespec { tv_sec: time.seconds, tv_nsec: time.nanoseconds.into() };
        let times = Timestamps {
            last_access: timespec(inode.accessed),
            last_modification: timespec(inode.modified),
        };
        match self {
            Self::Open(file) => rustix::fs::futimens(file, &times),
            Self::Name(parent, name) => {
                rustix::fs::utimensat(parent, *name, &times, AtFlags::SYMLINK_NOFOLLOW)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    #[test]
    fn the_mode_of_a_name_that_became_a_link_is_not_set_elsewhere() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        std::fs::write(&outside, b"").unwrap();
        std::fs::set_permissions(&outside, std::fs::Permissions::from_mode(0o600)).unwrap();
        let target = open_target(&dir.path().join("target")).unwrap();
        symlink("../outside", dir.path().join("target/pipe")).unwrap();
        assert!(Object::Name(&target, b"pipe").set_mode(0o666).is_err());
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(&outside), 0o600);
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(&target, "real", fifo, Mode::RUSR, 0).unwrap();
        Object::Name(&target, b"real").set_mode(0o640).unwrap();
        assert_eq!(mode(&dir.path().join("target/real")), 0o640);
    }
}
