//! Everything attached to a subject, fetched within bounds, unjudged.
//!
//! | where | what |
//! |---|---|
//! | the list of referrers, the registry's and the one under a tag | whatever its layers are: types in the list are not relied on |
//! | the tag `sha256-….sig` | signatures of cosign 2 |
//! | the tag `sha256-….att` | attestations of cosign 2 |
//!
//! Whoever has to wait for it may look at one of the two first ([`Collector`]), and at the other only
//! if that was not enough.
//!
//! That nothing is there and that it cannot be had are two things: the second is an error. What is
//! there but cannot be used is [passed over](PassedOver) with the reason, and never counts.

mod collector;
mod layers;
mod sought;
mod source;

use portolan_core::Digest;
use portolan_registry::ErrorClass;
use portolan_registry::images::ImageError;
use serde::Serialize;

use crate::evidence::Evidence;
use crate::subject::Subject;

pub use collector::Collector;
pub use layers::Use;
pub(crate) use layers::{CYCLONEDX, SARIF, SPDX};
pub use sought::{Carriers, Sought};
pub use source::Source;

/// How much is looked at for one subject.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Artifacts that refer to it.
    pub referrers: usize,
    /// Signatures, attestations and documents in all of them, with what is passed over.
    pub pieces: usize,
    /// Bytes of one of these. What is larger is passed over where more can only help, else an error.
    pub blob: u64,
    /// Bytes of all together, with the manifests that they came in.
    pub total: u64,
    /// Requests at the same time.
    pub concurrency: usize,
}

/// Requests for one subject at the same time.
pub const CONCURRENCY: usize = 4;

impl Default for Limits {
    fn default() -> Self {
        Self {
            referrers: 64,
            pieces: 128,
            blob: 4 * 1024 * 1024,
            total: 32 * 1024 * 1024,
            concurrency: CONCURRENCY,
        }
    }
}

/// What was found for a subject.
#[derive(Debug, Clone, Default)]
pub struct Collected {
    /// To be judged.
    pub evidence: Vec<Evidence>,
    /// What was there and is not evidence that can be judged.
    pub passed_over: Vec<PassedOver>,
}

/// An artifact, or a layer of one, that does not count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct PassedOver {
    /// The artifact.
    pub artifact: Digest,
    /// Why.
    pub why: String,
}

/// Why it is not known what is attached to a subject.
#[derive(Debug, thiserror::Error)]
pub enum CollectError {
    /// Nobody says what refers to it.
    #[error("cannot list what refers to {subject}")]
    List {
        /// Whose list.
        subject: Digest,
        /// The cause.
        #[source]
        source: Box<ImageError>,
    },
    /// Something that is listed cannot be had.
    #[error("cannot read {what}, which is attached to {subject}")]
    Read {
        /// Of whom.
        subject: Digest,
        /// The artifact or blob.
        what: String,
        /// The cause.
        #[source]
        source: Box<ImageError>,
    },
    /// More than anybody looks at. Looking at a part would let the rest be hidden behind it.
    #[error(
        "{subject} has {found} {what} attached, more than the {limit} that are looked at; delete those that are out of date"
    )]
    TooMuch {
        /// Of whom.
        subject: Digest,
        /// Artifacts, pieces or bytes.
        what: &'static str,
        /// How many.
        found: u64,
        /// The bound.
        limit: u64,
    },
    /// One piece is more than anybody reads, and what it says may be what matters.
    #[error(
        "{layer}, which is attached to {subject}, has {size} bytes, more than the {limit} that are read of one \
         document, and the policy has to see all of them; delete it if it is out of date, or raise the bound \
         (limits.document_bytes of the verifier, --document-bytes of `verify image`)"
    )]
    TooLarge {
        /// Of whom.
        subject: Digest,
        /// What.
        layer: Digest,
        /// Its bytes.
        size: u64,
        /// The bound.
        limit: u64,
    },
}

impl CollectError {
    /// What kind of trouble it is. That something listed is gone is the registry's trouble: the
    /// image itself was found.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::List { source, .. } | Self::Read { source, .. } => match source.class() {
                ErrorClass::NotFound => ErrorClass::Transport,
                class => class,
            },
            Self::TooMuch { .. } | Self::TooLarge { .. } => ErrorClass::BadInput,
        }
    }
}

/// Finds everything that is `sought` and attached to `subject`.
pub async fn collect(
    source: &dyn Source,
    subject: &Subject,
    sought: Sought,
    limits: &Limits,
) -> Result<Collected, CollectError> {
    Collector::new(source, subject.descriptor.digest, sought, limits).look(Carriers::ALL).await
}
