//! Which instance uses which root disk, and when each artifact was last used.
//!
//! The truth of a running agent is in memory: a pin is taken and a disk looked up under one lock,
//! in microseconds, and no full disk can keep an instance from giving a pin back. A thread of its
//! own (`writer`) carries every change to `agent.redb` in transactions, pins within
//! milliseconds, times of use together with the next pin or twice a minute: reading a cached disk
//! costs no fsync.
//!
//! What a crash can lose that way is rebuilt: pins from `instances/` by [`Pins::reconcile`], before
//! which nothing is evicted; times of use from the times of files.

mod database;
mod writer;

use std::collections::{BTreeMap, HashMap, HashSet};

use portolan_core::Digest;
use portolan_rootdisk::meta::rootdisk_key;

use crate::id::InstanceId;

pub use database::{Database, DatabaseError, Loaded};
pub use writer::{Journal, Writer};

/// A root disk: the manifest it is built from and the rules it is built by.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DiskId {
    /// The manifest.
    pub resolved_digest: Digest,
    /// The version of the rules.
    pub format_version: String,
}

impl DiskId {
    /// Of this manifest, by the rules of this version.
    pub fn new(resolved_digest: Digest, format_version: &str) -> Self {
        Self { resolved_digest, format_version: format_version.to_owned() }
    }

    /// What the disk is cached under.
    pub fn key(&self) -> String {
        rootdisk_key(&self.resolved_digest, &self.format_version)
    }
}

/// Pins and times of use.
#[derive(Debug, Default)]
pub struct Pins {
    instances: BTreeMap<InstanceId, DiskId>,
    counts: HashMap<DiskId, u32>,
    /// Milliseconds since 1970, by [`DiskId::key`] or by a blob's digest.
    access: HashMap<String, u64>,
    /// `registry/repository` that a manifest's disk was built from.
    origins: HashMap<Digest, String>,
    /// The latest time given out: times of use only ever grow, even when the clock goes back.
    latest: u64,
    changed: Changed,
}

/// What the database does not have yet.
#[derive(Debug, Default)]
struct Changed {
    instances: HashSet<InstanceId>,
    disks: HashSet<DiskId>,
    access: HashSet<String>,
    origins: HashSet<Digest>,
    /// Everything: what the database has beside is to go.
    all: bool,
}

/// One transaction for the database. None is a removal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Changes {
    /// The database is emptied first.
    pub all: bool,
    /// Instance to what it pins.
    pub instances: Vec<(InstanceId, Option<DiskId>)>,
    /// Disk to how many pin it; 0 removes it.
    pub counts: Vec<(DiskId, u32)>,
    /// Key or digest to when it was last used.
    pub access: Vec<(String, Option<u64>)>,
    /// Manifest to where it came from.
    pub origins: Vec<(Digest, Option<String>)>,
}

impl Changes {
    /// Nothing to write.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

impl Pins {
    /// What a database had. `now` is the wall clock in milliseconds since 1970.
    ///
    /// Times that lie in the future were written under another clock: they keep their order and
    /// end now, so that they neither look young for years nor lose their rank.
    pub fn new(loaded: Loaded, now: u64) -> Self {
        let Loaded { instances, mut access, origins } = loaded;
        let mut future: Vec<(u64, String)> = access
            .iter()
            .filter(|(_, time)| **time > now)
            .map(|(name, time)| (*time, name.clone()))
            .collect();
        future.sort_unstable();
        let begin = now.saturating_sub(future.len() as u64);
        for ((_, name), time) in future.into_iter().zip(begin..) {
            access.insert(name, time);
        }
        let mut pins = Self {
            latest: access.values().copied().max().unwrap_or(0),
            access,
            origins,
            ..Self::default()
        };
        for (instance, disk) in instances {
            pins.set(&instance, Some(disk));
        }
        // Counts are derived; the database's own are written anew.
        pins.changed.all = true;
        pins
    }

    /// The time now, never before a time that was given out.
    pub fn now(&self, wall: u64) -> u64 {
        wall.max(self.latest)
    }

    /// What an instance pins.
    pub fn of(&self, instance: &InstanceId) -> Option<&DiskId> {
        self.instances.get(instance)
    }

    /// How many instances pin a disk.
    pub fn count(&self, disk: &DiskId) -> u32 {
        self.counts.get(disk).copied().unwrap_or(0)
    }

    /// Every disk that is pinned.
    pub fn pinned(&self) -> impl ExactSizeIterator<Item = &DiskId> {
        self.counts.keys()
    }

    /// How many instances pin something.
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether nobody pins anything.
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }

    /// Makes an instance pin a disk, or nothing; gives back what it pinned before.
    pub fn set(&mut self, instance: &InstanceId, disk: Option<DiskId>) -> Option<DiskId> {
        let before = match disk.clone() {
            Some(disk) => self.instances.insert(instance.clone(), disk),
            None => self.instances.remove(instance),
        };
        if before == disk {
            return before;
        }
        if let Some(disk) = disk {
            *self.counts.entry(disk.clone()).or_default() += 1;
            self.changed.disks.insert(disk);
        }
        if let Some(disk) = &before {
            let left = self.count(disk).saturating_sub(1);
            match left {
                0 => self.counts.remove(disk),
                left => self.counts.insert(disk.clone(), left),
            };
            self.changed.disks.insert(disk.clone());
        }
        self.changed.instances.insert(instance.clone());
        before
    }

    /// Notes that a key or digest is used now.
    pub fn touch(&mut self, name: &str, wall: u64) {
        // One more than the last at least: of two uses in one millisecond, or under a clock that
        // went back, the later one is still the later one.
        self.latest = wall.max(self.latest + 1);
        self.access.insert(name.to_owned(), self.latest);
        self.changed.access.insert(name.to_owned());
    }

    /// When a key or digest was last used, if that was ever noted.
    pub fn last_access(&self, name: &str) -> Option<u64> {
        self.access.get(name).copied()
    }

    /// Forgets the times of what is gone.
    pub fn forget(&mut self, name: &str) {
        if self.access.remove(name).is_some() {
            self.changed.access.insert(name.to_owned());
        }
    }

    /// Takes a time for what has none: the time of its file.
    pub fn remember(&mut self, name: &str, time: u64) {
        if !self.access.contains_key(name) {
            self.access.insert(name.to_owned(), time);
            self.changed.access.insert(name.to_owned());
        }
    }

    /// Keeps only the times of these names.
    pub fn retain(&mut self, known: impl Fn(&str) -> bool) {
        let gone: Vec<String> = self.access.keys().filter(|name| !known(name)).cloned().collect();
        for name in gone {
            self.forget(&name);
        }
    }

    /// Where a manifest's disk came from: `registry/repository`.
    pub fn origin(&self, digest: &Digest) -> Option<&str> {
        self.origins.get(digest).map(String::as_str)
    }

    /// Notes where a manifest's disk came from, or that there is none any more.
    pub fn set_origin(&mut self, digest: &Digest, origin: Option<&str>) {
        let changed = match origin {
            Some(origin) => {
                self.origins.insert(*digest, origin.to_owned()).as_deref() != Some(origin)
            }
            None => self.origins.remove(digest).is_some(),
        };
        if changed {
            self.changed.origins.insert(*digest);
        }
    }

    /// Keeps only the origins of these manifests.
    pub fn retain_origins(&mut self, known: impl Fn(&Digest) -> bool) {
        let gone: Vec<Digest> =
            self.origins.keys().filter(|digest| !known(digest)).copied().collect();
        for digest in gone {
            self.set_origin(&digest, None);
        }
    }

    /// Makes the pins those of `live` and of nobody else.
    pub fn reconcile(&mut self, live: impl IntoIterator<Item = (InstanceId, DiskId)>) {
        let live: BTreeMap<InstanceId, DiskId> = live.into_iter().collect();
        let gone: Vec<InstanceId> =
            self.instances.keys().filter(|id| !live.contains_key(*id)).cloned().collect();
        for instance in gone {
            self.set(&instance, None);
        }
        for (instance, disk) in live {
            self.set(&instance, Some(disk));
        }
    }

    /// Whether pins changed, so that the database should hear of it soon.
    pub fn is_urgent(&self) -> bool {
        self.changed.all || !self.changed.instances.is_empty()
    }

    /// What the database should be told; afterwards nothing is left to tell.
    pub fn take_changes(&mut self) -> Changes {
        let mut changed = std::mem::take(&mut self.changed);
        if changed.all {
            changed.instances = self.instances.keys().cloned().collect();
            changed.disks = self.counts.keys().cloned().collect();
            changed.access = self.access.keys().cloned().collect();
            changed.origins = self.origins.keys().copied().collect();
        }
        let Changed { instances, disks, access, origins, all } = changed;
        Changes {
            all,
            instances: paired(instances, |id| self.of(id).cloned()),
            counts: paired(disks, |disk| self.count(disk)),
            access: paired(access, |name| self.last_access(name)),
            origins: paired(origins, |digest| self.origin(digest).map(str::to_owned)),
        }
    }

    /// The database did not take what it was told: everything is told again, since what it has
    /// now is not known.
    pub fn not_taken(&mut self) {
        self.changed.all = true;
    }
}

/// Each name with what is known of it now.
fn paired<N, V>(names: HashSet<N>, value: impl Fn(&N) -> V) -> Vec<(N, V)> {
    let with = |name: N| {
        let value = value(&name);
        (name, value)
    };
    names.into_iter().map(with).collect()
}

#[cfg(test)]
mod tests;
