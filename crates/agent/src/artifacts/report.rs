//! What the cache holds and what went, for people and for metrics.

use std::sync::Arc;

use portolan_rootdisk::meta::Metadata;

use super::{Artifacts, Inner};
use crate::api::{CacheReport, CachedDisk, GcReport, GcRequest, KindUse, PoolStatus};
use crate::evict::{Marks, Urgency, bytes_to_free};
use crate::metrics::{CacheKind, Pool, PoolUse};
use crate::pressure::Pressure;
use crate::store::{Amount, Item, Removed};

impl Artifacts {
    /// Everything that is cached.
    pub fn cache(&self) -> CacheReport {
        let Inner { store, config, .. } = &*self.0;
        let pressure = self.pressure();
        let (temporary, mut rootdisks, blobs) = {
            let temporary = self.temporary();
            let state = store.state();
            let disks: Vec<(u64, CachedDisk)> = state
                .disks()
                .map(|(id, disk)| {
                    let Metadata { rootdisk_key, .. } = &*disk.metadata;
                    let used = state.pins().last_access(rootdisk_key).unwrap_or(0);
                    (used, cached_disk(disk, u64::from(state.pins().count(id)), used))
                })
                .collect();
            (temporary, disks, kind_use(state.blob_use()))
        };
        rootdisks.sort_by(|a, b| (b.0, &b.1.key).cmp(&(a.0, &a.1.key)));
        CacheReport {
            rootdisks: rootdisks.into_iter().map(|(_, disk)| disk).collect(),
            blobs,
            temporary,
            allocated_bytes: pressure.cache_bytes + temporary.allocated_bytes,
            target_bytes: config.cache.target_bytes.map(|size| size.0),
            high_water_bytes: config
                .cache
                .high_water_bytes
                .or(config.cache.target_bytes)
                .map(|s| s.0),
            disk: PoolStatus {
                used_bytes: pressure.cache_bytes + temporary.allocated_bytes,
                free_bytes: pressure.available_bytes,
                size_bytes: pressure.filesystem_bytes,
                pressure: pressure.degraded,
            },
        }
    }

    /// Evicts on request. A target that is named counts however young something is; without one
    /// the configured targets and the least age count.
    pub async fn gc(&self, request: GcRequest) -> GcReport {
        let this = self.clone();
        let done = tokio::task::spawn_blocking(move || this.gc_now(request));
        match done.await {
            Ok(report) => report,
            // Nothing cancels it, so it panicked: go on panicking here.
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn gc_now(&self, request: GcRequest) -> GcReport {
        let Inner { store, config, marks, .. } = &*self.0;
        let usage = store.usage();
        let (bytes, urgency) = match request.target_bytes {
            // One more than there can be: whatever may go goes.
            Some(0) => (u64::MAX, Urgency::Start),
            Some(target) => (usage.cache_bytes.saturating_sub(target), Urgency::Start),
            None => {
                let targets = Marks {
                    bytes: marks.bytes.map(|(_, target)| (target, target)),
                    high_percent: marks.target_percent,
                    ..*marks
                };
                let spare_since = store.young_since(config.cache.min_age.0);
                (bytes_to_free(&usage, &targets, 0), Urgency::Tidy { spare_since })
            }
        };
        let removed = store.evict(bytes, urgency, request.dry_run);
        let mut report = GcReport { dry_run: request.dry_run, ..GcReport::default() };
        for Removed { item, bytes } in &removed {
            let kind = match item {
                Item::Temporary(_) => &mut report.temporary,
                Item::Blob(_) | Item::Manifest(_) => &mut report.blobs,
                Item::Disk(_) => &mut report.rootdisks,
            };
            kind.entries += 1;
            kind.allocated_bytes += bytes;
        }
        let freed = report.rootdisks.allocated_bytes + report.blobs.allocated_bytes;
        report.remaining_bytes = if request.dry_run {
            usage.cache_bytes.saturating_sub(freed)
        } else {
            self.count_removed(&removed);
            self.update_metrics();
            store.usage().cache_bytes
        };
        report.reached = match request.target_bytes {
            Some(target) => report.remaining_bytes <= target,
            None => freed.saturating_add(report.temporary.allocated_bytes) >= bytes,
        };
        report
    }

    /// Tells what was evicted.
    pub(super) fn count_removed(&self, removed: &[Removed]) {
        for Removed { item, bytes } in removed {
            let kind = match item {
                Item::Temporary(_) => CacheKind::Temporary,
                Item::Blob(_) | Item::Manifest(_) => CacheKind::Blob,
                Item::Disk(_) => CacheKind::Rootdisk,
            };
            self.0.metrics.evicted(kind, 1, *bytes);
            match item {
                Item::Disk(id) => {
                    tracing::info!(resolved_digest = %id.resolved_digest, rootdisk_key = id.key(), bytes, "root disk evicted");
                }
                Item::Blob(digest) | Item::Manifest(digest) => {
                    tracing::debug!(blob = %digest, bytes, "blob evicted");
                }
                Item::Temporary(path) => {
                    tracing::debug!(path = %path.display(), bytes, "leftover removed");
                }
            }
        }
    }

    /// Brings the gauges up to date, and says what was seen of the room.
    pub fn update_metrics(&self) -> Pressure {
        let metrics = Arc::clone(&self.0.metrics);
        let pressure = self.pressure();
        let temporary = self.temporary();
        {
            let state = self.0.store.state();
            let (disks, blobs) = (state.disk_use(), state.blob_use());
            metrics.cache_size(CacheKind::Rootdisk, disks.entries, disks.bytes);
            metrics.cache_size(CacheKind::Blob, blobs.entries, blobs.bytes);
            metrics.pinned_rootdisks(state.pins().pinned().len() as u64);
        }
        metrics.cache_size(CacheKind::Temporary, temporary.entries, temporary.allocated_bytes);
        metrics.pool(
            Pool::Cache,
            PoolUse {
                used_bytes: pressure.cache_bytes + temporary.allocated_bytes,
                free_bytes: pressure.available_bytes,
                size_bytes: pressure.filesystem_bytes,
                pressure: pressure.degraded,
            },
        );
        pressure
    }

    fn temporary(&self) -> KindUse {
        let (entries, allocated_bytes) = self.0.store.temporary();
        KindUse { entries, allocated_bytes }
    }
}

fn kind_use(amount: Amount) -> KindUse {
    KindUse { entries: amount.entries, allocated_bytes: amount.bytes }
}

fn cached_disk(disk: &crate::store::Disk, pins: u64, last_used: u64) -> CachedDisk {
    let metadata = &disk.metadata;
    let last_used = i64::try_from(last_used).unwrap_or(i64::MAX);
    CachedDisk {
        key: metadata.rootdisk_key.clone(),
        resolved_digest: metadata.resolved_digest.to_string(),
        format_version: metadata.rootdisk_format_version.clone(),
        size_bytes: metadata.size_bytes,
        allocated_bytes: disk.allocated_bytes,
        pins,
        built_at: metadata.build_timestamp,
        last_used_at: jiff::Timestamp::from_millisecond(last_used)
            .unwrap_or(metadata.build_timestamp),
    }
}
