//! The condition of a Kubernetes node.
//!
//! A strategic merge patch of the `status` subresource changes this one condition and leaves the
//! kubelet's alone. Needed are `get` on `nodes` and `patch` on `nodes/status`, nothing else.

use std::path::PathBuf;

use http::Method;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use url::Url;

use super::endpoint::Endpoint;
use super::{ReportError, Target};
use crate::api::StatusReport;
use crate::config::NodeConfig;
use crate::metrics::ReportTarget;

/// The type of the condition: `True` while no new instance can start.
pub const CONDITION: &str = "PortolanDegraded";
/// Where a pod finds what it needs.
const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// Conditions are read by people in a terminal.
const MAX_MESSAGE: usize = 1024;

/// Why a node cannot be told.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// Nothing says where the API server is.
    #[error(
        "nothing says where the API server is; set report.node.server, or run as a pod with a service account"
    )]
    NoServer,
    /// The name cannot be part of a URL of a node.
    #[error("{0:?} is no node's name; set report.name")]
    Name(String),
}

/// A node.
#[derive(Debug)]
pub struct Node {
    url: Url,
    endpoint: Endpoint,
    /// What the node says already, as far as we know.
    known: Option<Known>,
}

/// Status and the time of its last change.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    status: String,
    since: Timestamp,
}

impl Node {
    /// The configured API server, or the one a pod finds in its environment.
    pub fn new(
        config: &NodeConfig,
        name: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, NodeError> {
        let plain =
            |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'-' | b'.');
        if name.is_empty() || name.len() > 253 || !name.bytes().all(plain) || name.starts_with('.')
        {
            return Err(NodeError::Name(name.chars().take(80).collect()));
        }
        let server = match &config.server {
            Some(server) => server.trim_end_matches('/').to_owned(),
            None => in_cluster(variable).ok_or(NodeError::NoServer)?,
        };
        let url = format!("{server}/api/v1/nodes/{name}");
        let url = url.parse().map_err(|_| NodeError::NoServer)?;
        let account = |file: &str| PathBuf::from(SERVICE_ACCOUNT).join(file);
        let token = config.token_file.clone().unwrap_or_else(|| account("token"));
        let ca = config.ca_file.clone().unwrap_or_else(|| account("ca.crt"));
        Ok(Self { url, endpoint: Endpoint::new(Some(token), Some(ca)), known: None })
    }

    /// What the node says now, so that a restart of ours is no transition.
    async fn look(&mut self) -> Result<Option<Known>, ReportError> {
        let bytes = self.endpoint.call(Method::GET, &self.url, None).await?;
        let node: NodeObject = serde_json::from_slice(&bytes)
            .map_err(|source| ReportError::Malformed { url: self.url.to_string(), source })?;
        let ours = node.status.conditions.into_iter().find(|condition| condition.kind == CONDITION);
        Ok(ours.and_then(|condition| {
            let since = condition.last_transition_time?.parse().ok()?;
            Some(Known { status: condition.status, since })
        }))
    }
}

fn in_cluster(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    let host = variable("KUBERNETES_SERVICE_HOST")?;
    let port = variable("KUBERNETES_SERVICE_PORT").unwrap_or_else(|| "443".to_owned());
    // An IPv6 address needs its brackets in a URL.
    let host = if host.contains(':') { format!("[{host}]") } else { host };
    Some(format!("https://{host}:{port}"))
}

/// As much of a node as we look at.
#[derive(Deserialize)]
struct NodeObject {
    #[serde(default)]
    status: NodeStatus,
}

#[derive(Deserialize, Default)]
struct NodeStatus {
    #[serde(default)]
    conditions: Vec<Condition>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    #[serde(default, rename = "lastTransitionTime")]
    last_transition_time: Option<String>,
}

/// The condition that a report makes, and what to remember of it.
fn condition(report: &StatusReport, known: Option<&Known>, now: Timestamp) -> (Value, Known) {
    let degraded = &report.status.degraded;
    let status = if degraded.is_empty() { "False" } else { "True" };
    let (reason, message) = match degraded.first() {
        None => ("AgentHealthy".to_owned(), "new instances can start".to_owned()),
        Some(first) => {
            let texts: Vec<_> = degraded.iter().map(|d| d.message.as_str()).collect();
            (camel(first.reason.as_str()), texts.join("; "))
        }
    };
    let since = known.filter(|known| known.status == status).map_or(now, |known| known.since);
    let message: String = message.chars().take(MAX_MESSAGE).collect();
    // The API server keeps whole seconds and refuses others.
    let seconds = |time: Timestamp| time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let patch = json!({ "status": { "conditions": [{
        "type": CONDITION,
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": seconds(now),
        "lastTransitionTime": seconds(since),
    }]}});
    (patch, Known { status: status.to_owned(), since })
}

/// `disk_full` -> `DiskFull`, as reasons of conditions are written.
fn camel(word: &str) -> String {
    word.split('_')
        .flat_map(|part| {
            let mut letters = part.chars();
            letters.next().map(|c| c.to_ascii_uppercase()).into_iter().chain(letters)
        })
        .collect()
}

impl Target for Node {
    const KIND: ReportTarget = ReportTarget::Node;

    async fn send(&mut self, report: &StatusReport) -> Result<(), ReportError> {
        if self.known.is_none() {
            self.known = self.look().await?;
        }
        let (patch, known) = condition(report, self.known.as_ref(), Timestamp::now());
        let mut url = self.url.clone();
        url.set_path(&format!("{}/status", url.path()));
        let body = Some(("application/strategic-merge-patch+json", patch.to_string().into_bytes()));
        match self.endpoint.call(Method::PATCH, &url, body).await {
            Ok(_) => {
                self.known = Some(known);
                Ok(())
            }
            Err(error) => {
                // The node may have been made anew meanwhile: look again.
                self.known = None;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::tests::report;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    #[test]
    fn the_time_of_a_transition_changes_with_the_status_alone() {
        let (patch, known) = condition(&report(None), None, at("2026-01-01T00:00:00.5Z"));
        let first = &patch["status"]["conditions"][0];
        assert_eq!(first["status"], "False");
        assert_eq!(first["reason"], "AgentHealthy");
        assert_eq!(first["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let (patch, known) = condition(&report(None), Some(&known), at("2026-01-01T01:00:00Z"));
        let second = &patch["status"]["conditions"][0];
        assert_eq!(second["lastHeartbeatTime"], "2026-01-01T01:00:00Z");
        assert_eq!(second["lastTransitionTime"], "2026-01-01T00:00:00Z");
        let full = report(Some("no room"));
        let (patch, known) = condition(&full, Some(&known), at("2026-01-01T02:00:00Z"));
        let third = &patch["status"]["conditions"][0];
        assert_eq!((&third["status"], &third["reason"]), (&json!("True"), &json!("DiskFull")));
        assert_eq!(third["message"], "no room");
        assert_eq!(known.since, at("2026-01-01T02:00:00Z"));
    }

    #[test]
    fn a_pod_finds_its_api_server_and_a_name_cannot_lead_elsewhere() {
        let pod = |host: &'static str| {
            move |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| host.to_owned())
        };
        let node = Node::new(&NodeConfig::default(), "node-1", pod("10.0.0.1")).unwrap();
        assert_eq!(node.url.as_str(), "https://10.0.0.1/api/v1/nodes/node-1");
        let node = Node::new(&NodeConfig::default(), "node-1", pod("fd00::1")).unwrap();
        assert_eq!(node.url.as_str(), "https://[fd00::1]/api/v1/nodes/node-1");
        assert!(matches!(
            Node::new(&NodeConfig::default(), "n", |_| None),
            Err(NodeError::NoServer)
        ));
        for bad in ["", "..", "a/b", "a?b", "A"] {
            let named = Node::new(&NodeConfig::default(), bad, pod("10.0.0.1"));
            assert!(matches!(named, Err(NodeError::Name(_))), "{bad}");
        }
    }
}
