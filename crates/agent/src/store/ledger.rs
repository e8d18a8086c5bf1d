//! The sums of the cache, kept beside its lists: how much there is, and how much of it nobody
//! needs.
//!
//! Who needs what: a disk that is there, pinned or being built needs its manifest and, by way of
//! it, the config, without which it does not start; one that is being built needs its layers, too.
//! Each need is counted once for each who has it, so that every change costs what it changes, and
//! never a walk through the cache.

use std::collections::HashMap;

use portolan_core::Digest;

use super::state::ManifestEntry;
use crate::pins::DiskId;

/// A way to need a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Use {
    /// A disk of it is there.
    Disk,
    /// Somebody pins a disk of it, there or not.
    Pin,
    /// A disk of it is being acquired, built or checked.
    Hold,
}

/// Who needs a manifest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Uses {
    disks: u32,
    pins: u32,
    holds: u32,
}

impl Uses {
    fn any(self) -> bool {
        self.disks > 0 || self.pins > 0 || self.holds > 0
    }

    fn of(&mut self, kind: Use) -> &mut u32 {
        match kind {
            Use::Disk => &mut self.disks,
            Use::Pin => &mut self.pins,
            Use::Hold => &mut self.holds,
        }
    }
}

/// A disk's share of the sums.
#[derive(Debug, Clone, Copy)]
struct DiskShare {
    bytes: u64,
    used: bool,
}

/// The sums, and the counts they follow from.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    uses: HashMap<Digest, Uses>,
    /// Blobs that must stay, and for how many manifests.
    kept: HashMap<Digest, u32>,
    disks: HashMap<DiskId, DiskShare>,
    /// Layers and configs, with what each takes.
    blobs: HashMap<Digest, u64>,
    disk_bytes: u64,
    free_disk_bytes: u64,
    blob_bytes: u64,
    free_blob_bytes: u64,
}

impl Ledger {
    /// One more who needs a manifest.
    pub(super) fn add(
        &mut self,
        digest: &Digest,
        kind: Use,
        manifests: &HashMap<Digest, ManifestEntry>,
    ) {
        self.change(digest, manifests, |uses| *uses.of(kind) += 1);
    }

    /// One less.
    pub(super) fn take(
        &mut self,
        digest: &Digest,
        kind: Use,
        manifests: &HashMap<Digest, ManifestEntry>,
    ) {
        self.change(digest, manifests, |uses| {
            let count = uses.of(kind);
            *count = count.saturating_sub(1);
        });
    }

    fn change(
        &mut self,
        digest: &Digest,
        manifests: &HashMap<Digest, ManifestEntry>,
        change: impl FnOnce(&mut Uses),
    ) {
        let before = self.uses_of(digest);
        let mut after = before;
        change(&mut after);
        if after.any() {
            self.uses.insert(*digest, after);
        } else {
            self.uses.remove(digest);
        }
        let Some(entry) = manifests.get(digest) else { return };
        match (before.any(), after.any()) {
            (false, true) => {
                self.free_blob_bytes -= entry.allocated_bytes;
                self.keep(&entry.config);
            }
            (true, false) => {
                self.free_blob_bytes += entry.allocated_bytes;
                self.let_go(&entry.config);
            }
            _ => {}
        }
        match (before.holds > 0, after.holds > 0) {
            (false, true) => entry.layers.iter().for_each(|layer| self.keep(layer)),
            (true, false) => entry.layers.iter().for_each(|layer| self.let_go(layer)),
            _ => {}
        }
    }

    fn uses_of(&self, digest: &Digest) -> Uses {
        self.uses.get(digest).copied().unwrap_or_default()
    }

    fn keep(&mut self, blob: &Digest) {
        let count = self.kept.entry(*blob).or_default();
        *count += 1;
        if *count == 1 {
            self.free_blob_bytes -= self.blobs.get(blob).copied().unwrap_or(0);
        }
    }

    fn let_go(&mut self, blob: &Digest) {
        let Some(count) = self.kept.get_mut(blob) else { return };
        *count -= 1;
        if *count == 0 {
            self.kept.remove(blob);
            self.free_blob_bytes += self.blobs.get(blob).copied().unwrap_or(0);
        }
    }

    /// A manifest is there.
    pub(super) fn manifest(&mut self, digest: &Digest, entry: &ManifestEntry) {
        let uses = self.uses_of(digest);
        self.blob_bytes += entry.allocated_bytes;
        match uses.any() {
            true => self.keep(&entry.config),
            false => self.free_blob_bytes += entry.allocated_bytes,
        }
        if uses.holds > 0 {
            entry.layers.iter().for_each(|layer| self.keep(layer));
        }
    }

    /// A manifest is gone.
    pub(super) fn no_manifest(&mut self, digest: &Digest, entry: &ManifestEntry) {
        let uses = self.uses_of(digest);
        self.blob_bytes -= entry.allocated_bytes;
        match uses.any() {
            true => self.let_go(&entry.config),
            false => self.free_blob_bytes -= entry.allocated_bytes,
        }
        if uses.holds > 0 {
            entry.layers.iter().for_each(|layer| self.let_go(layer));
        }
    }

    /// A blob is there, perhaps in place of an older one.
    pub(super) fn blob(&mut self, digest: &Digest, bytes: u64) {
        self.no_blob(digest);
        self.blobs.insert(*digest, bytes);
        self.blob_bytes += bytes;
        if !self.keeps(digest) {
            self.free_blob_bytes += bytes;
        }
    }

    /// A blob is gone; gives back what it took.
    pub(super) fn no_blob(&mut self, digest: &Digest) -> Option<u64> {
        let bytes = self.blobs.remove(digest)?;
        self.blob_bytes -= bytes;
        if !self.keeps(digest) {
            self.free_blob_bytes -= bytes;
        }
        Some(bytes)
    }

    /// Layers and configs, with what each takes.
    pub(super) fn blobs(&self) -> &HashMap<Digest, u64> {
        &self.blobs
    }

    /// A disk is there; `used`: somebody pins or holds it.
    pub(super) fn disk(&mut self, id: &DiskId, bytes: u64, used: bool) {
        self.no_disk(id);
        self.disks.insert(id.clone(), DiskShare { bytes, used });
        self.disk_bytes += bytes;
        if !used {
            self.free_disk_bytes += bytes;
        }
    }

    /// A disk is gone.
    pub(super) fn no_disk(&mut self, id: &DiskId) {
        if let Some(DiskShare { bytes, used }) = self.disks.remove(id) {
            self.disk_bytes -= bytes;
            if !used {
                self.free_disk_bytes -= bytes;
            }
        }
    }

    /// Whether somebody pins or holds a disk, there or not.
    pub(super) fn use_disk(&mut self, id: &DiskId, used: bool) {
        let Some(share) = self.disks.get_mut(id) else { return };
        match (std::mem::replace(&mut share.used, used), used) {
            (false, true) => self.free_disk_bytes -= share.bytes,
            (true, false) => self.free_disk_bytes += share.bytes,
            _ => {}
        }
    }

    /// Whether a manifest must stay.
    pub(super) fn needs(&self, manifest: &Digest) -> bool {
        self.uses.contains_key(manifest)
    }

    /// Whether a blob must stay.
    pub(super) fn keeps(&self, blob: &Digest) -> bool {
        self.kept.contains_key(blob)
    }

    /// Whether a disk of a manifest is there, of any version.
    pub(super) fn has_disk(&self, manifest: &Digest) -> bool {
        self.uses_of(manifest).disks > 0
    }

    /// Whether nobody but so many disks needs a manifest.
    pub(super) fn is_used_by_disks_alone(&self, manifest: &Digest, disks: u32) -> bool {
        self.uses_of(manifest) == Uses { disks, ..Uses::default() }
    }

    /// Whether a blob stays for so many manifests and no more.
    pub(super) fn is_kept_by(&self, blob: &Digest, manifests: u32) -> bool {
        self.kept.get(blob) == Some(&manifests)
    }

    /// All disks.
    pub(super) fn disk_bytes(&self) -> u64 {
        self.disk_bytes
    }

    /// Those that nobody pins or holds.
    pub(super) fn free_disk_bytes(&self) -> u64 {
        self.free_disk_bytes
    }

    /// All blobs and manifests.
    pub(super) fn blob_bytes(&self) -> u64 {
        self.blob_bytes
    }

    /// Those that nobody needs.
    pub(super) fn free_blob_bytes(&self) -> u64 {
        self.free_blob_bytes
    }
}
