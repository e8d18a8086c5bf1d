//! What every reconciler may use, and how each is run: objects beside each other, one object at a
//! time, what failed again after a while.

use std::collections::HashMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::future::Future;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::{FutureExt as _, StreamExt as _, stream};
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::runtime::controller::{self, Action};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Client, Resource, ResourceExt as _};
use portolan_api::build::{Build, BuildRun};
use portolan_api::platform::ImagePlatformClass;
use portolan_core::causes::chain;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio_util::sync::CancellationToken;

use crate::caches::Caches;
use crate::metrics::Metrics;
use crate::settings::Settings;

/// Another write came between ours: what was decided is decided again at once.
const CONFLICT_PAUSE: Duration = Duration::from_millis(50);
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// Whatever was missed is noticed after that time.
pub(crate) const RESYNC: Duration = Duration::from_secs(300);

/// Why an object could not be brought to where it should be. It is tried again.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReconcileError {
    /// A request.
    #[error("{step} failed")]
    Request {
        /// What was tried.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
    /// The object that was worked on is gone, and with it the work. What else is not there, or not
    /// served, may come.
    #[error("the object is gone")]
    Gone,
    /// It broke off.
    #[error("the work on the object broke off")]
    Broken(#[source] tokio::task::JoinError),
    /// An object that does not say what every stored object says.
    #[error("the object has no {0}")]
    Incomplete(&'static str),
}

impl ReconcileError {
    pub(crate) fn at(step: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Request { step, source: Box::new(source) }
    }

    /// Somebody else wrote first.
    fn is_conflict(&self) -> bool {
        matches!(self, Self::Request { source, .. }
            if matches!(source.as_ref(), kube::Error::Api(told) if told.code == 409))
    }
}

/// What running a reconciler needs of what it works with.
pub(crate) trait Shared: Send + Sync + 'static {
    /// Objects of one kind that are worked on at once.
    fn workers(&self) -> u16;
    /// What is counted.
    fn metrics(&self) -> &Arc<Metrics>;
}

impl Shared for Context {
    fn workers(&self) -> u16 {
        self.settings.workers
    }

    fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }
}

/// What reconcilers of builds share.
pub(crate) struct Context {
    pub(crate) client: Client,
    pub(crate) caches: Caches,
    pub(crate) settings: Settings,
    pub(crate) metrics: Arc<Metrics>,
}

/// Whom to look at.
#[derive(Clone)]
pub(crate) struct Queues {
    pub(crate) classes: UnboundedSender<ObjectRef<ImagePlatformClass>>,
    pub(crate) builds: UnboundedSender<ObjectRef<Build>>,
    pub(crate) runs: UnboundedSender<ObjectRef<BuildRun>>,
}

/// The time that statuses are written with: whole seconds, as clusters keep it.
pub(crate) fn now() -> Time {
    let now = Timestamp::now();
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// Runs a reconciler until `ending`, then waits for what is under way.
pub(crate) async fn reconcile<C, K, F>(
    context: Arc<C>,
    store: Store<K>,
    mut queue: UnboundedReceiver<ObjectRef<K>>,
    ending: CancellationToken,
    work: impl Fn(Arc<K>, Arc<C>) -> F,
) where
    C: Shared,
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
    F: Future<Output = Result<Action, ReconcileError>> + Send + 'static,
{
    let failures = Failures::default();
    let queue = stream::poll_fn(move |cx| queue.poll_recv(cx))
        .map(Ok::<_, Infallible>)
        .take_until(ending.cancelled_owned());
    let config = controller::Config::default().concurrency(context.workers());
    let metrics = Arc::clone(context.metrics());
    // On a task of its own, so that objects use all processors and one that panics ends alone.
    let one = |object: Arc<K>, context: Arc<C>| {
        let key = key(object.as_ref());
        let task = tokio::spawn(work(object, context));
        let failures = &failures;
        async move {
            let done = task.await.map_err(ReconcileError::Broken)?;
            match done {
                Ok(action) => {
                    failures.forget(&key);
                    Ok(action)
                }
                Err(ReconcileError::Gone) => {
                    failures.forget(&key);
                    Ok(Action::await_change())
                }
                Err(error) => Err(error),
            }
        }
        .boxed_local()
    };
    let failed = |object: Arc<K>, error: &ReconcileError, _: Arc<C>| {
        if error.is_conflict() {
            return Action::requeue(CONFLICT_PAUSE);
        }
        let (kind, name, namespace) = (K::kind(&()), object.name_any(), object.namespace());
        let pause = failures.count(&key(object.as_ref()));
        metrics.failures.inc();
        tracing::warn!(%kind, name, namespace, error = chain(error), ?pause, "tried again later");
        Action::requeue(pause)
    };
    let results = controller::applier(one, failed, Arc::clone(&context), store, queue, config);
    // An object that is gone before its turn is no failure.
    results.for_each(|_| async {}).await;
}

type Key = (Option<String>, String);

fn key(object: &impl Resource<DynamicType = ()>) -> Key {
    let meta = object.meta();
    (meta.namespace.clone(), meta.name.clone().unwrap_or_default())
}

/// How often each object failed in a row.
#[derive(Debug, Default)]
struct Failures(Mutex<HashMap<Key, u32>>);

impl Failures {
    fn count(&self, key: &Key) -> Duration {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let times = all.entry(key.clone()).or_default();
        let pause = FIRST_PAUSE.saturating_mul(1 << (*times).min(10)).min(LONGEST_PAUSE);
        *times += 1;
        pause
    }

    fn forget<Q: Hash + Eq + ?Sized>(&self, key: &Q)
    where
        Key: std::borrow::Borrow<Q>,
    {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(key);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fails_again_and_again_is_tried_ever_less_often() {
        let failures = Failures::default();
        let key = (None, "one".to_owned());
        let pauses: Vec<u64> = (0..10).map(|_| failures.count(&key).as_secs()).collect();
        assert_eq!(pauses, [0, 0, 1, 2, 4, 8, 16, 32, 60, 60]);
        failures.forget(&key);
        assert_eq!(failures.count(&key), FIRST_PAUSE);
    }
}
