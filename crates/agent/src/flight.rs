//! One piece of work for many who want the same: the first starts it, the others wait for its
//! outcome. Each may stop waiting by itself; when the last one does, the work is cancelled.

use std::collections::HashMap;
use std::fmt;
use std::hash::Hash;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// All work under way, by what it makes.
pub struct Flights<K, T>(Arc<Mutex<Board<K, T>>>);

struct Board<K, T> {
    flights: HashMap<K, Flight<T>>,
    /// Never the same twice: who leaves late must not be taken for a passenger of the next flight.
    next: u64,
}

struct Flight<T> {
    number: u64,
    waiting: usize,
    cancel: CancellationToken,
    outcome: watch::Receiver<Option<T>>,
}

/// One who waits. Dropping it is to stop waiting.
struct Seat<K: Eq + Hash, T> {
    board: Arc<Mutex<Board<K, T>>>,
    key: K,
    number: u64,
}

/// What came of a flight.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Landing<T> {
    /// Its outcome, and whether this caller had started it.
    Done {
        /// What the work gave.
        outcome: T,
        /// The work was started by this very call.
        led: bool,
    },
    /// The work ended without an outcome: it panicked, or its runtime is shutting down.
    Lost,
}

impl<K, T> fmt::Debug for Flights<K, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Flights").finish_non_exhaustive()
    }
}

impl<K, T> Default for Flights<K, T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(Board { flights: HashMap::new(), next: 0 })))
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing panics while it is held; and a map of flights is whole between any two steps.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<K, T> Flights<K, T>
where
    K: Clone + Eq + Hash + Send + 'static,
    T: Clone + Send + Sync + 'static,
{
    /// Waits for the work on `key`, which `start` begins where nobody has yet. It gets a token
    /// that is cancelled when nobody waits any more, and runs as a task of its own.
    ///
    /// Work that was cancelled may still be ending when the next one asks; then the new work
    /// begins after the old has ended, so that two never work on one key at the same time.
    pub async fn join<F>(&self, key: K, start: impl FnOnce(CancellationToken) -> F) -> Landing<T>
    where
        F: Future<Output = T> + Send + 'static,
    {
        let (seat, mut outcome, led) = self.board(key, start);
        let landed = outcome.wait_for(Option::is_some).await.map(|value| value.clone());
        drop(seat);
        match landed {
            Ok(Some(outcome)) => Landing::Done { outcome, led },
            _ => Landing::Lost,
        }
    }

    /// How many kinds of work are under way or ending.
    pub fn len(&self) -> usize {
        lock(&self.0).flights.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many wait for it.
    #[cfg(test)]
    pub(crate) fn waiting(&self, key: &K) -> usize {
        lock(&self.0).flights.get(key).map_or(0, |flight| flight.waiting)
    }

    fn board<F>(
        &self,
        key: K,
        start: impl FnOnce(CancellationToken) -> F,
    ) -> (Seat<K, T>, watch::Receiver<Option<T>>, bool)
    where
        F: Future<Output = T> + Send + 'static,
    {
        let mut board = lock(&self.0);
        let ending = match board.flights.get_mut(&key) {
            Some(flight) if !flight.cancel.is_cancelled() => {
                flight.waiting += 1;
                let outcome = flight.outcome.clone();
                let number = flight.number;
                let seat = Seat { board: Arc::clone(&self.0), key, number };
                return (seat, outcome, false);
            }
            Some(ending) => Some(ending.outcome.clone()),
            None => None,
        };
        let number = board.next;
        board.next += 1;
        let cancel = CancellationToken::new();
        let (sender, outcome) = watch::channel(None);
        let work = start(cancel.clone());
        let runs = Runs { board: Arc::clone(&self.0), key: key.clone(), number };
        tokio::spawn(async move {
            if let Some(mut before) = ending {
                // Ends when the sender is dropped, too: after a panic there is nothing to wait for.
                let _ = before.wait_for(Option::is_some).await;
            }
            let value = work.await;
            // Off the list first: who asks from now on starts anew, and finds what was made.
            drop(runs);
            sender.send_replace(Some(value));
        });
        board
            .flights
            .insert(key.clone(), Flight { number, waiting: 1, cancel, outcome: outcome.clone() });
        (Seat { board: Arc::clone(&self.0), key, number }, outcome, true)
    }
}

/// Takes a flight off the list when its work has ended, however it ended.
struct Runs<K: Eq + Hash, T> {
    board: Arc<Mutex<Board<K, T>>>,
    key: K,
    number: u64,
}

impl<K: Eq + Hash, T> Drop for Runs<K, T> {
    fn drop(&mut self) {
        let flights = &mut lock(&self.board).flights;
        if flights.get(&self.key).is_some_and(|flight| flight.number == self.number) {
            flights.remove(&self.key);
        }
    }
}

impl<K: Eq + Hash, T> Drop for Seat<K, T> {
    fn drop(&mut self) {
        let flights = &mut lock(&self.board).flights;
        if let Some(flight) = flights.get_mut(&self.key).filter(|f| f.number == self.number) {
            flight.waiting -= 1;
            if flight.waiting == 0 {
                flight.cancel.cancel();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use tokio::sync::Notify;

    use super::*;

    /// Work that counts itself and waits to be let go.
    #[derive(Clone, Default)]
    struct Yard {
        flights: Arc<Flights<u8, usize>>,
        begun: Arc<AtomicUsize>,
        at_work: Arc<AtomicUsize>,
        cancelled: Arc<AtomicUsize>,
        go: Arc<Notify>,
    }

    impl Yard {
        async fn wanted(&self) -> Landing<usize> {
            let yard = self.clone();
            self.flights
                .join(7, move |cancel| async move {
                    assert_eq!(yard.at_work.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                    let number = yard.begun.fetch_add(1, Ordering::SeqCst);
                    tokio::select! {
                        () = yard.go.notified() => {}
                        () = cancel.cancelled() => {
                            // Ending takes a while, as a build's does.
                            tokio::time::sleep(Duration::from_millis(20)).await;
                            yard.cancelled.fetch_add(1, Ordering::SeqCst);
                        }
                    }
                    yard.at_work.fetch_sub(1, Ordering::SeqCst);
                    number
                })
                .await
        }

        async fn until(&self, done: impl Fn(&Self) -> bool) {
            while !done(self) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 4)]
    async fn two_hundred_who_want_the_same_make_it_once() {
        let yard = Yard::default();
        let all: Vec<_> = (0..200)
            .map(|_| {
                let yard = yard.clone();
                tokio::spawn(async move { yard.wanted().await })
            })
            .collect();
        yard.until(|yard| yard.flights.waiting(&7) == 200).await;
        yard.go.notify_one();
        let mut led = 0;
        for one in all {
            match one.await.unwrap() {
                Landing::Done { outcome: 0, led: true } => led += 1,
                Landing::Done { outcome: 0, led: false } => {}
                other => panic!("{other:?}"),
            }
        }
        assert_eq!((led, yard.begun.load(Ordering::SeqCst)), (1, 1));
        assert!(yard.flights.is_empty());
    }

    #[tokio::test]
    async fn one_may_leave_and_the_work_goes_on_and_ends_with_the_last() {
        let yard = Yard::default();
        let mut first = Box::pin(yard.wanted());
        let mut second = Box::pin(yard.wanted());
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        yard.until(|yard| yard.begun.load(Ordering::SeqCst) == 1).await;
        drop(first);
        tokio::time::sleep(Duration::from_millis(5)).await;
        assert_eq!(yard.cancelled.load(Ordering::SeqCst), 0);
        drop(second);
        yard.until(|yard| yard.cancelled.load(Ordering::SeqCst) == 1).await;
    }

    #[tokio::test]
    async fn who_comes_while_it_is_being_cancelled_gets_a_new_one_after_it() {
        let yard = Yard::default();
        let mut first = Box::pin(yard.wanted());
        assert!(futures_util::poll!(&mut first).is_pending());
        yard.until(|yard| yard.begun.load(Ordering::SeqCst) == 1).await;
        drop(first);
        let second = tokio::spawn({
            let yard = yard.clone();
            async move { yard.wanted().await }
        });
        // The yard itself asserts that the second begins after the first has ended.
        yard.until(|yard| yard.begun.load(Ordering::SeqCst) == 2).await;
        yard.go.notify_one();
        assert_eq!(second.await.unwrap(), Landing::Done { outcome: 1, led: true });
        assert!(yard.flights.is_empty());
    }

    #[tokio::test]
    async fn who_leaves_after_the_end_takes_no_seat_from_the_next() {
        let flights = Flights::<u8, u8>::default();
        let (late, outcome, _) = flights.board(1, |_| async { 5 });
        let mut landed = outcome.clone();
        landed.wait_for(Option::is_some).await.unwrap();
        let (_seat, _, led) = flights.board(1, |_| std::future::pending());
        assert!(led);
        drop(late);
        assert!(!lock(&flights.0).flights[&1].cancel.is_cancelled());
    }

    #[tokio::test]
    async fn work_that_panics_is_lost_and_can_be_begun_again() {
        let flights = Flights::<u8, u8>::default();
        let lost = flights.join(1, |_| async { panic!("on purpose") }).await;
        assert_eq!(lost, Landing::Lost);
        assert_eq!(flights.join(1, |_| async { 5 }).await, Landing::Done { outcome: 5, led: true });
    }
}
