//! This machine: what it has to build, to run machines, and to be a node.

use std::path::{Path, PathBuf};

use portolan_agent::client::{CallError, Client};
use portolan_agent::config::Config;
use portolan_core::causes;

use super::finding::Finding;
use crate::cli::Global;
use crate::context;

mod agent;
mod containerd;
mod disk;
mod emulation;
mod microvm;
mod registries;

/// Everything that is looked at.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) microvm: microvm::Facts,
    pub(super) emulation: emulation::Facts,
    pub(super) disks: Vec<disk::Disk>,
    pub(super) registries: registries::Facts,
    pub(super) agent: agent::Facts,
    pub(super) containerd: containerd::Facts,
}

/// Looks at the machine below `root`. Logins and the agent's socket are those of who runs this.
pub(super) async fn gather(root: &Path, socket: Option<PathBuf>, global: &Global) -> Facts {
    let config = Config::default();
    let data = below(root, &config.root);
    let temporary = below(root, &std::env::temp_dir());
    let asked = socket.is_some();
    let client = Client::new(socket.unwrap_or_else(|| config.socket()));
    Facts {
        microvm: microvm::gather(root),
        emulation: emulation::gather(root),
        disks: disk::gather(&[("the agent's cache", &data), ("temporary files", &temporary)]),
        registries: registries::Facts {
            settings: context::settings(global).err().map(|failure| causes::chain(&*failure.error)),
            credentials: context::credentials()
                .problems()
                .iter()
                .map(|one| causes::chain(one))
                .collect(),
        },
        agent: match client.status().await {
            Ok(status) => agent::Facts::Answers(Box::new(status)),
            Err(CallError::NotRunning { .. }) if !asked => agent::Facts::Absent,
            Err(error) => agent::Facts::Fails(causes::chain(&error)),
        },
        containerd: containerd::gather(root),
    }
}

/// An absolute path of the machine, from where we are.
fn below(root: &Path, path: &Path) -> PathBuf {
    root.join(path.strip_prefix("/").unwrap_or(path))
}

/// What all of it means.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = microvm::check(&facts.microvm);
    findings.extend(emulation::check(&facts.emulation));
    findings.extend(facts.disks.iter().map(disk::check));
    findings.extend(registries::check(&facts.registries));
    findings.push(agent::check(&facts.agent));
    findings.push(containerd::check(&facts.containerd));
    findings
}
