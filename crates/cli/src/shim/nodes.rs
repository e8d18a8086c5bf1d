//! Nodes, from files as `kubectl get nodes` prints them, or from the cluster.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow};
use portolan_api::k8s_openapi::api::core::v1::Node as ClusterNode;
use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use serde::Deserialize;
use serde_json::Value;

use crate::build::files;
use crate::cluster::{self, Cluster};
use crate::exit::Failure;

/// Thousands of nodes with all that is said of each.
const MAX_BYTES: u64 = 256 * 1024 * 1024;

/// What is looked at of a node.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Node {
    pub(super) metadata: Metadata,
    pub(super) status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Metadata {
    pub(super) name: String,
    pub(super) labels: BTreeMap<String, String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Status {
    pub(super) node_info: Info,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Info {
    pub(super) operating_system: String,
    pub(super) architecture: String,
    pub(super) container_runtime_version: String,
}

/// A List of Nodes, several documents, YAML or JSON; `-` is stdin.
pub(super) fn read(file: &Path) -> Result<Vec<Node>, Failure> {
    let bytes = files::bytes(file, MAX_BYTES)?;
    let read = || -> anyhow::Result<Vec<Node>> {
        if bytes.len() as u64 > MAX_BYTES {
            return Err(anyhow!("it has more than {MAX_BYTES} bytes"));
        }
        parse(std::str::from_utf8(&bytes).context("it is not UTF-8")?)
    };
    read().with_context(|| file.display().to_string()).map_err(Failure::usage)
}

fn parse(text: &str) -> anyhow::Result<Vec<Node>> {
    let documents: Vec<Value> = match text.trim_start().starts_with('{') {
        // Much faster, and what kubectl prints is often large.
        true => serde_json::Deserializer::from_str(text)
            .into_iter()
            .collect::<Result<_, _>>()
            .context("it is not valid JSON")?,
        false if yaml::is_too_deep(text.as_bytes()) => {
            return Err(anyhow!("it nests deeper than {MAX_FLOW_DEPTH} levels"));
        }
        false => serde_yaml_ng::Deserializer::from_str(text)
            .map(Value::deserialize)
            .collect::<Result<_, _>>()
            .context("it is not valid YAML")?,
    };
    let mut nodes = Vec::new();
    for mut document in documents.into_iter().filter(|document| !document.is_null()) {
        let kind = document["kind"].as_str().unwrap_or_default().to_owned();
        let items = match kind.as_str() {
            "List" | "NodeList" => match document["items"].take() {
                Value::Array(items) => items,
                _ => Vec::new(),
            },
            _ => vec![document],
        };
        for item in items {
            // Items of a NodeList need not repeat what they are.
            let of = item["kind"].as_str().unwrap_or(if kind == "NodeList" { "Node" } else { "?" });
            if of != "Node" {
                return Err(anyhow!("it holds a {of}, and only Nodes are looked at"));
            }
            nodes.push(serde_json::from_value(item).context("a Node cannot be read")?);
        }
    }
    Ok(nodes)
}

/// The nodes of the cluster.
pub(super) async fn list(flags: &cluster::Flags) -> Result<Vec<Node>, Failure> {
    let cluster = Cluster::connect(flags).await?;
    let nodes: Vec<ClusterNode> = cluster.list(&cluster.wide(), None).await?;
    Ok(nodes.into_iter().map(Node::from).collect())
}

impl From<ClusterNode> for Node {
    fn from(node: ClusterNode) -> Self {
        let info = node.status.unwrap_or_default().node_info.unwrap_or_default();
        Self {
            metadata: Metadata {
                name: node.metadata.name.unwrap_or_default(),
                labels: node.metadata.labels.unwrap_or_default(),
            },
            status: Status {
                node_info: Info {
                    operating_system: info.operating_system,
                    architecture: info.architecture,
                    container_runtime_version: info.container_runtime_version,
                },
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_are_read_as_kubectl_prints_them() {
        let node = "apiVersion: v1\nkind: Node\nmetadata: {name: a}\nstatus: {nodeInfo: {architecture: arm64}}\n";
        let item = |kind: &str| format!("{{\"kind\":\"{kind}\",\"metadata\":{{\"name\":\"a\"}}}}");
        for (text, count) in [
            (node.to_owned(), 1),
            (format!("---\n{node}---\n{node}---\n"), 2),
            (format!("{{\"kind\":\"List\",\"items\":[{0},{0}]}}", item("Node")), 2),
            ("{\"kind\":\"NodeList\",\"items\":[{\"metadata\":{\"name\":\"a\"}}]}".to_owned(), 1),
            ("kind: List\napiVersion: v1\nitems: []\n".to_owned(), 0),
        ] {
            let nodes = parse(&text).unwrap();
            assert_eq!(nodes.len(), count, "{text}");
            assert!(nodes.iter().all(|node| node.metadata.name == "a"));
        }
        for text in [&item("Pod"), "a: [", "{", "kind: List\nitems: [{kind: Pod}]"] {
            parse(text).expect_err(text);
        }
        // The reader of YAML would take a minute for it.
        let error = parse(&format!("a: {}", "{\"a\":".repeat(60_000))).unwrap_err();
        assert!(error.to_string().contains("nests deeper"), "{error}");
    }
}
