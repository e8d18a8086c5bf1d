//! Places for connections: who has idled for the longest makes room for who comes next.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::{CancellationToken, WaitForCancellationFuture};

/// How soon it is looked again for one that idles, where none does.
const LOOK_AGAIN: Duration = Duration::from_millis(50);

/// So many places.
#[derive(Debug)]
pub(super) struct Places {
    free: Arc<Semaphore>,
    next: AtomicU64,
    taken: Mutex<HashMap<u64, Arc<Activity>>>,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(super) struct Place {
    places: Arc<Places>,
    number: u64,
    pub(super) activity: Arc<Activity>,
    _permit: OwnedSemaphorePermit,
}

/// What a connection does.
#[derive(Debug)]
pub(super) struct Activity {
    state: Mutex<State>,
    gives_way: CancellationToken,
}

#[derive(Debug, Clone, Copy)]
struct State {
    /// Requests under way, until the last byte of their answers is written.
    requests: usize,
    /// How many there were, with these.
    begun: u64,
    /// Since when there is none.
    since: Instant,
}

impl Places {
    pub(super) fn new(most: usize) -> Arc<Self> {
        let free = Arc::new(Semaphore::new(most));
        Arc::new(Self { free, next: AtomicU64::new(0), taken: Mutex::default() })
    }

    /// A place, for which whoever idled for the longest gives way. Where all are busy, it waits.
    pub(super) async fn take(self: &Arc<Self>) -> Place {
        let permit = loop {
            if let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() {
                break permit;
            }
            self.make_room();
            let free = Arc::clone(&self.free).acquire_owned();
            if let Ok(Ok(permit)) = tokio::time::timeout(LOOK_AGAIN, free).await {
                break permit;
            }
        };
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let activity = Arc::new(Activity::new());
        lock(&self.taken).insert(number, Arc::clone(&activity));
        Place { places: Arc::clone(self), number, activity, _permit: permit }
    }

    fn make_room(&self) {
        let taken = lock(&self.taken);
        let idle = taken.values().filter(|one| !one.gives_way.is_cancelled());
        let idle = idle.filter_map(|one| Some((one.idle_since()?, one)));
        if let Some((_, longest)) = idle.min_by_key(|(since, _)| *since) {
            longest.gives_way.cancel();
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        lock(&self.places.taken).remove(&self.number);
    }
}

impl Activity {
    pub(super) fn new() -> Self {
        let state = State { requests: 0, begun: 0, since: Instant::now() };
        Self { state: Mutex::new(state), gives_way: CancellationToken::new() }
    }

    /// Since when nothing is under way; none while something is.
    pub(super) fn idle_since(&self) -> Option<Instant> {
        let state = lock(&self.state);
        (state.requests == 0).then_some(state.since)
    }

    /// How many requests there were.
    pub(super) fn begun(&self) -> u64 {
        lock(&self.state).begun
    }

    /// When others need the place.
    pub(super) fn gives_way(&self) -> WaitForCancellationFuture<'_> {
        self.gives_way.cancelled()
    }

    /// A request is under way.
    pub(super) fn busy(self: &Arc<Self>) -> Busy {
        let mut state = lock(&self.state);
        state.requests += 1;
        state.begun += 1;
        Busy(Arc::clone(self))
    }
}

/// A request that is under way, until it is dropped.
#[derive(Debug)]
pub(super) struct Busy(Arc<Activity>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.requests -= 1;
        if state.requests == 0 {
            state.since = Instant::now();
        }
    }
}

/// Nothing here panics with a lock held, and if it did, what is in it would still be so.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn who_idled_for_the_longest_gives_way_and_who_is_busy_never() {
        let places = Places::new(3);
        let (busy, first, second) = (places.take().await, places.take().await, places.take().await);
        let request = busy.activity.busy();
        drop(first.activity.busy());
        assert!(busy.activity.idle_since().is_none());
        // It was busy after the second came, so the second idles for longer.
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.take().await }
        });
        second.activity.gives_way().await;
        drop(second);
        let third = waits.await.unwrap();
        assert!(!first.activity.gives_way.is_cancelled());
        // Where all are busy, who comes waits until one is not.
        let requests = [first.activity.busy(), third.activity.busy()];
        let waits = tokio::time::timeout(LOOK_AGAIN * 4, places.take()).await;
        assert!(waits.is_err() && !busy.activity.gives_way.is_cancelled());
        drop(request);
        let waits = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.take().await }
        });
        busy.activity.gives_way().await;
        drop(busy);
        waits.await.unwrap();
        drop(requests);
    }
}
