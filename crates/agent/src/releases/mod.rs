//! Releases of the cluster that are fetched before anybody asks for them.
//!
//! A Release with the label `portolan.dev/prefetch=true` that is Ready is fetched on every node that follows Releases, for
//! the platform and facts of that node, by the path that `agent prefetch` takes: so signatures, compatibility and one
//! flight for all are what they are for every start. It fills room that is free: nothing is evicted for it, and want of room
//! is no pressure that anybody is told of. What is fetched so is pinned by nobody.
//!
//! | module | what it holds |
//! |---|---|
//! | `cache` | what fetches, as this sees it |
//! | `judge` | what of a Release this host fetches; pure |
//! | `plan` | what is fetched next; pure |
//! | `follow` | how the API server tells of Releases |

mod cache;
mod follow;
mod judge;
mod plan;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::convert::Infallible;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use http::StatusCode;
use portolan_core::HostPlatform;
use portolan_core::causes::chain;
use portolan_registry::client::jitter;
use tokio::sync::Notify;
use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::api::{AbsentRelease, PrefetchState, PrefetchStatus};
use crate::api_server::{ApiServer, NoServer};
use crate::backoff::backoff;
use crate::config::PrefetchConfig;
use crate::endpoint::EndpointError;
use crate::image::ResolvedImage;
use crate::metrics::{Metrics, PrefetchResult};
pub(crate) use cache::{Cache, Fetched, NotFetched};
use follow::{Event, Follower, MAX_RELEASES};
use judge::{Entry, Key};
use plan::{Attempt, View, plan};

/// How long one watch lasts at least; about as long again at most.
const WATCH: Duration = Duration::from_secs(240);
/// Room comes back and disks are evicted without anybody telling.
const LOOK: Duration = Duration::from_secs(5);
/// Changes within this time are looked at together.
const GATHER: Duration = Duration::from_millis(200);
/// How long the API server is left alone after trouble with it.
const PACE: Pace = Pace {
    first: Duration::from_secs(1),
    longest: Duration::from_secs(60),
    steady: Duration::from_secs(10),
};
/// So many Releases that are not here are told by name.
const MAX_TOLD: usize = 20;

/// How an API server is asked that cannot be followed.
#[derive(Debug, Clone, Copy)]
struct Pace {
    /// The first wait; it doubles.
    first: Duration,
    longest: Duration,
    /// A watch that has lasted so long works, although there was nothing to tell.
    steady: Duration,
}

/// What came to nothing since a watch last worked.
#[derive(Debug, Default)]
struct Trouble {
    failures: u32,
    /// The log says so.
    told: bool,
}

impl Trouble {
    /// One more; the wait after it. `jitter` is 0 to 1: agents that lost their API server together do not come back together.
    fn more(&mut self, pace: Pace, jitter: f64) -> Duration {
        self.failures = self.failures.saturating_add(1);
        backoff(pace.first, pace.longest, self.failures).mul_f64(0.5 + jitter / 2.0)
    }

    /// A watch works.
    fn over(&mut self) {
        if std::mem::take(self).told {
            tracing::info!("Releases are followed again");
        }
    }
}

/// The Releases, and how it stands with them.
#[derive(Debug)]
pub(crate) struct Releases {
    config: PrefetchConfig,
    pace: Pace,
    state: Mutex<State>,
    changed: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Debug, Default)]
struct State {
    known: BTreeMap<Key, Entry>,
    /// Known as they are now.
    current: bool,
    /// Why not.
    problem: Option<String>,
    states: Vec<(Key, PrefetchState, String)>,
}

impl State {
    /// No more than are read of a list.
    fn insert(&mut self, key: Key, entry: Entry) {
        if self.known.len() < MAX_RELEASES || self.known.contains_key(&key) {
            self.known.insert(key, entry);
        }
    }
}

impl Releases {
    pub(crate) fn new(config: PrefetchConfig, metrics: Arc<Metrics>) -> Arc<Self> {
        Arc::new(Self::at_pace(PACE, config, metrics))
    }

    fn at_pace(pace: Pace, config: PrefetchConfig, metrics: Arc<Metrics>) -> Self {
        Self { config, pace, state: Mutex::default(), changed: Notify::new(), metrics }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `GET /v1/status` says it.
    pub(crate) fn status(&self) -> PrefetchStatus {
        let state = self.state();
        let mut status = PrefetchStatus {
            current: state.current,
            problem: state.problem.clone(),
            releases: PrefetchState::ALL.into_iter().map(|state| (state, 0)).collect(),
            absent: Vec::new(),
        };
        for (key, state, message) in &state.states {
            *status.releases.entry(*state).or_default() += 1;
            let absent = !matches!(state, PrefetchState::Here | PrefetchState::Fetching);
            if absent && status.absent.len() < MAX_TOLD {
                let (release, message) = (key.to_string(), message.clone());
                status.absent.push(AbsentRelease { release, state: *state, message });
            }
        }
        status
    }

    /// Follows the API server and fetches, until `shutdown`.
    pub(crate) async fn run(
        self: Arc<Self>,
        follower: Following,
        cache: Arc<dyn Cache>,
        shutdown: CancellationToken,
    ) {
        tokio::select! {
            () = self.follow(follower.0) => {}
            () = self.work(cache, &shutdown) => {}
        }
    }

    /// Lists, watches, and lists again, for ever.
    async fn follow(&self, mut follower: Follower) {
        let mut trouble = Trouble::default();
        loop {
            if let Err(error) = self.round(&mut follower, &mut trouble).await {
                self.lost(chain(&error), &mut trouble);
            }
            tokio::time::sleep(trouble.more(self.pace, jitter())).await;
        }
    }

    /// What is known stays, and is no longer what there is.
    fn lost(&self, error: String, trouble: &mut Trouble) {
        // Once at this level: an API server that is away for a night is one line.
        if std::mem::replace(&mut trouble.told, true) {
            let failures = trouble.failures;
            tracing::debug!(error, failures, "Releases still cannot be followed");
        } else {
            tracing::warn!(error, "Releases cannot be followed");
        }
        self.metrics.releases_current(false);
        let mut state = self.state();
        state.current = false;
        state.problem = Some(error);
    }

    /// One list and the watches from it on; ends without an error where only a new list can tell more.
    async fn round(
        &self,
        follower: &mut Follower,
        trouble: &mut Trouble,
    ) -> Result<(), EndpointError> {
        let listed = follower.list().await?;
        if listed.more {
            tracing::warn!(
                read = listed.releases.len(),
                "there are more labelled Releases than are looked at"
            );
        }
        {
            let mut state = self.state();
            state.known = listed.releases.into_iter().collect();
            state.current = true;
            state.problem = None;
        }
        self.metrics.releases_current(true);
        self.changed.notify_one();
        let Err(error) = self.watches(follower, listed.version, trouble).await;
        // What happened since is not known any more: list again. Time after time it is trouble like any other.
        let forgotten = error.status() == Some(StatusCode::GONE) && trouble.failures < 2;
        if forgotten { Ok(()) } else { Err(error) }
    }

    /// One watch after the other, each from where the last one came to.
    async fn watches(
        &self,
        follower: &mut Follower,
        mut version: String,
        trouble: &mut Trouble,
    ) -> Result<Infallible, EndpointError> {
        loop {
            let mut watch = follower.watch(&version, WATCH.mul_f64(1.0 + jitter())).await?;
            // Neither a list nor a watch that is open is enough: who cuts every watch off would be asked without end.
            let mut told = match tokio::time::timeout(self.pace.steady, watch.next()).await {
                Ok(told) => told?,
                Err(_) => {
                    trouble.over();
                    watch.next().await?
                }
            };
            while let Some((event, reached)) = told {
                trouble.over();
                version = reached.unwrap_or(version);
                match event {
                    Event::Is(key, entry) => self.state().insert(key, *entry),
                    Event::Gone(key) => drop(self.state().known.remove(&key)),
                    Event::Nothing => {}
                }
                self.changed.notify_one();
                told = watch.next().await?;
            }
            // Nor is one asked without end that ends watches in order as soon as they begin.
            tokio::time::sleep(trouble.more(self.pace, jitter())).await;
        }
    }

    /// Fetches what is to be fetched, so many at a time.
    async fn work(&self, cache: Arc<dyn Cache>, shutdown: &CancellationToken) {
        let mut attempts: BTreeMap<Key, Attempt> = BTreeMap::new();
        let mut flights: BTreeMap<Key, (ResolvedImage, CancellationToken)> = BTreeMap::new();
        let mut landings: JoinSet<(Key, Result<Fetched, NotFetched>)> = JoinSet::new();
        let mut tasks: HashMap<Id, Key> = HashMap::new();
        loop {
            let now = Instant::now();
            let flying = flights.iter().map(|(key, (image, _))| (key.clone(), image.clone()));
            let flying = flying.collect::<BTreeMap<_, _>>();
            let plan = self.look(&*cache, &mut attempts, &flying, now);
            for key in &plan.cancel {
                flights.get(key).into_iter().for_each(|(_, cancel)| cancel.cancel());
            }
            for (key, image) in plan.begin {
                tracing::info!(release = %key, resolved_digest = %image.resolved_digest, "prefetching");
                let cancel = shutdown.child_token();
                flights.insert(key.clone(), (image.clone(), cancel.clone()));
                let (cache, task) = (Arc::clone(&cache), key.clone());
                let flight = landings.spawn(async move {
                    let outcome = cache.fetch(&image, &cancel).await;
                    (task, outcome)
                });
                tasks.insert(flight.id(), key);
            }
            let next = plan.next.map_or(LOOK, |next| next.saturating_duration_since(now).min(LOOK));
            tokio::select! {
                Some(landed) = landings.join_next_with_id() => match landed {
                    Ok((task, (key, outcome))) => {
                        tasks.remove(&task);
                        let Some((image, cancel)) = flights.remove(&key) else { continue };
                        self.landed(&key, image, outcome, &cancel, &mut attempts);
                    }
                    // Its own message has told why; the place is free again, the Release is tried later.
                    Err(error) => {
                        let Some(key) = tasks.remove(&error.id()) else { continue };
                        let Some((image, cancel)) = flights.remove(&key) else { continue };
                        self.landed(&key, image, Err(NotFetched::crashed()), &cancel, &mut attempts);
                    }
                },
                () = self.changed.notified() => tokio::time::sleep(GATHER).await,
                () = tokio::time::sleep(next) => {}
                () = shutdown.cancelled() => break,
            }
        }
        while landings.join_next().await.is_some() {}
    }

    /// What is done next. What is here is noted, so that its eviction is seen as one.
    fn look(
        &self,
        cache: &dyn Cache,
        attempts: &mut BTreeMap<Key, Attempt>,
        flying: &BTreeMap<Key, ResolvedImage>,
        now: Instant,
    ) -> plan::Plan {
        let pressure = cache.is_full();
        let mut state = self.state();
        attempts.retain(|key, _| state.known.contains_key(key));
        let images = state.known.values().filter_map(|one| one.verdict.as_ref().ok());
        let cached = cache.cached(&mut images.map(|image| image.resolved_digest));
        let plan = plan(&View {
            known: &state.known,
            attempts,
            flying,
            cached: &cached,
            pressure,
            limit: self.config.limit.get(),
            concurrency: self.config.concurrency.get(),
            now,
        });
        for (key, image) in &plan.here {
            attempts.insert(key.clone(), Attempt::here(image.clone(), now));
        }
        for one in PrefetchState::ALL {
            let count = plan.states.iter().filter(|(_, state, _)| *state == one).count();
            self.metrics.prefetch_releases(one, count as u64);
        }
        state.states.clone_from(&plan.states);
        plan
    }

    fn landed(
        &self,
        key: &Key,
        image: ResolvedImage,
        outcome: Result<Fetched, NotFetched>,
        cancel: &CancellationToken,
        attempts: &mut BTreeMap<Key, Attempt>,
    ) {
        let now = Instant::now();
        let attempt = match (outcome, cancel.is_cancelled()) {
            (Ok(Fetched { cached }), _) => {
                let result = if cached { PrefetchResult::Cached } else { PrefetchResult::Fetched };
                self.metrics.prefetched(result);
                Attempt::here(image, now)
            }
            (Err(_), true) => {
                self.metrics.prefetched(PrefetchResult::Cancelled);
                return;
            }
            (Err(why), false) => {
                self.metrics.prefetched(PrefetchResult::Failed);
                tracing::warn!(
                    release = %key, resolved_digest = %image.resolved_digest, reason = %why.reason,
                    "not prefetched; it is tried again"
                );
                Attempt::failed(image, attempts.get(key), &why, (now, jitter()))
            }
        };
        attempts.insert(key.clone(), attempt);
    }
}

/// Where Releases are followed.
#[derive(Debug)]
pub(crate) struct Following(Follower);

impl Following {
    /// Those of the cluster that fit `host`.
    pub(crate) fn new(
        server: &ApiServer,
        config: &PrefetchConfig,
        host: HostPlatform,
    ) -> Result<Self, NoServer> {
        Follower::new(server, config.namespace.as_deref(), host).map(Self)
    }
}
