//! Why an image was not copied.

use portolan_core::{Digest, media_type};

use super::MAX_REFERRER_DEPTH;
use super::graph::{MAX_DEPTH, MAX_MANIFEST_TOTAL, MAX_MANIFESTS};
use crate::ErrorClass;
use crate::client::ClientError;
use crate::images::{EntryError, ImageError, ResolveError};
use crate::layout::LayoutError;

/// Why an image was not copied. The destination's tag has not moved, and what is there already
/// is whole: the same copy tried again goes on where this one ended.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The image cannot be read.
    #[error("the image to copy cannot be read")]
    Read(#[source] ImageError),
    /// The destination cannot be used.
    #[error("the copy cannot be written")]
    Write(#[source] ImageError),
    /// The platform asked for is not there, or cannot be found out.
    #[error("the platforms to copy cannot be had")]
    Platform(#[source] ResolveError),
    /// A blob did not come over.
    #[error("blob {digest} cannot be copied from {from} to {to}")]
    Blob {
        /// Which.
        digest: Digest,
        /// From where.
        from: String,
        /// To where.
        to: String,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// A blob arrived with other bytes than its digest names.
    #[error(
        "blob {expected} from {from} has digest {actual}: it was damaged or replaced, nothing of it is kept; copy from elsewhere, or have the image pushed again"
    )]
    WrongDigest {
        /// What was asked for.
        expected: Digest,
        /// What came.
        actual: Digest,
        /// From where.
        from: String,
    },
    /// The destination was written with a digest that the image does not have.
    #[error(
        "the destination names {wanted}, but what would be there is {found}; leave the digest out or copy that image"
    )]
    OtherDigest {
        /// After the `@` of the destination.
        wanted: Digest,
        /// Of what would be copied.
        found: Digest,
    },
    /// Indexes in indexes in indexes.
    #[error(
        "{top} nests indexes more than {MAX_DEPTH} deep, which no image needs; ask its author, or name the inner image by its digest"
    )]
    TooDeep {
        /// Where it began.
        top: Digest,
    },
    /// Referrers of referrers of referrers.
    #[error(
        "{subject} has referrers that have referrers and so on, more than {MAX_REFERRER_DEPTH} deep; copy without referrers and attach those you need"
    )]
    ReferrersTooDeep {
        /// One of the last that were followed.
        subject: Digest,
    },
    /// More manifests than an image has.
    #[error(
        "the image has {found} indexes and manifests or more, at most {MAX_MANIFESTS} are copied at once; narrow it to the platforms you need"
    )]
    TooMany {
        /// How many were counted.
        found: usize,
    },
    /// More bytes of manifests than an image has.
    #[error(
        "with {digest} the indexes and manifests of the image exceed {MAX_MANIFEST_TOTAL} bytes; narrow it to the platforms you need"
    )]
    ManifestsTooLarge {
        /// The one that was too much.
        digest: Digest,
    },
    /// Two documents give one digest two sizes; one of them lies.
    #[error(
        "{digest} is said to have {first} bytes and also {second}; the image is damaged or forged"
    )]
    TwoSizes {
        /// Of what.
        digest: Digest,
        /// As one says.
        first: u64,
        /// As the other says, or as it is.
        second: u64,
    },
    /// An index lists something that is no manifest.
    #[error("the index lists {digest} as {media_type:?}, which is not an image index or manifest ({}); it cannot be copied", media_type::ACCEPTED.join(", "))]
    EntryType {
        /// The entry.
        digest: Digest,
        /// As listed.
        media_type: String,
    },
    /// An index and its entry disagree.
    #[error(transparent)]
    Entry(#[from] EntryError),
}

impl CopyError {
    /// What kind of trouble it is; none when it is no trouble but the answer "no": the image has
    /// nothing for a platform asked for.
    pub fn class(&self) -> Option<ErrorClass> {
        match self {
            Self::Read(source) | Self::Write(source) | Self::Blob { source, .. } => {
                Some(source.class())
            }
            Self::Platform(source) => source.class(),
            Self::WrongDigest { .. }
            | Self::OtherDigest { .. }
            | Self::TooDeep { .. }
            | Self::TooMany { .. }
            | Self::ManifestsTooLarge { .. }
            | Self::TwoSizes { .. }
            | Self::EntryType { .. }
            | Self::Entry(_)
            | Self::ReferrersTooDeep { .. } => Some(ErrorClass::BadInput),
        }
    }
}

impl From<ClientError> for CopyError {
    fn from(source: ClientError) -> Self {
        Self::Write(source.into())
    }
}

impl From<LayoutError> for CopyError {
    fn from(source: LayoutError) -> Self {
        Self::Write(source.into())
    }
}
