//! One build: room, layers, disk, names. Repeated where repeating can help.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use portolan_core::Descriptor;
use portolan_registry::ErrorClass;
use portolan_rootdisk::build::{
    self as rootdisk, BuildError, BuildOptions, Built, LayerInput, LayerSource as _, Request,
    Trouble, Watch,
};
use portolan_rootdisk::fetch::{Keep, PlaceLayers};
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;
use tokio_util::sync::CancellationToken;

use super::documents::Documents;
use super::layers::{Keeper, Layers};
use super::pin::Hold;
use super::progress::Listener;
use super::{Inner, PrepareError, Purpose};
use crate::evict::{Urgency, bytes_beyond, bytes_to_free};
use crate::image::ResolvedImage;
use crate::pins::DiskId;
use crate::store::Disk;

/// No wait between two tries is longer.
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// How often and how long a pull is tried.
pub(super) struct Patience {
    deadline: tokio::time::Instant,
    left: u32,
    wait: Duration,
}

impl Patience {
    pub(super) fn new(inner: &Inner) -> Self {
        Self {
            deadline: tokio::time::Instant::now() + inner.pull_timeout(),
            left: inner.config.pull.retries,
            wait: inner.config.pull.backoff.0,
        }
    }

    /// Ends when the time is over.
    pub(super) async fn over(&self) {
        tokio::time::sleep_until(self.deadline).await;
    }

    /// Waits before the next try; false when there is none.
    pub(super) async fn wait(
        &mut self,
        image: &ResolvedImage,
        error: &PrepareError,
        cancel: &CancellationToken,
    ) -> bool {
        if self.left == 0 || tokio::time::Instant::now() + self.wait >= self.deadline {
            return false;
        }
        tracing::warn!(
            resolved_digest = %image.resolved_digest,
            error = error as &dyn std::error::Error,
            wait_ms = self.wait.as_millis(),
            "the pull failed in transport and is tried again"
        );
        tokio::select! {
            () = tokio::time::sleep(self.wait) => {}
            () = cancel.cancelled() => return false,
        }
        self.left -= 1;
        self.wait = self.wait.saturating_mul(2).min(LONGEST_WAIT);
        true
    }
}

/// What one flight does.
pub(super) struct Job {
    pub(super) inner: Arc<Inner>,
    pub(super) image: ResolvedImage,
    pub(super) documents: Arc<Documents>,
    pub(super) cancel: CancellationToken,
    /// Of whoever began it.
    pub(super) purpose: Purpose,
    /// Whether layers are put into the cache on their way; not after the disk was full.
    pub(super) keep: AtomicBool,
}

/// A try that failed.
struct Failed {
    error: PrepareError,
    /// The cached blob that was not what its name says, if it was that.
    damaged: Option<portolan_core::Digest>,
}

impl From<PrepareError> for Failed {
    fn from(error: PrepareError) -> Self {
        Self { error, damaged: None }
    }
}

impl Job {
    pub(super) async fn run(self) -> Result<Disk, Arc<PrepareError>> {
        let id = DiskId::new(self.image.resolved_digest, ROOTDISK_FORMAT_VERSION);
        let hold = Hold::new(&self.inner.store, &id);
        let outcome = self.build(&id).await;
        drop(hold);
        let artifacts = super::Artifacts(Arc::clone(&self.inner));
        artifacts.update_metrics();
        outcome.map_err(|error| {
            self.inner.count_failure(&error);
            Arc::new(error)
        })
    }

    async fn build(&self, id: &DiskId) -> Result<Disk, PrepareError> {
        let digest = self.image.resolved_digest;
        let _turn = tokio::select! {
            turn = self.inner.builds.acquire() => turn.expect("the semaphore is never closed"),
            () = self.cancel.cancelled() => return Err(PrepareError::Abandoned { digest }),
        };
        // Another flight may have ended between our caller's look and this one.
        if let Some(disk) = self.inner.store.look_up(id) {
            return Ok(disk);
        }
        let mut patience = Patience::new(&self.inner);
        let mut room_made = false;
        // Each cached blob can be found damaged once.
        let mut damages = self.documents.layers.len();
        loop {
            let Failed { error, damaged } = match self.attempt(id, &patience).await {
                Ok(disk) => return Ok(disk),
                Err(failed) => failed,
            };
            let again = match damaged {
                Some(blob) if damages > 0 => {
                    tracing::warn!(resolved_digest = %digest, %blob, "a cached layer is damaged and is fetched again");
                    self.inner.store.drop_blob(&blob);
                    damages -= 1;
                    true
                }
                _ if error.is_transient() => patience.wait(&self.image, &error, &self.cancel).await,
                _ if self.purpose != Purpose::Ahead
                    && error.is_full()
                    && !error.never_fits()
                    && !room_made =>
                {
                    room_made = true;
                    self.make_more_room().await
                }
                _ => false,
            };
            if !again {
                return Err(error.for_purpose(digest, self.purpose));
            }
        }
    }

    async fn attempt(&self, id: &DiskId, patience: &Patience) -> Result<Disk, Failed> {
        let digest = self.image.resolved_digest;
        self.make_room().await?;
        let started = Instant::now();
        let listed = self.inner.meters.begin(id, compressed(&self.documents.layers));
        // Of this try alone: what ends it must not end the next one.
        let cancel = self.cancel.child_token();
        let layers = self.layers(&cancel);
        let listener = Arc::new(Listener {
            meter: listed.meter(),
            cancel: cancel.clone(),
            pulled: Mutex::new(None),
        });
        let mut work = tokio::task::spawn_blocking({
            let (request, layers) = (self.request(), Arc::clone(&layers));
            let (watch, temp): (Arc<dyn Watch>, _) =
                (listener.clone(), self.inner.store.paths().tmp());
            move || rootdisk::build(&request, layers.as_ref(), &temp, &watch)
        });
        let built = tokio::select! {
            built = &mut work => built,
            () = patience.over() => {
                cancel.cancel();
                layers.stop();
                // It notices within milliseconds, and leaves nothing.
                let _ = work.await;
                return Err(PrepareError::Timeout { digest, limit: self.inner.pull_timeout() }.into());
            }
        };
        let settled = layers.remote.settled().await;
        if let Err(error) = settled {
            tracing::warn!(resolved_digest = %digest, %error, "not every layer is kept in the cache");
        }
        let built = match built {
            Ok(Ok(built)) => built,
            Ok(Err(error)) => return Err(self.failed(error, &layers)),
            Err(_) => return Err(PrepareError::Lost { digest }.into()),
        };
        let disk = self.publish(built).await?;
        self.count_success(&listener, &layers, started);
        Ok(disk)
    }

    async fn publish(&self, built: Built) -> Result<Disk, PrepareError> {
        let digest = self.image.resolved_digest;
        if self.cancel.is_cancelled() {
            return Err(PrepareError::Abandoned { digest });
        }
        let store = Arc::clone(&self.inner.store);
        let origin = format!("{}/{}", self.image.registry.as_str(), self.image.repository.as_str());
        let published = tokio::task::spawn_blocking(move || store.publish(built, &origin));
        match published.await {
            Ok(published) => published.map_err(|source| PrepareError::Store { digest, source }),
            Err(_) => Err(PrepareError::Lost { digest }),
        }
    }

    fn request(&self) -> Request {
        let config = &self.inner.config.rootdisk;
        Request {
            resolved_digest: self.image.resolved_digest,
            layers: self.documents.layers.clone(),
            options: BuildOptions {
                threads: config.threads,
                direct_io: config.direct_io,
                limits: config.limits.clone(),
                verity: config.verity,
                min_bytes: config.min_size.0,
                headroom_percent: config.headroom_percent,
            },
        }
    }

    fn layers(&self, cancel: &CancellationToken) -> Arc<Layers> {
        let inner = &self.inner;
        let keeper = self
            .keep
            .load(Ordering::Relaxed)
            .then(|| Arc::new(Keeper::new(Arc::clone(&inner.store), Arc::clone(&inner.downloads))));
        let descriptors: Vec<_> =
            self.documents.layers.iter().map(|layer| layer.descriptor.clone()).collect();
        let keep = keeper.clone().map(|keeper| keeper as Arc<dyn Keep>);
        let place = inner.place(&self.image);
        Arc::new(Layers {
            store: Arc::clone(&inner.store),
            metrics: Arc::clone(&inner.metrics),
            remote: PlaceLayers::new(place, descriptors.clone(), keep, cancel),
            layers: descriptors,
            keeper,
            local: Mutex::default(),
            stopped: AtomicBool::new(false),
        })
    }

    fn failed(&self, source: BuildError, layers: &Layers) -> Failed {
        let digest = self.image.resolved_digest;
        if source.trouble() == Trouble::Cancelled {
            return PrepareError::Abandoned { digest }.into();
        }
        let damaged = match &source {
            BuildError::Source { layer, digest, source }
                if source.class == ErrorClass::BadInput && layers.was_local(*layer) =>
            {
                Some(*digest)
            }
            _ => None,
        };
        let error = match source.trouble() {
            Trouble::Local => PrepareError::Host { digest, source },
            _ => PrepareError::Build { digest, source },
        };
        Failed { error, damaged }
    }

    /// What the build is taken to need, blobs that are kept included.
    fn room(&self) -> u64 {
        let disk = self.inner.expanded(&self.documents);
        if !self.keep.load(Ordering::Relaxed) {
            return disk;
        }
        let blobs = self.documents.layers.iter().map(|layer| &layer.descriptor);
        let kept = blobs.filter(|blob| self.inner.store.layer(&blob.digest, blob.size).is_none());
        kept.fold(disk, |room, blob| room.saturating_add(blob.size))
    }

    /// Evicts what stands in the way, and refuses where the marks are passed all the same.
    ///
    /// The sizes are the manifest's, and anybody can write a manifest: where the image cannot fit
    /// however much goes, nothing goes, or one line of JSON would empty the cache.
    async fn make_room(&self) -> Result<(), PrepareError> {
        let (inner, digest) = (Arc::clone(&self.inner), self.image.resolved_digest);
        let (room, least) = (self.room(), compressed(&self.documents.layers));
        if least > self.inner.config.rootdisk.limits.max_total_bytes {
            // The builder refuses it in a moment, and says which limit it was.
            return Ok(());
        }
        let (usage, evictable) = (self.inner.store.usage(), self.inner.store.evictable());
        let reachable = usage.available_bytes.saturating_add(evictable);
        if least > reachable && usage.filesystem_bytes > 0 {
            return Err(PrepareError::NeverFits { digest, least, reachable });
        }
        if self.purpose == Purpose::Ahead {
            let fits = |usage| bytes_to_free(&usage, &inner.marks, room) == 0;
            let enough_may_go = fits(usage.without(evictable));
            let refused = PrepareError::NoFreeRoom { digest, enough_may_go };
            return if fits(usage) { Ok(()) } else { Err(refused) };
        }
        let beyond = tokio::task::spawn_blocking(move || {
            let bytes = bytes_to_free(&inner.store.usage(), &inner.marks, room);
            if bytes > 0 {
                let removed = inner.store.evict(bytes, Urgency::Start, false);
                super::Artifacts(Arc::clone(&inner)).count_removed(&removed);
            }
            bytes_beyond(&inner.store.usage(), &inner.marks, 0)
        });
        match beyond.await {
            Ok(0) => Ok(()),
            Ok(beyond) => Err(PrepareError::NoRoom { digest, beyond }),
            Err(_) => Err(PrepareError::Lost { digest }),
        }
    }

    /// After the disk was full in the middle of a build: the image is larger than was thought.
    /// What nobody uses goes, and so do the copies of this image's own layers: the disk is what
    /// is wanted. True when that left more room, so that another try makes sense.
    async fn make_more_room(&self) -> bool {
        let kept = self.keep.swap(false, Ordering::Relaxed);
        let inner = Arc::clone(&self.inner);
        let room = self.room().saturating_mul(2);
        let layers: Vec<_> = self.documents.layers.iter().map(|l| l.descriptor.digest).collect();
        let freed = tokio::task::spawn_blocking(move || {
            let removed = inner.store.evict(room.max(1), Urgency::Start, false);
            super::Artifacts(Arc::clone(&inner)).count_removed(&removed);
            let dropped: u64 = layers.iter().map(|layer| inner.store.drop_blob(layer)).sum();
            kept || dropped > 0 || removed.iter().any(|removed| removed.bytes > 0)
        });
        freed.await.unwrap_or(false)
    }

    fn count_success(&self, listener: &Listener, layers: &Layers, started: Instant) {
        let metrics = &self.inner.metrics;
        let pulled = *listener.pulled.lock().unwrap_or_else(PoisonError::into_inner);
        let fetched = (0..self.documents.layers.len()).any(|layer| !layers.was_local(layer));
        if let (Some(pulled), true) = (pulled, fetched) {
            metrics.pull_finished(self.documents.took + pulled.duration_since(started));
        }
        metrics.build_finished(started.elapsed());
    }
}

/// The compressed bytes of all layers. A disk takes about that much at least while it is built:
/// nothing that is compressed is much larger than what it unpacks to.
fn compressed(layers: &[LayerInput]) -> u64 {
    layers.iter().fold(0_u64, |sum, layer| sum.saturating_add(layer.descriptor.size))
}

/// What a layer is taken to need in a disk. A plain tar is what it is.
fn expanded(layer: &Descriptor, percent: u32) -> u64 {
    if layer.media_type.ends_with("tar") {
        return layer.size;
    }
    let bytes = u128::from(layer.size) * u128::from(percent) / 100;
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

impl Inner {
    /// Remembers how many bytes an instance lacked, if that is what `error` says; more than there are now, since what
    /// there is was not enough. What the whole file system could not hold says nothing about its
    /// room: the image is at fault, or its manifest lies.
    pub(super) fn remember_shortfall(&self, error: &PrepareError, room: impl FnOnce() -> u64) {
        let room = match error {
            PrepareError::NeverFits { least, .. } => *least,
            error if error.is_full() => room(),
            _ => return,
        };
        let usage = self.store.usage();
        if room <= usage.filesystem_bytes {
            let room = room.max(usage.available_bytes.saturating_add(1));
            self.store.state().miss(room, Instant::now());
        }
    }

    /// What the disks of these layers are taken to need.
    pub(super) fn expanded(&self, documents: &Documents) -> u64 {
        let percent = self.config.rootdisk.expansion_percent;
        let layers = documents.layers.iter().map(|layer| expanded(&layer.descriptor, percent));
        layers.fold(0, u64::saturating_add)
    }

    pub(super) fn count_failure(&self, error: &PrepareError) {
        // Nothing was tried, and nobody waits: how it stands with what is fetched ahead is counted where that is decided.
        if error.is_for_want_of_free_room() {
            return;
        }
        match error.pull_failure() {
            Some(why) => self.metrics.pull_failed(why),
            None => self.metrics.build_failed(error.reason()),
        }
    }
}
