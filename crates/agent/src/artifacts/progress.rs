//! How far builds are: one count for all who wait for the same disk, whenever they came.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use portolan_rootdisk::build::{Phase, Watch};
use tokio_util::sync::CancellationToken;

use crate::api::Progress;
use crate::pins::DiskId;

/// The builds under way.
#[derive(Debug, Default, Clone)]
pub(super) struct Meters(Arc<Mutex<HashMap<DiskId, Arc<Meter>>>>);

/// One try to build a disk. The next try counts from the beginning.
#[derive(Debug)]
pub(super) struct Meter {
    total: u64,
    done: AtomicU64,
}

/// A build that is listed, until it is dropped.
#[derive(Debug)]
pub(super) struct Listed {
    meters: Meters,
    disk: DiskId,
    meter: Arc<Meter>,
}

impl Meters {
    fn lock(&self) -> MutexGuard<'_, HashMap<DiskId, Arc<Meter>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists a try whose layers have so many compressed bytes.
    pub(super) fn begin(&self, disk: &DiskId, total: u64) -> Listed {
        let meter = Arc::new(Meter { total, done: AtomicU64::new(0) });
        self.lock().insert(disk.clone(), Arc::clone(&meter));
        Listed { meters: self.clone(), disk: disk.clone(), meter }
    }

    /// How far a disk is; none while nobody builds it.
    pub(super) fn of(&self, disk: &DiskId) -> Option<Progress> {
        let meter = Arc::clone(self.lock().get(disk)?);
        // A registry that sends more than the manifest says is found out in a moment.
        let done = meter.done.load(Ordering::Relaxed).min(meter.total);
        Some(Progress { bytes_done: done, bytes_total: meter.total })
    }
}

impl Listed {
    pub(super) fn meter(&self) -> Arc<Meter> {
        Arc::clone(&self.meter)
    }
}

impl Drop for Listed {
    fn drop(&mut self) {
        self.meters.lock().remove(&self.disk);
    }
}

/// What one build tells, and whether it is still wanted.
pub(super) struct Listener {
    pub(super) meter: Arc<Meter>,
    pub(super) cancel: CancellationToken,
    /// When the last layer was in.
    pub(super) pulled: Mutex<Option<Instant>>,
}

impl Watch for Listener {
    fn bytes(&self, _: usize, more: u64) {
        self.meter.done.fetch_add(more, Ordering::Relaxed);
    }

    fn phase(&self, phase: Phase) {
        if phase == Phase::Filesystem {
            *self.pulled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}
