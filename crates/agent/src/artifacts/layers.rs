//! Where a build's layers come from: the cache's own blobs where they are there, else the
//! registry, with a copy for the cache made on the way.

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portolan_core::{Descriptor, Digest};
use portolan_registry::durable::TempFile;
use portolan_rootdisk::build::{Chunks, LayerSource, SourceError};
use portolan_rootdisk::fetch::{FileChunks, Keep, Keeping, PlaceLayers};

use crate::metrics::Metrics;
use crate::store::Store;

/// How often one who waits for another's download looks whether it is still wanted itself.
const PULSE: Duration = Duration::from_millis(50);

/// Which blobs are being fetched, so that two images with a layer in common fetch it once.
#[derive(Debug, Default)]
pub(super) struct Downloads {
    under_way: Mutex<HashSet<Digest>>,
    ended: Condvar,
}

/// The right to fetch one blob.
struct Claim {
    downloads: Arc<Downloads>,
    digest: Digest,
}

impl Downloads {
    fn lock(&self) -> MutexGuard<'_, HashSet<Digest>> {
        self.under_way.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Claims a blob, after whoever has claimed it before; none when it is no longer wanted.
    ///
    /// No two can wait for each other for ever: a claim is held by a blob that is flowing, and
    /// who waits here has none that flows.
    fn claim(self: &Arc<Self>, digest: Digest, stopped: &AtomicBool) -> Option<Claim> {
        let mut under_way = self.lock();
        while !under_way.insert(digest) {
            if stopped.load(Ordering::Relaxed) {
                return None;
            }
            let waited = self.ended.wait_timeout(under_way, PULSE);
            under_way = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        Some(Claim { downloads: Arc::clone(self), digest })
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.downloads.lock().remove(&self.digest);
        self.downloads.ended.notify_all();
    }
}

/// The layers of one build.
pub(super) struct Layers {
    pub(super) store: Arc<Store>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) layers: Vec<Descriptor>,
    pub(super) remote: PlaceLayers,
    /// Set where blobs are kept.
    pub(super) keeper: Option<Arc<Keeper>>,
    /// What was read from the cache, so that a damaged file can be found and dropped.
    pub(super) local: Mutex<HashSet<usize>>,
    pub(super) stopped: AtomicBool,
}

impl Layers {
    fn open_local(&self, layer: usize) -> Option<Box<dyn Chunks>> {
        let blob = &self.layers[layer];
        let file = self.store.layer(&blob.digest, blob.size)?;
        self.local.lock().unwrap_or_else(PoisonError::into_inner).insert(layer);
        Some(Box::new(FileChunks::new(file, blob)))
    }

    /// Whether a layer was read from the cache.
    pub(super) fn was_local(&self, layer: usize) -> bool {
        self.local.lock().unwrap_or_else(PoisonError::into_inner).contains(&layer)
    }
}

impl LayerSource for Layers {
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError> {
        if let Some(chunks) = self.open_local(layer) {
            return Ok(chunks);
        }
        if let Some(keeper) = &self.keeper {
            let digest = self.layers[layer].digest;
            let claim = keeper.downloads.claim(digest, &self.stopped);
            let claim = claim.ok_or_else(SourceError::cancelled)?;
            // Whoever was waited for may have brought it.
            if let Some(chunks) = self.open_local(layer) {
                return Ok(chunks);
            }
            keeper.claims().insert(digest, claim);
        }
        let chunks = self.remote.open(layer)?;
        Ok(Box::new(Counted { chunks, metrics: Arc::clone(&self.metrics) }))
    }

    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.remote.stop();
    }
}

/// Counts what comes from registries.
struct Counted {
    chunks: Box<dyn Chunks>,
    metrics: Arc<Metrics>,
}

impl Chunks for Counted {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let piece = self.chunks.next()?;
        if let Some(bytes) = &piece {
            self.metrics.bytes_downloaded(bytes.len() as u64);
        }
        Ok(piece)
    }
}

/// Puts blobs that pass by into the cache.
pub(super) struct Keeper {
    store: Arc<Store>,
    downloads: Arc<Downloads>,
    /// Taken by [`Layers::open`] and handed to the blob when its bytes begin to come.
    claims: Mutex<HashMap<Digest, Claim>>,
}

impl Keeper {
    pub(super) fn new(store: Arc<Store>, downloads: Arc<Downloads>) -> Self {
        Self { store, downloads, claims: Mutex::default() }
    }

    fn claims(&self) -> MutexGuard<'_, HashMap<Digest, Claim>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keep for Keeper {
    fn begin(&self, blob: &Descriptor) -> io::Result<Option<Box<dyn Keeping>>> {
        let claim = self.claims().remove(&blob.digest);
        let kept =
            Kept { store: Arc::clone(&self.store), digest: blob.digest, file: None, _claim: claim };
        match self.store.temp_file() {
            Ok(file) => Ok(Some(Box::new(Kept { file: Some(file), ..kept }))),
            Err(error) => {
                kept.give_up(&error);
                Ok(Some(Box::new(kept)))
            }
        }
    }
}

/// A blob on its way into the cache. The copy is a convenience: where it cannot be written, the
/// build goes on without it.
struct Kept {
    store: Arc<Store>,
    digest: Digest,
    file: Option<TempFile>,
    _claim: Option<Claim>,
}

impl Kept {
    fn give_up(&self, error: &(dyn std::error::Error + 'static)) {
        tracing::warn!(blob = %self.digest, error, "a layer is not kept in the cache");
    }
}

impl Keeping for Kept {
    fn piece(&mut self, bytes: &Bytes) -> io::Result<()> {
        if let Some(file) = &mut self.file
            && let Err(error) = file.write(bytes)
        {
            self.give_up(&error);
            self.file = None;
        }
        Ok(())
    }

    fn commit(mut self: Box<Self>) -> io::Result<()> {
        if let Some(file) = self.file.take()
            && let Err(error) = self.store.put_layer(&self.digest, file)
        {
            self.give_up(&error);
        }
        Ok(())
    }
}
