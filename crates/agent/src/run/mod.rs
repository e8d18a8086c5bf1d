//! The agent as a whole: cache, instances, API, mirror and reports, started in order and ended in
//! order. Machines outlive it.

mod disks;
mod host;
mod notify;
mod volumes;

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use portolan_core::HostPlatform;
use portolan_host::{Host, OpenRootError, PlatformError};
use portolan_registry::serving::{self, Limits, Listener, Tls, TlsError};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::api_server::{ApiServer, NoServer};
use crate::artifacts::{self, Artifacts};
use crate::config::{Config, ReportConfig};
use crate::instances::{self, Instances};
use crate::metrics::Metrics;
use crate::releases::{Cache, Following, Releases};
use crate::report::{self, ControlPlane, Node, NodeError, Source};
use crate::server::{self, App, SocketError, UnixSocket};
use crate::vmm::Vmm;
use crate::{mirror, paths, store};

use disks::Disks;
use host::Agent;

/// How long calls under way may go on after the agent was asked to end.
const SHUTDOWN: Duration = Duration::from_secs(10);

/// Why the agent does not run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// This machine cannot be looked at.
    #[error("cannot look at this machine")]
    Host(#[from] OpenRootError),
    /// This machine cannot be named.
    #[error("cannot tell what this machine runs")]
    Platform(#[from] PlatformError),
    /// The cache cannot be opened.
    #[error("cannot open the cache")]
    Artifacts(#[from] artifacts::OpenError),
    /// The instances cannot be read.
    #[error("cannot read the instances")]
    Instances(#[from] instances::OpenError),
    /// The socket cannot be had.
    #[error("cannot offer the API")]
    Socket(#[from] SocketError),
    /// TLS cannot be offered.
    #[error("cannot offer {what} over TLS")]
    Tls {
        /// API or mirror.
        what: &'static str,
        /// Why.
        #[source]
        source: TlsError,
    },
    /// An address cannot be had.
    #[error("cannot listen on {address} for {what}; choose another address")]
    Listen {
        /// API or mirror.
        what: &'static str,
        /// The address.
        address: SocketAddr,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// Nobody says where the cluster is.
    #[error("cannot speak to the cluster")]
    Cluster(#[from] NoServer),
    /// The node cannot be told.
    #[error("cannot report to the Kubernetes node")]
    Node(#[from] NodeError),
}

/// Runs until `shutdown`. What cannot work is found out before anything is started.
pub async fn run(config: Config, shutdown: CancellationToken) -> Result<(), RunError> {
    let metrics = Arc::new(Metrics::new());
    let platform = Host::here()?.platform()?;
    let node_name = node_name(&config.report);
    let cluster = Cluster::of(&config, &node_name, &platform)?;
    let Listeners { network, mirror, health } = Listeners::open(&config).await?;
    let artifacts = Artifacts::open(&config, Arc::clone(&metrics), platform.clone())?;
    let places = paths::Paths::new(&config.root);
    let vmm = Vmm::new(config.vmm.clone(), config.guest.clone(), &places.tmp());
    let disks = Arc::new(Disks(artifacts.clone()));
    let instances = Instances::open(places.clone(), vmm, disks, Arc::clone(&metrics))?;
    artifacts.reconcile_pins(&disks::pins(&artifacts, &instances));
    // Before the first machine is started: who cannot be asked must not begin anything.
    let socket = socket(&config).await?;
    let releases = cluster.following.is_some();
    let releases = releases.then(|| Releases::new(config.prefetch.clone(), Arc::clone(&metrics)));
    let agent = Agent::new(
        &config,
        artifacts.clone(),
        instances.clone(),
        platform,
        node_name,
        Arc::clone(&metrics),
    );
    let agent = Arc::new(agent.following(releases.clone()));
    instances.run();

    let mut tasks = JoinSet::new();
    let limits = Limits { shutdown_timeout: SHUTDOWN, ..Limits::default() };
    let app = App::new(Arc::clone(&agent) as _, Arc::clone(&metrics), shutdown.clone());
    let router = server::router(app.clone());
    if let Some(listener) = health {
        let router = server::health_router(app);
        tasks.spawn(serve(listener, router, limits.clone(), shutdown.clone()));
    }
    if let Some(listener) = network {
        tasks.spawn(serve(listener, router.clone(), limits.clone(), shutdown.clone()));
    }
    if let Some(listener) = mirror {
        tasks.spawn(serve(listener, mirror::router(places), limits.clone(), shutdown.clone()));
    }
    tasks.spawn({
        let (artifacts, shutdown) = (artifacts.clone(), shutdown.clone());
        async move { artifacts.maintain(&shutdown).await }
    });
    tasks.spawn(Arc::clone(&agent).watch(shutdown.clone()));
    report(&mut tasks, &config.report, cluster.node, &agent, &metrics, &shutdown);
    if let (Some(releases), Some(following)) = (releases, cluster.following) {
        let cache = Arc::clone(&agent) as Arc<dyn Cache>;
        tasks.spawn(releases.run(following, cache, shutdown.clone()));
    }

    notify::ready(&config.socket());
    socket.serve(router, limits, shutdown).await;
    while tasks.join_next().await.is_some() {}
    artifacts.flush();
    tracing::info!("ended; machines go on");
    Ok(())
}

/// The API's own socket.
async fn socket(config: &Config) -> Result<UnixSocket, SocketError> {
    let (path, mode) = (config.socket(), config.api.socket_mode.0);
    if path.parent() == Some(config.root.as_path()) {
        // The root is closed to others, but those whom the socket is for must get to it.
        store::let_through(&config.root, server::way_to(mode));
    }
    UnixSocket::bind(&path, mode).await
}

/// Where else it is asked, as far as that is configured.
struct Listeners {
    network: Option<Listener>,
    mirror: Option<Listener>,
    health: Option<Listener>,
}

impl Listeners {
    async fn open(config: &Config) -> Result<Self, RunError> {
        let network = match config.api.network() {
            None => None,
            Some((address, files)) => {
                let tls =
                    Tls::load(files).map_err(|source| RunError::Tls { what: "the API", source })?;
                Some(listen("the API", address, Some(tls)).await?)
            }
        };
        let mirror = match config.mirror.listen {
            None => None,
            Some(address) => {
                let tls = config.mirror.tls().map(Tls::load).transpose();
                let tls = tls.map_err(|source| RunError::Tls { what: "the mirror", source })?;
                Some(listen("the mirror", address, tls).await?)
            }
        };

        let health = match config.health {
            None => None,
            Some(address) => Some(listen("health and metrics", address, None).await?),
        };
        Ok(Self { network, mirror, health })
    }
}

/// What an agent has to do with the cluster that its host is a node of.
struct Cluster {
    node: Option<Node>,
    following: Option<Following>,
}

impl Cluster {
    fn of(config: &Config, node_name: &str, platform: &HostPlatform) -> Result<Self, RunError> {
        let report = config.report.node.as_ref();
        if report.is_none() && !config.prefetch.releases {
            return Ok(Self { node: None, following: None });
        }
        let environment = |name: &str| std::env::var(name).ok();
        let server = ApiServer::new(&report.cloned().unwrap_or_default(), environment)?;
        let host_root = &config.compatibility.host_root;
        let node = report.map(|report| Node::new(&server, report, node_name, host_root.clone()));
        let following = config.prefetch.releases.then_some(&config.prefetch);
        let following =
            following.map(|prefetch| Following::new(&server, prefetch, platform.clone()));
        Ok(Self { node: node.transpose()?, following: following.transpose()? })
    }
}

/// A listener on the network, which says where it is.
async fn listen(
    what: &'static str,
    address: SocketAddr,
    tls: Option<Tls>,
) -> Result<Listener, RunError> {
    let failed = |source| RunError::Listen { what, address, source };
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let address = listener.local_addr().map_err(failed)?;
    tracing::info!(%address, tls = tls.is_some(), "listening for {what}");
    Ok(Listener::Tcp(listener, tls))
}

async fn serve(listener: Listener, router: Router, limits: Limits, shutdown: CancellationToken) {
    serving::run(listener, router, &limits, shutdown.cancelled()).await;
}

/// Tells whoever is to be told.
fn report(
    tasks: &mut JoinSet<()>,
    config: &ReportConfig,
    node: Option<Node>,
    agent: &Arc<Agent>,
    metrics: &Arc<Metrics>,
    shutdown: &CancellationToken,
) {
    let source = || Arc::clone(agent) as Arc<dyn Source>;
    let interval = config.interval.0;
    if let Some(target) = ControlPlane::new(config) {
        let (metrics, shutdown) = (Arc::clone(metrics), shutdown.clone());
        tasks.spawn(report::run(target, source(), interval, metrics, shutdown));
    }
    if let Some(target) = node {
        let (metrics, shutdown) = (Arc::clone(metrics), shutdown.clone());
        tasks.spawn(report::run(target, source(), interval, metrics, shutdown));
    }
}

/// What this host is called: as configured, as the pod was told, or as it calls itself.
fn node_name(config: &ReportConfig) -> String {
    let told = || std::env::var("NODE_NAME").ok().filter(|name| !name.is_empty());
    let own = || rustix::system::uname().nodename().to_string_lossy().into_owned();
    config.name.clone().or_else(told).unwrap_or_else(own)
}

/// The configuration of a command line: the file, and what was given beside it.
pub fn configure(
    file: Option<&std::path::Path>,
    root: Option<PathBuf>,
    socket: Option<PathBuf>,
) -> Result<Config, crate::config::ConfigError> {
    let mut config = file.map_or_else(|| Ok(Config::default()), Config::load)?;
    // A relative path means the same after a change of directory.
    let absolute = |path: PathBuf| std::path::absolute(&path).unwrap_or(path);
    if let Some(root) = root {
        config.root = absolute(root);
    }
    config.socket = socket.map(absolute).or(config.socket);
    Ok(config)
}
