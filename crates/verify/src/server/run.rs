//! How the verifier is put together, started and ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use http::HeaderName;
use portolan_core::Platform;
use portolan_host::{Host, OpenRootError, PlatformError};
use portolan_registry::client::{Client, ClientError, CredentialStore, Settings, SettingsError};
use portolan_registry::serving::{self, Limits, Listener, Tls, TlsError, TlsFiles, TlsVersion};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::caches::Caches;
use super::config::Config;
use super::engine::Engine;
use super::http::{App, admission_router, health_router, provider_router};
use super::metrics::Metrics;
use super::watch::{WatchError, Watched};
use crate::collect;

/// Gatekeeper keeps idle connections for 90 s; closing them earlier would cost it a handshake in
/// the time of an admission.
const IDLE: Duration = Duration::from_secs(100);

/// Why a verifier does not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Without a policy.
    #[error(transparent)]
    Watch(#[from] WatchError),
    /// Without TLS.
    #[error("TLS cannot be offered")]
    Tls(#[from] TlsError),
    /// Of `registries.toml`.
    #[error("the settings of registries cannot be used")]
    Settings(#[from] SettingsError),
    /// No client.
    #[error("registries cannot be asked")]
    Client(#[from] ClientError),
    /// It is not known what this machine is.
    #[error("it is not known what this machine is; set host_platform")]
    Root(#[from] OpenRootError),
    /// The same.
    #[error("it is not known what this machine is; set host_platform")]
    Platform(#[from] PlatformError),
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

/// A verifier that answers.
#[derive(Debug)]
pub struct Running {
    /// Where Gatekeeper asks.
    pub provider: SocketAddr,
    /// Where API servers ask.
    pub admission: SocketAddr,
    /// Health, readiness and metrics.
    pub health: Option<SocketAddr>,
    servers: JoinSet<()>,
    background: JoinSet<()>,
}

impl Running {
    /// Waits until what was under way when it was told to end is done.
    pub async fn wait(mut self) {
        while self.servers.join_next().await.is_some() {}
        self.background.shutdown().await;
    }
}

/// Starts to answer. It ends when `ending` says so.
pub async fn start(config: &Config, ending: CancellationToken) -> Result<Running, StartError> {
    let app = app(config, &ending)?;
    let files = |client_ca| TlsFiles {
        client_ca,
        oldest: TlsVersion::V1_3,
        ..TlsFiles::new(&config.tls.certificate, &config.tls.key)
    };
    let tls = Tls::load(files(config.tls.client_ca.clone()))?;
    if config.tls.client_ca.is_none() {
        tracing::warn!("tls.client_ca is not set: whoever reaches this port may ask");
    }
    let mut serve = Servers { config, ending: ending.clone(), all: JoinSet::new() };
    let mut router = provider_router(&app);
    let mut admission = None;
    match config.admission.listen {
        None => router = router.merge(admission_router(&app)),
        Some(address) => {
            let tls = Tls::load(files(config.admission.client_ca.clone()))?;
            admission = Some(serve.on(address, Some(tls), admission_router(&app)).await?);
        }
    }
    let provider = serve.on(config.listen, Some(tls), router).await?;
    let mut health = None;
    if let Some(address) = config.health {
        health = Some(serve.on(address, None, health_router(&app)).await?);
    }
    let mut background = JoinSet::new();
    background.spawn(Arc::clone(&app.engine.watched).watch(config.cache.policy_poll.0));
    let admission = admission.unwrap_or(provider);
    tracing::info!(%provider, %admission, "answering");
    Ok(Running { provider, admission, health, servers: serve.all, background })
}

fn app(config: &Config, ending: &CancellationToken) -> Result<Arc<App>, StartError> {
    let metrics = Arc::new(Metrics::new());
    let watched =
        Watched::new(config.policy.clone(), config.pods.nodes.clone(), Arc::clone(&metrics))?;
    let caches = Caches::new(&config.cache, &config.limits, &config.timeouts, Arc::clone(&metrics));
    let header = |name: &String| {
        name.parse::<HeaderName>().map_err(|_| StartError::Header { name: name.clone() })
    };
    let trace_headers = config.trace_headers.iter().map(header).collect::<Result<_, _>>()?;
    let engine = Engine {
        client: client(config)?,
        caches,
        watched: Arc::new(watched),
        exempt: config.exempt.clone(),
        pods: config.pods.clone(),
        host: host(config)?,
        limits: collect::Limits {
            total: config.limits.evidence_bytes as u64,
            ..collect::Limits::default()
        },
        metrics: Arc::clone(&metrics),
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
        metrics,
        ending: ending.clone(),
    }))
}

fn client(config: &Config) -> Result<Client, StartError> {
    let settings = match &config.registries {
        Some(path) => Settings::from_file(path)?,
        None => Settings::load()?,
    };
    let credentials = match &config.credentials {
        Some(path) => {
            let helpers = std::env::var_os("PATH").unwrap_or_default();
            CredentialStore::from_files(None, vec![path.clone()], helpers)
        }
        None => CredentialStore::from_environment(),
    };
    Ok(Client::new(settings, credentials)?)
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
    ending: CancellationToken,
    all: JoinSet<()>,
}

impl Servers<'_> {
    async fn on(
        &mut self,
        address: SocketAddr,
        tls: Option<Tls>,
        router: Router,
    ) -> Result<SocketAddr, StartError> {
        let failed = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let bound = listener.local_addr().map_err(failed)?;
        let limits = Limits {
            max_connections: self.config.limits.connections,
            header_timeout: IDLE,
            shutdown_timeout: self.config.timeouts.shutdown.0,
            ..Limits::default()
        };
        let ending = self.ending.clone();
        self.all.spawn(async move {
            let listener = Listener::Tcp(listener, tls);
            serving::run(listener, router, &limits, ending.cancelled()).await;
        });
        Ok(bound)
    }
}
