//! What is watched, and who is looked at when something changes.

use std::sync::Arc;

use kube::Client;
use kube::runtime::reflector::ObjectRef;
use portolan_api::build::{Build, BuildRun, StrategyRef};
use portolan_api::keys;
use portolan_api::platform::ImagePlatformClass;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::caches::{Caches, run_of, watch, watch_names};
use crate::context::{Context, Queues, reconcile};
use crate::metrics::Metrics;
use crate::objects::label;
use crate::settings::Settings;
use crate::{builds, classes, runs};

/// Who waits to be looked at.
pub(crate) struct Waiting {
    classes: UnboundedReceiver<ObjectRef<ImagePlatformClass>>,
    builds: UnboundedReceiver<ObjectRef<Build>>,
    runs: UnboundedReceiver<ObjectRef<BuildRun>>,
}

/// Starts all watches.
pub(crate) fn start(
    watches: &mut JoinSet<()>,
    client: Client,
    settings: Settings,
    metrics: Arc<Metrics>,
) -> (Arc<Context>, Waiting) {
    let (class_queue, classes) = unbounded_channel();
    let (build_queue, builds) = unbounded_channel();
    let (run_queue, runs) = unbounded_channel();
    let queues = Queues { classes: class_queue, builds: build_queue, runs: run_queue };
    let caches = caches(watches, &client, &queues);
    let context = Arc::new(Context { client, caches, settings, metrics });
    (context, Waiting { classes, builds, runs })
}

/// A queue nobody reads any more belongs to a controller that ends; then nothing is to be done.
fn caches(watches: &mut JoinSet<()>, client: &Client, queues: &Queues) -> Caches {
    // Only what belongs to runs: a cluster has many pods that are none of our business.
    let labelled = Some(keys::BUILD_RUN_NAME);
    let queue = queues.clone();
    let classes = watch::<ImagePlatformClass>(watches, client, None, move |class| {
        let _ = queue.classes.send(ObjectRef::from_obj(class));
    });
    let queue = queues.clone();
    let builds = watch::<Build>(watches, client, None, move |build| {
        let _ = queue.builds.send(ObjectRef::from_obj(build));
    });
    let (queue, known) = (queues.clone(), classes.clone());
    let platforms =
        watch(watches, client, None, move |platform: &portolan_api::platform::ImagePlatform| {
            let name = platform.metadata.name.as_deref().unwrap_or_default();
            let names = |class: &ImagePlatformClass| {
                class.spec.image_platforms.iter().any(|one| one.name == name)
            };
            for class in known.state_filter(names) {
                let _ = queue.classes.send(ObjectRef::from_obj(class.as_ref()));
            }
        });
    let queue = queues.clone();
    let runs = watch::<BuildRun>(watches, client, None, move |run| {
        let _ = queue.runs.send(ObjectRef::from_obj(run));
        // Its Build keeps only so many.
        if let (Some(build), Some(namespace)) =
            (label(&run.metadata, keys::BUILD_NAME), run.metadata.namespace.as_deref())
        {
            let _ = queue.builds.send(ObjectRef::new(build).within(namespace));
        }
    });
    let mentioned = Mentioned { queues: queues.clone(), builds: builds.clone() };
    let (strategy, cluster_strategy, secret) = (mentioned.clone(), mentioned.clone(), mentioned);
    Caches {
        strategies: watch(
            watches,
            client,
            None,
            move |one: &portolan_api::build::BuildStrategy| {
                let namespace = one.metadata.namespace.as_deref();
                strategy.strategy("BuildStrategy", namespace, one.metadata.name.as_deref());
            },
        ),
        cluster_strategies: watch(
            watches,
            client,
            None,
            move |one: &portolan_api::build::ClusterBuildStrategy| {
                cluster_strategy.strategy(
                    "ClusterBuildStrategy",
                    None,
                    one.metadata.name.as_deref(),
                );
            },
        ),
        secrets: watch_names(watches, client, move |one| {
            secret.secret(one.metadata.namespace.as_deref(), one.metadata.name.as_deref());
        }),
        tasks: watch(watches, client, labelled, of_run(queues)),
        pipelines: watch(watches, client, labelled, of_run(queues)),
        pods: watch(watches, client, labelled, of_run(queues)),
        accounts: watch(watches, client, None, |_: &k8s_openapi::api::core::v1::ServiceAccount| {}),
        builds,
        runs,
        classes,
        platforms,
    }
}

/// What belongs to a run makes it be looked at.
fn of_run<K>(queues: &Queues) -> impl Fn(&K) + Send + use<K>
where
    K: kube::Resource<DynamicType = ()>,
{
    let queue = queues.runs.clone();
    move |object: &K| {
        if let Some(run) = run_of(object.meta()) {
            let _ = queue.send(run);
        }
    }
}

/// What Builds mention.
#[derive(Clone)]
struct Mentioned {
    queues: Queues,
    builds: kube::runtime::reflector::Store<Build>,
}

impl Mentioned {
    fn tell(&self, mentions: impl Fn(&Build) -> bool) {
        for build in self.builds.state_filter(mentions) {
            let _ = self.queues.builds.send(ObjectRef::from_obj(build.as_ref()));
        }
    }

    fn strategy(&self, kind: &str, namespace: Option<&str>, name: Option<&str>) {
        self.tell(|build| {
            let StrategyRef { name: wanted, kind: of, .. } = &build.spec.strategy;
            let of = of.as_deref().filter(|of| !of.is_empty()).unwrap_or("BuildStrategy");
            of == kind
                && Some(wanted.as_str()) == name
                && namespace.is_none_or(|n| build.metadata.namespace.as_deref() == Some(n))
        });
    }

    fn secret(&self, namespace: Option<&str>, name: Option<&str>) {
        self.tell(|build| {
            let (source, output) = builds::register::secrets(&build.spec);
            build.metadata.namespace.as_deref() == namespace && (source == name || output == name)
        });
    }
}

/// Works until `ending`, then ends what is under way.
pub(crate) async fn work(context: Arc<Context>, waiting: Waiting, ending: CancellationToken) {
    let Waiting { classes, builds, runs } = waiting;
    let caches = &context.caches;
    tokio::join!(
        reconcile(
            Arc::clone(&context),
            caches.classes.clone(),
            classes,
            ending.clone(),
            classes::reconcile
        ),
        reconcile(
            Arc::clone(&context),
            caches.builds.clone(),
            builds,
            ending.clone(),
            builds::reconcile
        ),
        reconcile(Arc::clone(&context), caches.runs.clone(), runs, ending.clone(), runs::reconcile),
    );
}
