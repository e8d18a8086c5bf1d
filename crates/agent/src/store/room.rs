//! How much room there is, and making some.

use portolan_registry::durable;

use super::state::{Item, State};
use super::{Store, scan, wall_clock};
use crate::evict::{Candidate, Rank, Urgency, Usage, choose};

/// So many victims are checked and taken off under one lock. Each takes microseconds; a start that
/// comes meanwhile waits no longer than a millisecond or two.
const BATCH: usize = 16;

/// Something that was, or would be, evicted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Removed {
    /// What it was.
    pub item: Item,
    /// What that gave back.
    pub bytes: u64,
}

impl Store {
    /// How much room there is now.
    pub fn usage(&self) -> Usage {
        let cache_bytes = self.state().bytes();
        match rustix::fs::statvfs(self.paths.root()) {
            Ok(stat) => Usage {
                cache_bytes,
                filesystem_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
                available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
                read_only: stat.f_flag.contains(rustix::fs::StatVfsMountFlags::RDONLY),
            },
            Err(error) => {
                tracing::warn!(%error, "the file system of the cache does not say how full it is");
                Usage { cache_bytes, ..Usage::default() }
            }
        }
    }

    /// Everything that takes room, leftovers in `tmp/` included.
    pub fn candidates(&self) -> Vec<Candidate<Item>> {
        let mut all = self.leftovers();
        all.extend(self.state().candidates());
        all
    }

    /// How much could be evicted if a start needed it.
    pub fn evictable(&self) -> u64 {
        self.state().evictable_bytes()
    }

    /// What lies in `tmp/` and nobody writes any more.
    fn leftovers(&self) -> Vec<Candidate<Item>> {
        let listed = std::fs::read_dir(self.paths.tmp()).into_iter().flatten().flatten();
        let old = listed.filter_map(|entry| {
            let metadata = std::fs::symlink_metadata(entry.path()).ok()?;
            durable::is_abandoned(&entry.path()).then(|| Candidate {
                name: Item::Temporary(entry.path()),
                rank: Rank::Temporary,
                bytes: scan::allocated(&metadata),
                last_access: 0,
                pinned: false,
            })
        });
        old.collect()
    }

    /// What goes so that at least `bytes` are freed, or all that may go, in this order.
    fn plan(&self, bytes: u64, urgency: Urgency) -> Vec<Candidate<Item>> {
        let all = self.candidates();
        let mut plan = chosen(all, bytes, urgency);
        let freed = plan.iter().fold(0_u64, |sum, victim| sum.saturating_add(victim.bytes));
        if freed < bytes {
            // Without its disk a manifest is of no use, and with it it may not go.
            let disks: Vec<_> = plan
                .iter()
                .filter_map(|victim| match &victim.name {
                    Item::Disk(id) => Some(id.clone()),
                    _ => None,
                })
                .collect();
            let documents = self.state().documents_without(&disks);
            plan.extend(chosen(documents, bytes - freed, urgency));
        }
        plan
    }

    /// Evicts at least `bytes`, or all that may go; or only says what would go.
    pub fn evict(&self, bytes: u64, urgency: Urgency, dry_run: bool) -> Vec<Removed> {
        let plan = self.plan(bytes, urgency);
        if dry_run {
            return plan.into_iter().map(|c| Removed { item: c.name, bytes: c.bytes }).collect();
        }
        let mut removed = Vec::new();
        for batch in plan.chunks(BATCH) {
            let mut aside = Vec::new();
            {
                let mut state = self.state();
                for victim in batch {
                    if let Some(path) = self.take_off(&mut state, &victim.name) {
                        aside.push(path);
                        removed.push(Removed { item: victim.name.clone(), bytes: victim.bytes });
                    }
                }
            }
            // Freeing the blocks of a large file takes a while; nobody waits for it here.
            for path in aside {
                scan::remove(&path);
            }
        }
        removed
    }

    /// Takes one thing off the lists and its name, unless it is needed by now.
    fn take_off(&self, state: &mut State, item: &Item) -> Option<std::path::PathBuf> {
        if !state.may_go(item) {
            return None;
        }
        let detached = match item {
            Item::Temporary(path) => Ok(path.clone()),
            Item::Blob(digest) => self.detach(&self.paths.blob(digest)?),
            Item::Manifest(digest) => self.detach(&self.paths.manifest(digest)?),
            Item::Disk(id) => self.detach_disk(&state.disk(id)?.path),
        };
        let path = match detached {
            Ok(path) => path,
            Err(error) => {
                tracing::warn!(?item, %error, "what was to be evicted cannot be removed");
                return None;
            }
        };
        match item {
            Item::Temporary(_) => {}
            Item::Blob(digest) => drop(state.remove_blob(digest)),
            Item::Manifest(digest) => state.remove_manifest(digest),
            Item::Disk(id) => state.forget_disk(id),
        }
        Some(path)
    }

    /// The time from which on something counts as young.
    pub fn young_since(&self, min_age: std::time::Duration) -> u64 {
        let now = self.state().pins().now(wall_clock());
        now.saturating_sub(u64::try_from(min_age.as_millis()).unwrap_or(u64::MAX))
    }
}

/// The candidates that go, in their order.
fn chosen(all: Vec<Candidate<Item>>, bytes: u64, urgency: Urgency) -> Vec<Candidate<Item>> {
    let order = choose(&all, bytes, urgency);
    let mut all: Vec<Option<Candidate<Item>>> = all.into_iter().map(Some).collect();
    order.into_iter().filter_map(|place| all[place].take()).collect()
}
