//! What the verifier has to do with its cluster.
//!
//! | file | what it holds |
//! |---|---|
//! | `certificate` | its own certificate: the one thing that it writes there |
//! | `nodes` | the platforms of the nodes, watched |
//! | `pull` | the logins for registries of who asks |
//!
//! Nothing of this is asked unless `[cluster]` says so.

pub(super) mod certificate;
pub(super) mod nodes;
pub(super) mod pull;

use std::path::{Path, PathBuf};
use std::time::Duration;

use kube::Client;
use kube::config::{InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError};

use super::config::ClusterConfig;

/// A server that accepts and is silent is not waited for longer; watches end earlier by themselves.
const SILENCE: Duration = Duration::from_secs(60);
const CONNECT: Duration = Duration::from_secs(10);

/// Why a cluster cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClusterError {
    /// Of the file.
    #[error("cluster.kubeconfig {} cannot be used", path.display())]
    Kubeconfig {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<KubeconfigError>,
    },
    /// There is no service account.
    #[error("this is no pod with a service account; set cluster.kubeconfig")]
    InCluster(#[source] Box<InClusterError>),
    /// No client.
    #[error("the cluster cannot be asked")]
    Client(#[source] Box<kube::Error>),
}

/// A cluster that can be asked.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    /// Of the verifier itself.
    pub(super) namespace: String,
}

impl Cluster {
    pub(super) async fn connect(config: &ClusterConfig) -> Result<Self, ClusterError> {
        let mut settings = match &config.kubeconfig {
            None => kube::Config::incluster()
                .map_err(|source| ClusterError::InCluster(Box::new(source)))?,
            Some(path) => from_file(path).await.map_err(|source| ClusterError::Kubeconfig {
                path: path.clone(),
                source: Box::new(source),
            })?,
        };
        settings.connect_timeout = Some(CONNECT);
        settings.read_timeout = Some(SILENCE);
        let namespace = match &config.namespace {
            Some(namespace) => namespace.to_string(),
            None => settings.default_namespace.clone(),
        };
        let client = Client::try_from(settings);
        let client = client.map_err(|source| ClusterError::Client(Box::new(source)))?;
        Ok(Self { client, namespace })
    }
}

/// The operator's own file, which may name programs that print tokens.
async fn from_file(path: &Path) -> Result<kube::Config, KubeconfigError> {
    let file = Kubeconfig::read_from(path)?;
    kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await
}
