//! A repository with what is kept of it: what a digest names is asked for once.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use portolan_core::{Descriptor, Digest, Document, Tag, Target};
use portolan_registry::client::Fetched;
use portolan_registry::images::{ImageError, Place};

use super::caches::{Caches, ImageKey, TagKey};
use crate::collect::Source;

/// A place, and the caches before it. Lists and tags are always asked for; of a tag whose content is
/// kept, only whether it is still the same.
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
        if let Some(kept) = self.kept(digest).await {
            return Ok(kept);
        }
        let fetched = self.place.manifest(&Target::Digest(digest)).await?;
        self.keep(&fetched).await;
        Ok(fetched)
    }

    async fn by_tag(&self, tag: &Tag) -> Result<Fetched, ImageError> {
        let target = Target::Tag(tag.clone());
        let key = TagKey { repository: Arc::clone(&self.kept), tag: tag.to_string() };
        let was = self.caches.was(&key).await;
        if let Some(was) = was
            && let Some(kept) = self.kept(was).await
            && self.place.resolve(Some(&target)).await?.digest == was
        {
            return Ok(kept);
        }
        let fetched = self.place.manifest(&target).await?;
        // What is asked for once only, as most is, would take the place of others.
        match was == Some(fetched.descriptor.digest) {
            true => self.keep(&fetched).await,
            false => self.caches.note(key, fetched.descriptor.digest).await,
        }
        Ok(fetched)
    }

    /// A manifest, if it is kept.
    async fn kept(&self, digest: Digest) -> Option<Fetched> {
        let bytes = self.caches.content(&self.key(digest)).await?;
        let document = Document::parse(&bytes, None).ok()?;
        let size = bytes.len() as u64;
        let descriptor = Descriptor::new(document.media_type(), digest, size);
        Some(Fetched { descriptor, bytes, document })
    }

    /// Only what says itself what it is can be read again without its header.
    async fn keep(&self, fetched: &Fetched) {
        if Document::parse(&fetched.bytes, None).is_ok_and(|again| again == fetched.document) {
            let key = self.key(fetched.descriptor.digest);
            self.caches.keep_content(key, fetched.bytes.clone()).await;
        }
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
            Target::Tag(tag) => Box::pin(self.by_tag(tag)),
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
