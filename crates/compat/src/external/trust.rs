//! Whether a file or directory can have been written only by root or by whoever calls us.

use std::fmt;
use std::os::fd::AsFd;

use rustix::fs::{FileType, Mode};

/// Why a file is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distrust {
    /// A link, a pipe, a device, or a directory where a file should be.
    Kind(&'static str),
    /// Somebody else's.
    Owner {
        /// Whose.
        owner: u32,
        /// Who asks.
        caller: u32,
    },
    /// Others may write to it.
    Writable {
        /// Its permissions.
        mode: u32,
    },
}

impl fmt::Display for Distrust {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kind(wanted) => write!(f, "it is not {wanted}"),
            Self::Owner { owner, caller: 0 } => {
                write!(f, "it belongs to user {owner}, not to root")
            }
            Self::Owner { owner, caller } => {
                write!(f, "it belongs to user {owner}, neither to root nor to user {caller}")
            }
            Self::Writable { mode } => {
                write!(f, "others may write to it (mode {mode:04o}); remove that with chmod go-w")
            }
        }
    }
}

impl std::error::Error for Distrust {}

/// What is being looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Directory,
}

/// The pure part: from owner and mode to a judgement.
pub(super) fn judge(mode: u32, owner: u32, caller: u32, kind: Kind) -> Result<(), Distrust> {
    let found = FileType::from_raw_mode(mode);
    match kind {
        Kind::File if found != FileType::RegularFile => Err(Distrust::Kind("a regular file")),
        Kind::Directory if found != FileType::Directory => Err(Distrust::Kind("a directory")),
        _ if owner != 0 && owner != caller => Err(Distrust::Owner { owner, caller }),
        _ if mode & (Mode::WGRP | Mode::WOTH).bits() != 0 => {
            Err(Distrust::Writable { mode: mode & 0o7777 })
        }
        _ => Ok(()),
    }
}

/// Looks at what is open, so that nothing can be put in its place meanwhile. The outer error is
/// the system's.
pub(super) fn check(
    file: impl AsFd,
    kind: Kind,
) -> Result<Result<(), Distrust>, rustix::io::Errno> {
    let stat = rustix::fs::fstat(file)?;
    let caller = rustix::process::geteuid().as_raw();
    Ok(judge(stat.st_mode, stat.st_uid, caller, kind))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_caller_are_believed_and_nobody_else_may_write() {
        const FILE: u32 = 0o100_000;
        const DIR: u32 = 0o040_000;
        const LINK: u32 = 0o120_000;
        for (mode, owner, caller, kind, good) in [
            (FILE | 0o644, 0, 0, Kind::File, true),
            (FILE | 0o644, 0, 1000, Kind::File, true),
            (FILE | 0o755, 1000, 1000, Kind::File, true),
            (FILE | 0o755, 1000, 0, Kind::File, false),
            (FILE | 0o755, 1001, 1000, Kind::File, false),
            (FILE | 0o664, 0, 0, Kind::File, false),
            (FILE | 0o646, 0, 0, Kind::File, false),
            (DIR | 0o755, 0, 0, Kind::File, false),
            (DIR | 0o755, 0, 0, Kind::Directory, true),
            (DIR | 0o1777, 0, 0, Kind::Directory, false),
            (LINK | 0o777, 0, 0, Kind::File, false),
        ] {
            assert_eq!(judge(mode, owner, caller, kind).is_ok(), good, "{mode:o} {owner} {caller}");
        }
    }
}
