//! Garbage collection: everything `index.json` leads to stays, the rest goes when it is old
//! enough that no push can still be on its way to it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::time::Duration;

use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Algorithm, Digest};

use super::facts::{self, Facts};
use super::{Layout, LayoutError};
use crate::durable;

/// How to collect.
#[derive(Debug, Clone, Copy)]
pub struct GarbageOptions {
    /// Content younger than this stays, listed or not: a push stores blobs before the manifest
    /// that refers to them. Must be longer than the longest push.
    pub grace: Duration,
    /// Also drop manifests that have no tag, are part of no tagged index and speak of no subject
    /// that stays.
    pub untagged: bool,
    /// Only say what would go.
    pub dry_run: bool,
}

impl Default for GarbageOptions {
    /// A day of grace, untagged manifests stay.
    fn default() -> Self {
        Self { grace: Duration::from_secs(24 * 60 * 60), untagged: false, dry_run: false }
    }
}

/// One thing that was, or would be, removed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Garbage {
    /// Its name.
    pub digest: Digest,
    /// Its size on disk.
    pub size: u64,
    /// Whether `index.json` listed it (only with [`GarbageOptions::untagged`]).
    pub manifest: bool,
}

/// What a collection did, or would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Collected {
    /// What went.
    pub removed: Vec<Garbage>,
    /// How many blobs stay because something refers to them.
    pub live: usize,
    /// How many blobs nothing refers to stay because they are too young.
    pub spared: usize,
}

impl Collected {
    /// The bytes that were, or would be, freed.
    pub fn bytes(&self) -> u64 {
        self.removed.iter().map(|garbage| garbage.size).sum()
    }
}

/// One manifest of `index.json` as the decision sees it.
#[derive(Debug, Clone)]
struct Listed {
    tagged: bool,
    young: bool,
    subject: Option<Digest>,
}

impl Layout {
    /// Removes what nothing refers to.
    ///
    /// Holds the layout's lock, so no manifest can be listed meanwhile; a blob that a push found
    /// present a moment ago is young again because the push touched it. A listed manifest that
    /// cannot be read stops the collection: what it refers to cannot be known.
    pub fn collect_garbage(&self, options: &GarbageOptions) -> Result<Collected, LayoutError> {
        let _lock = self.lock()?;
        let blobs = self.stored()?;
        let young = |digest: &Digest| blobs.get(digest).is_none_or(|(_, age)| *age < options.grace);
        let (listed, mentions) = self.relations(&blobs, young)?;
        let dropped =
            if options.untagged { droppable(&listed, &mentions) } else { BTreeSet::new() };
        let roots = listed.keys().filter(|digest| !dropped.contains(digest)).copied();
        let live = reachable(roots, &mentions);

        let mut collected = Collected::default();
        for (digest, (size, _)) in &blobs {
            if live.contains(digest) {
                collected.live += 1;
            } else if young(digest) {
                collected.spared += 1;
            } else {
                let manifest = dropped.contains(digest);
                collected.removed.push(Garbage { digest: *digest, size: *size, manifest });
            }
        }
        if !options.dry_run {
            self.sweep(&collected, &dropped)?;
        }
        Ok(collected)
    }

    fn sweep(&self, collected: &Collected, dropped: &BTreeSet<Digest>) -> Result<(), LayoutError> {
        if !dropped.is_empty() {
            self.change_locked(|index| {
                for digest in dropped {
                    index.remove(digest);
                }
            })?;
        }
        for garbage in &collected.removed {
            self.delete_blob(&garbage.digest)?;
            self.forget(&garbage.digest);
        }
        Ok(())
    }

    /// Every blob with its size and the time since it was written or touched.
    fn stored(&self) -> Result<BTreeMap<Digest, (u64, Duration)>, LayoutError> {
        let mut blobs = BTreeMap::new();
        for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
            let dir = self.blobs_dir(algorithm);
            let entries = match fs::read_dir(&dir) {
                Ok(entries) => entries,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => return Err(LayoutError::io("list", &dir, e)),
            };
            for entry in entries {
                let entry = entry.map_err(|e| LayoutError::io("list", &dir, e))?;
                let name = entry.file_name();
                // Files that are not called like content are somebody else's.
                let Ok(digest) = format!("{algorithm}:{}", name.to_string_lossy()).parse() else {
                    continue;
                };
                if let Ok(metadata) = entry.metadata() {
                    blobs.insert(digest, (metadata.len(), durable::age(&metadata)));
                }
            }
        }
        Ok(blobs)
    }

    /// What is listed, and what every manifest reachable from there mentions.
    #[allow(clippy::type_complexity, reason = "two maps that are only built together")]
    fn relations(
        &self,
        blobs: &BTreeMap<Digest, (u64, Duration)>,
        young: impl Fn(&Digest) -> bool,
    ) -> Result<(BTreeMap<Digest, Listed>, BTreeMap<Digest, BTreeSet<Digest>>), LayoutError> {
        let mut listed: BTreeMap<Digest, Listed> = BTreeMap::new();
        let mut mentions = BTreeMap::new();
        let index = self.read_index()?;
        for entry in index.entries() {
            let Some(descriptor) = entry.descriptor() else { continue };
            let digest = descriptor.digest;
            let tagged = entry.name().is_some();
            if let Some(known) = listed.get_mut(&digest) {
                known.tagged |= tagged;
                continue;
            }
            let facts = self.note_mentions(&digest, blobs, &mut mentions)?;
            let subject = facts.and_then(|facts| facts.subject);
            listed.insert(digest, Listed { tagged, young: young(&digest), subject });
        }
        Ok((listed, mentions))
    }

    /// Reads a manifest and, where it is an index, the ones below it.
    fn note_mentions(
        &self,
        top: &Digest,
        blobs: &BTreeMap<Digest, (u64, Duration)>,
        mentions: &mut BTreeMap<Digest, BTreeSet<Digest>>,
    ) -> Result<Option<Facts>, LayoutError> {
        let mut top_facts = None;
        let mut queue = vec![*top];
        while let Some(digest) = queue.pop() {
            if mentions.contains_key(&digest) || !blobs.contains_key(&digest) {
                continue;
            }
            let path = self.blob_path(&digest);
            let Some(bytes) = durable::read_bounded(&path, MAX_MANIFEST_BYTES as u64)? else {
                continue;
            };
            let unreadable = |source| LayoutError::NotAManifest { digest, source };
            mentions.insert(digest, facts::mentioned(&bytes).map_err(unreadable)?);
            let facts = facts::read(&bytes).map_err(unreadable)?;
            queue.extend(facts.children.iter().map(|child| child.digest));
            if digest == *top {
                top_facts = Some(facts);
            }
        }
        Ok(top_facts)
    }
}

/// Everything that can be reached from `roots` by following mentions.
fn reachable(
    roots: impl Iterator<Item = Digest>,
    mentions: &BTreeMap<Digest, BTreeSet<Digest>>,
) -> BTreeSet<Digest> {
    let mut live = BTreeSet::new();
    let mut queue: Vec<Digest> = roots.collect();
    while let Some(digest) = queue.pop() {
        if live.insert(digest) {
            queue.extend(mentions.get(&digest).into_iter().flatten());
        }
    }
    live
}

/// The listed manifests that nothing tagged leads to, directly, as a part, or as the subject of
/// what stays.
fn droppable(
    listed: &BTreeMap<Digest, Listed>,
    mentions: &BTreeMap<Digest, BTreeSet<Digest>>,
) -> BTreeSet<Digest> {
    let keeps = |l: &Listed| l.tagged || l.young;
    let mut live = reachable(listed.iter().filter(|(_, l)| keeps(l)).map(|(d, _)| *d), mentions);
    // A referrer of a referrer stays too, so repeat until nothing new is found.
    loop {
        let found: Vec<Digest> = listed
            .iter()
            .filter(|(digest, l)| {
                !live.contains(digest) && l.subject.is_some_and(|subject| live.contains(&subject))
            })
            .map(|(digest, _)| *digest)
            .collect();
        if found.is_empty() {
            return listed.keys().filter(|digest| !live.contains(digest)).copied().collect();
        }
        live.extend(reachable(found.into_iter(), mentions));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::sha256(&[n])
    }

    fn listed(tagged: bool, subject: Option<u8>) -> Listed {
        Listed { tagged, young: false, subject: subject.map(digest) }
    }

    #[test]
    fn referrers_of_referrers_stay_with_their_subject() {
        let all = BTreeMap::from([
            (digest(1), listed(true, None)),
            (digest(2), listed(false, Some(1))),
            (digest(3), listed(false, Some(2))),
            (digest(4), listed(false, None)),
            (digest(5), listed(false, Some(4))),
            (digest(6), listed(false, None)),
        ]);
        // 6 is part of the tagged index 1.
        let mentions = BTreeMap::from([(digest(1), BTreeSet::from([digest(6)]))]);
        assert_eq!(droppable(&all, &mentions), BTreeSet::from([digest(4), digest(5)]));
    }

    #[test]
    fn a_cycle_of_mentions_ends() {
        let mentions = BTreeMap::from([
            (digest(1), BTreeSet::from([digest(2)])),
            (digest(2), BTreeSet::from([digest(1), digest(3)])),
        ]);
        let live = reachable([digest(1)].into_iter(), &mentions);
        assert_eq!(live, BTreeSet::from([digest(1), digest(2), digest(3)]));
    }
}
