//! What the cache holds, in memory: the lists that pins, lookups and eviction share one lock on.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::PathBuf;
use std::sync::Arc;

use portolan_core::Digest;
use portolan_rootdisk::meta::Metadata;

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

/// Everything.
#[derive(Debug, Default)]
pub struct State {
    /// Who uses what.
    pub pins: Pins,
    /// What is being acquired, built or checked right now, and how often.
    pub holds: HashMap<DiskId, u32>,
    /// Valid root disks.
    pub disks: BTreeMap<DiskId, Disk>,
    /// Layers and configs, with what each takes.
    pub blobs: HashMap<Digest, u64>,
    /// Manifests.
    pub manifests: HashMap<Digest, ManifestEntry>,
    /// The pins were compared with the instances that there are. Before that no disk is evicted,
    /// since a pin that a crash lost may be missing.
    pub reconciled: bool,
    /// What the last build that ended for want of room would have needed.
    pub shortfall: Option<u64>,
}

impl Journal for State {
    fn take_changes(&mut self) -> Changes {
        self.pins.take_changes()
    }

    fn not_taken(&mut self) {
        self.pins.not_taken();
    }
}

impl State {
    /// Holds a disk, so that neither it nor what it is built from is evicted.
    pub fn hold(&mut self, disk: &DiskId) {
        *self.holds.entry(disk.clone()).or_default() += 1;
    }

    /// Takes one hold away.
    pub fn unhold(&mut self, disk: &DiskId) {
        if let Some(count) = self.holds.get_mut(disk) {
            *count -= 1;
            if *count == 0 {
                self.holds.remove(disk);
            }
        }
    }

    /// Whether a disk must stay.
    pub fn is_pinned(&self, disk: &DiskId) -> bool {
        !self.reconciled || self.pins.count(disk) > 0 || self.holds.contains_key(disk)
    }

    /// Gives an instance its pin after all went well. False when the pin was given back
    /// meanwhile: then nobody wants the disk any more.
    pub fn confirm(&mut self, instance: &InstanceId, disk: &DiskId) -> bool {
        if self.pins.of(instance).is_none() {
            return false;
        }
        self.pins.set(instance, Some(disk.clone()));
        true
    }

    /// The allocated bytes of all disks, blobs and manifests.
    pub fn bytes(&self) -> u64 {
        let disks: u64 = self.disks.values().map(|disk| disk.allocated_bytes).sum();
        let manifests: u64 = self.manifests.values().map(|m| m.allocated_bytes).sum();
        disks + manifests + self.blobs.values().sum::<u64>()
    }

    /// What may not go.
    pub fn needs(&self) -> Needs {
        let mut needs = Needs::default();
        let entry = |digest: &Digest| self.manifests.get(digest);
        // A disk that is there starts without a registry only with its manifest and config.
        let wanted = self.disks.keys().chain(self.pins.pinned()).chain(self.holds.keys());
        for disk in wanted {
            needs.manifests.insert(disk.resolved_digest);
            needs.kept.extend(entry(&disk.resolved_digest).map(|m| m.config));
        }
        // Who builds may need the layers again in a moment.
        for disk in self.holds.keys() {
            needs.kept.extend(entry(&disk.resolved_digest).iter().flat_map(|m| &m.layers));
        }
        needs
    }

    /// The layers of pinned disks, which go last.
    fn layers_of_pinned(&self) -> HashSet<Digest> {
        let entries = self.pins.pinned().filter_map(|id| self.manifests.get(&id.resolved_digest));
        entries.flat_map(|entry| &entry.layers).copied().collect()
    }

    /// How many bytes could go if a start needed them. Asked with every report and metric, so it
    /// makes no list.
    pub fn evictable_bytes(&self) -> u64 {
        let needs = self.needs();
        let disks = self.disks.iter().filter(|(id, _)| !self.is_pinned(id));
        let blobs = self.blobs.iter().filter(|(digest, _)| !needs.kept.contains(digest));
        let manifests =
            self.manifests.iter().filter(|(digest, _)| !needs.manifests.contains(digest));
        disks.map(|(_, disk)| disk.allocated_bytes).sum::<u64>()
            + blobs.map(|(_, bytes)| bytes).sum::<u64>()
            + manifests.map(|(_, entry)| entry.allocated_bytes).sum::<u64>()
    }

    /// Everything that takes room, except what is in `tmp/`.
    pub fn candidates(&self) -> Vec<Candidate<Item>> {
        let (needs, last) = (self.needs(), self.layers_of_pinned());
        let used = |name: &str| self.pins.last_access(name).unwrap_or(0);
        let blobs = self.blobs.iter().map(|(digest, bytes)| Candidate {
            name: Item::Blob(*digest),
            rank: if last.contains(digest) { Rank::BlobOfPinned } else { Rank::Blob },
            bytes: *bytes,
            last_access: used(&digest.to_string()),
            pinned: needs.kept.contains(digest),
        });
        let manifests = self.manifests.iter().map(|(digest, entry)| Candidate {
            name: Item::Manifest(*digest),
            rank: Rank::Blob,
            bytes: entry.allocated_bytes,
            last_access: used(&digest.to_string()),
            pinned: needs.manifests.contains(digest),
        });
        let disks = self.disks.iter().map(|(id, disk)| Candidate {
            name: Item::Disk(id.clone()),
            rank: Rank::Disk,
            bytes: disk.allocated_bytes,
            last_access: used(&disk.metadata.rootdisk_key),
            pinned: self.is_pinned(id),
        });
        blobs.chain(manifests).chain(disks).collect()
    }

    /// Whether one thing may still go, by what [`needs`](Self::needs) gave under this same lock:
    /// it is then removed before anybody else gets it.
    pub fn may_go(&self, item: &Item, needs: &Needs) -> bool {
        match item {
            Item::Temporary(_) => true,
            Item::Disk(id) => self.disks.contains_key(id) && !self.is_pinned(id),
            Item::Blob(digest) => self.blobs.contains_key(digest) && !needs.kept.contains(digest),
            Item::Manifest(digest) => {
                self.manifests.contains_key(digest) && !needs.manifests.contains(digest)
            }
        }
    }
}

/// What is needed by what.
#[derive(Debug, Default)]
pub struct Needs {
    /// Manifests that stay.
    manifests: HashSet<Digest>,
    /// Blobs that stay.
    kept: HashSet<Digest>,
}

#[cfg(test)]
mod tests {
    use portolan_rootdisk::checksum::Checksum;
    use portolan_rootdisk::meta::FilesystemType;

    use super::*;

    fn digest(text: &str) -> Digest {
        Digest::sha256(text.as_bytes())
    }

    fn id(text: &str) -> DiskId {
        DiskId::new(digest(text), "1")
    }

    fn disk(id: &DiskId) -> Disk {
        let metadata = Metadata {
            resolved_digest: id.resolved_digest,
            rootdisk_key: id.key(),
            rootdisk_format_version: id.format_version.clone(),
            build_timestamp: jiff::Timestamp::UNIX_EPOCH,
            filesystem_type: FilesystemType::Ext4,
            size_bytes: 4096,
            allocated_bytes: 4096,
            checksum: Checksum::from_bytes([0; 32]),
            layers: 1,
            files: 1,
            inodes: 12,
            verity: None,
        };
        Disk { path: PathBuf::new(), metadata: Arc::new(metadata), allocated_bytes: 4096 }
    }

    /// Two images, each of a config, a layer of its own and one layer that both have.
    fn two_images() -> State {
        let mut state = State { reconciled: true, ..State::default() };
        for image in ["a", "b"] {
            let (config, own) =
                (digest(&format!("{image}-config")), digest(&format!("{image}-layer")));
            let layers = vec![own, digest("base")];
            state.blobs.extend([(config, 10), (own, 20), (digest("base"), 30)]);
            let entry = ManifestEntry { allocated_bytes: 5, config, layers };
            state.manifests.insert(digest(image), entry);
            state.disks.insert(id(image), disk(&id(image)));
        }
        state
    }

    fn may_go(state: &State, item: &Item) -> bool {
        state.may_go(item, &state.needs())
    }

    fn named<'a>(all: &'a [Candidate<Item>], item: &Item) -> &'a Candidate<Item> {
        all.iter().find(|c| c.name == *item).unwrap()
    }

    #[test]
    fn what_a_disk_needs_to_start_stays_and_layers_may_go() {
        let mut state = two_images();
        state.pins.set(&"i".parse().unwrap(), Some(id("a")));
        let all = state.candidates();
        let of = |item: &Item| {
            let found = named(&all, item);
            (found.rank, found.pinned)
        };
        assert_eq!(of(&Item::Disk(id("a"))), (Rank::Disk, true));
        assert_eq!(of(&Item::Disk(id("b"))), (Rank::Disk, false));
        assert_eq!(of(&Item::Blob(digest("a-layer"))), (Rank::BlobOfPinned, false));
        assert_eq!(of(&Item::Blob(digest("base"))), (Rank::BlobOfPinned, false));
        assert_eq!(of(&Item::Blob(digest("b-layer"))), (Rank::Blob, false));
        let free: u64 = all.iter().filter(|c| !c.pinned).map(|c| c.bytes).sum();
        assert_eq!(state.evictable_bytes(), free);
        for kept in [
            Item::Blob(digest("a-config")),
            Item::Blob(digest("b-config")),
            Item::Manifest(digest("a")),
            Item::Manifest(digest("b")),
        ] {
            assert!(of(&kept).1, "{kept:?}");
            assert!(!may_go(&state, &kept), "{kept:?}");
        }
        // Without their disk they are nobody's.
        state.disks.remove(&id("b"));
        assert!(may_go(&state, &Item::Manifest(digest("b"))));
        assert!(may_go(&state, &Item::Blob(digest("b-config"))));
    }

    #[test]
    fn what_is_being_built_stays_with_all_its_layers() {
        let mut state = two_images();
        state.disks.clear();
        state.hold(&id("b"));
        state.hold(&id("b"));
        state.unhold(&id("b"));
        for kept in ["b-layer", "base", "b-config"] {
            assert!(!may_go(&state, &Item::Blob(digest(kept))), "{kept}");
        }
        assert!(may_go(&state, &Item::Blob(digest("a-layer"))));
        state.unhold(&id("b"));
        assert!(may_go(&state, &Item::Blob(digest("base"))));
    }

    #[test]
    fn before_pins_are_compared_with_instances_no_disk_goes() {
        let mut state = two_images();
        assert!(may_go(&state, &Item::Disk(id("b"))));
        state.reconciled = false;
        assert!(!may_go(&state, &Item::Disk(id("b"))));
        assert!(may_go(&state, &Item::Blob(digest("b-layer"))));
    }

    #[test]
    fn a_pin_that_was_given_back_is_not_confirmed() {
        let mut state = two_images();
        let instance: InstanceId = "i".parse().unwrap();
        assert!(!state.confirm(&instance, &id("a")));
        state.pins.set(&instance, Some(id("b")));
        assert!(state.confirm(&instance, &id("a")));
        assert_eq!(state.pins.of(&instance), Some(&id("a")));
    }
}
