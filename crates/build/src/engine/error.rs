//! Why a run broke off, and why a platform of it has no image.

use std::path::PathBuf;

use portolan_core::assemble::AssembleError;
use portolan_registry::ErrorClass;
use portolan_registry::copy::CopyError;
use portolan_registry::layout::LayoutError;

use super::backend::BuildError;
use crate::assemble::AssembleImageError;
use crate::source::{PackError, UnpackError};
use crate::steps::{PlatformMismatch, StepError};

/// Why a run did not begin, or broke off as a whole.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    /// There is no room to work in.
    #[error("cannot make a directory in {}", path.display())]
    Staging {
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A name in the source is elsewhere.
    #[error("{} cannot be built from", .0.display())]
    Outside(PathBuf, #[source] std::io::Error),
    /// The recipe cannot be read.
    #[error(transparent)]
    Recipe(#[from] AssembleImageError),
    /// The source cannot be packed.
    #[error("the source artifact cannot be made")]
    Pack(#[source] PackError),
    /// The source artifact cannot be unpacked.
    #[error("the source artifact cannot be unpacked")]
    Unpack(#[source] UnpackError),
    /// Something cannot be pushed.
    #[error("cannot push {image}")]
    Push {
        /// What.
        image: String,
        /// Why.
        #[source]
        source: Box<CopyError>,
    },
    /// The platforms make no index.
    #[error("the images make no index")]
    Index(#[source] AssembleError),
    /// The index cannot be kept.
    #[error("the index cannot be kept")]
    Keep(#[from] LayoutError),
}

impl EngineError {
    /// What kind of trouble it is; none for the answer "no".
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Recipe(source) => source.class(),
            Self::Push { source, .. } => source.class(),
            Self::Pack(source) => Some(source.class()),
            Self::Index(_) | Self::Outside(..) => Some(ErrorClass::BadInput),
            Self::Keep(source) => Some(source.class()),
            Self::Staging { .. } => Some(ErrorClass::Local),
            Self::Unpack(source) => Some(source.class()),
        }
    }
}

/// Why a platform has no image.
#[derive(Debug, thiserror::Error)]
pub(super) enum PlatformError {
    #[error(transparent)]
    Build(#[from] BuildError),
    #[error(transparent)]
    Mismatch(#[from] PlatformMismatch),
    #[error("labels, annotations or the time cannot be put into the image")]
    Change(#[source] StepError),
    #[error("cannot push {image}")]
    Push {
        image: String,
        #[source]
        source: Box<CopyError>,
    },
}

impl PlatformError {
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Mismatch(_) => "PlatformMismatch",
            Self::Build(source) => source.reason(),
            Self::Change(source) => source.reason,
            Self::Push { .. } => "PushFailed",
        }
    }

    pub(super) fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Build(source) => source.class(),
            Self::Mismatch(_) => None,
            Self::Change(_) => Some(ErrorClass::Local),
            Self::Push { source, .. } => source.class(),
        }
    }
}
