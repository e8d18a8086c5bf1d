//! What the agent counts, in the text form that Prometheus reads.
//!
//! One metric for each item that the design asks for. Every series that can exist from the
//! beginning exists from the beginning, at zero: a rate over a series that appears with its first
//! error misses that error.

mod labels;
mod prefetch;

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use portolan_registry::serving::program::openmetrics;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

pub use labels::{
    CacheKind, CacheResult, Pool, PrefetchResult, PullFailure, ReportTarget, VerifyResult,
};

use crate::api::Phase;
use crate::reason::Reason;

/// What every name begins with.
const PREFIX: &str = "portolan_agent";

type One = [(&'static str, &'static str); 1];
type Two = [(&'static str, &'static str); 2];
type Float = Gauge<f64, AtomicU64>;

/// Pulls and builds: 50 ms for a small image on the next machine, 27 minutes at the slow end.
fn long_buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(0.05, 2.0, 16)
}

/// API calls: half a millisecond to 8 s.
fn short_buckets() -> impl Iterator<Item = f64> {
    exponential_buckets(0.0005, 2.0, 15)
}

/// How full a pool's file system is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolUse {
    /// What the pool itself holds, in allocated bytes.
    pub used_bytes: u64,
    /// What its file system still gives to us.
    pub free_bytes: u64,
    /// The size of its file system.
    pub size_bytes: u64,
    /// There is too little left to start something new.
    pub pressure: bool,
}

/// All metrics of one agent. Shared behind an `Arc`.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    pull_duration: Histogram,
    pull_errors: Family<One, Counter>,
    downloaded: Counter,
    cache_requests: Family<One, Counter>,
    build_duration: Histogram,
    build_errors: Family<One, Counter>,
    cache_bytes: Family<One, Gauge>,
    cache_entries: Family<One, Gauge>,
    pinned: Gauge,
    evictions: Family<One, Counter>,
    evicted_bytes: Family<One, Counter>,
    verifications: Family<One, Counter>,
    disk_pressure: Family<One, Gauge>,
    disk_used: Family<One, Gauge>,
    disk_free: Family<One, Gauge>,
    disk_size: Family<One, Gauge>,
    disk_full_ratio: Family<One, Float>,
    instances: Family<One, Gauge>,
    instance_failures: Family<One, Counter>,
    degraded: Gauge,
    prefetch: prefetch::Prefetch,
    reports: Family<Two, Counter>,
    api_requests: Family<Two, Counter>,
    api_duration: Histogram,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// Everything at zero.
    pub fn new() -> Self {
        let mut all = Self {
            registry: Registry::with_prefix(PREFIX),
            pull_duration: Histogram::new(long_buckets()),
            pull_errors: Family::default(),
            downloaded: Counter::default(),
            cache_requests: Family::default(),
            build_duration: Histogram::new(long_buckets()),
            build_errors: Family::default(),
            cache_bytes: Family::default(),
            cache_entries: Family::default(),
            pinned: Gauge::default(),
            evictions: Family::default(),
            evicted_bytes: Family::default(),
            verifications: Family::default(),
            disk_pressure: Family::default(),
            disk_used: Family::default(),
            disk_free: Family::default(),
            disk_size: Family::default(),
            disk_full_ratio: Family::default(),
            instances: Family::default(),
            instance_failures: Family::default(),
            degraded: Gauge::default(),
            prefetch: prefetch::Prefetch::default(),
            reports: Family::default(),
            api_requests: Family::default(),
            api_duration: Histogram::new(short_buckets()),
        };
        all.register_images();
        all.register_cache();
        all.register_disks();
        all.register_instances();
        all.prefetch.register(&mut all.registry);
        all.begin_at_zero();
        all
    }

    fn register_images(&mut self) {
        let r = &mut self.registry;
        r.register(
            "image_pull_duration_seconds",
            "Time that a pull which succeeded took: manifest and config, then layers to the last one",
            self.pull_duration.clone(),
        );
        r.register("image_pull_errors", "Pulls that failed, by reason", self.pull_errors.clone());
        r.register(
            "image_downloaded_bytes",
            "Bytes received from registries, manifests and layers, also of pulls that failed",
            self.downloaded.clone(),
        );
        r.register(
            "rootdisk_cache_requests",
            "Root disks asked for, by whether they were in the cache",
            self.cache_requests.clone(),
        );
        r.register(
            "rootdisk_build_duration_seconds",
            "Time from asking for the first layer to the root disk under its final name",
            self.build_duration.clone(),
        );
        r.register(
            "rootdisk_build_errors",
            "Root disks that could not be built, by reason",
            self.build_errors.clone(),
        );
    }

    fn register_cache(&mut self) {
        let r = &mut self.registry;
        r.register(
            "cache_bytes",
            "Allocated size of the cache, by kind of entry",
            self.cache_bytes.clone(),
        );
        r.register("cache_entries", "Entries in the cache, by kind", self.cache_entries.clone());
        r.register(
            "cache_pinned_rootdisks",
            "Root disks that instances hold and eviction leaves alone",
            self.pinned.clone(),
        );
        r.register(
            "cache_evictions",
            "Entries evicted from the cache, by kind",
            self.evictions.clone(),
        );
        r.register(
            "cache_evicted_bytes",
            "Allocated bytes that evictions gave back, by kind",
            self.evicted_bytes.clone(),
        );
        r.register(
            "cache_verifications",
            "Root disks read again and compared with their checksum, by result",
            self.verifications.clone(),
        );
    }

    fn register_disks(&mut self) {
        let r = &mut self.registry;
        r.register(
            "disk_pressure",
            "1 while a pool has too little room to start something new, else 0",
            self.disk_pressure.clone(),
        );
        r.register(
            "disk_used_bytes",
            "Allocated bytes that a pool holds itself",
            self.disk_used.clone(),
        );
        r.register(
            "disk_free_bytes",
            "Bytes that the file system of a pool still gives to the agent",
            self.disk_free.clone(),
        );
        r.register("disk_size_bytes", "Size of the file system of a pool", self.disk_size.clone());
        r.register(
            "disk_full_ratio",
            "Share of the file system of a pool that is taken, by anyone, from 0 to 1",
            self.disk_full_ratio.clone(),
        );
    }

    fn register_instances(&mut self) {
        let r = &mut self.registry;
        r.register("instances", "Instances the agent knows, by phase", self.instances.clone());
        r.register(
            "instance_failures",
            "Instances that did not start or did not stay up, by reason",
            self.instance_failures.clone(),
        );
        r.register(
            "degraded",
            "1 while the agent cannot take new instances, else 0",
            self.degraded.clone(),
        );
        r.register(
            "status_reports",
            "Status reports sent, by target and result",
            self.reports.clone(),
        );
        r.register(
            "api_requests",
            "Requests answered, by route and status code",
            self.api_requests.clone(),
        );
        r.register(
            "api_request_duration_seconds",
            "Time to the head of an answer",
            self.api_duration.clone(),
        );
        let version = [("version", env!("CARGO_PKG_VERSION"))];
        r.register("build", "Which agent this is", Info::new(version));
    }

    fn begin_at_zero(&self) {
        for reason in PullFailure::ALL {
            drop(self.pull_errors.get_or_create(&[("reason", reason.as_str())]));
        }
        for reason in Reason::ALL {
            drop(self.build_errors.get_or_create(&[("reason", reason.as_str())]));
            drop(self.instance_failures.get_or_create(&[("reason", reason.as_str())]));
        }
        for result in CacheResult::ALL {
            drop(self.cache_requests.get_or_create(&[("result", result.as_str())]));
        }
        for result in VerifyResult::ALL {
            drop(self.verifications.get_or_create(&[("result", result.as_str())]));
        }
        for kind in CacheKind::ALL {
            let labels = [("kind", kind.as_str())];
            drop(self.cache_bytes.get_or_create(&labels));
            drop(self.cache_entries.get_or_create(&labels));
            drop(self.evictions.get_or_create(&labels));
            drop(self.evicted_bytes.get_or_create(&labels));
        }
        for target in ReportTarget::ALL {
            for result in ["ok", "error"] {
                drop(
                    self.reports.get_or_create(&[("target", target.as_str()), ("result", result)]),
                );
            }
        }
        for phase in Phase::ALL {
            self.instances_in(phase.as_str(), 0);
        }
        for pool in Pool::ALL {
            self.pool(*pool, PoolUse::default());
        }
    }

    /// A pull came to its end with everything verified.
    pub fn pull_finished(&self, took: Duration) {
        self.pull_duration.observe(took.as_secs_f64());
    }

    /// A pull failed for good (retries are not counted).
    pub fn pull_failed(&self, why: PullFailure) {
        self.pull_errors.get_or_create(&[("reason", why.as_str())]).inc();
    }

    /// Bytes came from a registry.
    pub fn bytes_downloaded(&self, bytes: u64) {
        self.downloaded.inc_by(bytes);
    }

    /// A root disk was asked for and was there, or was not.
    pub fn cache_request(&self, result: CacheResult) {
        self.cache_requests.get_or_create(&[("result", result.as_str())]).inc();
    }

    /// A root disk was built.
    pub fn build_finished(&self, took: Duration) {
        self.build_duration.observe(took.as_secs_f64());
    }

    /// A root disk could not be built.
    pub fn build_failed(&self, reason: Reason) {
        self.build_errors.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// How much of a kind the cache holds now.
    pub fn cache_size(&self, kind: CacheKind, entries: u64, allocated_bytes: u64) {
        let labels = [("kind", kind.as_str())];
        self.cache_entries.get_or_create(&labels).set(signed(entries));
        self.cache_bytes.get_or_create(&labels).set(signed(allocated_bytes));
    }

    /// How many root disks are pinned now.
    pub fn pinned_rootdisks(&self, count: u64) {
        self.pinned.set(signed(count));
    }

    /// Something was evicted.
    pub fn evicted(&self, kind: CacheKind, entries: u64, allocated_bytes: u64) {
        let labels = [("kind", kind.as_str())];
        self.evictions.get_or_create(&labels).inc_by(entries);
        self.evicted_bytes.get_or_create(&labels).inc_by(allocated_bytes);
    }

    /// A root disk was compared with its checksum.
    pub fn verified(&self, result: VerifyResult) {
        self.verifications.get_or_create(&[("result", result.as_str())]).inc();
    }

    /// How full a pool is now.
    pub fn pool(&self, pool: Pool, now: PoolUse) {
        let labels = [("pool", pool.as_str())];
        self.disk_pressure.get_or_create(&labels).set(now.pressure.into());
        self.disk_used.get_or_create(&labels).set(signed(now.used_bytes));
        self.disk_free.get_or_create(&labels).set(signed(now.free_bytes));
        self.disk_size.get_or_create(&labels).set(signed(now.size_bytes));
        self.disk_full_ratio.get_or_create(&labels).set(full_ratio(now));
    }

    /// How many instances are in a phase now; call it for every phase, with 0 too.
    pub fn instances_in(&self, phase: &'static str, count: u64) {
        self.instances.get_or_create(&[("phase", phase)]).set(signed(count));
    }

    /// An instance did not start, or ended with an error.
    pub fn instance_failed(&self, reason: Reason) {
        self.instance_failures.get_or_create(&[("reason", reason.as_str())]).inc();
    }

    /// Whether new instances are refused.
    pub fn set_degraded(&self, degraded: bool) {
        self.degraded.set(degraded.into());
    }

    /// A status report was taken, or was not.
    pub fn reported(&self, target: ReportTarget, taken: bool) {
        let result = if taken { "ok" } else { "error" };
        self.reports.get_or_create(&[("target", target.as_str()), ("result", result)]).inc();
    }

    /// A request was answered. `route` is the pattern, never the path: a stranger must not make
    /// series.
    pub fn api_request(&self, route: &'static str, status: http::StatusCode, took: Duration) {
        let code = labels::status(status);
        self.api_requests.get_or_create(&[("route", route), ("code", code)]).inc();
        self.api_duration.observe(took.as_secs_f64());
    }

    /// The text for `GET /metrics`.
    pub fn encode(&self) -> String {
        openmetrics(&self.registry)
    }
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// What is taken of what we could have; an empty or unknown file system is no division by zero.
#[expect(clippy::cast_precision_loss, reason = "a ratio for a graph")]
fn full_ratio(now: PoolUse) -> f64 {
    if now.size_bytes == 0 {
        return 0.0;
    }
    1.0 - (now.free_bytes.min(now.size_bytes) as f64 / now.size_bytes as f64)
}

#[cfg(test)]
mod tests;
