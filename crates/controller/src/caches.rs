//! What is watched of the cluster, kept small: decisions are made from here and not by asking.
//!
//! What is not here may still be there: watches of different kinds run apart, so a run can be heard
//! of before its Build. Nothing is refused for being absent until the server was asked.

use std::fmt::Debug;
use std::sync::Arc;

use futures_util::{Stream, StreamExt as _};
use k8s_openapi::api::core::v1::{Secret, ServiceAccount};
use kube::core::{DeserializeGuard, PartialObjectMeta};
use kube::runtime::WatchStreamExt as _;
use kube::runtime::reflector::store::Writer;
use kube::runtime::reflector::{ObjectRef, Store};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt as _};
use portolan_api::build::{Build, BuildRun, BuildStrategy, ClusterBuildStrategy};
use portolan_api::keys;
use portolan_api::platform::{ImagePlatform, ImagePlatformClass};
use portolan_core::causes::chain;
use serde::de::DeserializeOwned;
use tokio::task::JoinSet;

use crate::objects::{Executor, PipelineRun, Pod, TaskRun, label, strip};
use crate::runs::is_ours;

/// Watches end by themselves that often, so that one that nobody hears of any more is noticed.
const WATCH_SECONDS: u32 = 45;

/// A secret of which only its name is known.
pub(crate) type SecretName = PartialObjectMeta<Secret>;

/// Everything that is watched.
pub(crate) struct Caches {
    pub(crate) builds: Store<Build>,
    pub(crate) runs: Store<BuildRun>,
    pub(crate) strategies: Store<BuildStrategy>,
    pub(crate) cluster_strategies: Store<ClusterBuildStrategy>,
    pub(crate) classes: Store<ImagePlatformClass>,
    pub(crate) platforms: Store<ImagePlatform>,
    pub(crate) tasks: Store<TaskRun>,
    pub(crate) pipelines: Store<PipelineRun>,
    pub(crate) pods: Store<Pod>,
    pub(crate) secrets: Store<SecretName>,
    pub(crate) accounts: Store<ServiceAccount>,
}

/// The cluster's event: an object came, changed or went, and the cache has it already.
pub(crate) trait Heard<K>: Fn(&K) + Send + 'static {}
impl<K, F: Fn(&K) + Send + 'static> Heard<K> for F {}

/// Watches a kind; one object that cannot be read is told and passed over.
pub(crate) fn watch<K>(
    tasks: &mut JoinSet<()>,
    client: &Client,
    selector: Option<&str>,
    heard: impl Heard<K>,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
{
    let events =
        watcher::watcher(Api::<DeserializeGuard<K>>::all(client.clone()), watching(selector));
    let readable = events.default_backoff().filter_map(|event| async move {
        match event {
            Ok(event) => guarded(event).map(Ok),
            Err(error) => Some(Err(error)),
        }
    });
    reflect(tasks, readable, heard)
}

/// Watches names and labels alone.
pub(crate) fn watch_names(
    tasks: &mut JoinSet<()>,
    client: &Client,
    heard: impl Heard<SecretName>,
) -> Store<SecretName> {
    let events = watcher::watcher(Api::<SecretName>::all(client.clone()), watching(None));
    reflect(tasks, events.default_backoff(), heard)
}

/// How a kind is watched.
pub(crate) fn watching(selector: Option<&str>) -> watcher::Config {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    match selector {
        Some(selector) => config.labels(selector),
        None => config,
    }
}

pub(crate) fn guarded<K: Resource<DynamicType = ()>>(
    event: Event<DeserializeGuard<K>>,
) -> Option<Event<K>> {
    let read = |guard: DeserializeGuard<K>| match guard.0 {
        Ok(object) => Some(object),
        Err(error) => {
            let (name, namespace) =
                (error.metadata.name.as_deref(), error.metadata.namespace.as_deref());
            let kind = K::kind(&());
            tracing::warn!(%kind, name, namespace, error = error.error, "an object cannot be read and is passed over");
            None
        }
    };
    Some(match event {
        Event::Apply(guard) => Event::Apply(read(guard)?),
        Event::Delete(guard) => Event::Delete(read(guard)?),
        Event::InitApply(guard) => Event::InitApply(read(guard)?),
        Event::Init => Event::Init,
        Event::InitDone => Event::InitDone,
    })
}

fn reflect<K>(
    tasks: &mut JoinSet<()>,
    events: impl Stream<Item = Result<Event<K>, watcher::Error>> + Send + 'static,
    heard: impl Heard<K>,
) -> Store<K>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Send + Sync + 'static,
{
    let mut writer = Writer::<K>::new(());
    let store = writer.as_reader();
    let reader = store.clone();
    tasks.spawn(async move {
        let mut events = std::pin::pin!(events);
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    let event = event.modify(|object| strip(object.meta_mut()));
                    writer.apply_watcher_event(&event);
                    match &event {
                        Event::Apply(object) | Event::Delete(object) => heard(object),
                        Event::InitDone => reader.state().iter().for_each(|object| heard(object)),
                        Event::Init | Event::InitApply(_) => {}
                    }
                }
                Err(error) => {
                    let kind = K::kind(&());
                    tracing::warn!(%kind, error = chain(&error), "a watch failed and is tried again");
                }
            }
        }
    });
    store
}

impl Caches {
    /// Waits until everything was listed once. Decisions before that would see less than there is.
    pub(crate) async fn ready(&self) {
        // A writer that is dropped ends the whole program anyway.
        let _ = tokio::join!(
            self.builds.wait_until_ready(),
            self.runs.wait_until_ready(),
            self.strategies.wait_until_ready(),
            self.cluster_strategies.wait_until_ready(),
            self.classes.wait_until_ready(),
            self.platforms.wait_until_ready(),
            self.tasks.wait_until_ready(),
            self.pipelines.wait_until_ready(),
            self.pods.wait_until_ready(),
            self.secrets.wait_until_ready(),
            self.accounts.wait_until_ready(),
        );
    }

    /// The executor of a run, found by whom it belongs to. TaskRuns of a pipeline are none.
    pub(crate) fn executor(&self, run: &BuildRun) -> Option<Executor> {
        if let Some(pipeline) = self.pipelines.find(|one| is_pipeline_of(one, run)) {
            return Some(Executor::Pipeline(Arc::unwrap_or_clone(pipeline)));
        }
        let task = self.tasks.find(|one| is_task_of(one, run));
        task.map(|task| Executor::Task(Arc::unwrap_or_clone(task)))
    }

    /// TaskRuns of a PipelineRun.
    pub(crate) fn tasks_of(&self, run: &BuildRun, pipeline: &str) -> Vec<Arc<TaskRun>> {
        self.tasks.state_filter(|one| {
            belongs(&one.metadata, run)
                && label(&one.metadata, keys::TEKTON_PIPELINE_RUN) == Some(pipeline)
        })
    }

    /// Pods of a run.
    pub(crate) fn pods_of(&self, run: &BuildRun) -> Vec<Arc<Pod>> {
        self.pods.state_filter(|one| belongs(&one.metadata, run))
    }

    /// Runs of a Build.
    pub(crate) fn runs_of(&self, build: &Build) -> Vec<Arc<BuildRun>> {
        let name = build.name_any();
        self.runs.state_filter(|run| {
            run.metadata.namespace == build.metadata.namespace
                && label(&run.metadata, keys::BUILD_NAME) == Some(name.as_str())
        })
    }
}

/// Whether a PipelineRun is the executor of a run.
pub(crate) fn is_pipeline_of(pipeline: &PipelineRun, run: &BuildRun) -> bool {
    belongs(&pipeline.metadata, run) && is_ours(&pipeline.metadata, run)
}

/// Whether a TaskRun is the executor of a run. Those of a pipeline are none.
pub(crate) fn is_task_of(task: &TaskRun, run: &BuildRun) -> bool {
    belongs(&task.metadata, run)
        && is_ours(&task.metadata, run)
        && label(&task.metadata, keys::TEKTON_PIPELINE_RUN).is_none()
}

/// Whether an object is labelled with a run and lives beside it.
fn belongs(metadata: &kube::api::ObjectMeta, run: &BuildRun) -> bool {
    metadata.namespace == run.metadata.namespace
        && label(metadata, keys::BUILD_RUN_NAME) == run.metadata.name.as_deref()
}

/// The run that an object is labelled with.
pub(crate) fn run_of(metadata: &kube::api::ObjectMeta) -> Option<ObjectRef<BuildRun>> {
    let name = label(metadata, keys::BUILD_RUN_NAME)?;
    Some(ObjectRef::new(name).within(metadata.namespace.as_deref()?))
}
