//! Why a disk was not built.

use std::io;
use std::path::{Path, PathBuf};

use portolan_core::Digest;
use portolan_registry::ErrorClass;
use portolan_registry::durable::is_full;

use super::SourceError;
use crate::codec::CodecError;
use crate::merge::MergeError;
use crate::tar::TarError;
use crate::verity::VerityError;
use crate::{ext4, region};

/// Why a disk was not built. Nothing is left of it then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A blob could not be fetched, or is not what its digest says.
    #[error("layer {layer} ({digest}) did not come")]
    Source {
        /// Counted from the bottom, from 0.
        layer: usize,
        /// Its blob.
        digest: Digest,
        /// Why.
        #[source]
        source: SourceError,
    },
    /// A layer's tar is not the one that the config names.
    #[error(
        "layer {layer} unpacks to {actual}, but the image's config says {expected}; the image is damaged or forged"
    )]
    DiffIdMismatch {
        /// Counted from the bottom, from 0.
        layer: usize,
        /// As the config says.
        expected: Digest,
        /// As it is.
        actual: Digest,
    },
    /// A layer cannot be unpacked.
    #[error("layer {layer} cannot be unpacked")]
    Unpack {
        /// Counted from the bottom, from 0.
        layer: usize,
        /// Why.
        #[source]
        source: CodecError,
    },
    /// A layer is no tar that can be read.
    #[error("layer {layer} cannot be read")]
    Tar {
        /// Counted from the bottom, from 0.
        layer: usize,
        /// Why.
        #[source]
        source: TarError,
    },
    /// A file that ext4 has no numbers for.
    #[error("layer {layer} has a file of {size} bytes; ext4 ends before 16 TiB")]
    FileTooLarge {
        /// Counted from the bottom, from 0.
        layer: usize,
        /// As the tar says.
        size: u64,
    },
    /// Data that do not follow each other.
    #[error("layer {layer} has data from byte {offset} to {end} of a file of {size} bytes")]
    Disorder {
        /// Counted from the bottom, from 0.
        layer: usize,
        /// Where they begin.
        offset: u64,
        /// Where they end.
        end: u64,
        /// Of the file.
        size: u64,
    },
    /// A layer does not go on top of those below.
    #[error("the layers cannot be merged")]
    Merge {
        /// Why.
        #[source]
        source: MergeError,
    },
    /// The merged tree is none that ext4 can hold.
    #[error("the image's files do not make a file system")]
    Filesystem {
        /// Why.
        #[source]
        source: ext4::WriteError,
    },
    /// There is no hash tree for such a disk.
    #[error("the hash tree cannot be made")]
    Verity {
        /// Why.
        #[source]
        source: VerityError,
    },
    /// The disk would be larger than it may be, holes included.
    #[error("the image does not fit")]
    TooLarge(#[from] region::TooLarge),
    /// The image holds more data than a disk may take.
    #[error("the image has more than {max} bytes of files; raise `max_allocated_bytes`")]
    TooMuchData {
        /// The limit.
        max: u64,
    },
    /// The file system that the disk is written to is full.
    #[error("no space left for {}; free some, or build elsewhere", path.display())]
    DiskFull {
        /// The disk.
        path: PathBuf,
        /// As the system said it.
        #[source]
        source: io::Error,
    },
    /// The file could not be made, written or flushed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was tried.
        step: &'static str,
        /// The disk.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Somebody gave it up.
    #[error("the build was cancelled")]
    Cancelled,
}

impl From<MergeError> for BuildError {
    fn from(source: MergeError) -> Self {
        match source {
            MergeError::Cancelled => Self::Cancelled,
            source => Self::Merge { source },
        }
    }
}

/// Whose trouble it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Trouble {
    /// The image did not come, or is not what its digests say.
    Pull,
    /// The image came, but no disk can be made of it.
    Image,
    /// This machine has no room.
    DiskFull,
    /// This machine failed otherwise.
    Local,
    /// None: it was given up on request.
    Cancelled,
}

impl BuildError {
    /// Whose trouble it is.
    pub fn trouble(&self) -> Trouble {
        match self {
            Self::Source { source, .. } if source.cancelled => Trouble::Cancelled,
            Self::Source { source, .. } if source.full => Trouble::DiskFull,
            Self::Source { source, .. } if source.class == ErrorClass::Local => Trouble::Local,
            Self::Source { .. } | Self::DiffIdMismatch { .. } => Trouble::Pull,
            Self::Unpack { .. }
            | Self::Tar { .. }
            | Self::FileTooLarge { .. }
            | Self::Disorder { .. }
            | Self::Merge { .. }
            | Self::Filesystem { .. }
            | Self::Verity { .. }
            | Self::TooLarge(_)
            | Self::TooMuchData { .. } => Trouble::Image,
            Self::DiskFull { .. } => Trouble::DiskFull,
            Self::Io { .. } => Trouble::Local,
            Self::Cancelled => Trouble::Cancelled,
        }
    }

    /// A full disk, or another failure of a step on a file.
    pub fn io(step: &'static str, path: &Path, source: io::Error) -> Self {
        let full = is_full(&source);
        let path = path.to_owned();
        if full { Self::DiskFull { path, source } } else { Self::Io { step, path, source } }
    }
}
