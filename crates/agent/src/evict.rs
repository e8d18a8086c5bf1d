//! What goes when room is needed. Everything here is decided from numbers that are handed in; who
//! carries it out checks each pin again under the lock that gives pins out.

use crate::config::{CacheConfig, Percent};

/// In which order kinds of things go. Within a rank the least recently used goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Rank {
    /// What a crash or a failed removal left in `tmp/`.
    Temporary,
    /// A layer that no pinned disk was built from, or a manifest or config that no disk has.
    Blob,
    /// A root disk.
    Disk,
    /// A layer that a pinned disk was built from: it would only be fetched again should that disk
    /// be lost. Taken only when a start needs the room.
    BlobOfPinned,
}

/// One thing that takes room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate<N> {
    /// What it is called by whoever removes it.
    pub name: N,
    /// When its turn is.
    pub rank: Rank,
    /// What its removal gives back: allocated bytes, not the length of the file.
    pub bytes: u64,
    /// Milliseconds since 1970.
    pub last_access: u64,
    /// Used by an instance, or by something that is being built.
    pub pinned: bool,
}

/// When to evict, and how far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marks {
    /// Of the cache's own bytes: high-water mark and target.
    pub bytes: Option<(u64, u64)>,
    /// Of the file system: high-water mark.
    pub high_percent: Percent,
    /// Of the file system: target.
    pub target_percent: Percent,
}

impl From<&CacheConfig> for Marks {
    fn from(config: &CacheConfig) -> Self {
        let bytes = config
            .target_bytes
            .map(|target| (config.high_water_bytes.map_or(target.0, |high| high.0), target.0));
        Self {
            bytes,
            high_percent: config.high_water_percent,
            target_percent: config.target_percent,
        }
    }
}

/// How much room there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// Allocated bytes of the cache itself.
    pub cache_bytes: u64,
    /// The file system's size.
    pub filesystem_bytes: u64,
    /// What it still gives to us.
    pub available_bytes: u64,
    /// It takes no writes: mounted so, or made so by the kernel after errors.
    pub read_only: bool,
}

impl Usage {
    fn used(&self) -> u64 {
        self.filesystem_bytes.saturating_sub(self.available_bytes)
    }

    /// As it is when so many bytes of the cache are gone.
    pub fn without(self, bytes: u64) -> Self {
        Self {
            cache_bytes: self.cache_bytes.saturating_sub(bytes),
            available_bytes: self.available_bytes.saturating_add(bytes).min(self.filesystem_bytes),
            ..self
        }
    }
}

/// How much must go so that `room` more bytes fit below the high-water marks; the targets are
/// what is evicted down to, so that not every start has to evict.
pub fn bytes_to_free(usage: &Usage, marks: &Marks, room: u64) -> u64 {
    let beyond = |now: u64, high: u64, target: u64| {
        let after = now.saturating_add(room);
        if after > high { after.saturating_sub(target) } else { 0 }
    };
    let own = marks.bytes.map_or(0, |(high, target)| beyond(usage.cache_bytes, high, target));
    let size = usage.filesystem_bytes;
    let shared = beyond(usage.used(), marks.high_percent.of(size), marks.target_percent.of(size));
    own.max(shared)
}

/// How much is beyond the high-water marks even when `evictable` bytes are gone: the pressure that
/// evicting cannot relieve.
pub fn bytes_beyond(usage: &Usage, marks: &Marks, evictable: u64) -> u64 {
    let beyond = |now: u64, high: u64| now.saturating_sub(evictable).saturating_sub(high);
    let own = marks.bytes.map_or(0, |(high, _)| beyond(usage.cache_bytes, high));
    own.max(beyond(usage.used(), marks.high_percent.of(usage.filesystem_bytes)))
}

/// How hard the room is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// A mark was passed. What was used at or after this time (milliseconds since 1970) stays.
    Tidy {
        /// Younger than this is spared.
        spare_since: u64,
    },
    /// A start needs the room now.
    Start,
}

/// Whether a candidate may go at all.
pub fn may_go<N>(candidate: &Candidate<N>, urgency: Urgency) -> bool {
    match urgency {
        _ if candidate.pinned => false,
        Urgency::Start => true,
        Urgency::Tidy { spare_since } => {
            candidate.rank != Rank::BlobOfPinned && candidate.last_access < spare_since
        }
    }
}

/// Which candidates go, in this order, so that at least `bytes` are freed; all that may go where
/// they are not enough. Gives back places in `candidates`.
pub fn choose<N: Ord>(candidates: &[Candidate<N>], bytes: u64, urgency: Urgency) -> Vec<usize> {
    let mut order: Vec<usize> =
        (0..candidates.len()).filter(|&i| may_go(&candidates[i], urgency)).collect();
    // The name breaks ties, so that the same state always gives the same answer.
    order.sort_by_key(|&i| {
        let c = &candidates[i];
        (c.rank, c.last_access, &c.name)
    });
    let mut freed = 0_u64;
    let enough = order.iter().take_while(|&&i| {
        let wanted = freed < bytes;
        freed = freed.saturating_add(candidates[i].bytes);
        wanted
    });
    let count = enough.count();
    order.truncate(count);
    order
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn candidate(name: u32, rank: Rank, bytes: u64, last_access: u64) -> Candidate<u32> {
        Candidate { name, rank, bytes, last_access, pinned: false }
    }

    fn any_candidates() -> impl Strategy<Value = Vec<Candidate<u32>>> {
        let rank = prop_oneof![
            Just(Rank::Temporary),
            Just(Rank::Blob),
            Just(Rank::Disk),
            Just(Rank::BlobOfPinned)
        ];
        let one = (rank, 0..1000_u64, 0..50_u64, any::<bool>());
        prop::collection::vec(one, 0..40).prop_map(|all| {
            let numbered = all.into_iter().zip(0_u32..);
            numbered
                .map(|((rank, bytes, last_access, pinned), name)| Candidate {
                    pinned,
                    ..candidate(name, rank, bytes, last_access)
                })
                .collect()
        })
    }

    fn any_urgency() -> impl Strategy<Value = Urgency> {
        prop_oneof![
            Just(Urgency::Start),
            (0..60_u64).prop_map(|spare_since| Urgency::Tidy { spare_since })
        ]
    }

    proptest! {
        #[test]
        fn eviction_never_takes_what_is_pinned_frees_enough_and_takes_the_oldest_first(
            candidates in any_candidates(), bytes in 0..20_000_u64, urgency in any_urgency()
        ) {
            let chosen = choose(&candidates, bytes, urgency);
            let freed: u64 = chosen.iter().map(|&i| candidates[i].bytes).sum();
            let eligible: Vec<usize> =
                (0..candidates.len()).filter(|&i| may_go(&candidates[i], urgency)).collect();
            let possible: u64 = eligible.iter().map(|&i| candidates[i].bytes).sum();
            // Never pinned, never twice.
            prop_assert!(chosen.iter().all(|&i| !candidates[i].pinned));
            let mut once = chosen.clone();
            once.sort_unstable();
            once.dedup();
            prop_assert_eq!(once.len(), chosen.len());
            // Enough if possible; and no more than needed: without the last it was too little.
            prop_assert!(freed >= bytes.min(possible));
            if let Some(last) = chosen.last() {
                prop_assert!(freed - candidates[*last].bytes < bytes);
            }
            // Oldest first: nothing that stays was due before something that goes.
            for &gone in &chosen {
                for &stays in eligible.iter().filter(|i| !chosen.contains(i)) {
                    let due = |i: usize| (candidates[i].rank, candidates[i].last_access);
                    prop_assert!(due(gone) <= due(stays));
                }
            }
            // Tidying spares the young and the layers of pinned disks.
            if let Urgency::Tidy { spare_since } = urgency {
                prop_assert!(chosen.iter().all(|&i| candidates[i].last_access < spare_since));
                prop_assert!(chosen.iter().all(|&i| candidates[i].rank != Rank::BlobOfPinned));
            }
        }

        #[test]
        fn what_is_chosen_does_not_depend_on_the_order_it_is_told_in(
            candidates in any_candidates(), bytes in 0..20_000_u64
        ) {
            let names = |all: &[Candidate<u32>]| -> Vec<u32> {
                choose(all, bytes, Urgency::Start).into_iter().map(|i| all[i].name).collect()
            };
            let mut turned = candidates.clone();
            turned.reverse();
            prop_assert_eq!(names(&candidates), names(&turned));
        }

        #[test]
        fn freeing_what_is_asked_for_gets_below_the_marks(
            cache in 0..2000_u64, size in 1..2000_u64, free in 0..2000_u64, room in 0..500_u64,
            high in 1..=100_u64, low in 1..=100_u64, high_bytes in 0..2000_u64, low_bytes in 0..2000_u64,
        ) {
            let usage = Usage {
                cache_bytes: cache, filesystem_bytes: size, available_bytes: free.min(size),
                ..Usage::default()
            };
            let marks = Marks {
                bytes: Some((high_bytes.max(low_bytes), low_bytes)),
                high_percent: high.max(low).try_into().unwrap(),
                target_percent: low.try_into().unwrap(),
            };
            let freed = bytes_to_free(&usage, &marks, room);
            let after = Usage {
                cache_bytes: (cache + room).saturating_sub(freed),
                available_bytes: (usage.available_bytes + freed).saturating_sub(room).min(size),
                ..usage
            };
            if room <= usage.available_bytes {
                prop_assert_eq!(bytes_beyond(&after, &marks, 0), 0);
            }
        }
    }

    #[test]
    fn blobs_go_before_disks_and_those_of_pinned_disks_last() {
        let all = [
            candidate(0, Rank::Disk, 10, 1),
            candidate(1, Rank::BlobOfPinned, 10, 0),
            candidate(2, Rank::Blob, 10, 9),
            candidate(3, Rank::Blob, 10, 3),
            candidate(4, Rank::Temporary, 1, 20),
        ];
        assert_eq!(choose(&all, u64::MAX, Urgency::Start), [4, 3, 2, 0, 1]);
        assert_eq!(choose(&all, 12, Urgency::Start), [4, 3, 2]);
        assert_eq!(choose(&all, u64::MAX, Urgency::Tidy { spare_since: 5 }), [3, 0]);
        assert_eq!(choose(&all, 0, Urgency::Start), [0_usize; 0]);
    }

    #[test]
    fn between_the_marks_nothing_goes() {
        let marks = Marks {
            bytes: Some((100, 60)),
            high_percent: Percent::new(90),
            target_percent: Percent::new(80),
        };
        let usage = |cache_bytes, available_bytes| Usage {
            cache_bytes,
            filesystem_bytes: 1000,
            available_bytes,
            ..Usage::default()
        };
        assert_eq!(bytes_to_free(&usage(90, 500), &marks, 0), 0);
        assert_eq!(bytes_to_free(&usage(101, 500), &marks, 0), 41);
        assert_eq!(bytes_to_free(&usage(90, 500), &marks, 20), 50);
        assert_eq!(bytes_to_free(&usage(50, 99), &marks, 0), 101);
        assert_eq!(bytes_beyond(&usage(50, 99), &marks, 0), 1);
        assert_eq!(bytes_beyond(&usage(50, 99), &marks, 1), 0);
        assert_eq!(bytes_beyond(&usage(150, 500), &marks, 20), 30);
        let emptied = usage(90, 50).without(80);
        assert_eq!((emptied.cache_bytes, emptied.available_bytes), (10, 130));
        assert_eq!(usage(90, 950).without(u64::MAX), usage(0, 1000));
        assert_eq!(bytes_to_free(&usage(u64::MAX, 0), &marks, u64::MAX), u64::MAX - 60);
    }
}
