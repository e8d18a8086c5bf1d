//! Strategies: the steps that make an image, and what they can be told.

use k8s_openapi::api::core::v1::{
    EnvVar, ResourceRequirements, SecurityContext, Volume, VolumeMount,
};
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How images are made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StrategySpec {
    /// What is run, one after the other.
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub steps: Vec<Step>,
    /// What it can be told.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub parameters: Vec<Parameter>,
    /// Who its steps run as.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<StrategySecurityContext>,
    /// What its steps may mount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub volumes: Vec<StrategyVolume>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// The image it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The program.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Where it starts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Its variables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// What it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// What is mounted for it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// When its image is pulled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// What it may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}

/// Something a strategy can be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parameter {
    /// What it is called.
    pub name: String,
    /// What it does.
    pub description: String,
    /// One value or a list.
    #[serde(rename = "type", default, skip_serializing_if = "ParameterKind::is_default")]
    pub kind: ParameterKind,
    /// Of one value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default: Option<String>,
    /// Of a list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub defaults: Option<Vec<String>>,
}

/// What kind of value a parameter takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum ParameterKind {
    /// One value.
    #[default]
    String,
    /// A list of values.
    Array,
}

impl ParameterKind {
    fn is_default(&self) -> bool {
        *self == Self::String
    }
}

/// Who the steps run as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StrategySecurityContext {
    /// User.
    pub run_as_user: i64,
    /// Group.
    pub run_as_group: i64,
}

/// A volume that steps may mount.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StrategyVolume {
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Whether Builds may put something else in its place.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub overridable: Option<bool>,
    /// Name and content.
    #[serde(flatten)]
    pub volume: Volume,
}

/// A strategy for one namespace.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "shipwright.io",
    version = "v1beta1",
    kind = "BuildStrategy",
    plural = "buildstrategies",
    namespaced,
    doc = "How images are made, for one namespace.",
    shortname = "bs",
    shortname = "bss",
    status = "StrategyStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core")
)]
#[serde(transparent)]
pub struct NamespacedStrategySpec(pub StrategySpec);

/// A strategy for all namespaces.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "shipwright.io",
    version = "v1beta1",
    kind = "ClusterBuildStrategy",
    plural = "clusterbuildstrategies",
    doc = "How images are made, for all namespaces.",
    shortname = "cbs",
    shortname = "cbss",
    status = "StrategyStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core")
)]
#[serde(transparent)]
pub struct ClusterStrategySpec(pub StrategySpec);

/// Nothing yet.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StrategyStatus {}
