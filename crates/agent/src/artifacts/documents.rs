//! An image's manifest and config: from the cache where they are there and right, else from the
//! registry, by digest and verified.

use std::sync::Arc;

use portolan_core::manifest::{ImageConfig, MAX_MANIFEST_BYTES};
use portolan_core::{Digest, Document, HostPlatform, Manifest};
use portolan_rootdisk::build::LayerInput;
use portolan_rootdisk::fetch::{self, FetchError, Image};
use tokio_util::sync::CancellationToken;

use super::build::Patience;
use super::{AcquireError, Artifacts, Inner, PrepareError};
use crate::evict::Urgency;
use crate::flight::Landing;
use crate::image::ResolvedImage;
use crate::store::Store;

/// A manifest and a config, each as large as it may be, and a block or two for their names.
const ROOM: u64 = 2 * MAX_MANIFEST_BYTES as u64 + 64 * 1024;

/// What an image says of itself.
#[derive(Debug)]
pub(super) struct Documents {
    pub(super) manifest: Manifest,
    pub(super) config: ImageConfig,
    /// Bottom first.
    pub(super) layers: Vec<LayerInput>,
}

impl Artifacts {
    /// The documents of an image, fetched once for all who want them.
    pub(super) async fn documents(
        &self,
        image: &ResolvedImage,
    ) -> Result<Arc<Documents>, AcquireError> {
        let digest = image.resolved_digest;
        if let Some(found) = cached(&self.0.store, &digest, &self.0.host) {
            return found
                .map(Arc::new)
                .map_err(|source| AcquireError::from(PrepareError::Fetch { digest, source }));
        }
        let mut own_turn = false;
        loop {
            let (inner, image) = (Arc::clone(&self.0), image.clone());
            let landing =
                self.0.documents.join(digest, |cancel| fetch_documents(inner, image, cancel));
            match landing.await {
                Landing::Done { outcome: Ok(documents), .. } => return Ok(documents),
                Landing::Done { outcome: Err(error), led: false }
                    if error.is_about_the_repository() && !own_turn =>
                {
                    own_turn = true;
                }
                Landing::Done { outcome: Err(error), .. } => {
                    return Err(AcquireError::Prepare(error));
                }
                Landing::Lost => return Err(PrepareError::Lost { digest }.into()),
            }
        }
    }
}

/// What the cache has; none when something is missing or damaged.
fn cached(
    store: &Store,
    digest: &Digest,
    host: &HostPlatform,
) -> Option<Result<Documents, FetchError>> {
    let bytes = store.manifest(digest)?;
    let Ok(Document::Manifest(manifest)) = Document::parse(&bytes, None) else { return None };
    let config = store.small_blob(&manifest.config.digest)?;
    let config = ImageConfig::parse(&config).ok()?;
    let agreed = fetch::agreed(digest, &manifest.layers, &config, host);
    Some(agreed.map(|layers| Documents { manifest, config, layers }))
}

async fn fetch_documents(
    inner: Arc<Inner>,
    image: ResolvedImage,
    cancel: CancellationToken,
) -> Result<Arc<Documents>, Arc<PrepareError>> {
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
            Err(error) if error.is_full() && !room_made => {
                room_made = true;
                if !make_room(&inner).await {
                    inner.remember_shortfall(ROOM);
                    break Err(error);
                }
            }
            other => break other,
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
    let fetched = fetch::image(&inner.place(image), &digest, &inner.host).await;
    let fetched = fetched.map_err(|source| PrepareError::Fetch { digest, source })?;
    let Image { manifest_bytes, manifest, config_bytes, config, layers, .. } = fetched;
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
    Ok(Documents { manifest, config, layers })
}
