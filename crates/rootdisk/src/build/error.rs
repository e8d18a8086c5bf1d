//! Why a disk was not built.

use std::io;
use std::path::{Path, PathBuf};

use portolan_core::Digest;
use portolan_registry::durable::is_full;

use super::SourceError;
use crate::region;

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
    /// The disk would be larger than it may be, holes included.
    #[error("the image does not fit")]
    TooLarge(#[from] region::TooLarge),
    /// The image holds more data than a disk may take.
    #[error("the image has more than {max} bytes of files; raise the limit of the allocated size")]
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
            Self::Source { .. } | Self::DiffIdMismatch { .. } => Trouble::Pull,
            Self::TooLarge(_) | Self::TooMuchData { .. } => Trouble::Image,
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
