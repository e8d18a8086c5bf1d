//! What the operator decides of shims.

use std::num::NonZeroI64;

use portolan_core::Digest;
use portolan_shim::resolve::Policy;

use super::budget::Amount;

/// How shims are brought to nodes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Where Jobs are made; pods there may be privileged. Where the controller runs if nothing is said.
    pub namespace: Option<String>,
    /// The image that Jobs run.
    pub image: String,
    /// Who runs them; it needs no rights and gets no token.
    pub service_account: String,
    /// Variables for downloads, such as proxies and retries.
    pub config_map: Option<String>,
    /// Where shims are kept on nodes, if not where the installer has them usually.
    pub install_dir: Option<String>,
    /// Where the runtime's configuration is on nodes, if not where the installer finds it.
    pub config: Option<String>,
    /// What kind of nodes they are, if not what the installer takes them for.
    pub distro: Option<String>,
    /// How the runtime is started again on nodes, if not as the installer finds out.
    pub restart_command: Option<String>,
    /// How long a Job may take.
    pub deadline_seconds: i64,
    /// How often nodes are looked at of which nothing is heard, in seconds; not at all where it is none.
    pub look_every: Option<NonZeroI64>,
    /// How long a Job stays when it is over.
    pub ttl_seconds: i32,
    /// Nodes that are worked on at once, over all Shims.
    pub max_in_flight: Amount,
    /// So many failed nodes of a rolling Shim hold up the others.
    pub max_failed: Amount,
    /// What is asked of every artifact.
    pub policy: Policy,
    /// Whether nodes also get upstream's bare label.
    pub bare_labels: bool,
    /// Whether it begins although upstream's controller serves these resources.
    pub takeover: bool,
    /// Writes at once.
    pub workers: u16,
}

impl Settings {
    /// Where Jobs are made.
    pub(crate) fn namespace(&self) -> &str {
        self.namespace.as_deref().unwrap_or("default")
    }

    /// What is said of nodes, as one short word: what failed for good may work when it changes. It is no part of what a
    /// node should have, or every node would be installed again.
    pub(crate) fn said_of_nodes(&self) -> String {
        let Self { image, install_dir, config, distro, restart_command, config_map, .. } = self;
        let said = (image, install_dir, config, distro, restart_command, config_map);
        let text = serde_json::to_vec(&said).expect("texts only");
        let mut hex = Digest::sha256(&text).hex();
        hex.truncate(8);
        hex
    }
}
