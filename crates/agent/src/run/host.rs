//! The agent as the API and the reports see it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use http::StatusCode;
use jiff::Timestamp;
use portolan_core::{Digest, HostPlatform};
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::volumes;
use crate::api::{
    CacheReport, Degradation, GcReport, GcRequest, InstanceStatus, InstanceSummary, PoolStatus,
    PrefetchOutcome, Status, StatusReport, VerifyReport,
};
use crate::artifacts::{Artifacts, Purpose, VerifyError};
use crate::config::{Config, Percent};
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::instances::{DeleteError, Instances, PutError};
use crate::metrics::{Metrics, Pool, PoolUse};
use crate::pressure::{Pressure, Settling};
use crate::reason::Reason;
use crate::releases::{Cache, Fetched, NotFetched, Releases};
use crate::report::Source;
use crate::server::{ApiError, Host};
use crate::spec::WorkloadSpec;
use portolan_core::causes::chain;

/// How often the agent looks at its disks. What happens to instances is told when it happens.
const LOOK: Duration = Duration::from_secs(1);
/// How many looks until the scratch disks are added up again, which reads every folder.
const LOOKS_PER_SUM: u32 = 60;

/// Cache and instances together.
#[derive(Debug)]
pub(super) struct Agent {
    artifacts: Artifacts,
    instances: Instances,
    metrics: Arc<Metrics>,
    volumes: PathBuf,
    high_water: Percent,
    settle: Duration,
    node: String,
    platform: String,
    started_at: Timestamp,
    /// How full `instances/` was when last looked at; none before the first look.
    pool: Mutex<Option<PoolUse>>,
    /// What was wrong at the last look.
    wrong: Mutex<Vec<Reason>>,
    /// What schedulers are told of the cache.
    cache_pressure: Mutex<Settling>,
    /// Where they are followed.
    releases: Option<Arc<Releases>>,
    /// Of the instances, and of what is wrong.
    changes: watch::Sender<u64>,
}

impl Agent {
    pub(super) fn new(
        config: &Config,
        artifacts: Artifacts,
        instances: Instances,
        platform: HostPlatform,
        node: String,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            volumes: artifacts.paths().instances(),
            artifacts,
            changes: instances.changes(),
            instances,
            metrics,
            high_water: config.cache.high_water_percent,
            settle: config.cache.settle.0,
            node,
            platform: platform.platform.to_string(),
            started_at: Timestamp::now(),
            pool: Mutex::default(),
            wrong: Mutex::default(),
            cache_pressure: Mutex::default(),
            releases: None,
        }
    }

    /// The same, told of the Releases that are fetched for it.
    pub(super) fn following(self, releases: Option<Arc<Releases>>) -> Self {
        Self { releases, ..self }
    }

    /// Looks at the disks until `shutdown`, counts what is seen and says what changed. None of it
    /// costs more with more instances, but for the sum of their scratch disks once a minute.
    pub(super) async fn watch(self: Arc<Self>, shutdown: CancellationToken) {
        let mut looks = 0;
        loop {
            let (this, sum) = (Arc::clone(&self), looks % LOOKS_PER_SUM == 0);
            looks += 1;
            // A panic there is told by its own message; the next look is made all the same.
            let _ = tokio::task::spawn_blocking(move || this.look(sum)).await;
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = shutdown.cancelled() => return,
            }
        }
    }

    fn look(&self, sum: bool) {
        let known = self.pool().filter(|_| !sum).map(|pool| pool.used_bytes);
        match volumes::look(&self.volumes, self.high_water, known) {
            Ok(now) => {
                *self.pool.lock().unwrap_or_else(PoisonError::into_inner) = Some(now);
                self.metrics.pool(Pool::Volumes, now);
            }
            Err(error) => tracing::warn!(%error, "the scratch disks cannot be looked at"),
        }
        let cache = self.artifacts.update_metrics();
        let (told, tell) = {
            let mut settling = self.cache_pressure();
            (settling.told(), settling.next(cache.degraded, Instant::now(), self.settle))
        };
        let degraded = self.degraded(cache);
        self.metrics.set_degraded(!degraded.is_empty());
        // Reasons alone: free bytes, which the messages name, are not worth telling at once.
        let wrong: Vec<Reason> = degraded.iter().map(|one| one.reason).collect();
        let before = std::mem::replace(
            &mut *self.wrong.lock().unwrap_or_else(PoisonError::into_inner),
            wrong.clone(),
        );
        if before != wrong || told != tell {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    fn pool(&self) -> Option<PoolUse> {
        *self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn cache_pressure(&self) -> MutexGuard<'_, Settling> {
        self.cache_pressure.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn degraded(&self, cache: Pressure) -> Vec<Degradation> {
        let reason = if cache.read_only { Reason::RootfsBuildFailed } else { Reason::DiskFull };
        let cache = cache.message.map(|message| Degradation { reason, message });
        let volumes = self.pool().filter(|pool| pool.pressure).map(|pool| Degradation {
            reason: Reason::DiskFull,
            message: format!(
                "the file system of the scratch disks has {} bytes left; delete instances, or make it larger",
                pool.free_bytes
            ),
        });
        cache.into_iter().chain(volumes).collect()
    }
}

impl Source for Agent {
    fn report(&self) -> StatusReport {
        let instances = self.instances.summaries(None, usize::MAX);
        StatusReport { status: self.status(), instances }
    }

    fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }
}

/// The path of `POST /v1/prefetch`, but that nothing goes for it.
impl Cache for Agent {
    fn fetch<'a>(
        &'a self,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<Fetched, NotFetched>> {
        async move {
            match self.artifacts.prefetch(image, Purpose::Ahead, cancel).await {
                Ok(artifact) => Ok(Fetched { cached: artifact.cached }),
                Err(error) => Err(NotFetched {
                    reason: error.reason(),
                    message: chain(&error),
                    no_room: error.waits_for_room(),
                }),
            }
        }
        .boxed()
    }

    fn cached(&self, of: &mut dyn Iterator<Item = Digest>) -> BTreeSet<Digest> {
        of.filter(|digest| self.artifacts.has(digest)).collect()
    }

    fn is_full(&self) -> bool {
        self.cache_pressure().tells(self.artifacts.pressure().degraded)
    }
}

impl Host for Agent {
    fn put(
        &self,
        id: InstanceId,
        spec: WorkloadSpec,
    ) -> BoxFuture<'_, Result<(InstanceStatus, bool), ApiError>> {
        async move { self.instances.put(id, spec).await.map_err(|error| not_put(&error)) }.boxed()
    }

    fn get(&self, id: &InstanceId) -> Option<InstanceStatus> {
        self.instances.get(id)
    }

    fn summaries(&self, after: Option<&InstanceId>, limit: usize) -> Vec<InstanceSummary> {
        self.instances.summaries(after, limit)
    }

    fn delete<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<bool, ApiError>> {
        async move { self.instances.delete(id).await.map_err(|error| not_deleted(&error)) }.boxed()
    }

    fn console(&self, id: &InstanceId) -> [PathBuf; 2] {
        self.instances.console(id)
    }

    fn prefetch<'a>(
        &'a self,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, PrefetchOutcome> {
        async move {
            let resolved_digest = Some(image.resolved_digest.to_string());
            match self.artifacts.prefetch(image, Purpose::Request, cancel).await {
                Ok(artifact) => PrefetchOutcome {
                    resolved_digest,
                    rootdisk_key: Some(artifact.key),
                    cached: Some(artifact.cached),
                    reason: None,
                    message: None,
                },
                Err(error) => PrefetchOutcome {
                    resolved_digest,
                    rootdisk_key: None,
                    cached: None,
                    reason: Some(error.reason()),
                    message: Some(chain(&error)),
                },
            }
        }
        .boxed()
    }

    fn cache(&self) -> BoxFuture<'_, Result<CacheReport, ApiError>> {
        let artifacts = self.artifacts.clone();
        async move {
            let report = tokio::task::spawn_blocking(move || artifacts.cache()).await;
            report.map_err(|error| ApiError::internal("look at the cache", &error))
        }
        .boxed()
    }

    fn gc(&self, request: GcRequest) -> BoxFuture<'_, Result<GcReport, ApiError>> {
        async move { Ok(self.artifacts.gc(request).await) }.boxed()
    }

    fn verify<'a>(&'a self, key: &'a str) -> BoxFuture<'a, Result<Option<VerifyReport>, ApiError>> {
        async move {
            let cancel = CancellationToken::new();
            let _cancelled_with_the_call = cancel.clone().drop_guard();
            match self.artifacts.verify(key, &cancel).await {
                Ok(report) => Ok(Some(report)),
                Err(VerifyError::Unknown { .. }) => Ok(None),
                Err(error) => Err(ApiError::internal("compare the root disk", &error)),
            }
        }
        .boxed()
    }

    fn status(&self) -> Status {
        let pressure = self.artifacts.pressure();
        let cache = PoolStatus {
            used_bytes: pressure.cache_bytes,
            free_bytes: pressure.available_bytes,
            size_bytes: pressure.filesystem_bytes,
            pressure: pressure.degraded,
        };
        let volumes = self.pool();
        let pools = BTreeMap::from([
            (Pool::Cache.as_str().to_owned(), cache),
            (Pool::Volumes.as_str().to_owned(), volumes.unwrap_or_default().into()),
        ]);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            node: self.node.clone(),
            platform: self.platform.clone(),
            rootdisk_format_version: ROOTDISK_FORMAT_VERSION.to_owned(),
            started_at: self.started_at,
            time: Timestamp::now(),
            // Nothing is served before pins are right and instances are known; the disks are looked
            // at in the first second after.
            ready: volumes.is_some(),
            cache_pressure: self.cache_pressure().tells(pressure.degraded),
            degraded: self.degraded(pressure),
            prefetch: self.releases.as_ref().map(|releases| releases.status()),
            pools,
            instances: self.instances.phases(),
        }
    }
}

fn not_put(error: &PutError) -> ApiError {
    match error {
        PutError::Deleting { .. } => {
            ApiError::new(StatusCode::CONFLICT, "being_deleted", error.to_string())
        }
        PutError::Write { source, .. } if source.is_full() => {
            ApiError::of(Reason::DiskFull, chain(error))
                .hint("free some on the file system of the agent's root")
        }
        PutError::Write { .. } => ApiError::internal("put an instance", error),
    }
}

fn not_deleted(error: &DeleteError) -> ApiError {
    match error {
        DeleteError::Slow { .. } => {
            ApiError::new(StatusCode::GATEWAY_TIMEOUT, "timeout", error.to_string())
                .hint("ask again; it goes on by itself")
        }
        DeleteError::Mark { source, .. } if source.is_full() => {
            ApiError::of(Reason::DiskFull, chain(error))
                .hint("free some on the file system of the agent's root")
        }
        DeleteError::Mark { .. } => ApiError::internal("delete an instance", error),
    }
}
