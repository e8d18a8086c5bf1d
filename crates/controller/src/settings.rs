//! What the operator decides.

use std::net::SocketAddr;
use std::path::PathBuf;

use portolan_core::RegistryReference;

/// How the controller is to work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whom to talk to; the cluster that it runs in where nothing is said.
    pub kubeconfig: Option<PathBuf>,
    /// The image that our own steps run.
    pub step_image: String,
    /// Where it runs itself, and keeps its lease; that of its account where nothing is said.
    pub namespace: Option<String>,
    /// Who runs pods where a run names nobody; `pipeline`, else `default` where nothing is said.
    pub service_account: Option<String>,
    /// Where sources of builds are stored; beside their images where nothing is said.
    pub source_repository: Option<RegistryReference>,
    /// Health, readiness and metrics.
    pub health: SocketAddr,
    /// Whether it begins although another controller serves these resources.
    pub takeover: bool,
    /// Objects of one kind that are worked on at once.
    pub workers: u16,
    /// Whether Builds are served.
    pub builds: bool,
    /// Whether what the cluster lacks is left out, and not an error.
    pub optional: bool,
    /// How Shims are served; not at all where nothing is said.
    pub shims: Option<crate::shims::Settings>,
    /// How Releases are served; not at all where nothing is said.
    pub releases: Option<crate::releases::Settings>,
}
