//! Why an image could not be read, written or chosen.

use portolan_core::Digest;
use portolan_core::manifest::{ParseConfigError, ParseManifestError};
use portolan_core::select::NoMatch;

use super::EntryError;
use crate::ErrorClass;
use crate::client::ClientError;
use crate::layout::LayoutError;

/// Why a place did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ImageError {
    /// Of a registry.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// Of a layout.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// A layout holds something under a manifest's name that is none.
    #[error(
        "{digest} in {place} is not a manifest or index; the layout was written by something that does not check, copy the image again"
    )]
    Document {
        /// The layout.
        place: String,
        /// The content.
        digest: Digest,
        /// What is wrong with it.
        #[source]
        source: ParseManifestError,
    },
    /// A blob that should be small is not.
    #[error("blob {digest} has {size} bytes, at most {limit} are read into memory here")]
    TooLarge {
        /// The blob.
        digest: Digest,
        /// As its descriptor says.
        size: u64,
        /// The bound.
        limit: u64,
    },
}

impl ImageError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Client(error) => error.class(),
            Self::Layout(error) => error.class(),
            Self::Document { .. } | Self::TooLarge { .. } => ErrorClass::BadInput,
        }
    }
}

/// Why no manifest was chosen.
#[derive(Debug, thiserror::Error)]
pub enum ResolveError {
    /// Something that had to be looked at cannot be read.
    #[error("the image cannot be read")]
    Read(#[source] ImageError),
    /// Nothing in the image runs there. A refusal, not a breakdown.
    #[error("nothing in {digest} fits")]
    NoMatch {
        /// The index or manifest.
        digest: Digest,
        /// What was asked for, what there was, and why each entry lost.
        #[source]
        refusal: Box<NoMatch>,
    },
    /// An image config that cannot be read as one.
    #[error("the config {digest} does not tell a platform; the image is damaged, push it again")]
    Config {
        /// The config.
        digest: Digest,
        /// What is wrong with it.
        #[source]
        source: ParseConfigError,
    },
    /// An index and its entry disagree.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

impl ResolveError {
    /// What kind of trouble it is; none when it is no trouble but the answer "no".
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Read(source) => Some(source.class()),
            Self::NoMatch { .. } => None,
            Self::Config { .. } | Self::Entry(_) => Some(ErrorClass::BadInput),
        }
    }
}
