//! One build, many listeners.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use portolan_rootdisk::build::{Phase, Watch};
use tokio_util::sync::CancellationToken;

use crate::pins::DiskId;

type Listeners = HashMap<DiskId, Vec<(u64, Arc<dyn Watch>)>>;

/// Who listens to which build.
#[derive(Default, Clone)]
pub(super) struct Watchers(Arc<Mutex<Registered>>);

#[derive(Default)]
struct Registered {
    next: u64,
    listeners: Listeners,
}

/// One listener, until it is dropped.
pub(super) struct Watching {
    watchers: Watchers,
    disk: DiskId,
    number: u64,
}

impl Watchers {
    fn lock(&self) -> MutexGuard<'_, Registered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Listens to the builds of a disk.
    pub(super) fn add(&self, disk: &DiskId, watch: Arc<dyn Watch>) -> Watching {
        let mut registered = self.lock();
        registered.next += 1;
        let number = registered.next;
        registered.listeners.entry(disk.clone()).or_default().push((number, watch));
        Watching { watchers: self.clone(), disk: disk.clone(), number }
    }

    fn each(&self, disk: &DiskId, tell: impl Fn(&dyn Watch)) {
        // Not under the lock: a listener may take its time, or its leave.
        let all: Vec<Arc<dyn Watch>> = self
            .lock()
            .listeners
            .get(disk)
            .map(|all| all.iter().map(|(_, watch)| Arc::clone(watch)).collect())
            .unwrap_or_default();
        for watch in all {
            tell(watch.as_ref());
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        let mut registered = self.watchers.lock();
        if let Some(all) = registered.listeners.get_mut(&self.disk) {
            all.retain(|(number, _)| *number != self.number);
            if all.is_empty() {
                registered.listeners.remove(&self.disk);
            }
        }
    }
}

/// What one build tells, and whether it is still wanted.
pub(super) struct Fan {
    pub(super) watchers: Watchers,
    pub(super) disk: DiskId,
    pub(super) cancel: CancellationToken,
    /// When the last layer was in.
    pub(super) pulled: Mutex<Option<Instant>>,
}

impl Watch for Fan {
    fn bytes(&self, layer: usize, more: u64) {
        self.watchers.each(&self.disk, |watch| watch.bytes(layer, more));
    }

    fn files(&self, more: u64) {
        self.watchers.each(&self.disk, |watch| watch.files(more));
    }

    fn layer_done(&self, layer: usize) {
        self.watchers.each(&self.disk, |watch| watch.layer_done(layer));
    }

    fn phase(&self, phase: Phase) {
        if phase == Phase::Filesystem {
            *self.pulled.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
        }
        self.watchers.each(&self.disk, |watch| watch.phase(phase));
    }

    fn cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }
}
