//! As much of a pod, a workload and a node as says where a pod may run. Everything else is passed
//! over, so that tomorrow's fields do no harm.

use std::collections::BTreeMap;

use portolan_core::Platform;
use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use serde::Deserialize;
use serde_json::Value;

/// A pod is a page.
pub const MAX_POD: usize = 3 * 1024 * 1024;
/// A list of all nodes of a cluster is as long as there are nodes: kubectl prints some 10 KiB of each.
pub const MAX_NODES: usize = 64 * 1024 * 1024;

/// Where a pod may run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    /// Labels that the node must have.
    pub node_selector: Option<BTreeMap<String, String>>,
    /// More of that.
    pub affinity: Option<Affinity>,
    /// Taints that do not keep it away.
    pub tolerations: Option<Vec<Toleration>>,
    /// The operating system, as the author says.
    pub os: Option<Os>,
    /// The node, chosen already.
    pub node_name: Option<String>,
}

/// Of nodes; those of pods do not matter here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct Affinity {
    /// Of nodes.
    pub node_affinity: Option<NodeAffinity>,
}

/// What is only preferred restricts nothing, so it is not read.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeAffinity {
    /// What must hold.
    #[serde(rename = "requiredDuringSchedulingIgnoredDuringExecution")]
    pub required: Option<NodeSelector>,
}

/// One of these terms must hold.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// The terms.
    pub node_selector_terms: Option<Vec<Term>>,
}

/// All of this must hold; a term without anything holds for no node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct Term {
    /// On labels.
    pub match_expressions: Option<Vec<Expression>>,
    /// On fields: the node's name.
    pub match_fields: Option<Vec<Expression>>,
}

/// A condition on a label or field.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct Expression {
    /// Which.
    pub key: String,
    /// `In`, `NotIn`, `Exists`, `DoesNotExist`, `Gt`, `Lt`, or one of tomorrow.
    pub operator: String,
    /// Of the first two and the last two.
    pub values: Option<Vec<String>>,
}

/// A taint that does not keep the pod away.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// Which; none or empty with `Exists` is every one.
    pub key: Option<String>,
    /// `Equal` where it is not said, or `Exists`.
    pub operator: Option<String>,
    /// Of `Equal`.
    pub value: Option<String>,
}

/// The operating system that the author says.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[cfg_attr(test, derive(serde::Serialize))]
pub struct Os {
    /// `linux` or `windows`.
    pub name: String,
}

/// A node of a cluster.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Its name.
    pub name: String,
    /// What it is.
    pub platform: Platform,
}

/// Why there is no pod or node to be seen.
#[derive(Debug, thiserror::Error)]
pub enum ReadPodError {
    /// Too long.
    #[error("it has {found} bytes, at most {most} are read")]
    TooLarge {
        /// How long.
        found: usize,
        /// The bound.
        most: usize,
    },
    /// Nested deeper than any pod or list of nodes.
    #[error("it nests deeper than {MAX_FLOW_DEPTH} levels")]
    TooDeep,
    /// Not YAML or JSON.
    #[error("it is neither YAML nor JSON: {0}")]
    Yaml(#[source] serde_yaml_ng::Error),
    /// Some other object.
    #[error(
        "it has no pod in it; give a Pod, or what makes pods with spec.template.spec or spec.jobTemplate.spec.template.spec"
    )]
    NoPod,
    /// A member of the wrong type.
    #[error("its {path} is not that of a pod: {source}")]
    Fields {
        /// Where the pod is in it.
        path: &'static str,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// Not a list of nodes.
    #[error(
        "item {0} is not a node with a name and a status.nodeInfo or the labels of its platform"
    )]
    Node(usize),
}

/// Where pods are, in what people apply; the innermost first.
const PATHS: [&str; 4] =
    ["/spec/jobTemplate/spec/template/spec", "/spec/template/spec", "/template/spec", "/spec"];

impl PodSpec {
    /// Reads a Pod, a workload or a CronJob.
    pub fn from_yaml(bytes: &[u8]) -> Result<Self, ReadPodError> {
        Self::from_object(&document(bytes, MAX_POD)?)
    }

    /// The pod in an object.
    pub fn from_object(object: &Value) -> Result<Self, ReadPodError> {
        let (path, spec) = spec_of(object)?;
        Self::deserialize(spec).map_err(|source| ReadPodError::Fields { path, source })
    }
}

/// Where the pod is in an object, and all that is written of it there.
pub fn spec_of(object: &Value) -> Result<(&'static str, &Value), ReadPodError> {
    let inside = PATHS.into_iter().find_map(|path| Some((path, object.pointer(path)?)));
    let bare = object.get("containers").map(|_| ("pod spec", object));
    let found = inside.or(bare).ok_or(ReadPodError::NoPod)?;
    if !found.1.is_object() {
        return Err(ReadPodError::NoPod);
    }
    Ok(found)
}

fn document(bytes: &[u8], most: usize) -> Result<Value, ReadPodError> {
    if bytes.len() > most {
        return Err(ReadPodError::TooLarge { found: bytes.len(), most });
    }
    if yaml::is_too_deep(bytes) {
        return Err(ReadPodError::TooDeep);
    }
    serde_yaml_ng::from_slice(bytes).map_err(ReadPodError::Yaml)
}

/// Reads what `kubectl get nodes -o yaml` prints, or one node.
pub fn nodes_from_yaml(bytes: &[u8]) -> Result<Vec<Node>, ReadPodError> {
    let document = document(bytes, MAX_NODES)?;
    let items = match document.get("items").and_then(Value::as_array) {
        Some(items) => items.as_slice(),
        None => std::slice::from_ref(&document),
    };
    let items = items.iter().enumerate();
    items.map(|(n, item)| node_from_object(item).ok_or(ReadPodError::Node(n + 1))).collect()
}

/// A node, where it says what it is. What the kubelet reports counts before its labels, which others
/// may change; an API server writes what no kubelet has reported yet as empty text.
pub fn node_from_object(item: &Value) -> Option<Node> {
    let text = |pointer: &str| item.pointer(pointer).and_then(Value::as_str);
    let label = |name: &str| item.pointer("/metadata/labels")?.get(name)?.as_str();
    let reported = |pointer: &str| text(pointer).filter(|text| !text.is_empty());
    let os = reported("/status/nodeInfo/operatingSystem").or_else(|| label("kubernetes.io/os"))?;
    let arch = reported("/status/nodeInfo/architecture").or_else(|| label("kubernetes.io/arch"))?;
    let known = !os.is_empty() && !arch.is_empty();
    let platform = Platform::new(os, arch).normalised();
    known.then_some(Node { name: text("/metadata/name")?.to_owned(), platform })
}
