//! runtime.spinkube.dev/v1alpha1: Shim, a runtime binary for nodes.
//!
//! Whatever runtime-class-manager takes is taken here: fields are only added, and what was free text
//! stays free where somebody may have written it. What cannot work is told by `portolan shim lint` and
//! in conditions, not by refusing an object that is stored already.

mod keys;
mod status;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube_derive::CustomResource;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

pub use keys::*;
pub use status::*;

/// The group of the resource.
pub const GROUP: &str = "runtime.spinkube.dev";

/// The longest name: it is the key of a label on nodes, and a label's value on Jobs.
pub const MAX_NAME: usize = 63;

/// A runtime binary, the nodes that get it, and the RuntimeClass that pods ask for it by.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "runtime.spinkube.dev",
    version = "v1alpha1",
    kind = "Shim",
    doc = "A runtime binary for nodes.",
    status = "ShimStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "RuntimeClass", type_ = "string", json_path = ".spec.runtimeClass.name"),
    printcolumn(name = "Ready", type_ = "integer", json_path = ".status.nodesReady"),
    printcolumn(name = "Nodes", type_ = "integer", json_path = ".status.nodes"),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ShimSpec {
    /// Labels of the nodes that get it; all nodes where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_selector: Option<BTreeMap<String, String>>,
    /// Where the binary comes from.
    pub fetch_strategy: FetchStrategy,
    /// The RuntimeClass that is made for it.
    pub runtime_class: RuntimeClassSpec,
    /// How many nodes at a time.
    pub rollout_strategy: RolloutStrategy,
    /// Options of the runtime in containerd's configuration, each as TOML would have its value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub containerd_runtime_options: Option<BTreeMap<String, String>>,
}

impl ShimSpec {
    /// Whether a node with these labels is meant: it carries all of the selector's, with their values.
    pub fn selects(&self, labels: &BTreeMap<String, String>) -> bool {
        let selector = self.node_selector.iter().flatten();
        selector.into_iter().all(|(key, value)| labels.get(key) == Some(value))
    }
}

/// Where the binary comes from: `platforms` where there are any, else `anonHttp`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FetchStrategy {
    /// Deprecated and ignored: which of the others is set says it.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// One archive for every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub anon_http: Option<AnonHttp>,
    /// An archive for each platform. A node that none of them is for gets none, not that of anonHttp.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub platforms: Vec<PlatformArtifact>,
}

/// One archive for every node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AnonHttp {
    /// Its URL.
    pub location: String,
}

/// The archive for one platform.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlatformArtifact {
    /// Operating system.
    #[schemars(schema_with = "os")]
    pub os: String,
    /// Architecture, as Go or as uname writes it.
    #[schemars(schema_with = "arch")]
    pub arch: String,
    /// Its URL.
    pub location: String,
    /// SHA-256 of the archive, in hexadecimal digits. One that is elided with three dots, as documents
    /// write it, is taken and matches nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = r"^(|(sha256:)?[0-9a-fA-F]{64}|[0-9a-fA-F]{1,63}\.\.\.)$"))]
    pub sha256: Option<String>,
}

fn os(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": ["linux"], "description": "Operating system." })
}

fn arch(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "enum": [
            "amd64", "arm64", "x86_64", "aarch64", "arm", "armv7l", "riscv64", "ppc64le", "s390x"
        ],
        "description": "Architecture, as Go or as uname writes it.",
    })
}

/// The RuntimeClass that pods name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeClassSpec {
    /// Its name.
    pub name: String,
    /// What containerd calls the runtime.
    pub handler: String,
}

/// How many nodes at a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RolloutStrategy {
    /// `recreate`: as many as the cluster's budget allows. `rolling`: one first, then as many as said.
    #[serde(rename = "type")]
    #[schemars(schema_with = "rollout")]
    pub kind: RolloutKind,
    /// Of `rolling`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rolling: Option<Rolling>,
}

fn rollout(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "type": "string",
        "enum": ["rolling", "recreate"],
        "description": "recreate: as many nodes as the cluster's budget allows. rolling: one first, then as many as said.",
    })
}

/// The kinds of rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RolloutKind {
    /// One first, then a few at a time.
    Rolling,
    /// As many as the cluster's budget allows.
    Recreate,
}

/// How a rolling update goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Rolling {
    /// How many nodes at once: a number, or a share of the Shim's nodes such as "10%". Never less than one.
    #[schemars(schema_with = "max_update")]
    pub max_update: IntOrString,
}

fn max_update(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "pattern": "^(100|[1-9]?[0-9])%$",
        "description": "How many nodes at once: a number, or a share of the Shim's nodes such as \"10%\". Never less than one.",
    })
}
