//! BuildRun: one run of a Build.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{EnvVar, Toleration, Volume};
use kube_core::Duration;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{BuildRunStatus, BuildSpec, Local, OutputOverride, ParamValue, StepResources};
use crate::duration;

/// One run of a Build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "shipwright.io",
    version = "v1beta1",
    kind = "BuildRun",
    namespaced,
    doc = "One run of a Build.",
    shortname = "br",
    shortname = "brs",
    status = "BuildRunStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Succeeded",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].status",
        description = "Whether it succeeded"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Succeeded\")].reason",
        description = "Why it did or did not"
    ),
    printcolumn(name = "StartTime", type_ = "date", json_path = ".status.startTime"),
    printcolumn(name = "CompletionTime", type_ = "date", json_path = ".status.completionTime")
)]
#[serde(rename_all = "camelCase")]
pub struct BuildRunSpec {
    /// What is run.
    pub build: ReferencedBuild,
    /// Another source: one from somebody's machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<RunSource>,
    /// Who runs it: a name, or `.generate` for one of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_account: Option<String>,
    /// How long it may take.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub timeout: Option<Duration>,
    /// Values for parameters.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub param_values: Vec<ParamValue>,
    /// Where the image goes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputOverride>,
    /// `BuildRunCanceled` ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<BuildRunState>,
    /// Variables for the steps of the strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// How long it is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention: Option<RunRetention>,
    /// What volumes of the strategy are to hold instead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<Volume>,
    /// Resources for steps of the strategy.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub step_resources: Vec<StepResources>,
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

/// A Build by name, or as a whole.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ReferencedBuild {
    /// A Build in the same namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// A Build for this run alone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spec: Option<Box<BuildSpec>>,
}

/// A source that one run has instead of its Build's.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunSource {
    /// Only `Local`.
    #[serde(rename = "type")]
    pub kind: RunSourceKind,
    /// How it is waited for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
}

/// The one kind of source that a run may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum RunSourceKind {
    /// Sent from somebody's machine.
    Local,
}

/// What somebody wants of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum BuildRunState {
    /// That it ends.
    BuildRunCanceled,
}

/// How long a run is kept.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RunRetention {
    /// When it failed.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub ttl_after_failed: Option<Duration>,
    /// When it succeeded.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub ttl_after_succeeded: Option<Duration>,
}
