//! How much is done at registries at once, so that neither those that hang nor many who ask take all
//! there is.
//!
//! Each piece of work has a place in every circle that its registry is in:
//!
//! | circle | so many places | why |
//! |---|---|---|
//! | one registry | `limits.work_per_registry` | one that hangs must not stop what is asked of others |
//! | registries that have not answered, of those below | a quarter of `limits.work` | whoever names an image names a registry: as many of them as they like may hang |
//! | registries that no scope of the policy names | half of `limits.work` | those that answered once may hang as well; what the operator named has the other half |
//! | all | `limits.work` | |
//!
//! Who would wait in a circle in which nothing has moved for a while is told so at once: only the first
//! who come to a registry that hangs lose their time with it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use moka::future::Cache;
use portolan_registry::serving::Handles;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::config::{Limits, Timeouts};
use super::trouble::{Code, Trouble};
use crate::collect::CONCURRENCY;

/// Whether the policy names a registry.
pub(super) type IsNamed = Box<dyn Fn(&str) -> bool + Send + Sync>;

/// What connections to registries may take of this process's file handles.
pub(super) struct Sockets {
    pub(super) handles: Arc<Handles>,
    /// So many of them are for registries.
    pub(super) outgoing: usize,
}

impl Sockets {
    /// Whether there are some for one more piece of work. Connections are kept for a while after they
    /// were used: what is not named leaves half of them to what is.
    fn are_left(&self, is_named: bool) -> bool {
        let keep = if is_named { 0 } else { self.outgoing / 2 };
        self.handles.left() > keep + CONCURRENCY
    }
}

/// How much may be done at registries at once.
pub(super) struct Work {
    sockets: Sockets,
    all: Arc<Circle>,
    elsewhere: Arc<Circle>,
    strangers: Arc<Circle>,
    registries: Cache<String, Arc<Registry>>,
    per_registry: usize,
    is_named: IsNamed,
    /// How many may wait for something.
    waiting: Arc<Semaphore>,
    patience: Duration,
}

/// One registry.
struct Registry {
    circle: Arc<Circle>,
    /// Whether the last that was asked of it came to an end.
    answers: AtomicBool,
}

/// Registries whose places are remembered. What is forgotten in use only gets a few more, of those
/// that there are in all.
pub(super) const MAX_REGISTRIES: u64 = 10_000;
/// A circle in which nothing ends for so long is stuck.
const STUCK: Duration = Duration::from_secs(2);
/// How often who waits looks whether it is.
const LOOK: Duration = Duration::from_millis(200);

impl Work {
    pub(super) fn new(
        limits: &Limits,
        timeouts: &Timeouts,
        sockets: Sockets,
        is_named: IsNamed,
    ) -> Self {
        let circle = |places: usize, whose: &str| Circle::new(places.max(1), whose.to_owned());
        Self {
            sockets,
            all: circle(limits.work, "registries"),
            elsewhere: circle(limits.work / 2, "registries that the policy does not name"),
            strangers: circle(limits.work / 4, "registries that have not answered yet"),
            registries: Cache::builder()
                .max_capacity(MAX_REGISTRIES)
                .time_to_idle(Duration::from_secs(3600))
                .build(),
            per_registry: limits.work_per_registry,
            is_named,
            waiting: Arc::new(Semaphore::new(limits.waiting)),
            patience: timeouts.work.0,
        }
    }

    /// `work` with a place, within its time.
    pub(super) async fn bounded<V>(
        &self,
        repository: &str,
        work: BoxFuture<'static, Result<V, Trouble>>,
    ) -> impl Future<Output = Result<V, Trouble>> + use<V> {
        let host = host(repository);
        let registry = match self.registries.get(host).await {
            Some(registry) => registry,
            None => {
                let new = Registry {
                    circle: Circle::new(self.per_registry, host.to_owned()),
                    answers: AtomicBool::new(false),
                };
                let new = async { Arc::new(new) };
                self.registries.get_with(host.to_owned(), new).await
            }
        };
        let is_named = (self.is_named)(host);
        let circles = self.circles(is_named, &registry);
        let patience = self.patience;
        let none_left = !self.sockets.are_left(is_named);
        async move {
            if none_left {
                let what = "too many connections are open (file handles of the process); ask again";
                return Err(Trouble::new(Code::Internal, what));
            }
            let bounded = async {
                // Always from the inmost, so that nobody waits for whom they keep waiting.
                let mut places = Vec::with_capacity(circles.len());
                for circle in &circles {
                    places.push(circle.enter().await?);
                }
                Ok((work.await, places))
            };
            match tokio::time::timeout(patience, bounded).await {
                Ok(Ok((done, places))) => {
                    // Also a no is an answer; what ran out of time in the client is not.
                    let in_time = !matches!(&done, Err(trouble) if trouble.code == Code::Registry);
                    registry.answers.store(in_time, Ordering::Relaxed);
                    circles.iter().for_each(|circle| circle.moves());
                    drop(places);
                    done
                }
                Ok(Err(stuck)) => Err(stuck),
                Err(_) => {
                    registry.answers.store(false, Ordering::Relaxed);
                    Err(Trouble::deadline())
                }
            }
        }
    }

    fn circles(&self, is_named: bool, registry: &Registry) -> Vec<Arc<Circle>> {
        let mut circles = vec![Arc::clone(&registry.circle)];
        if !is_named {
            if !registry.answers.load(Ordering::Relaxed) {
                circles.push(Arc::clone(&self.strangers));
            }
            circles.push(Arc::clone(&self.elsewhere));
        }
        circles.push(Arc::clone(&self.all));
        circles
    }

    /// A place to wait in.
    pub(super) fn waiting(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        Arc::clone(&self.waiting).try_acquire_owned().map_err(|_| {
            let what = "too many wait for registries already (limits.waiting); ask again";
            Trouble::new(Code::Internal, what)
        })
    }
}

/// So many places, for some registries.
struct Circle {
    places: Arc<Semaphore>,
    count: usize,
    whose: String,
    /// When something there last began at once, or ended.
    moved: Mutex<Instant>,
}

impl Circle {
    fn new(count: usize, whose: String) -> Arc<Self> {
        let (places, moved) = (Arc::new(Semaphore::new(count)), Mutex::new(Instant::now()));
        Arc::new(Self { places, count, whose, moved })
    }

    async fn enter(&self) -> Result<OwnedSemaphorePermit, Trouble> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            self.moves();
            return Ok(place);
        }
        let mut place = std::pin::pin!(Arc::clone(&self.places).acquire_owned());
        while !self.is_stuck() {
            if let Ok(place) = tokio::time::timeout(LOOK, place.as_mut()).await {
                return place.map_err(|_| Trouble::new(Code::Internal, "the verifier is ending"));
            }
        }
        let what = format!(
            "all {} places for {} are taken, and nothing there has come to an end for {} s; ask again",
            self.count,
            self.whose,
            STUCK.as_secs()
        );
        Err(Trouble::new(Code::Registry, what))
    }

    fn moves(&self) {
        *self.moved.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn is_stuck(&self) -> bool {
        self.moved.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= STUCK
    }
}

/// The registry of a repository.
pub(super) fn host(repository: &str) -> &str {
    repository.split('/').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(all: usize, per_registry: usize) -> Arc<Work> {
        let limits = Limits { work: all, work_per_registry: per_registry, ..Limits::default() };
        let is_named: IsNamed = Box::new(|host| host.starts_with("named"));
        let sockets = Sockets { handles: Arc::new(Handles::of(100_000)), outgoing: 512 };
        Arc::new(Work::new(&limits, &Timeouts::default(), sockets, is_named))
    }

    /// Something that is begun at `host` and never ends.
    async fn hang(work: &Arc<Work>, host: &str) {
        let never = work.bounded::<()>(host, Box::pin(std::future::pending())).await;
        tokio::spawn(never);
        tokio::task::yield_now().await;
    }

    async fn quick(work: &Arc<Work>, host: &str) -> Result<(), Trouble> {
        work.bounded(host, Box::pin(std::future::ready(Ok(())))).await.await
    }

    #[tokio::test(start_paused = true)]
    async fn registries_that_hang_leave_places_for_those_that_answer_and_those_that_are_named() {
        let work = work(16, 4);
        quick(&work, "answers.example/a").await.unwrap();
        for stranger in 0..40 {
            hang(&work, &format!("s{stranger}.example/a")).await;
        }
        quick(&work, "answers.example/a").await.unwrap();
        quick(&work, "named.example/a").await.unwrap();
        // One that answers and then hangs has as many as any, and no more than what is not named has.
        for other in ["a1.example/a", "a2.example/a", "a3.example/a"] {
            let registry = work.registries.get_with(host(other).to_owned(), async {
                let circle = Circle::new(4, host(other).to_owned());
                Arc::new(Registry { circle, answers: AtomicBool::new(true) })
            });
            registry.await;
            for _ in 0..4 {
                hang(&work, other).await;
            }
        }
        let begun = Instant::now();
        let trouble = quick(&work, "answers.example/a").await.unwrap_err();
        assert!(trouble.text().contains("does not name"), "{trouble:?}");
        assert!(begun.elapsed() < STUCK * 2, "{:?}", begun.elapsed());
        quick(&work, "named.example/a").await.unwrap();
    }

    #[tokio::test]
    async fn where_handles_are_few_what_is_not_named_is_not_asked() {
        let open = 100_000 - Handles::of(100_000).left();
        for (spare, named, other) in [(2000, true, true), (400, true, false), (0, false, false)] {
            let is_named: IsNamed = Box::new(|host| host.starts_with("named"));
            let sockets = Sockets { handles: Arc::new(Handles::of(open + spare)), outgoing: 1600 };
            let limits = Limits::default();
            let work = Arc::new(Work::new(&limits, &Timeouts::default(), sockets, is_named));
            assert_eq!(quick(&work, "named.example/a").await.is_ok(), named, "{spare}");
            assert_eq!(quick(&work, "other.example/a").await.is_ok(), other, "{spare}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_for_a_registry_that_hangs_is_told_at_once() {
        let work = work(16, 2);
        hang(&work, "named.example/a").await;
        hang(&work, "named.example/a").await;
        let begun = Instant::now();
        let trouble = quick(&work, "named.example/b").await.unwrap_err();
        assert!(trouble.will_pass() && trouble.text().contains("named.example"), "{trouble:?}");
        assert!(begun.elapsed() >= STUCK && begun.elapsed() < STUCK * 2);
        let again = Instant::now();
        quick(&work, "named.example/b").await.unwrap_err();
        assert_eq!(again.elapsed(), Duration::ZERO);
        // What hangs gives its place back in the end.
        tokio::time::sleep(Timeouts::default().work.0).await;
        quick(&work, "named.example/b").await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_registry_that_is_slow_is_waited_for() {
        let work = work(16, 1);
        let slow = |seconds| {
            let work = Arc::clone(&work);
            tokio::spawn(async move {
                let sleep = async move {
                    tokio::time::sleep(Duration::from_millis(seconds)).await;
                    Ok(())
                };
                work.bounded("named.example/a", Box::pin(sleep)).await.await
            })
        };
        let all: Vec<_> = (0..4).map(|_| slow(1500)).collect();
        for one in all {
            one.await.unwrap().unwrap();
        }
    }
}
