//! What a signature speaks of: always a digest.

use portolan_core::{Descriptor, Platform};

/// What a subject is in the image that it belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A list of manifests for platforms.
    Index,
    /// One image.
    Manifest,
}

/// One thing that has to be signed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Subject {
    /// Digest, size and media type, from the index that lists it or from the registry's answer.
    pub descriptor: Descriptor,
    /// Index or image.
    pub kind: Kind,
    /// What the image is for; none for an index.
    pub platform: Option<Platform>,
}
