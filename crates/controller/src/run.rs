//! How the controller is put together, started and ended.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::{LocalBoxFuture, join_all, select_all};
use kube::Client;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};
use portolan_core::causes::chain;
use portolan_registry::serving::{self, Limits, Listener};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::http::{Progress, Stage, router};
use crate::lease::{self, Keeper};
use crate::metrics::Metrics;
use crate::prerequisites::{self, PrerequisiteError};
use crate::settings::Settings;
use crate::{releases, shims, wire};

/// A server that accepts and is silent is not waited for longer; watches end earlier by themselves.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);
/// What is under way may take that long when the controller ends.
const LAST_WORK: Duration = Duration::from_secs(5);

/// Why a controller does not start, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// Of the file.
    #[error("the kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is no service account.
    #[error("this is no pod with a service account; set --kubeconfig")]
    InCluster(#[source] Box<InClusterError>),
    /// No client.
    #[error("the cluster cannot be asked")]
    Client(#[source] Box<kube::Error>),
    /// Something is missing, or somebody else is there.
    #[error(transparent)]
    Prerequisite(#[from] PrerequisiteError),
    /// How registries are spoken to cannot be used.
    #[error("the settings of registries cannot be used")]
    Registries(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// An address that cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Another copy may act by now.
    #[error("the lease {} was lost; another copy may act", lease::NAME)]
    LeaseLost,
    /// A part that never ends ended.
    #[error("the controller's own work ended; see its log")]
    WorkEnded,
}

/// Runs until `ending`.
pub async fn run(mut settings: Settings, ending: CancellationToken) -> Result<(), RunError> {
    let (client, default_namespace) = connect(settings.kubeconfig.as_deref()).await?;
    let namespace = settings.namespace.clone().unwrap_or(default_namespace);
    let (progress, metrics) = (Arc::new(Progress::default()), Arc::new(Metrics::new()));
    let mut servers = JoinSet::new();
    let served = router(Arc::clone(&progress), Arc::clone(&metrics));
    listen(&mut servers, settings.health, served, ending.clone()).await?;
    check(&client, &settings).await?;
    if let Some(shims) = &mut settings.shims {
        shims.namespace.get_or_insert_with(|| namespace.clone());
    }
    let keeper = Keeper::new(client.clone(), &namespace, identity());
    contend(keeper, client, settings, &progress, &metrics, ending).await
}

/// Waits for the lease, and acts as long as it is held.
async fn contend(
    mut keeper: Keeper,
    client: Client,
    settings: Settings,
    progress: &Progress,
    metrics: &Arc<Metrics>,
    ending: CancellationToken,
) -> Result<(), RunError> {
    progress.set(Stage::StandingBy);
    let since = tokio::select! {
        since = keeper.acquire() => since,
        () = ending.cancelled() => return Ok(()),
    };
    let work = act(client, settings, progress, metrics, ending.clone());
    let outcome = lead(keeper.hold(since), work, ending).await;
    metrics.leader.set(0);
    progress.set(Stage::Ending);
    match outcome {
        Ok(End::Done(done)) => {
            keeper.release().await;
            done
        }
        // What still runs must not meet another copy's: the lease runs out after this process.
        Ok(End::Late) => Ok(()),
        Err(lost) => Err(lost),
    }
}

/// How the work of the copy that leads ended.
#[derive(Debug)]
enum End {
    /// Nothing of it goes on.
    Done(Result<(), RunError>),
    /// Something may go on until the process ends.
    Late,
}

/// Works until `ending`, or until the lease is lost: then everything stops where it is. The lease is
/// renewed from the first moment to the last.
async fn lead(
    hold: impl Future<Output = ()>,
    work: impl Future<Output = Result<(), RunError>>,
    ending: CancellationToken,
) -> Result<End, RunError> {
    let (mut hold, mut work) = (std::pin::pin!(hold), std::pin::pin!(work));
    tokio::select! {
        () = &mut hold => return Err(RunError::LeaseLost),
        done = &mut work => return Ok(End::Done(done)),
        () = ending.cancelled() => {}
    }
    tracing::info!("ending what is under way");
    tokio::select! {
        () = &mut hold => Err(RunError::LeaseLost),
        done = timeout(LAST_WORK, work) => Ok(done.map_or_else(
            |_| {
                tracing::warn!("not everything ended in time; the next copy goes on with it");
                End::Late
            },
            |_| End::Done(Ok(())),
        )),
    }
}

/// All that the copy that leads does.
async fn act(
    client: Client,
    settings: Settings,
    progress: &Progress,
    metrics: &Arc<Metrics>,
    ending: CancellationToken,
) -> Result<(), RunError> {
    // While this copy stood by, somebody may have put another controller there.
    let serves = check(&client, &settings).await?;
    progress.set(Stage::Listing);
    metrics.leader.set(1);
    tracing::info!("this copy acts");
    let mut watches = JoinSet::new();
    let shims = settings.shims.clone().filter(|_| serves.shims);
    let mut shims =
        shims.map(|shims| shims::start(&mut watches, client.clone(), shims, Arc::clone(metrics)));
    let releases = match settings.releases.clone().filter(|_| serves.releases) {
        Some(own) => {
            Some(releases::start(&mut watches, client.clone(), own, Arc::clone(metrics)).await?)
        }
        None => None,
    };
    let builds =
        serves.builds.then(|| wire::start(&mut watches, client, settings, Arc::clone(metrics)));
    let mut runs = 0;
    if let Some((context, _)) = &builds {
        context.caches.ready().await;
        runs = context.caches.runs.len();
    }
    if let Some(shims) = &mut shims {
        shims.ready().await;
    }
    if let Some(releases) = &releases {
        releases.ready().await;
    }
    tracing::info!(runs, "everything is listed");
    progress.set(Stage::Leading);
    let mut parts: Vec<LocalBoxFuture<'_, ()>> = vec![ending.cancelled().boxed_local()];
    if let Some((context, waiting)) = builds {
        parts.push(wire::work(context, waiting, ending.clone()).boxed_local());
    }
    if let Some(shims) = shims {
        parts.push(shims.work(ending.clone()).boxed_local());
    }
    if let Some(releases) = releases {
        parts.push(releases.work(ending.clone()).boxed_local());
    }
    // Where one of them ends by itself the process ends; otherwise all are waited for.
    let ((), _, rest) = select_all(parts).await;
    if ending.is_cancelled() {
        join_all(rest).await;
    }
    match ending.is_cancelled() {
        true => Ok(()),
        false => Err(RunError::WorkEnded),
    }
}

/// What is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Serves {
    builds: bool,
    shims: bool,
    releases: bool,
}

/// Looks whether the cluster has what is needed. What was asked for by name must be possible; where nobody asked,
/// what is not possible is told and left out, unless nothing is left. What may pass (a server that is away) ends
/// the process, and the next one asks again.
async fn check(client: &Client, settings: &Settings) -> Result<Serves, RunError> {
    let builds = match settings.builds {
        true => Some(builds_possible(client, settings.takeover).await),
        false => None,
    };
    let shims = match &settings.shims {
        Some(shims) => Some(shims_possible(client, shims.takeover).await),
        None => None,
    };
    let releases = match &settings.releases {
        Some(_) => Some(releases::possible(client).await.map_err(RunError::from)),
        None => None,
    };
    serves([builds, shims, releases], settings.optional)
}

/// Of builds, shims and releases: what is possible of what was asked for.
fn serves(
    [builds, shims, releases]: [Option<Result<(), RunError>>; 3],
    optional: bool,
) -> Result<Serves, RunError> {
    let (mut trouble, mut passing) = (None, false);
    let mut possible = |what: &str, found: Option<Result<(), RunError>>| match found {
        None => false,
        Some(Ok(())) => true,
        Some(Err(error)) => {
            let answer =
                matches!(&error, RunError::Prerequisite(prerequisite) if prerequisite.is_answer());
            if !answer && !passing {
                passing = true;
                trouble = None;
            }
            if optional && answer {
                let error = chain(&error);
                tracing::warn!(what, error, "not served; --serve says what has to be");
            }
            trouble.get_or_insert(error);
            false
        }
    };
    let serves = Serves {
        builds: possible("builds", builds),
        shims: possible("shims", shims),
        releases: possible("releases", releases),
    };
    let nothing = !serves.builds && !serves.shims && !serves.releases;
    match trouble {
        Some(error) if passing || !optional || nothing => Err(error),
        _ => Ok(serves),
    }
}

async fn builds_possible(client: &Client, takeover: bool) -> Result<(), RunError> {
    prerequisites::installed(client).await?;
    unless(takeover, prerequisites::alone(client).await)
}

async fn shims_possible(client: &Client, takeover: bool) -> Result<(), RunError> {
    shims::upstream::installed(client).await?;
    unless(takeover, shims::upstream::alone(client).await)
}

/// Another controller is no reason to stop where taking over was asked for.
fn unless(takeover: bool, alone: Result<(), PrerequisiteError>) -> Result<(), RunError> {
    match alone {
        Err(PrerequisiteError::Served { who, .. }) if takeover => {
            tracing::warn!(who, "another controller is there; taking over as asked");
            Ok(())
        }
        other => Ok(other?),
    }
}

async fn connect(kubeconfig: Option<&Path>) -> Result<(Client, String), RunError> {
    let mut config = match kubeconfig {
        None => {
            kube::Config::incluster().map_err(|source| RunError::InCluster(Box::new(source)))?
        }
        Some(path) => from_file(path).await.map_err(|source| RunError::Kubeconfig {
            path: path.to_owned(),
            source: Box::new(source),
        })?,
    };
    config.connect_timeout = Some(CONNECT);
    config.read_timeout = Some(SILENCE);
    let namespace = config.default_namespace.clone();
    let client = Client::try_from(config).map_err(|source| RunError::Client(Box::new(source)))?;
    Ok((client, namespace))
}

async fn from_file(path: &Path) -> Result<kube::Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
}

async fn listen(
    servers: &mut JoinSet<()>,
    address: SocketAddr,
    router: axum::Router,
    ending: CancellationToken,
) -> Result<(), RunError> {
    let failed = |source| RunError::Listen { address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    servers.spawn(async move {
        let limits = Limits { shutdown_timeout: LAST_WORK, ..Limits::default() };
        serving::run(Listener::Tcp(listener, None), router, &limits, ending.cancelled()).await;
    });
    Ok(())
}

/// Which copy this is. Two of one host, and one that starts again, are not the same.
fn identity() -> String {
    let host = std::env::var("POD_NAME").or_else(|_| std::env::var("HOSTNAME"));
    let host = host.ok().filter(|host| !host.is_empty()).unwrap_or_else(|| "portolan".to_owned());
    let started = jiff::Timestamp::now().as_nanosecond();
    format!("{host}_{}_{started}", std::process::id())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::testing::{self, Answer};

    #[tokio::test]
    async fn the_lease_is_renewed_while_the_cluster_is_looked_at_again() {
        let looked = Arc::new(AtomicUsize::new(0));
        let (client, _) = testing::client(move |asked| {
            let lease = |holder: &str| {
                Answer::Is(json!({
                    "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                    "metadata": {"name": lease::NAME, "namespace": "team", "resourceVersion": "1"},
                    "spec": {"holderIdentity": holder},
                }))
            };
            match asked {
                _ if !asked.contains("/namespaces/team/leases") => Answer::Silence,
                _ if asked.starts_with("POST") => lease("one"),
                // Free, and at the next look somebody else's.
                _ => match looked.fetch_add(1, Ordering::Relaxed) {
                    0 => Answer::NoObject,
                    _ => lease("two"),
                },
            }
        });
        let keeper = Keeper::new(client.clone(), "team", "one".to_owned());
        let (progress, metrics) = (Progress::default(), Arc::new(Metrics::new()));
        let ending = CancellationToken::new();
        let led = contend(keeper, client, testing::settings(), &progress, &metrics, ending);
        let outcome = timeout(Duration::from_secs(8), led).await.expect("nobody renews it");
        assert!(matches!(outcome, Err(RunError::LeaseLost)), "{outcome:?}");
    }

    #[test]
    fn what_was_asked_for_must_be_possible_and_what_was_not_is_left_out() {
        let asked = |code| {
            let told = kube::core::Status { code, ..Default::default() };
            let error = kube::Error::Api(Box::new(told));
            Some(Err(RunError::Prerequisite(PrerequisiteError::at("it")(error))))
        };
        let no = || {
            let (who, flag) = ("Deployment x".to_owned(), "--shim-takeover");
            let error = PrerequisiteError::Served { who, flag };
            assert!(error.to_string().ends_with("start with --shim-takeover"), "{error}");
            Some(Err(RunError::Prerequisite(error)))
        };
        let yes = || Some(Ok(()));
        let all = |builds, shims, releases| Some(Serves { builds, shims, releases });
        for (found, optional, expected) in [
            ([yes(), yes(), yes()], false, all(true, true, true)),
            ([yes(), no(), None], false, None),
            ([yes(), no(), yes()], true, all(true, false, true)),
            ([no(), yes(), no()], true, all(false, true, false)),
            ([no(), no(), no()], true, None),
            ([no(), no(), yes()], true, all(false, false, true)),
            ([None, yes(), None], false, all(false, true, false)),
            ([None, None, no()], false, None),
            ([yes(), asked(403), asked(403)], true, all(true, false, false)),
            ([yes(), asked(503), None], true, None),
            ([asked(503), yes(), yes()], true, None),
            ([no(), asked(503), None], true, None),
            ([yes(), yes(), asked(503)], true, None),
        ] {
            assert_eq!(serves(found, optional).ok(), expected);
        }
    }

    #[tokio::test]
    async fn what_does_not_end_in_time_keeps_the_lease() {
        let ending = CancellationToken::new();
        ending.cancel();
        let (hold, work) = (std::future::pending(), std::future::pending());
        let end = lead(hold, work, ending.clone()).await;
        assert!(matches!(end, Ok(End::Late)), "{end:?}");
        let end = lead(std::future::pending(), async { Ok(()) }, ending).await;
        assert!(matches!(end, Ok(End::Done(Ok(())))), "{end:?}");
    }
}
