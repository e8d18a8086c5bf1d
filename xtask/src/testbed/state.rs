//! What runs, where, and what must be put back: `state.json` of the run folder.
//!
//! It is written before each thing it names is made, so whoever comes after a crash knows what to
//! take away. Tests read it too (`PORTOLAN_TESTBED_STATE`), through `portolan-e2e`.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};

use super::binfmt::Binfmt;
use super::build::Toolbox;
use super::net::Block;
use super::process::Identity;

/// The node's name; its address is what others connect to.
pub(crate) const NODE: &str = "portolan-node";
/// The bridge that pods hang on.
pub(crate) const BRIDGE: &str = "portolan0";

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct State {
    /// All steps of `up` succeeded.
    pub(crate) ready: bool,
    pub(crate) run_dir: PathBuf,
    /// For a cluster administrator.
    pub(crate) kubeconfig: PathBuf,
    pub(crate) node: String,
    /// The host as pods see it; registries for pods listen here.
    pub(crate) bridge_address: Ipv4Addr,
    pub(crate) pod_subnet: String,
    pub(crate) service_subnet: String,
    /// Where the API server listens: the address of the service `kubernetes`.
    pub(crate) api_address: Ipv4Addr,
    pub(crate) ports: Ports,
    /// One store behind two addresses: `127.0.0.1:…` for tools, which take loopback for plain HTTP,
    /// and the bridge's for pods.
    pub(crate) registry: Registry,
    /// Reference, as pods pull it, of each image part, by the part's name.
    pub(crate) images: BTreeMap<String, String>,
    /// The node's containerd, with its shim beside it.
    pub(crate) containerd: PathBuf,
    pub(crate) containerd_socket: PathBuf,
    /// A folder `HOST:PORT/hosts.toml` in here tells the node's containerd how to reach a registry.
    pub(crate) registry_hosts: PathBuf,
    pub(crate) logs: PathBuf,
    pub(crate) tools: BTreeMap<String, PathBuf>,
    /// In the order they were started.
    pub(crate) processes: Vec<Process>,
    /// Kernel settings as they were, for the ones that a kubelet changes.
    pub(crate) kernel: BTreeMap<PathBuf, String>,
    /// Programs of other architectures that run since `up`.
    pub(crate) binfmt: Binfmt,
    /// Folders outside the run folder that were not there before.
    pub(crate) absent: Vec<PathBuf>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) name: String,
    #[serde(flatten)]
    pub(crate) identity: Identity,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Registry {
    pub(crate) loopback: String,
    pub(crate) cluster: String,
}

/// Chosen free when the cluster starts. Only the API server's is fixed: the port of the service
/// `kubernetes` is 443.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) struct Ports {
    pub(crate) etcd: u16,
    pub(crate) etcd_peer: u16,
    pub(crate) registry: u16,
    pub(crate) controller_manager: u16,
    pub(crate) scheduler: u16,
    pub(crate) kubelet: u16,
    pub(crate) kubelet_health: u16,
    pub(crate) containerd_stream: u16,
}

impl State {
    pub(crate) fn new(run_dir: &Path, block: Block, ports: Ports, tools: &Toolbox) -> Self {
        let registry = Registry {
            loopback: format!("127.0.0.1:{}", ports.registry),
            cluster: format!("{}:{}", block.bridge(), ports.registry),
        };
        let images = tools.keys().filter_map(|name| {
            let short = name.strip_suffix("-image")?;
            let version = super::parts::part(name)?.version;
            Some(((*name).to_owned(), format!("{}/testbed/{short}:{version}", registry.cluster)))
        });
        Self {
            ready: false,
            run_dir: run_dir.to_owned(),
            kubeconfig: run_dir.join("admin.kubeconfig"),
            node: NODE.to_owned(),
            bridge_address: block.bridge(),
            pod_subnet: block.pods(),
            service_subnet: block.services(),
            api_address: block.api(),
            ports,
            images: images.collect(),
            registry,
            containerd: run_dir.join("bin/containerd"),
            containerd_socket: run_dir.join("containerd.sock"),
            registry_hosts: run_dir.join("registry-hosts"),
            logs: run_dir.join("logs"),
            tools: tools.iter().map(|(name, path)| ((*name).to_owned(), path.clone())).collect(),
            processes: Vec::new(),
            kernel: BTreeMap::new(),
            binfmt: Binfmt::default(),
            absent: Vec::new(),
        }
    }

    pub(crate) fn file(run_dir: &Path) -> PathBuf {
        run_dir.join("state.json")
    }

    /// `None` when nothing was started there.
    pub(crate) fn load(run_dir: &Path) -> Result<Option<Self>> {
        let file = Self::file(run_dir);
        match fs::read(&file) {
            Ok(bytes) => serde_json::from_slice(&bytes)
                .map(Some)
                .with_context(|| format!("read {} (from another version?)", file.display())),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).with_context(|| format!("read {}", file.display())),
        }
    }

    pub(crate) fn save(&self) -> Result<()> {
        let file = Self::file(&self.run_dir);
        let temporary = file.with_extension("new");
        fs::write(&temporary, serde_json::to_vec_pretty(self)?)
            .and_then(|()| fs::rename(&temporary, &file))
            .with_context(|| format!("write {}", file.display()))
    }

    pub(crate) fn tool(&self, name: &str) -> Result<&Path> {
        self.tools.get(name).map(PathBuf::as_path).with_context(|| {
            format!("the testbed has no part {name}: `cargo xtask testbed build {name}`")
        })
    }

    /// Whether the parts are still those that it was started from, and that tests will use.
    pub(crate) fn is_made_of(&self, tools: &Toolbox) -> bool {
        let now = tools.iter().map(|(name, path)| (*name, path));
        self.tools.iter().map(|(name, path)| (name.as_str(), path)).eq(now)
    }

    pub(crate) fn is_running(&self) -> bool {
        self.ready && self.processes.iter().all(|process| process.identity.is_alive())
    }
}
