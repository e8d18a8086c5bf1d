//! Under what is kept.

use std::sync::Arc;

use portolan_core::{Descriptor, Digest};

/// A tag of a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::server) struct TagKey {
    pub(in crate::server) repository: Arc<str>,
    pub(in crate::server) tag: String,
}

/// An image in a repository.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::server) struct ImageKey {
    pub(in crate::server) repository: Arc<str>,
    pub(in crate::server) digest: Digest,
}

/// A subject under a policy. Some kinds of signature also speak of type and size.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(in crate::server) struct VerdictKey {
    pub(in crate::server) repository: Arc<str>,
    pub(in crate::server) digest: Digest,
    pub(in crate::server) media_type: String,
    pub(in crate::server) size: u64,
    pub(in crate::server) generation: u64,
}

impl VerdictKey {
    pub(in crate::server) fn new(
        repository: &Arc<str>,
        subject: &Descriptor,
        generation: u64,
    ) -> Self {
        Self {
            repository: Arc::clone(repository),
            digest: subject.digest,
            media_type: subject.media_type.clone(),
            size: subject.size,
            generation,
        }
    }
}

/// What belongs to a repository.
pub(super) trait OfRepository {
    fn repository(&self) -> &str;
}

impl OfRepository for TagKey {
    fn repository(&self) -> &str {
        &self.repository
    }
}

impl OfRepository for ImageKey {
    fn repository(&self) -> &str {
        &self.repository
    }
}

impl OfRepository for VerdictKey {
    fn repository(&self) -> &str {
        &self.repository
    }
}
