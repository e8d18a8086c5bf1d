//! Changing what a layout lists: one lock, one read-modify-write, one rename.

use std::sync::Arc;

use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Tag};

use super::index::IndexFile;
use super::{Layout, LayoutError, lock};
use crate::durable;

impl Layout {
    /// Stores a manifest under its SHA-256 digest and lists it, with `tag` or nameless.
    ///
    /// Manifests that only an index leads to need not be listed: [`Layout::put_blob`] stores
    /// them, and they are found through their index.
    pub fn put_manifest(
        &self,
        media_type: &str,
        bytes: &[u8],
        tag: Option<&Tag>,
    ) -> Result<Descriptor, LayoutError> {
        let digest = Digest::sha256(bytes);
        self.put_manifest_as(
            digest,
            media_type,
            bytes,
            tag.map(std::slice::from_ref).unwrap_or_default(),
        )
    }

    /// Stores a manifest under the digest it is said to have, which is checked, and lists it
    /// under every one of `tags`.
    pub fn put_manifest_as(
        &self,
        digest: Digest,
        media_type: &str,
        bytes: &[u8],
        tags: &[Tag],
    ) -> Result<Descriptor, LayoutError> {
        self.put_manifest_if(digest, media_type, bytes, tags, || Ok::<(), LayoutError>(()))
    }

    /// As [`Layout::put_manifest_as`], but asks `allowed` first, under the lock: what it saw of
    /// the blobs still holds when the manifest is listed, because collection takes the same lock.
    pub(crate) fn put_manifest_if<E: From<LayoutError>>(
        &self,
        digest: Digest,
        media_type: &str,
        bytes: &[u8],
        tags: &[Tag],
        allowed: impl FnOnce() -> Result<(), E>,
    ) -> Result<Descriptor, E> {
        if bytes.len() > MAX_MANIFEST_BYTES {
            return Err(E::from(LayoutError::TooLarge {
                path: self.blob_path(&digest),
                size: bytes.len() as u64,
                limit: MAX_MANIFEST_BYTES as u64,
            }));
        }
        let descriptor = Descriptor::new(media_type, digest, bytes.len() as u64);
        // The slow part, flushing the content, needs no lock: a blob nobody lists harms nobody.
        self.put_blob_as(digest, bytes)?;
        let _lock = self.lock()?;
        allowed()?;
        // A delete may have come between.
        self.put_blob_as(digest, bytes)?;
        self.change_locked(|index| index.put(&descriptor, tags))?;
        Ok(descriptor)
    }

    /// Takes a tag away. The manifest stays, reachable by digest. False when there was none.
    pub fn delete_tag(&self, tag: &Tag) -> Result<bool, LayoutError> {
        let _lock = self.lock()?;
        if !self.read_index()?.untag(tag) {
            return Ok(false);
        }
        self.change_locked(|index| index.untag(tag))
    }

    /// Takes a manifest away with every tag that points to it. What it refers to stays until
    /// garbage is collected. False when there was none.
    pub fn delete_manifest(&self, digest: &Digest) -> Result<bool, LayoutError> {
        let _lock = self.lock()?;
        let known = self.view()?.manifest(digest).is_some();
        if !known {
            return Ok(false);
        }
        // The list first: a manifest that is listed and missing would be worse than a blob that
        // waits for collection.
        let listed = self.change_locked(|index| index.remove(digest))?;
        let stored = self.delete_blob(digest)?;
        self.forget(digest);
        Ok(listed || stored)
    }

    /// Rewrites `index.json`. The caller holds the lock.
    pub(super) fn change_locked<T>(
        &self,
        change: impl FnOnce(&mut IndexFile) -> T,
    ) -> Result<T, LayoutError> {
        let before = self.read_index()?;
        let mut after = before.clone();
        let outcome = change(&mut after);
        if after != before {
            durable::replace(&self.temp_dir(), &self.index_path(), &after.to_bytes())?;
            // What was just written need not be read again.
            let view = Arc::new(self.build_view(&after));
            let stamp = self.stamp()?;
            *lock(&self.shared.view) = stamp.map(|stamp| (stamp, view));
        }
        Ok(outcome)
    }

    /// A deleted manifest no longer has relations, even if the same bytes come back later: they
    /// are read again then.
    pub(super) fn forget(&self, digest: &Digest) {
        lock(&self.shared.facts).remove(digest);
        *lock(&self.shared.view) = None;
    }
}
