//! What the cache holds, in memory: the lists that pins, lookups and eviction share one lock on.
//!
//! Every change goes through a method here, which keeps the sums right beside the lists
//! ([`Ledger`]): how much there is and how much may go is asked with every report, metric and
//! status, and must not cost a walk through all of it.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use portolan_core::Digest;
use portolan_rootdisk::meta::Metadata;

use super::ledger::{Ledger, Use};
use crate::evict::{Candidate, Rank};
use crate::id::InstanceId;
use crate::pins::{Changes, DiskId, Journal, Pins};

/// A root disk that is valid: its file and its metadata have their names.
#[derive(Debug, Clone)]
pub struct Disk {
    /// The file.
    pub path: PathBuf,
    /// What is kept beside it.
    pub metadata: Arc<Metadata>,
    /// What it takes of the file system now.
    pub allocated_bytes: u64,
}

/// A manifest, and what it refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ManifestEntry {
    /// What it takes of the file system.
    pub allocated_bytes: u64,
    /// The image's config.
    pub config: Digest,
    /// The layers' blobs.
    pub layers: Vec<Digest>,
}

/// One thing that can be evicted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Item {
    /// A file or directory in `tmp/` that nobody works on.
    Temporary(PathBuf),
    /// A layer or config.
    Blob(Digest),
    /// A manifest.
    Manifest(Digest),
    /// A root disk.
    Disk(DiskId),
}

/// How many of a kind there are, and what they take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Amount {
    /// How many.
    pub entries: u64,
    /// What they take of the file system.
    pub bytes: u64,
}

/// Everything.
#[derive(Debug, Default)]
pub struct State {
    pins: Pins,
    /// What is being acquired, built or checked right now, and how often.
    holds: HashMap<DiskId, u32>,
    disks: BTreeMap<DiskId, Disk>,
    manifests: HashMap<Digest, ManifestEntry>,
    /// Damaged disks that instances run from; each goes with its last pin.
    disowned: HashSet<DiskId>,
    /// The pins were compared with the instances that there are. Before that no disk is evicted,
    /// since a pin that a crash lost may be missing.
    reconciled: bool,
    ledger: Ledger,
    /// What the last build that ended for want of room would have needed, and when that was.
    shortfall: Option<(u64, Instant)>,
}

/// How long a build that ended for want of room speaks for the next one. The estimate may have
/// been wrong, and a host that gets no work because of it would never find out.
const SHORTFALL_COUNTS: Duration = Duration::from_secs(10 * 60);

impl Journal for State {
    fn take_changes(&mut self) -> Changes {
        self.pins.take_changes()
    }

    fn not_taken(&mut self) {
        self.pins.not_taken();
    }
}

/// Pins and holds.
impl State {
    /// Nothing but what a database knew.
    pub fn new(pins: Pins) -> Self {
        let mut state = Self { pins, ..Self::default() };
        state.count_all();
        state
    }

    /// Who uses what, and when.
    pub fn pins(&self) -> &Pins {
        &self.pins
    }

    /// Makes an instance pin a disk, or nothing; gives back what it pinned before.
    pub fn pin(&mut self, instance: &InstanceId, disk: Option<DiskId>) -> Option<DiskId> {
        let new = disk.clone().filter(|disk| self.pins.count(disk) == 0);
        let before = self.pins.set(instance, disk);
        if let Some(disk) = new {
            self.ledger.add(&disk.resolved_digest, Use::Pin, &self.manifests);
            self.recount(&disk);
        }
        if let Some(disk) = before.as_ref().filter(|disk| self.pins.count(disk) == 0) {
            self.ledger.take(&disk.resolved_digest, Use::Pin, &self.manifests);
            self.recount(disk);
        }
        before
    }

    /// Makes the pins those of these instances and of nobody else; from then on disks may go.
    pub fn reconcile(&mut self, live: impl IntoIterator<Item = (InstanceId, DiskId)>) {
        self.pins.reconcile(live);
        self.reconciled = true;
        self.count_all();
    }

    /// Gives an instance its pin after all went well. False when the pin was given back
    /// meanwhile: then nobody wants the disk any more.
    pub fn confirm(&mut self, instance: &InstanceId, disk: &DiskId) -> bool {
        if self.pins.of(instance).is_none() {
            return false;
        }
        self.pin(instance, Some(disk.clone()));
        true
    }

    /// Holds a disk, so that neither it nor what it is built from is evicted.
    pub fn hold(&mut self, disk: &DiskId) {
        let count = self.holds.entry(disk.clone()).or_default();
        *count += 1;
        if *count == 1 {
            self.ledger.add(&disk.resolved_digest, Use::Hold, &self.manifests);
            self.recount(disk);
        }
    }

    /// Takes one hold away.
    pub fn unhold(&mut self, disk: &DiskId) {
        let Some(count) = self.holds.get_mut(disk) else { return };
        *count -= 1;
        if *count == 0 {
            self.holds.remove(disk);
            self.ledger.take(&disk.resolved_digest, Use::Hold, &self.manifests);
            self.recount(disk);
        }
    }

    /// Whether a disk must stay.
    pub fn is_pinned(&self, disk: &DiskId) -> bool {
        !self.reconciled || self.is_used(disk)
    }

    fn is_used(&self, disk: &DiskId) -> bool {
        self.pins.count(disk) > 0 || self.holds.contains_key(disk)
    }

    /// Notes that a key or digest is used now.
    pub fn touch(&mut self, name: &str, wall: u64) {
        self.pins.touch(name, wall);
    }

    /// Takes a time for what has none: the time of its file.
    pub fn remember(&mut self, name: &str, time: u64) {
        self.pins.remember(name, time);
    }

    /// Notes where a manifest's disk came from.
    pub fn set_origin(&mut self, digest: &Digest, origin: &str) {
        self.pins.set_origin(digest, Some(origin));
    }

    /// Forgets times and origins of what is not here.
    pub fn forget_what_is_gone(&mut self) {
        let Self { pins, disks, manifests, ledger, .. } = self;
        let blobs = ledger.blobs();
        let images: HashSet<Digest> = disks.keys().map(|id| id.resolved_digest).collect();
        pins.retain_origins(|digest| images.contains(digest));
        let keys: HashSet<&str> =
            disks.values().map(|disk| disk.metadata.rootdisk_key.as_str()).collect();
        pins.retain(|name| {
            keys.contains(name)
                || name.parse().is_ok_and(|digest: Digest| {
                    blobs.contains_key(&digest) || manifests.contains_key(&digest)
                })
        });
    }
}

/// What is there.
impl State {
    /// A valid root disk.
    pub fn disk(&self, id: &DiskId) -> Option<&Disk> {
        self.disks.get(id)
    }

    /// Every valid root disk.
    pub fn disks(&self) -> impl Iterator<Item = (&DiskId, &Disk)> {
        self.disks.iter()
    }

    /// Takes a disk in.
    pub fn insert_disk(&mut self, id: DiskId, disk: Disk) {
        self.remove_disk(&id);
        self.disowned.remove(&id);
        self.ledger.add(&id.resolved_digest, Use::Disk, &self.manifests);
        self.ledger.disk(&id, disk.allocated_bytes, self.is_used(&id));
        self.disks.insert(id, disk);
    }

    /// Takes a disk off.
    pub fn remove_disk(&mut self, id: &DiskId) -> Option<Disk> {
        let disk = self.disks.remove(id)?;
        self.ledger.no_disk(id);
        self.ledger.take(&id.resolved_digest, Use::Disk, &self.manifests);
        Some(disk)
    }

    /// Takes an evicted disk off, with all that is known of it.
    pub fn forget_disk(&mut self, id: &DiskId) {
        self.remove_disk(id);
        self.pins.forget(&id.key());
        // A disk of another version came from the same place.
        if !self.ledger.has_disk(&id.resolved_digest) {
            self.pins.set_origin(&id.resolved_digest, None);
        }
    }

    /// Notes that a damaged disk's file must go with its last pin.
    pub fn disown(&mut self, id: &DiskId) {
        if self.remove_disk(id).is_some() {
            self.disowned.insert(id.clone());
        }
    }

    /// Whether a disk was disowned and nobody uses it: then its file is to be removed, and is
    /// forgotten here.
    pub fn take_disowned(&mut self, id: &DiskId) -> bool {
        !self.is_used(id) && self.disowned.remove(id)
    }

    /// Takes a layer or config in, with what it takes.
    pub fn insert_blob(&mut self, digest: Digest, bytes: u64) {
        self.ledger.blob(&digest, bytes);
    }

    /// Takes a layer or config off; gives back what it took.
    pub fn remove_blob(&mut self, digest: &Digest) -> Option<u64> {
        let bytes = self.ledger.no_blob(digest)?;
        self.pins.forget(&digest.to_string());
        Some(bytes)
    }

    /// Takes a manifest in.
    pub fn insert_manifest(&mut self, digest: Digest, entry: ManifestEntry) {
        if let Some(before) = self.manifests.remove(&digest) {
            self.ledger.no_manifest(&digest, &before);
        }
        self.ledger.manifest(&digest, &entry);
        self.manifests.insert(digest, entry);
    }

    /// Takes a manifest off.
    pub fn remove_manifest(&mut self, digest: &Digest) {
        if let Some(entry) = self.manifests.remove(digest) {
            self.ledger.no_manifest(digest, &entry);
            self.pins.forget(&digest.to_string());
        }
    }

    /// Of all disks.
    pub fn disk_use(&self) -> Amount {
        Amount { entries: self.disks.len() as u64, bytes: self.ledger.disk_bytes() }
    }

    /// Of all blobs and manifests.
    pub fn blob_use(&self) -> Amount {
        let entries = (self.ledger.blobs().len() + self.manifests.len()) as u64;
        Amount { entries, bytes: self.ledger.blob_bytes() }
    }

    /// The allocated bytes of all disks, blobs and manifests.
    pub fn bytes(&self) -> u64 {
        self.ledger.disk_bytes() + self.ledger.blob_bytes()
    }

    /// How many bytes could go if a start needed them.
    pub fn evictable_bytes(&self) -> u64 {
        let disks = if self.reconciled { self.ledger.free_disk_bytes() } else { 0 };
        disks + self.ledger.free_blob_bytes()
    }

    /// A build ended for want of so many bytes.
    pub fn miss(&mut self, bytes: u64, now: Instant) {
        self.shortfall = Some((bytes, now));
    }

    /// A build came through.
    pub fn miss_nothing(&mut self) {
        self.shortfall = None;
    }

    /// What the last build that ended for want of room would have needed, if that was not long
    /// ago.
    pub fn shortfall(&self, now: Instant) -> Option<u64> {
        let (bytes, when) = self.shortfall?;
        (now.saturating_duration_since(when) < SHORTFALL_COUNTS).then_some(bytes)
    }

    fn recount(&mut self, disk: &DiskId) {
        let used = self.is_used(disk);
        self.ledger.use_disk(disk, used);
    }

    /// The sums from the beginning: at the start, when all pins change at once.
    fn count_all(&mut self) {
        let mut ledger = Ledger::default();
        for (digest, bytes) in self.ledger.blobs() {
            ledger.blob(digest, *bytes);
        }
        for (digest, entry) in &self.manifests {
            ledger.manifest(digest, entry);
        }
        for disk in self.pins.pinned() {
            ledger.add(&disk.resolved_digest, Use::Pin, &self.manifests);
        }
        for disk in self.holds.keys() {
            ledger.add(&disk.resolved_digest, Use::Hold, &self.manifests);
        }
        for (id, disk) in &self.disks {
            ledger.add(&id.resolved_digest, Use::Disk, &self.manifests);
            ledger.disk(id, disk.allocated_bytes, self.is_used(id));
        }
        self.ledger = ledger;
    }
}

/// What may go.
impl State {
    /// The layers of pinned disks, which go last.
    fn layers_of_pinned(&self) -> HashSet<Digest> {
        let entries = self.pins.pinned().filter_map(|id| self.manifests.get(&id.resolved_digest));
        entries.flat_map(|entry| &entry.layers).copied().collect()
    }

    /// Everything that takes room, except what is in `tmp/`.
    pub fn candidates(&self) -> Vec<Candidate<Item>> {
        let last = self.layers_of_pinned();
        let blobs = self.ledger.blobs().iter().map(|(digest, bytes)| Candidate {
            rank: if last.contains(digest) { Rank::BlobOfPinned } else { Rank::Blob },
            ..self.candidate(Item::Blob(*digest), *bytes)
        });
        let manifests = self
            .manifests
            .iter()
            .map(|(digest, entry)| self.candidate(Item::Manifest(*digest), entry.allocated_bytes));
        let disks = self.disks.iter().map(|(id, disk)| Candidate {
            rank: Rank::Disk,
            ..self.candidate(Item::Disk(id.clone()), disk.allocated_bytes)
        });
        blobs.chain(manifests).chain(disks).collect()
    }

    fn candidate(&self, name: Item, bytes: u64) -> Candidate<Item> {
        let used = match &name {
            Item::Temporary(_) => None,
            Item::Blob(digest) | Item::Manifest(digest) => {
                self.pins.last_access(&digest.to_string())
            }
            Item::Disk(id) => self.pins.last_access(&id.key()),
        };
        let pinned = !self.may_go(&name);
        Candidate { rank: Rank::Blob, bytes, last_access: used.unwrap_or(0), pinned, name }
    }

    /// The manifests and configs that nobody needs once these disks are gone: without its disk
    /// they are of no use, and with it they may not go.
    pub fn documents_without(&self, gone: &[DiskId]) -> Vec<Candidate<Item>> {
        let mut disks: HashMap<Digest, u32> = HashMap::new();
        for id in gone {
            *disks.entry(id.resolved_digest).or_default() += 1;
        }
        let mut configs: HashMap<Digest, u32> = HashMap::new();
        let mut free = Vec::new();
        for (digest, entry) in disks.iter().filter_map(|(digest, n)| {
            let lone = self.ledger.is_used_by_disks_alone(digest, *n);
            Some((digest, self.manifests.get(digest).filter(|_| lone)?))
        }) {
            free.push((Item::Manifest(*digest), entry.allocated_bytes));
            *configs.entry(entry.config).or_default() += 1;
        }
        for (config, n) in configs {
            if let Some(bytes) = self.ledger.blobs().get(&config)
                && self.ledger.is_kept_by(&config, n)
            {
                free.push((Item::Blob(config), *bytes));
            }
        }
        let freed = |(item, bytes)| Candidate { pinned: false, ..self.candidate(item, bytes) };
        free.into_iter().map(freed).collect()
    }

    /// Whether one thing may still go. Asked under the same lock that it is taken off under, so
    /// that nobody else gets it in between.
    pub fn may_go(&self, item: &Item) -> bool {
        match item {
            Item::Temporary(_) => true,
            Item::Disk(id) => self.disks.contains_key(id) && !self.is_pinned(id),
            Item::Blob(digest) => {
                self.ledger.blobs().contains_key(digest) && !self.ledger.keeps(digest)
            }
            Item::Manifest(digest) => {
                self.manifests.contains_key(digest) && !self.ledger.needs(digest)
            }
        }
    }
}

#[cfg(test)]
mod tests;
