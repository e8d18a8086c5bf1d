//! How the nodes of a Shim are.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// Pods can use the RuntimeClass on at least one node.
pub const AVAILABLE: &str = "Available";
/// Nodes are being brought to what the spec says.
pub const PROGRESSING: &str = "Progressing";
/// Something needs a look.
pub const DEGRADED: &str = "Degraded";
/// The RuntimeClass is there and says what the spec says.
pub const RUNTIME_CLASS_READY: &str = "RuntimeClassReady";

/// So many reasons are listed.
pub const MAX_FAILURES: usize = 16;
/// So many nodes are named for each.
pub const MAX_NAMES: usize = 10;

/// How the nodes of a Shim are.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShimStatus {
    /// The generation that all of this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Nodes that are selected.
    #[serde(default)]
    #[schemars(required)]
    pub nodes: i64,
    /// Of those, where pods can use it.
    #[serde(default)]
    #[schemars(required)]
    pub nodes_ready: i64,
    /// Of those, where it is what the spec says now.
    #[serde(default)]
    pub nodes_updated: i64,
    /// Nodes that wait for their turn, or are worked on.
    #[serde(default)]
    pub nodes_pending: i64,
    /// Nodes where it failed.
    #[serde(default)]
    pub nodes_failed: i64,
    /// Nodes that nothing can be installed on.
    #[serde(default)]
    pub nodes_unsupported: i64,
    /// `Available`, `Progressing`, `Degraded`, `RuntimeClassReady`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// Why nodes failed or are not supported, most nodes first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub failures: Vec<NodeFailures>,
}

/// Nodes that fail for one reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeFailures {
    /// One word.
    pub reason: String,
    /// How many nodes.
    pub count: i64,
    /// What the first of them says.
    pub message: String,
    /// The first of them by name.
    #[schemars(length(max = 10))]
    pub nodes: Vec<String>,
}
