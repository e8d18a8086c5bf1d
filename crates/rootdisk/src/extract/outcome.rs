//! How an extraction ended.

use std::io;
use std::path::PathBuf;

use portolan_registry::ErrorClass;
use serde::Serialize;

use crate::ext4::read::ReadError;

/// How many of the things that were left out are named.
const EXAMPLES: usize = 10;

/// What was written, and what was not.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Directories, the target not counted.
    pub directories: u64,
    /// Regular files.
    pub files: u64,
    /// Further names of what was written already.
    pub hard_links: u64,
    /// Symbolic links.
    pub symlinks: u64,
    /// Devices, pipes and sockets.
    pub special: u64,
    /// Bytes of content; holes are not counted.
    pub bytes: u64,
    /// What is not as it is on the disk.
    pub skipped: Skipped,
}

/// What is not as it is on the disk.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    /// Files whose owner or group could not be set.
    pub owners: u64,
    /// Files without their setuid or setgid bit: only root, setting owners, sets them.
    pub set_id_bits: u64,
    /// Devices that could not be made.
    pub devices: u64,
    /// Attributes that could not be set.
    pub xattrs: u64,
    /// The first few, as path and what.
    pub examples: Vec<String>,
}

impl Skipped {
    /// Whether all is as it is on the disk.
    pub fn is_nothing(&self) -> bool {
        self.owners + self.set_id_bits + self.devices + self.xattrs == 0
    }

    pub(super) fn note(&mut self, path: &[u8], what: &str) {
        if self.examples.len() < EXAMPLES {
            self.examples.push(format!("{}: {what}", String::from_utf8_lossy(path)));
        }
    }
}

/// Why a tree could not be extracted. What was written before stays.
#[derive(Debug, thiserror::Error)]
pub enum ExtractError {
    /// The disk cannot be read.
    #[error("cannot take {} from the disk", shown(path))]
    Read {
        /// Where on the disk.
        path: String,
        /// Why not.
        source: ReadError,
    },
    /// The directory cannot be made or opened.
    #[error("cannot write into {}", path.display())]
    Target {
        /// The directory.
        path: PathBuf,
        /// Why not.
        source: io::Error,
    },
    /// There is something in it.
    #[error("{} is not empty; take another directory, or allow it with --force", path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
    /// A step failed.
    #[error("cannot {step} {path}")]
    Write {
        /// What was done.
        step: &'static str,
        /// Below the target.
        path: String,
        /// Why not.
        source: io::Error,
    },
    /// The disk claims more content than it can have.
    #[error(
        "the files have more than {limit} bytes together; the disk uses blocks twice, try e2fsck on a copy"
    )]
    TooLarge {
        /// Bytes allowed.
        limit: u64,
    },
}

fn shown(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

impl ExtractError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read { source, .. } => source.class(),
            Self::NotEmpty { .. } | Self::TooLarge { .. } => ErrorClass::BadInput,
            Self::Target { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                ErrorClass::NotFound
            }
            Self::Target { .. } | Self::Write { .. } => ErrorClass::Local,
        }
    }
}
