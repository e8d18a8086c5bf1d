//! What is watched, and the loop.

use std::sync::Arc;

use kube::api::ListParams;
use kube::runtime::events::{Recorder, Reporter};
use kube::runtime::reflector::{ObjectRef, Store};
use kube::{Api, Client};
use portolan_api::build::BuildRun;
use portolan_api::release::{RELEASE, Release};
use portolan_registry::client::{Client as Registry, CredentialStore, Settings as Registries};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::apply::{self, Context};
use super::memory::Memory;
use super::places::Places;
use super::runs;
use super::settings::Settings;
use crate::caches::watch;
use crate::context::reconcile;
use crate::metrics::Metrics;
use crate::prerequisites::{PrerequisiteError, needs};
use crate::run::RunError;
use crate::write::MANAGER;

const NEEDED: [(&str, &[&str], &str); 1] = [(
    "portolan.dev/v1alpha1",
    &["releases", "releases/status"],
    "the definition of Releases is not installed: portolan crds --roles | kubectl apply --server-side -f -",
)];

/// What makes Releases of runs; a cluster may have none.
const RUNS: [(&str, &[&str], &str); 1] =
    [("shipwright.io/v1beta1", &["buildruns"], "there are no runs that could become Releases")];

/// Looks whether Releases are there, and may be read: a role may be older than the definition.
pub(crate) async fn possible(client: &Client) -> Result<(), PrerequisiteError> {
    needs(client, &NEEDED).await?;
    let releases: Api<Release> = Api::all(client.clone());
    let listed = releases.list(&ListParams::default().limit(1)).await;
    listed.map(drop).map_err(PrerequisiteError::at("its Releases"))
}

/// All of it, until it is started.
pub(crate) struct Releases {
    context: Arc<Context>,
    releases: UnboundedReceiver<ObjectRef<Release>>,
    runs: Option<(Store<BuildRun>, UnboundedReceiver<ObjectRef<BuildRun>>)>,
}

/// Starts all watches.
pub(crate) async fn start(
    watches: &mut JoinSet<()>,
    client: Client,
    settings: Settings,
    metrics: Arc<Metrics>,
) -> Result<Releases, RunError> {
    let registry = registry(&settings)?;
    let with_runs = match needs(&client, &RUNS).await {
        Ok(()) => true,
        Err(error) if error.is_answer() => false,
        Err(error) => return Err(error.into()),
    };
    // A queue nobody reads any more belongs to a controller that ends; then nothing is to be done.
    let (queue, waiting) = unbounded_channel();
    let releases = watch::<Release>(watches, &client, None, move |release| {
        let _ = queue.send(ObjectRef::from_obj(release));
    });
    let runs = with_runs.then(|| {
        let (queue, waiting) = unbounded_channel();
        let store = watch::<BuildRun>(watches, &client, Some(RELEASE), move |run| {
            let _ = queue.send(ObjectRef::from_obj(run));
        });
        (store, waiting)
    });
    let reporter = Reporter { controller: MANAGER.to_owned(), instance: None };
    let context = Arc::new(Context {
        recorder: Recorder::new(client.clone(), reporter),
        client,
        registry,
        releases,
        memory: Memory::default(),
        places: Places::new(settings.workers),
        settings,
        metrics,
    });
    Ok(Releases { context, releases: waiting, runs })
}

/// Nobody's logins are used but those that a Release names.
fn registry(settings: &Settings) -> Result<Registry, RunError> {
    let registries = match &settings.registries {
        None => Registries::default(),
        Some(file) => {
            Registries::from_file(file).map_err(|error| RunError::Registries(error.into()))?
        }
    };
    Registry::new(registries, CredentialStore::anonymous())
        .map_err(|error| RunError::Registries(error.into()))
}

impl Releases {
    /// Waits until everything was listed once.
    pub(crate) async fn ready(&self) {
        // A writer that is dropped ends the whole program anyway.
        let _ = self.context.releases.wait_until_ready().await;
        if let Some((runs, _)) = &self.runs {
            let _ = runs.wait_until_ready().await;
        }
    }

    /// Works until `ending`, then waits for what is under way.
    pub(crate) async fn work(self, ending: CancellationToken) {
        let Self { context, releases, runs } = self;
        let store = context.releases.clone();
        let of_runs = async {
            if let Some((store, waiting)) = runs {
                reconcile(Arc::clone(&context), store, waiting, ending.clone(), runs::reconcile)
                    .await;
            }
        };
        let own =
            reconcile(Arc::clone(&context), store, releases, ending.clone(), apply::reconcile);
        tokio::join!(own, of_runs);
    }
}
