//! What agents do, and where they keep what they keep.

use regex::Regex;
use serde_json::{Value, json};
use toml_edit::{DocumentMut, value};

use super::place::each;
use super::{Component, Options};

/// Its DaemonSet, and its ConfigMap.
pub(super) const AGENT: &str = "portolan-agent";

/// What is a node's own and no folder of agents, which are root there and empty what is in theirs: all of its system, of
/// what the kubelet, runtimes and etcd keep, and of what it shares with others (`/var`, `/opt`, homes) the whole. For a path without `//` and `/./`; as Go and Rust
/// read it alike, for the chart asks the same.
pub(super) const SYSTEM: &str = "(?s)^/((bin|boot|dev|etc|lib|lib32|lib64|libx32|proc|run|sbin|sys|usr|var/run|var/lock|var/lib/(cni|containerd|containers|crio|docker|dpkg|etcd|k0s|kubelet|rancher|rpm|systemd))(/.*)?|(var|home)(/[^/]+)?|opt|root|tmp)?$";

/// Whether agents may have this for their folder on nodes.
pub fn is_agent_root(path: &str) -> bool {
    let parts = path.split('/').filter(|part| !matches!(*part, "" | "."));
    let clean: String = parts.clone().flat_map(|part| ["/", part]).collect();
    let clean = if clean.is_empty() { "/" } else { &clean };
    path.starts_with('/')
        && parts.into_iter().all(|part| part != "..")
        && Regex::new(SYSTEM).is_ok_and(|system| !system.is_match(clean))
}

pub(super) fn set(object: &mut Value, options: &Options) -> Result<(), String> {
    let kind = object["kind"].as_str().unwrap_or_default().to_owned();
    match (kind.as_str(), object["metadata"]["name"].as_str()) {
        ("ConfigMap", Some(AGENT)) => {
            let text = object["data"]["agent.toml"].as_str().unwrap_or_default();
            object["data"]["agent.toml"] = json!(configuration(text, options)?);
        }
        ("DaemonSet", Some(AGENT)) => {
            for volume in each(object, "/spec/template/spec/volumes") {
                if let Some(path) = volume.pointer_mut("/hostPath/path") {
                    *path = json!(options.agent.root);
                }
            }
        }
        _ => {}
    }
    Ok(())
}

/// The shipped configuration with what was asked for. Releases are followed where they are installed.
fn configuration(text: &str, options: &Options) -> Result<String, String> {
    let mut document: DocumentMut = text.parse().map_err(|e| format!("agent.toml: {e}"))?;
    let missing = |what: &str| format!("agent.toml has no {what}");
    let node = document["report"]["node"].as_table_mut();
    let node = node.ok_or_else(|| missing("[report.node]"))?;
    node["taint"] = value(options.agent.taint);
    node["labels"] = value(options.agent.labels);
    let prefetch = document["prefetch"].as_table_mut();
    let prefetch = prefetch.ok_or_else(|| missing("[prefetch]"))?;
    prefetch["releases"] = value(options.components.contains(&Component::Releases));
    Ok(document.to_string())
}
