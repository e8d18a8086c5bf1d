//! Pins and holds that give themselves back.

use std::sync::Arc;

use portolan_core::Digest;
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;

use crate::id::InstanceId;
use crate::pins::DiskId;
use crate::store::Store;

/// Keeps a disk, and what it is built from, from being evicted while something works on it.
#[derive(Debug)]
pub(super) struct Hold {
    store: Arc<Store>,
    disk: DiskId,
}

impl Hold {
    pub(super) fn new(store: &Arc<Store>, disk: &DiskId) -> Self {
        store.state().hold(disk);
        Self { store: Arc::clone(store), disk: disk.clone() }
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.store.state().unhold(&self.disk);
    }
}

/// An instance's pin that is not yet sure to stay.
pub(super) struct PinGuard<'a> {
    store: Arc<Store>,
    instance: &'a InstanceId,
    disk: DiskId,
    /// The instance pinned nothing before.
    new: bool,
}

impl<'a> PinGuard<'a> {
    /// Decides which disk the instance gets, and holds it, under one lock.
    pub(super) fn take(store: &Arc<Store>, instance: &'a InstanceId, digest: Digest) -> Self {
        let mut state = store.state();
        let before = state.pins().of(instance).cloned();
        let new = before.is_none();
        let own = before.filter(|id| id.resolved_digest == digest && state.disk(id).is_some());
        let disk = own.unwrap_or_else(|| DiskId::new(digest, ROOTDISK_FORMAT_VERSION));
        state.hold(&disk);
        if new {
            state.pin(instance, Some(disk.clone()));
        }
        drop(state);
        if new {
            store.pins_changed();
        }
        Self { store: Arc::clone(store), instance, disk, new }
    }

    /// The disk.
    pub(super) fn disk(&self) -> &DiskId {
        &self.disk
    }

    /// Makes the pin stay, on the disk that it came to. False when it was released meanwhile.
    pub(super) fn confirm(mut self, disk: &DiskId) -> bool {
        let (before, confirmed) = {
            let mut state = self.store.state();
            let before = state.pins().of(self.instance).cloned();
            (before, state.confirm(self.instance, disk))
        };
        if let Some(before) = before.filter(|before| before != disk) {
            // One that was found damaged while this instance ran from it.
            self.store.drop_disowned(&before);
        }
        // Dropped below, it only gives its hold back.
        self.new = false;
        self.store.pins_changed();
        confirmed
    }
}

impl Drop for PinGuard<'_> {
    fn drop(&mut self) {
        let mut state = self.store.state();
        state.unhold(&self.disk);
        if self.new && state.pins().of(self.instance) == Some(&self.disk) {
            state.pin(self.instance, None);
            drop(state);
            self.store.pins_changed();
        }
    }
}
