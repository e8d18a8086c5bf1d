//! Why no image came of a recipe.

use std::path::PathBuf;

use portolan_registry::ErrorClass;
use portolan_registry::copy::CopyError;
use portolan_registry::durable::DurableError;
use portolan_registry::images::{ImageError, ResolveError};
use portolan_rootdisk::build::{BuildError, SourceError, Trouble};
use portolan_rootdisk::fetch::FetchError;

use super::copying::CopyingError;
use super::layer::LayerError;
use super::tree::TreeError;
use crate::containerfile::ContainerfileError;

/// Why no image came of a recipe.
#[derive(Debug, thiserror::Error)]
pub enum AssembleImageError {
    /// None of the usual names.
    #[error("{dir} has no {}; name one with --dockerfile", super::FILE_NAMES.join(" and no "))]
    NoContainerfile {
        /// Where it should be.
        dir: PathBuf,
    },
    /// A file that was named.
    #[error("there is no {path}")]
    Missing {
        /// Which.
        path: PathBuf,
    },
    /// A file that cannot be read, or is too large.
    #[error("cannot read {path}")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: DurableError,
    },
    /// A file that cannot be read.
    #[error("cannot read {path}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What the Containerfile says.
    #[error("{file}: {source}", file = file.display())]
    Containerfile {
        /// Which.
        file: PathBuf,
        /// Where and what.
        source: ContainerfileError,
    },
    /// What the ignore file says.
    #[error("{path}: {what}", path = path.display())]
    Ignore {
        /// Which.
        path: PathBuf,
        /// Where and what.
        what: String,
    },
    /// A COPY that cannot be done.
    #[error("{file}, line {line}", file = file.display())]
    Copy {
        /// Of which Containerfile.
        file: PathBuf,
        /// Where in it.
        line: usize,
        /// Why.
        #[source]
        source: Box<CopyingError>,
    },
    /// The directory that is built, or a file system of an image.
    #[error("what is copied from or to cannot be used")]
    Context(#[source] Box<CopyingError>),
    /// A base image that cannot be chosen.
    #[error("FROM {reference} for {platform}")]
    Base {
        /// Which.
        reference: String,
        /// For what.
        platform: String,
        /// Why.
        #[source]
        source: Box<ResolveError>,
    },
    /// An image that cannot be opened.
    #[error("{reference} cannot be opened")]
    Read {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// An image that cannot be brought here.
    #[error("{reference} cannot be brought here")]
    Bring {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: Box<CopyError>,
    },
    /// An image that is none.
    #[error("{reference} cannot be built upon")]
    Fetch {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: Box<FetchError>,
    },
    /// An image that runs on the platform and is for another.
    #[error("{reference} has {found} where {platform} was asked for")]
    OtherPlatform {
        /// Which.
        reference: String,
        /// What was asked for.
        platform: String,
        /// What is there.
        found: String,
    },
    /// A configuration that is none.
    #[error("the configuration of {reference} is not a JSON object")]
    Config {
        /// Of which image.
        reference: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
    /// Layers that make no file system.
    #[error("the layers that files are copied from or to make no file system")]
    Disk(#[source] Box<BuildError>),
    /// A layer that cannot be written.
    #[error("a layer cannot be written")]
    Layer(#[source] Box<LayerError>),
    /// A fault of this program.
    #[error("the work on a file system panicked; this is a fault of portolan")]
    Panicked,
}

impl AssembleImageError {
    /// What kind of trouble it is; none when it is no trouble but the answer "no": a base image
    /// has nothing for the platform.
    pub fn class(&self) -> Option<ErrorClass> {
        Some(match self {
            Self::NoContainerfile { .. } | Self::Missing { .. } => ErrorClass::NotFound,
            Self::Containerfile { .. } | Self::Ignore { .. } | Self::Config { .. } => {
                ErrorClass::BadInput
            }
            Self::Copy { source, .. } | Self::Context(source) => match &**source {
                CopyingError::Tree(TreeError::NotFound(_)) => ErrorClass::NotFound,
                CopyingError::Tree(TreeError::Io { .. }) => ErrorClass::Local,
                _ => ErrorClass::BadInput,
            },
            Self::OtherPlatform { .. } => return None,
            Self::Base { source, .. } => return source.class(),
            Self::Read { source, .. } => source.class(),
            Self::Bring { source, .. } => return source.class(),
            Self::Fetch { source, .. } => source.class(),
            Self::Disk(source) => of_disk(source),
            Self::Layer(source) if matches!(**source, LayerError::Whiteout(_)) => {
                ErrorClass::BadInput
            }
            Self::Unreadable { .. } | Self::File { .. } | Self::Layer(_) | Self::Panicked => {
                ErrorClass::Local
            }
        })
    }
}

/// What kind of trouble a disk is: layers that make none are the image's fault, not that of this machine.
fn of_disk(error: &BuildError) -> ErrorClass {
    match (error, error.trouble()) {
        (_, Trouble::Cancelled) => ErrorClass::Local,
        (BuildError::Source { source: SourceError { class, .. }, .. }, _) => *class,
        (_, Trouble::Pull | Trouble::Image) => ErrorClass::BadInput,
        (_, Trouble::DiskFull | Trouble::Local) => ErrorClass::Local,
    }
}
