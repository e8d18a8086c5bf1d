//! Build: a source, a strategy and where the image goes.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, ResourceRequirements, Toleration, Volume};
use kube_core::Duration;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Output, ParamValue, Source, Trigger};
use crate::duration;

/// What to build, how, and where the image goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "shipwright.io",
    version = "v1beta1",
    kind = "Build",
    namespaced,
    doc = "What to build, how, and where the image goes.",
    status = "BuildStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Registered",
        type_ = "string",
        json_path = ".status.registered",
        description = "Whether the Build can be used"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.reason",
        description = "Why it can or cannot be used"
    ),
    printcolumn(name = "BuildStrategyKind", type_ = "string", json_path = ".spec.strategy.kind"),
    printcolumn(name = "BuildStrategyName", type_ = "string", json_path = ".spec.strategy.name"),
    printcolumn(name = "CreationTime", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct BuildSpec {
    /// Where the source comes from; absent for a build in an empty directory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<Source>,
    /// What starts a run by itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger: Option<Trigger>,
    /// How it is built.
    pub strategy: StrategyRef,
    /// Values for the parameters of the strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub param_values: Vec<ParamValue>,
    /// Where the image goes.
    pub output: Output,
    /// How long a run may take as a whole.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub timeout: Option<Duration>,
    /// Variables for the steps of the strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// Which runs are kept, and for how long.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<Retention>,
    /// What volumes of the strategy are to hold instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,
    /// Labels of the nodes that may build it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that do not matter here.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Who chooses the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// What runs the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

/// A strategy by name.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StrategyRef {
    /// Its name.
    pub name: String,
    /// `BuildStrategy`, which is meant where nothing is said, or `ClusterBuildStrategy`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Resources for its steps, in place of its own.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub step_resources: Vec<StepResources>,
}

/// What one step of a strategy may use.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StepResources {
    /// The step.
    pub name: String,
    /// In place of all that the strategy says.
    pub resources: ResourceRequirements,
}

/// Which runs of a Build are kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Retention {
    /// How many failed ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub failed_limit: Option<i32>,
    /// How many successful ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 10_000))]
    pub succeeded_limit: Option<i32>,
    /// How long a failed one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub ttl_after_failed: Option<Duration>,
    /// How long a successful one.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub ttl_after_succeeded: Option<Duration>,
    /// Whether runs go with their Build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_build_deletion: Option<bool>,
}

/// Whether a Build can be used.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct BuildStatus {
    /// `True` or `False`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registered: Option<String>,
    /// Why, in one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Why, in a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
