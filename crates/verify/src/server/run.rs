//! How the verifier is put together and started.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use hyper_util::service::TowerToHyperService;
use portolan_core::Platform;
use portolan_host::{Host, OpenRootError, PlatformError};
use portolan_registry::client::{
    Client, ClientError, CredentialStore, Observer, Room, Settings, SettingsError,
};
use portolan_registry::serving::{
    self, Handles, Limits, Listener, Tls, TlsError, TlsFiles, TlsVersion,
};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use super::cluster::certificate::{CertificateError, Keeper};
use super::cluster::nodes::View;
use super::cluster::pull::PullSecrets;
use super::cluster::{Cluster, ClusterError};
use super::config::{Certificate, Config, PullSecretsFor, TlsConfig};
use super::engine::Engine;
use super::front::Front;
use super::handles::{Shares, TooFewHandles, share};
use super::http::{App, admission_router, health_router, provider_router};
use super::metrics::Metrics;
use super::running::Running;
use super::turns::Turns;
use super::watch::{WatchError, Watched};
use super::work::{Sockets, Work};
use crate::collect;

/// Gatekeeper keeps idle connections for 90 s; closing them earlier would cost it a handshake in
/// the time of an admission.
const IDLE: Duration = Duration::from_secs(100);
/// Who asks has its whole head at hand.
const HEAD: Duration = Duration::from_secs(10);
/// The same for a handshake.
const HANDSHAKE: Duration = Duration::from_secs(3);
/// Of HTTP/2: as many requests at once as one connection has, and as much before it is read. Both times
/// all connections is what strangers can make the verifier hold.
const STREAMS: u32 = 32;
const WINDOW: u32 = 64 * 1024;
/// Kubelets and Prometheus.
const HEALTH_CONNECTIONS: usize = 64;

/// Why a verifier does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Without a policy.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Without TLS.
    #[error("TLS cannot be offered")]
    Tls(#[from] TlsError),
    /// Without its cluster.
    #[error(transparent)]
    Cluster(#[from] ClusterError),
    /// Without a certificate of its own.
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    /// Of `registries.toml`.
    #[error("the settings of registries cannot be used")]
    Settings(#[from] SettingsError),
    /// No client.
    #[error("registries cannot be asked")]
    Client(#[from] ClientError),
    /// Nobody says where the certificate is.
    #[error("tls has either certificate and key or generate with [cluster]")]
    NoCertificate,
    /// It is not known what this machine is.
    #[error("it is not known what this machine is; set host_platform")]
    Root(#[from] OpenRootError),
    /// The same.
    #[error("it is not known what this machine is; set host_platform")]
    Platform(#[from] PlatformError),
    /// No room for connections.
    #[error(transparent)]
    Handles(#[from] TooFewHandles),
    /// No header.
    #[error("trace_headers has {name:?}, which is no name of a header")]
    Header {
        /// As written.
        name: String,
    },
    /// An address that cannot be had.
    #[error("cannot listen on {address}")]
    Listen {
        /// Which.
        address: SocketAddr,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Starts to answer. It ends when `ending` says so.
pub async fn start(config: &Config, ending: CancellationToken) -> Result<Running, StartError> {
    let cluster = match &config.cluster {
        Some(cluster) => Some(Cluster::connect(cluster).await?),
        None => None,
    };
    let handles = Arc::new(Handles::raise());
    let addresses = 1 + usize::from(config.admission.listen.is_some());
    let shares = share(handles.most(), &config.limits, addresses)?;
    tell_of_handles(config, &handles, shares);
    let app = app(config, cluster.as_ref(), (&handles, shares), &ending)?;
    let mut certificates = match &config.tls {
        Some(tls) => Some(Certificates::new(tls, cluster.as_ref()).await?),
        None => None,
    };
    let client_ca = config.tls.as_ref().and_then(|tls| tls.client_ca.clone());
    let believed_here = believed(config, client_ca.is_some());
    if client_ca.is_none() {
        tracing::warn!("tls.client_ca is not set: whoever reaches this port may ask");
    }
    let tls = certificates.as_mut().map(|one| one.tls(client_ca)).transpose()?;
    let connections = shares.connections;
    let mut serve = Servers { config, connections, ending: ending.clone(), all: JoinSet::new() };
    let mut router = provider_router();
    let mut admission = None;
    match config.admission.listen {
        None => router = router.merge(admission_router(&app, believed_here)),
        Some(address) => {
            let client_ca = config.admission.client_ca.clone();
            if client_ca.is_none() {
                tracing::warn!("admission.client_ca is not set: whoever reaches this port may ask");
            }
            let router = admission_router(&app, believed(config, client_ca.is_some()));
            let tls = certificates.as_mut().map(|one| one.tls(client_ca)).transpose()?;
            admission = Some(serve.on(address, tls, TowerToHyperService::new(router)).await?);
        }
    }
    let front = Front::new(&app, believed_here, router);
    let provider = serve.on(config.listen, tls, front).await?;
    let mut health = None;
    if let Some(address) = config.health {
        let router = TowerToHyperService::new(health_router(&app));
        let limits = serve.health_limits();
        health = Some(serve.within(limits, address, None, router).await?);
    }
    let mut watches = JoinSet::new();
    watches.spawn(Arc::clone(&app.engine.watched).watch(config.cache.policy_poll.0));
    if let Some((nodes, cluster)) = app.engine.nodes.clone().zip(cluster) {
        watches.spawn(nodes.watch(cluster));
    }
    if let Some(Certificates::Kept(keeper)) = certificates {
        watches.spawn(keeper.keep());
    }
    let admission = admission.unwrap_or(provider);
    tracing::info!(%provider, %admission, "answering");
    Ok(Running { provider, admission, health, servers: serve.all, watches, ending })
}

fn tell_of_handles(config: &Config, handles: &Handles, shares: Shares) {
    let (most, connections) = (handles.most(), shares.connections);
    let wanted = config.limits.connections;
    if connections < wanted {
        tracing::warn!(
            most,
            connections,
            wanted,
            "fewer connections than limits.connections: this process may not have as many file handles"
        );
    } else {
        tracing::info!(most, connections, "file handles");
    }
}

/// Where servers have their certificate from.
enum Certificates<'a> {
    Files { certificate: &'a Path, key: &'a Path },
    Kept(Box<Keeper>),
}

impl<'a> Certificates<'a> {
    async fn new(tls: &'a TlsConfig, cluster: Option<&Cluster>) -> Result<Self, StartError> {
        match (tls.certificate(), cluster) {
            (Some(Certificate::Files { certificate, key }), _) => {
                Ok(Self::Files { certificate, key })
            }
            (Some(Certificate::Generated(generate)), Some(cluster)) => {
                Ok(Self::Kept(Box::new(Keeper::start(cluster, generate).await?)))
            }
            // Such a configuration is refused when it is read.
            _ => Err(StartError::NoCertificate),
        }
    }

    fn tls(&mut self, client_ca: Option<PathBuf>) -> Result<Tls, StartError> {
        let oldest = TlsVersion::V1_3;
        match self {
            Self::Files { certificate, key } => {
                let files = TlsFiles::new(*certificate, *key);
                Ok(Tls::load(TlsFiles { client_ca, oldest, ..files })?)
            }
            Self::Kept(keeper) => Ok(keeper.serve(client_ca, oldest)?),
        }
    }
}

/// Whether who asks at an address may say in whose name.
fn believed(config: &Config, is_certified: bool) -> bool {
    match config.cluster.as_ref().map(|cluster| cluster.pull_secrets) {
        None | Some(PullSecretsFor::Nobody) => false,
        Some(PullSecretsFor::Certified) => is_certified,
        Some(PullSecretsFor::Everybody) => true,
    }
}

fn app(
    config: &Config,
    cluster: Option<&Cluster>,
    handles: (&Arc<Handles>, Shares),
    ending: &CancellationToken,
) -> Result<Arc<App>, StartError> {
    let metrics = Arc::new(Metrics::new());
    let watched =
        Watched::new(config.policy.clone(), config.pods.nodes.clone(), Arc::clone(&metrics))?;
    let watched = Arc::new(watched);
    let caches = caches(config, &watched, handles, &metrics);
    let header = |name: &String| {
        name.parse::<HeaderName>().map_err(|_| StartError::Header { name: name.clone() })
    };
    let trace_headers = config.trace_headers.iter().map(header).collect::<Result<_, _>>()?;
    let client = client(config, &metrics)?;
    let settings = config.cluster.as_ref();
    let watches = settings.is_some_and(|settings| settings.nodes);
    let pulls = settings.filter(|settings| settings.pull_secrets != PullSecretsFor::Nobody);
    let pull = pulls
        .zip(cluster)
        .map(|(settings, cluster)| PullSecrets::new(cluster.clone(), client.clone(), settings));
    let engine = Engine {
        client,
        caches: Arc::new(caches),
        nodes: watches.then(Arc::<View>::default),
        pull,
        watched,
        exempt: config.exempt.clone(),
        pods: config.pods.clone(),
        host: host(config)?,
        limits: collect::Limits {
            total: config.limits.evidence_bytes as u64,
            blob: config.limits.document_bytes as u64,
            ..collect::Limits::default()
        },
        metrics: Arc::clone(&metrics),
        turns: Turns::new(),
    };
    Ok(Arc::new(App {
        engine,
        limits: config.limits.clone(),
        timeouts: config.timeouts.clone(),
        mode: config.mode,
        tags: config.admission.tags,
        transient: config.transient_errors,
        trace_headers,
        requests: Semaphore::new(config.limits.requests),
        body_bytes: Arc::new(Semaphore::new(config.limits.bodies_bytes)),
        metrics,
        ending: ending.clone(),
    }))
}

fn caches(
    config: &Config,
    watched: &Arc<Watched>,
    (handles, shares): (&Arc<Handles>, Shares),
    metrics: &Arc<Metrics>,
) -> Caches {
    let watched = Arc::clone(watched);
    let is_named = Box::new(move |host: &str| watched.now().policy.names(host));
    let sockets = Sockets { handles: Arc::clone(handles), outgoing: shares.outgoing };
    let work = Work::new(&config.limits, &config.timeouts, sockets, is_named);
    Caches::new(&config.cache, work, Arc::clone(metrics))
}

fn client(config: &Config, metrics: &Arc<Metrics>) -> Result<Client, StartError> {
    let mut settings = match &config.registries {
        Some(path) => Settings::from_file(path)?,
        None => Settings::load()?,
    };
    settings.bound_memory(Room::new(config.limits.held_bytes));
    let credentials = match &config.credentials {
        Some(path) => {
            let helpers = std::env::var_os("PATH").unwrap_or_default();
            CredentialStore::from_files(None, vec![path.clone()], helpers)
        }
        None => CredentialStore::from_environment(),
    };
    let metrics = Arc::clone(metrics);
    let observer: Observer = Arc::new(move |host, status| metrics.registry_request(host, status));
    Ok(Client::observed(settings, credentials, Some(observer))?)
}

fn host(config: &Config) -> Result<Platform, StartError> {
    match &config.host_platform {
        Some(platform) => Ok(platform.0.normalised()),
        None => Ok(Host::here()?.platform()?.platform),
    }
}

/// Servers that end together.
struct Servers<'a> {
    config: &'a Config,
    /// Of each.
    connections: usize,
    ending: CancellationToken,
    all: JoinSet<()>,
}

impl Servers<'_> {
    /// For who asks of images.
    fn limits(&self) -> Limits {
        Limits {
            max_connections: self.connections,
            header_timeout: IDLE,
            head_timeout: HEAD,
            handshake_timeout: HANDSHAKE,
            // Who connects has something to ask, and wants it answered by then.
            opening_timeout: self.config.timeouts.verify.0,
            shutdown_timeout: self.config.timeouts.shutdown.0,
            max_streams: STREAMS,
            window: WINDOW,
            read_buffer: 64 * 1024,
            max_head: 16 * 1024,
            ..Limits::default()
        }
    }

    /// For who asks how it is: nobody needs a connection for long.
    fn health_limits(&self) -> Limits {
        let max_connections = HEALTH_CONNECTIONS;
        Limits { max_connections, header_timeout: HEAD, head_timeout: HANDSHAKE, ..self.limits() }
    }

    async fn on<S: serving::Answers>(
        &mut self,
        address: SocketAddr,
        tls: Option<Tls>,
        service: S,
    ) -> Result<SocketAddr, StartError> {
        self.within(self.limits(), address, tls, service).await
    }

    async fn within<S: serving::Answers>(
        &mut self,
        limits: Limits,
        address: SocketAddr,
        tls: Option<Tls>,
        service: S,
    ) -> Result<SocketAddr, StartError> {
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let ending = self.ending.clone();
        self.all.spawn(async move {
            let listener = Listener::Tcp(listener, tls);
            serving::run_service(listener, service, &limits, ending.cancelled()).await;
        });
        Ok(bound)
    }
}
