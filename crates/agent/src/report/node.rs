//! A Kubernetes node, told how its agent is.
//!
//! A strategic merge patch of the `status` subresource changes our conditions and leaves the kubelet's alone. That
//! needs `get` on `nodes` and `patch` on `nodes/status`, nothing else. A taint and labels, on request, need `patch` on
//! `nodes`; an admission policy holds an agent to its own node and to what is its own there (`deploy/agent/`).

mod conditions;
mod labels;
mod taint;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use http::{Method, StatusCode};
use jiff::Timestamp;
use portolan_api::names::is_subdomain;
use portolan_host::facts::{Facts, Wanted};
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

pub use conditions::{DEGRADED, PRESSURE};
pub use taint::TAINT;

use super::Target;
use crate::api::StatusReport;
use crate::api_server::{ApiServer, NoServer};
use crate::config::NodeConfig;
use crate::endpoint::{Endpoint, EndpointError};
use crate::metrics::ReportTarget;
use portolan_core::causes::chain;

const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
/// Somebody else wrote the node at the same moment: so often it is read and tried again.
const TRIES: usize = 5;
/// What a node is changes with a module that is loaded or a device that is plugged in, seldom.
const LOOK_AT_FACTS: Duration = Duration::from_secs(600);

/// Why a node cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Nothing says where the API server is.
    #[error(transparent)]
    NoServer(#[from] NoServer),
    /// The name cannot be part of a URL of a node.
    #[error("{0:?} is no node's name; set report.name")]
    Name(String),
}

/// A node.
#[derive(Debug)]
pub struct Node {
    name: String,
    url: Url,
    endpoint: Endpoint,
    taint: bool,
    labels: Option<Published>,
    /// What the node says already, as far as we know.
    known: Option<conditions::Known>,
}

/// What was told of the machine itself.
#[derive(Debug)]
struct Published {
    /// Where the host's own root is; not set: `/`.
    host_root: Option<PathBuf>,
    /// What it is, and when that was looked at.
    found: Option<(BTreeMap<String, String>, Instant)>,
    /// What the API server took from us.
    applied: Option<BTreeMap<String, String>>,
    /// What somebody else gives.
    taken: BTreeSet<String>,
}

impl Node {
    /// The node of this name at an API server. Labels are read from `host_root` where the host is not at `/`.
    pub fn new(
        server: &ApiServer,
        config: &NodeConfig,
        name: &str,
        host_root: Option<PathBuf>,
    ) -> Result<Self, NodeError> {
        if !is_subdomain(name) {
            return Err(NodeError::Name(name.chars().take(80).collect()));
        }
        let published = Published { host_root, found: None, applied: None, taken: BTreeSet::new() };
        Ok(Self {
            name: name.to_owned(),
            url: server.url(&format!("/api/v1/nodes/{name}"))?,
            endpoint: server.endpoint(),
            taint: config.taint,
            labels: config.labels.then_some(published),
            known: None,
        })
    }

    async fn get(&mut self) -> Result<NodeObject, EndpointError> {
        let bytes = self.endpoint.call(Method::GET, &self.url, None).await?;
        self.read(&bytes)
    }

    async fn patch(
        &mut self,
        url: &Url,
        kind: &'static str,
        patch: &Value,
    ) -> Result<NodeObject, EndpointError> {
        let body = Some((kind, patch.to_string().into_bytes()));
        let bytes = self.endpoint.call(Method::PATCH, url, body).await?;
        self.read(&bytes)
    }

    fn read(&self, bytes: &[u8]) -> Result<NodeObject, EndpointError> {
        serde_json::from_slice(bytes)
            .map_err(|source| EndpointError::Malformed { url: self.url.to_string(), source })
    }

    /// Tells the conditions. What comes back is the node as it is then.
    async fn tell(&mut self, report: &StatusReport) -> Result<NodeObject, EndpointError> {
        let known = match self.known.take() {
            Some(known) => known,
            // What the node says now, so that a restart of ours is no transition.
            None => self.get().await?.known(),
        };
        let (patch, known) = conditions::patch(&report.status, &known, Timestamp::now());
        let mut url = self.url.clone();
        url.set_path(&format!("{}/status", url.path()));
        // Should it fail, the node may have been made anew meanwhile: it is looked at again.
        let node = self.patch(&url, STRATEGIC, &patch).await?;
        self.known = Some(known);
        Ok(node)
    }

    /// Sets the taint or takes it away. The version makes it a change of the very list that was read.
    async fn set_taint(&mut self, mut node: NodeObject, wanted: bool) -> Result<(), EndpointError> {
        let mut tries = 0;
        loop {
            let Some(taints) = taint::change(&node.spec.taints, wanted) else { return Ok(()) };
            let version = &node.metadata.resource_version;
            let patch =
                json!({ "metadata": { "resourceVersion": version }, "spec": { "taints": taints } });
            let url = self.url.clone();
            match self.patch(&url, MERGE, &patch).await {
                Ok(_) => {
                    tracing::info!(node = self.name, taint = TAINT, set = wanted, "taint changed");
                    return Ok(());
                }
                Err(error) if error.status() == Some(StatusCode::CONFLICT) && tries < TRIES => {
                    tries += 1;
                    node = self.get().await?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Publishes what this machine is, where that changed or somebody took it away.
    async fn publish(&mut self, node: &NodeObject) -> Result<(), EndpointError> {
        let Some(published) = &mut self.labels else { return Ok(()) };
        let Some(found) = published.look().await else { return Ok(()) };
        let there = |name: &String, value: &String| node.metadata.labels.get(name) == Some(value);
        let all_there =
            found.iter().all(|(name, value)| published.taken.contains(name) || there(name, value));
        if published.applied.as_ref() == Some(&found) && all_there {
            return Ok(());
        }
        let mut url = self.url.clone();
        url.query_pairs_mut().append_pair("fieldManager", labels::MANAGER);
        // Begun without any: others may have let go of what was theirs.
        let mut taken = BTreeSet::new();
        loop {
            let patch = labels::patch(&self.name, &found, &taken);
            let Err(error) = self.patch(&url, APPLY, &patch).await else { break };
            let before = taken.len();
            if let EndpointError::Refused { status: StatusCode::CONFLICT, body, .. } = &error {
                let conflicts = labels::conflicts(body);
                taken.extend(conflicts.into_iter().filter(|name| found.contains_key(name)));
            }
            if taken.len() == before {
                return Err(error);
            }
        }
        if let Some(published) = &mut self.labels {
            if !taken.is_empty() && published.taken != taken {
                tracing::warn!(
                    node = self.name, labels = ?taken,
                    "somebody else gives these labels other values; they are left to them"
                );
            }
            tracing::info!(
                node = self.name,
                labels = found.len() - taken.len(),
                "labels published"
            );
            published.taken = taken;
            published.applied = Some(found);
        }
        Ok(())
    }
}

impl Published {
    /// What this machine is, looked at anew from time to time; none before it could be looked at.
    async fn look(&mut self) -> Option<BTreeMap<String, String>> {
        if let Some((found, at)) = &self.found
            && at.elapsed() < LOOK_AT_FACTS
        {
            return Some(found.clone());
        }
        let root = self.host_root.clone();
        let looked = tokio::task::spawn_blocking(move || match &root {
            None => Facts::here(&Wanted::everything()),
            Some(root) => Facts::at(root, &Wanted::everything()),
        });
        match looked.await {
            Ok(Ok(facts)) => {
                let found = labels::ours(facts.node_labels());
                self.found = Some((found, Instant::now()));
            }
            Ok(Err(error)) => {
                tracing::warn!(error = chain(&error), "what this machine is cannot be looked at");
            }
            // Its own message has told why.
            Err(_) => {}
        }
        self.found.as_ref().map(|(found, _)| found.clone())
    }
}

/// As much of a node as we look at.
#[derive(Debug, Deserialize)]
struct NodeObject {
    #[serde(default)]
    metadata: NodeMetadata,
    #[serde(default)]
    spec: NodeSpec,
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Debug, Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct NodeMetadata {
    #[serde(default)]
    resource_version: String,
    #[serde(default)]
    labels: BTreeMap<String, String>,
}

#[derive(Debug, Deserialize, Default)]
struct NodeSpec {
    #[serde(default)]
    taints: Vec<Value>,
}

#[derive(Debug, Deserialize, Default)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default)]
    last_transition_time: Option<String>,
}

impl NodeObject {
    fn known(&self) -> conditions::Known {
        let ours = |kind: &'static str| {
            let condition = self.status.conditions.iter().find(|one| one.kind == kind)?;
            let since = condition.last_transition_time.as_ref()?.parse().ok()?;
            Some((kind, (condition.status.clone(), since)))
        };
        [DEGRADED, PRESSURE].into_iter().filter_map(ours).collect()
    }
}

impl Target for Node {
    const KIND: ReportTarget = ReportTarget::Node;

    async fn send(&mut self, report: &StatusReport) -> Result<(), EndpointError> {
        let node = self.tell(report).await?;
        // Neither keeps the other from being written.
        let published = self.publish(&node).await;
        let tainted = match self.taint {
            true => self.set_taint(node, report.status.cache_pressure).await,
            false => Ok(()),
        };
        tainted.and(published)
    }

    /// A node whose agent is gone is not kept from pods by what nobody looks at any more.
    async fn end(&mut self) -> Result<(), EndpointError> {
        if !self.taint {
            return Ok(());
        }
        let node = self.get().await?;
        self.set_taint(node, false).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        let config = NodeConfig::default();
        let pod = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "10.0.0.1".to_owned());
        let server = ApiServer::new(&config, pod).unwrap();
        let node = Node::new(&server, &config, "node-1", None).unwrap();
        assert_eq!(node.url.as_str(), "https://10.0.0.1/api/v1/nodes/node-1");
        for bad in ["", "..", "a/b", "a?b", "A", "a..b", "-a", "a."] {
            let named = Node::new(&server, &config, bad, None);
            assert!(matches!(named, Err(NodeError::Name(_))), "{bad}");
        }
    }
}
