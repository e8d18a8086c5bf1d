//! An image's manifest and config: from the cache where they are there and right, else from the
//! registry, by digest and verified.

use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_core::manifest::{ImageConfig, MAX_MANIFEST_BYTES};
use portolan_core::{Digest, Document, Manifest};
use portolan_rootdisk::build::LayerInput;
use portolan_rootdisk::fetch::{self, Image};
use tokio_util::sync::CancellationToken;

use super::build::Patience;
use super::{AcquireError, Artifacts, Inner, PrepareError, Purpose};
use crate::evict::Urgency;
use crate::flight::Landing;
use crate::image::ResolvedImage;

/// A manifest and a config, each as large as it may be, and a block or two for their names.
const ROOM: u64 = 2 * MAX_MANIFEST_BYTES as u64 + 64 * 1024;

/// More layers than any tool makes: overlayfs, and so every builder of images, ends at a few
/// hundred. A manifest of 4 MiB could name 25,000, and each start that waits keeps its own list.
const MAX_LAYERS: usize = 1024;

/// What an image says of itself.
#[derive(Debug)]
pub(super) struct Documents {
    pub(super) manifest: Manifest,
    pub(super) config: ImageConfig,
    /// Bottom first.
    pub(super) layers: Vec<LayerInput>,
    /// How long they took to come; nothing for those that were here.
    pub(super) took: Duration,
}

impl Artifacts {
    /// The documents of an image, fetched once for all who want them.
    pub(super) async fn documents(
        &self,
        image: &ResolvedImage,
        purpose: Purpose,
    ) -> Result<Arc<Documents>, AcquireError> {
        let digest = image.resolved_digest;
        if let Some(found) = cached(&self.0, &digest) {
            return Ok(Arc::new(found?));
        }
        let mut own_turn = false;
        loop {
            let (inner, image) = (Arc::clone(&self.0), image.clone());
            let fetch = |cancel| fetch_documents(inner, image, purpose, cancel);
            match self.0.documents.join(digest, fetch).await {
                Landing::Done { outcome: Ok(documents), .. } => return Ok(documents),
                Landing::Done { outcome: Err(error), led: false }
                    if error.is_about_the_repository() && !own_turn =>
                {
                    own_turn = true;
                }
                // As of the disk itself.
                Landing::Done { outcome: Err(error), led: false }
                    if error.is_for_want_of_free_room() && purpose != Purpose::Ahead => {}
                Landing::Done { outcome: Err(error), .. } => {
                    if purpose == Purpose::Start {
                        self.0.remember_shortfall(&error, || ROOM);
                    }
                    return Err(AcquireError::Prepare(error));
                }
                Landing::Lost => return Err(PrepareError::Lost { digest }.into()),
            }
        }
    }
}

/// What the cache has; none when something is missing or damaged.
fn cached(inner: &Inner, digest: &Digest) -> Option<Result<Documents, PrepareError>> {
    let bytes = inner.store.manifest(digest)?;
    let Ok(Document::Manifest(manifest)) = Document::parse(&bytes, None) else { return None };
    let config = inner.store.small_blob(&manifest.config.digest)?;
    let config = ImageConfig::parse(&config).ok()?;
    let agreed = fetch::agreed(digest, &manifest.layers, &config, &inner.host);
    let agreed = agreed.map_err(|source| PrepareError::Fetch { digest: *digest, source });
    Some(agreed.map(|layers| Documents { manifest, config, layers, took: Duration::ZERO }))
}

async fn fetch_documents(
    inner: Arc<Inner>,
    image: ResolvedImage,
    purpose: Purpose,
    cancel: CancellationToken,
) -> Result<Arc<Documents>, Arc<PrepareError>> {
    // Another flight may have ended between our caller's look and this one.
    if let Some(found) = cached(&inner, &image.resolved_digest) {
        return found.map(Arc::new).map_err(Arc::new);
    }
    let mut patience = Patience::new(&inner);
    let mut room_made = false;
    let outcome = loop {
        let attempt = tokio::select! {
            fetched = fetch_once(&inner, &image) => fetched,
            () = cancel.cancelled() => Err(PrepareError::Abandoned { digest: image.resolved_digest }),
            () = patience.over() => Err(PrepareError::Timeout {
                digest: image.resolved_digest,
                limit: inner.pull_timeout(),
            }),
        };
        match attempt {
            Err(error) if error.is_transient() && patience.wait(&image, &error, &cancel).await => {}
            Err(error) if error.is_full() && purpose != Purpose::Ahead && !room_made => {
                room_made = true;
                if !make_room(&inner).await {
                    break Err(error);
                }
            }
            other => break other.map_err(|e| e.for_purpose(image.resolved_digest, purpose)),
        }
    };
    outcome.map(Arc::new).map_err(|error| {
        inner.count_failure(&error);
        Arc::new(error)
    })
}

/// Evicts enough for any manifest and config; true when something went.
async fn make_room(inner: &Arc<Inner>) -> bool {
    let inner = Arc::clone(inner);
    let freed = tokio::task::spawn_blocking(move || {
        let removed = inner.store.evict(ROOM, Urgency::Start, false);
        super::Artifacts(inner).count_removed(&removed);
        removed.iter().any(|removed| removed.bytes > 0)
    });
    freed.await.unwrap_or(false)
}

async fn fetch_once(inner: &Arc<Inner>, image: &ResolvedImage) -> Result<Documents, PrepareError> {
    let digest = image.resolved_digest;
    // Each may be 4 MiB, twice: not as many at a time as there are starts.
    let _turn = inner.fetches.acquire().await.expect("the semaphore is never closed");
    let started = Instant::now();
    let fetched = fetch::image(&inner.place(image), &digest, &inner.host).await;
    let fetched = fetched.map_err(|source| PrepareError::Fetch { digest, source })?;
    let Image { manifest_bytes, manifest, config_bytes, config, layers, .. } = fetched;
    let took = started.elapsed();
    if layers.len() > MAX_LAYERS {
        let (layers, most) = (layers.len(), MAX_LAYERS);
        return Err(PrepareError::TooManyLayers { digest, layers, most });
    }
    inner.metrics.bytes_downloaded((manifest_bytes.len() + config_bytes.len()) as u64);
    let store = Arc::clone(&inner.store);
    let config_digest = manifest.config.digest;
    let stored = tokio::task::spawn_blocking(move || {
        store.put_small_blob(&config_digest, &config_bytes)?;
        store.put_manifest(&digest, &manifest_bytes)
    });
    match stored.await {
        Ok(stored) => stored.map_err(|source| PrepareError::Store { digest, source })?,
        Err(_) => return Err(PrepareError::Lost { digest }),
    }
    Ok(Documents { manifest, config, layers, took })
}

#[cfg(test)]
pub(super) mod tests {
    use portolan_core::{HostPlatform, Platform};
    use serde_json::json;

    use super::*;
    use crate::config::{CacheConfig, Config};
    use crate::metrics::Metrics;
    use crate::spec::ImageSpec;

    /// A cache with an image that has no layers, whose registry never answers. Gives back the folder it is in.
    pub(in crate::artifacts) fn with_an_image(
        cache: CacheConfig,
    ) -> (tempfile::TempDir, Artifacts, ResolvedImage) {
        let root = tempfile::tempdir().unwrap();
        let config = Config { root: root.path().to_owned(), cache, ..Config::default() };
        let host = HostPlatform::named(&Platform::new("linux", "amd64"));
        let artifacts = Artifacts::open(&config, Arc::new(Metrics::new()), host).unwrap();
        let blob = json!({
            "os": "linux", "architecture": "amd64",
            "rootfs": { "type": "layers", "diff_ids": [] },
        });
        let blob = serde_json::to_vec(&blob).unwrap();
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {
                "mediaType": "application/vnd.oci.image.config.v1+json",
                "digest": Digest::sha256(&blob), "size": blob.len(),
            },
            "layers": [],
        });
        let manifest = serde_json::to_vec(&manifest).unwrap();
        let digest = Digest::sha256(&manifest);
        let store = &artifacts.0.store;
        store.put_small_blob(&Digest::sha256(&blob), &blob).unwrap();
        store.put_manifest(&digest, &manifest).unwrap();

        // Nobody listens on that port, so whoever asks the registry fails.
        let spec: ImageSpec = serde_json::from_value(json!({
            "repository": "127.0.0.1:1/app", "resolved_digest": digest,
            "os": "linux", "arch": "amd64",
        }))
        .unwrap();
        let image = ResolvedImage::from_spec(&spec).unwrap();
        (root, artifacts, image)
    }

    /// Two starts may both find nothing; the later one of them must not fetch what the earlier one
    /// has brought in the meantime.
    #[tokio::test]
    async fn what_came_after_the_callers_look_is_not_fetched_again() {
        let (_root, artifacts, image) = with_an_image(CacheConfig::default());
        let inner = Arc::clone(&artifacts.0);
        let cancel = CancellationToken::new();
        let found = fetch_documents(inner, image, Purpose::Start, cancel).await.unwrap();
        assert_eq!(found.took, Duration::ZERO);
    }
}
