//! What is watched, and the loop that hears, decides and does.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::node::v1::RuntimeClass;
use kube::core::DeserializeGuard;
use kube::runtime::WatchStreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource};
use portolan_api::shim::{JOB, Shim};
use portolan_core::causes::chain;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use super::apply::Hands;
use super::facts::{Job, Node};
use super::plan::{Done, Effect, Gone, Heard, Key, Planner};
use super::settings::Settings;
use crate::caches::{guarded, watching};
use crate::metrics::Metrics;
use crate::objects::strip;

/// What comes within that time is looked at together.
const TOGETHER: Duration = Duration::from_millis(20);
/// Nothing is waited for longer, so that metrics are never older.
const LONGEST: Duration = Duration::from_secs(15);
/// How often metrics are counted.
const COUNT: Duration = Duration::from_secs(1);
/// What may wait to be heard: watches wait then, and not the memory.
const WAITING: usize = 1024;
/// Kinds that are watched.
const KINDS: usize = 4;

/// All of it, until it is started.
pub(crate) struct Shims {
    planner: Planner,
    heard: Receiver<Heard>,
    hands: Arc<Hands>,
    workers: usize,
    metrics: Arc<Metrics>,
}

/// Starts all watches.
pub(crate) fn start(
    watches: &mut JoinSet<()>,
    client: Client,
    settings: Settings,
    metrics: Arc<Metrics>,
) -> Shims {
    let (sender, heard) = channel(WAITING);
    let all = client.clone();
    feed(
        watches,
        Api::<DeserializeGuard<Node>>::all(all),
        None,
        sender.clone(),
        |told| match told {
            Told::Is(node) => Heard::Node(node),
            Told::Gone(gone) => Heard::NodeGone(gone),
            Told::All(names) => Heard::Nodes(names),
        },
    );
    let jobs = Api::<DeserializeGuard<Job>>::namespaced(client.clone(), settings.namespace());
    feed(watches, jobs, Some(JOB), sender.clone(), |told| match told {
        Told::Is(job) => Heard::Job(job),
        Told::Gone(gone) => Heard::JobGone(gone),
        Told::All(names) => Heard::Jobs(names),
    });
    let all = client.clone();
    feed(
        watches,
        Api::<DeserializeGuard<Shim>>::all(all),
        None,
        sender.clone(),
        |told| match told {
            Told::Is(shim) => Heard::Shim(shim),
            Told::Gone(gone) => Heard::ShimGone(gone),
            Told::All(names) => Heard::Shims(names),
        },
    );
    let all = client.clone();
    feed(
        watches,
        Api::<DeserializeGuard<RuntimeClass>>::all(all),
        None,
        sender,
        |told| match told {
            Told::Is(class) => Heard::Class(class),
            Told::Gone(gone) => Heard::ClassGone(gone),
            Told::All(names) => Heard::Classes(names),
        },
    );
    let hands = Arc::new(Hands::new(client, settings.clone()));
    let workers = usize::from(settings.workers);
    Shims { planner: Planner::new(settings), heard, hands, workers, metrics }
}

/// What a watch tells of a kind.
enum Told<K> {
    Is(Box<K>),
    Gone(Gone),
    All(BTreeSet<String>),
}

fn is<K: Resource<DynamicType = ()>>(mut object: K) -> Told<K> {
    strip(object.meta_mut());
    Told::Is(Box::new(object))
}

/// Watches a kind. Unlike a cache it also tells what went while nobody listened.
fn feed<K>(
    tasks: &mut JoinSet<()>,
    api: Api<DeserializeGuard<K>>,
    labelled: Option<&str>,
    sender: Sender<Heard>,
    heard: impl Fn(Told<K>) -> Heard + Send + 'static,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let events = watcher::watcher(api, watching(labelled)).default_backoff();
    tasks.spawn(async move {
        let mut events = std::pin::pin!(events);
        let mut listed = BTreeSet::new();
        let name = |object: &K| object.meta().name.clone().unwrap_or_default();
        while let Some(event) = events.next().await {
            let event = match event {
                Ok(event) => guarded(event),
                Err(error) => {
                    let kind = K::kind(&());
                    tracing::warn!(%kind, error = chain(&error), "a watch failed and is tried again");
                    continue;
                }
            };
            let told = match event {
                None => continue,
                Some(Event::Init) => {
                    listed.clear();
                    continue;
                }
                Some(Event::InitApply(object)) => {
                    listed.insert(name(&object));
                    heard(is(object))
                }
                Some(Event::InitDone) => heard(Told::All(std::mem::take(&mut listed))),
                Some(Event::Apply(object)) => heard(is(object)),
                Some(Event::Delete(object)) => heard(Told::Gone(Gone::new(object.meta()))),
            };
            if sender.send(told).await.is_err() {
                return;
            }
        }
    });
}

fn now() -> i64 {
    jiff::Timestamp::now().as_millisecond()
}

impl Shims {
    /// Waits until everything was listed once: decisions before that would see less than there is.
    pub(crate) async fn ready(&mut self) {
        // A watch that breaks off may list twice before another has listed once.
        let mut listed = HashSet::new();
        while listed.len() < KINDS {
            let Some(heard) = self.heard.recv().await else { return };
            let list = matches!(
                heard,
                Heard::Nodes(_) | Heard::Jobs(_) | Heard::Shims(_) | Heard::Classes(_)
            );
            if list {
                listed.insert(std::mem::discriminant(&heard));
            }
            self.planner.hear(heard);
        }
    }

    /// Works until `ending`, then waits for what is under way.
    pub(crate) async fn work(mut self, ending: CancellationToken) {
        let mut doing: JoinSet<(Option<Key>, Done)> = JoinSet::new();
        let permits = Arc::new(Semaphore::new(self.workers));
        let mut counted = Instant::now();
        while !ending.is_cancelled() {
            for effect in self.planner.step(now(), permits.available_permits()) {
                self.spawn(effect, &mut doing, &permits);
            }
            if counted.elapsed() >= COUNT {
                counted = Instant::now();
                let (looked, weighed) = (self.planner.looked, self.planner.weighed());
                self.metrics.shims.set(self.planner.counts(), looked, weighed);
            }
            if !self.wait(&mut doing, &ending).await {
                return;
            }
        }
        while doing.join_next().await.is_some() {}
    }

    fn spawn(
        &self,
        effect: Effect,
        doing: &mut JoinSet<(Option<Key>, Done)>,
        permits: &Arc<Semaphore>,
    ) {
        let (hands, permits, key) = (Arc::clone(&self.hands), Arc::clone(permits), effect.key());
        if matches!(effect, Effect::Start { .. }) {
            self.metrics.shims.jobs.inc();
        }
        doing.spawn(async move {
            let _permit = permits.acquire_owned().await;
            // Thousands may wait here: what a request needs is taken when its turn has come.
            (key, Box::pin(hands.act(effect)).await)
        });
    }

    /// Waits for something to happen, and takes in all that happens with it. False where the work broke off.
    async fn wait(
        &mut self,
        doing: &mut JoinSet<(Option<Key>, Done)>,
        ending: &CancellationToken,
    ) -> bool {
        let due = self.planner.next().map(|at| u64::try_from(at - now()).unwrap_or_default());
        let due = due.map_or(LONGEST, Duration::from_millis).min(LONGEST);
        let due = Instant::now() + due;
        tokio::select! {
            heard = self.heard.recv() => match heard {
                Some(heard) => self.planner.hear(heard),
                None => return false,
            },
            Some(done) = doing.join_next() => {
                if !self.take(done) {
                    return false;
                }
            }
            () = sleep_until(due) => return true,
            () = ending.cancelled() => return true,
        }
        sleep(TOGETHER).await;
        while let Ok(heard) = self.heard.try_recv() {
            self.planner.hear(heard);
        }
        while let Some(done) = doing.try_join_next() {
            if !self.take(done) {
                return false;
            }
        }
        true
    }

    fn take(&mut self, done: Result<(Option<Key>, Done), tokio::task::JoinError>) -> bool {
        match done {
            Ok((Some(key), done)) => {
                if matches!(done, Done::Failed(_) | Done::Refused { .. }) {
                    self.metrics.failures.inc();
                }
                self.planner.done(&key, done, now());
                true
            }
            Ok((None, _)) => true,
            // What it held would be held for ever: the process ends, and the next one goes on.
            Err(error) => {
                tracing::error!(error = chain(&error), "a write broke off");
                false
            }
        }
    }
}
