//! A repository with what is kept of it: what a digest names is asked for once.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use portolan_core::{Descriptor, Digest, Document, Target};
use portolan_registry::client::Fetched;
use portolan_registry::images::{ImageError, Place};

use super::caches::{Caches, ImageKey};
use crate::collect::Source;

/// A place, and the caches before it. Lists and tags are always asked for.
pub(super) struct Keeping {
    pub(super) place: Place,
    pub(super) name: Arc<str>,
    /// What is read here is kept under this: another for each login.
    pub(super) kept: Arc<str>,
    pub(super) caches: Arc<Caches>,
}

impl Keeping {
    fn key(&self, digest: Digest) -> ImageKey {
        ImageKey { repository: Arc::clone(&self.kept), digest }
    }

    async fn by_digest(&self, digest: Digest) -> Result<Fetched, ImageError> {
        let key = self.key(digest);
        if let Some(bytes) = self.caches.content(&key).await
            && let Ok(document) = Document::parse(&bytes, None)
        {
            let size = bytes.len() as u64;
            let descriptor = Descriptor::new(document.media_type(), digest, size);
            return Ok(Fetched { descriptor, bytes, document });
        }
        let fetched = self.place.manifest(&Target::Digest(digest)).await?;
        // Only what says itself what it is can be read again without its header.
        if Document::parse(&fetched.bytes, None).is_ok_and(|again| again == fetched.document) {
            self.caches.keep_content(key, fetched.bytes.clone()).await;
        }
        Ok(fetched)
    }
}

impl Source for Keeping {
    fn name(&self) -> String {
        self.name.to_string()
    }

    fn referring<'a>(
        &'a self,
        subject: &'a Digest,
        limit: usize,
    ) -> BoxFuture<'a, Result<BTreeSet<Digest>, ImageError>> {
        Box::pin(self.place.referring(subject, limit))
    }

    fn manifest<'a>(&'a self, target: &'a Target) -> BoxFuture<'a, Result<Fetched, ImageError>> {
        match target {
            Target::Digest(digest) => Box::pin(self.by_digest(*digest)),
            Target::Tag(_) => Box::pin(self.place.manifest(target)),
        }
    }

    fn blob<'a>(
        &'a self,
        descriptor: &'a Descriptor,
        limit: u64,
    ) -> BoxFuture<'a, Result<Bytes, ImageError>> {
        Box::pin(async move {
            let key = self.key(descriptor.digest);
            let kept = self.caches.content(&key).await;
            // A descriptor that lies about the size is found out where the blob is fetched.
            if let Some(bytes) = kept.filter(|bytes| bytes.len() as u64 == descriptor.size) {
                return Ok(bytes);
            }
            let bytes = self.place.read_blob(descriptor, limit).await?;
            self.caches.keep_content(key, bytes.clone()).await;
            Ok(bytes)
        })
    }
}
