//! Why nothing was signed.

use portolan_core::Digest;
use portolan_registry::ErrorClass;
use portolan_registry::images::{EntryError, ImageError, Place};

use super::MAX_SUBJECTS;
use crate::key::PrivateKeyError;

/// Why an image was not signed, or not in full.
#[derive(Debug, thiserror::Error)]
pub enum SignError {
    /// What is to be signed, or what was signed before, cannot be read.
    #[error("cannot look at {what} in {place}")]
    Read {
        /// Of the manifest, index or artifact.
        what: String,
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
    /// The signature cannot be stored.
    #[error("cannot store the signature for {subject} in {place}")]
    Store {
        /// What was signed.
        subject: Digest,
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
    /// The key does not sign.
    #[error("the key does not sign")]
    Key(#[source] PrivateKeyError),
    /// An index and its entry disagree.
    #[error(transparent)]
    Entry(#[from] EntryError),
    /// The tag for signatures is something else.
    #[error(
        "{tag} in {place} is an index and not a manifest of signatures; delete it, or sign with --form bundle"
    )]
    TakenTag {
        /// The tag.
        tag: String,
        /// Where.
        place: String,
    },
    /// More than any image has.
    #[error(
        "{digest} lists more than {MAX_SUBJECTS} manifests, or indexes in indexes in indexes; sign parts of it by digest"
    )]
    TooMany {
        /// The index.
        digest: Digest,
    },
}

impl SignError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read { source, .. } | Self::Store { source, .. } => source.class(),
            Self::Key(_) => ErrorClass::Local,
            Self::Entry(_) | Self::TakenTag { .. } | Self::TooMany { .. } => ErrorClass::BadInput,
        }
    }

    pub(super) fn read(what: impl ToString, place: &Place, source: ImageError) -> Self {
        let (what, place) = (what.to_string(), place.to_string());
        Self::Read { what, place, source: Box::new(source) }
    }

    pub(super) fn store(subject: &Digest, place: &Place, source: ImageError) -> Self {
        Self::Store { subject: *subject, place: place.to_string(), source: Box::new(source) }
    }
}
