//! The digest of what a layer unpacks to, made beside the unpacking where a processor is free.
//!
//! Inflating and hashing one layer on one thread leaves the other processors idle when the layer
//! is the only one, or the last. Then the bytes are copied and hashed on a second thread, which
//! nearly halves the time of an image of one layer. While there are layers enough for all
//! processors the bytes are hashed where they are, still in the cache.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

use portolan_core::{Algorithm, Digest, Hasher};

/// Copies that wait to be hashed. A few of the size that decoders hand out keep the other thread
/// busy over the unevenness of inflating.
const AHEAD: usize = 4;

/// A digest that two threads work at, one after the other and never out of order.
pub(super) struct DiffHasher {
    hasher: Mutex<Hasher>,
    /// Copies handed over that are not hashed yet.
    pending: AtomicUsize,
}

/// The side that unpacks.
pub(super) struct Feed<'a> {
    shared: &'a DiffHasher,
    full: SyncSender<Vec<u8>>,
    /// Copies that were hashed, to be filled again.
    empty: Receiver<Vec<u8>>,
    made: usize,
}

/// The side that only hashes, on a thread of its own.
pub(super) struct Beside<'a> {
    shared: &'a DiffHasher,
    full: Receiver<Vec<u8>>,
    empty: SyncSender<Vec<u8>>,
}

impl DiffHasher {
    pub(super) fn new(algorithm: Algorithm) -> Self {
        Self { hasher: Mutex::new(Hasher::new(algorithm)), pending: AtomicUsize::new(0) }
    }

    /// Both sides. The digest is whole once both are gone.
    pub(super) fn sides(&self) -> (Feed<'_>, Beside<'_>) {
        let (full, to_hash) = sync_channel(AHEAD);
        let (empty, back) = sync_channel(AHEAD);
        let feed = Feed { shared: self, full, empty: back, made: 0 };
        (feed, Beside { shared: self, full: to_hash, empty })
    }

    pub(super) fn finish(self) -> Digest {
        self.hasher.into_inner().unwrap_or_else(PoisonError::into_inner).finish()
    }

    fn hasher(&self) -> MutexGuard<'_, Hasher> {
        self.hasher.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Feed<'_> {
    /// The next bytes; `beside` asks that the other thread takes them.
    ///
    /// What comes after bytes that are still waiting must wait behind them, whatever is asked.
    pub(super) fn update(&mut self, bytes: &[u8], beside: bool) {
        let waiting = self.shared.pending.load(Ordering::Acquire) > 0;
        if !beside && !waiting {
            return self.shared.hasher().update(bytes);
        }
        let mut copy = self.copy();
        copy.clear();
        copy.extend_from_slice(bytes);
        self.shared.pending.fetch_add(1, Ordering::Relaxed);
        self.full.send(copy).expect("the other side listens until this one is gone");
    }

    fn copy(&mut self) -> Vec<u8> {
        if let Ok(copy) = self.empty.try_recv() {
            return copy;
        }
        if self.made < AHEAD {
            self.made += 1;
            return Vec::new();
        }
        self.empty.recv().expect("the other side listens until this one is gone")
    }
}

impl Beside<'_> {
    /// Hashes until the other side is gone.
    pub(super) fn run(self) {
        for copy in &self.full {
            self.shared.hasher().update(&copy);
            self.shared.pending.fetch_sub(1, Ordering::Release);
            // There is room for all that were ever made; nobody may want them any more.
            let _ = self.empty.try_send(copy);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn whoever_hashes_the_digest_is_that_of_the_bytes_in_order(
            pieces in prop::collection::vec((prop::collection::vec(any::<u8>(), 0..300), any::<bool>()), 0..60),
        ) {
            let digest = DiffHasher::new(Algorithm::Sha256);
            std::thread::scope(|scope| {
                let (mut feed, beside) = digest.sides();
                scope.spawn(|| beside.run());
                for (piece, handed_over) in &pieces {
                    feed.update(piece, *handed_over);
                }
            });
            let whole: Vec<u8> = pieces.into_iter().flat_map(|(piece, _)| piece).collect();
            let mut expected = Hasher::new(Algorithm::Sha256);
            expected.update(&whole);
            prop_assert_eq!(digest.finish(), expected.finish());
        }
    }
}
