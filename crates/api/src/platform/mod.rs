//! shipwright.io/v1alpha1: how images for a platform are built, and sets of such ways.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::api::core::v1::Toleration;
use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::build::ParamValue;
use crate::condition::Condition;

/// The version of these resources.
pub const VERSION: &str = "v1alpha1";

/// The condition that a class always reports.
pub const AVAILABLE: &str = "Available";

/// What an image runs on, as resources write it.
#[derive(
    Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub struct Platform {
    /// Operating system.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9]+$"))]
    pub os: String,
    /// Architecture.
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9]+$"))]
    pub arch: String,
    /// Its variant: `v7` of arm, `v3` of amd64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 64), regex(pattern = "^[a-z0-9.]+$"))]
    pub variant: Option<String>,
}

impl Platform {
    /// The same in the words of images, each name in its usual spelling.
    pub fn normalised(&self) -> portolan_core::Platform {
        let platform = portolan_core::Platform::new(&self.os, &self.arch);
        match &self.variant {
            Some(variant) => platform.with_variant(variant).normalised(),
            None => platform.normalised(),
        }
    }
}

impl From<&portolan_core::Platform> for Platform {
    fn from(platform: &portolan_core::Platform) -> Self {
        Self {
            os: platform.os.clone(),
            arch: platform.architecture.clone(),
            variant: platform.variant.clone(),
        }
    }
}

impl fmt::Display for Platform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.os, self.arch)?;
        self.variant.iter().try_for_each(|variant| write!(f, "/{variant}"))
    }
}

/// How images for one platform are built: on which nodes, by which runtime, with which values.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "shipwright.io",
    version = "v1alpha1",
    kind = "ImagePlatform",
    doc = "How images for one platform are built.",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "OS", type_ = "string", json_path = ".spec.platform.os"),
    printcolumn(name = "Arch", type_ = "string", json_path = ".spec.platform.arch"),
    printcolumn(
        name = "Variant",
        type_ = "string",
        json_path = ".spec.platform.variant",
        priority = 1
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "(has(self.nodeSelector) && size(self.nodeSelector) > 0) || has(self.runtimeClass) || (has(self.tolerations) && size(self.tolerations) > 0) || (has(self.paramValues) && size(self.paramValues) > 0)",
        "message": "at least one of nodeSelector, runtimeClass, tolerations and paramValues must be set"
    },
    {
        "rule": "!has(self.paramValues) || self.paramValues.all(p, !has(p.configMapValue) && !has(p.secretValue) && (!has(p.values) || p.values.all(v, !has(v.configMapValue) && !has(v.secretValue))))",
        "message": "paramValues of an ImagePlatform are plain values: it belongs to no namespace whose config maps and secrets could be meant"
    },
    {
        "rule": "!has(self.paramValues) || self.paramValues.all(p, !p.name.startsWith('shp-') && !(p.name in ['BUILDER_IMAGE', 'DOCKERFILE', 'CONTEXT_DIR']))",
        "message": "paramValues must not set BUILDER_IMAGE, DOCKERFILE, CONTEXT_DIR or a name that begins with shp-: the system sets those"
    },
    {
        "rule": "!has(self.tolerations) || self.tolerations.all(t, has(t.key) && has(t.operator) && t.operator in ['Exists', 'Equal'] && !has(t.tolerationSeconds) && (!has(t.effect) || t.effect in ['', 'NoSchedule']))",
        "message": "a toleration needs a key and the operator Exists or Equal; its effect is NoSchedule and it has no tolerationSeconds"
    }
]))]
pub struct ImagePlatformSpec {
    /// For which platform.
    pub platform: Platform,
    /// Labels of the nodes that build it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = 64))]
    pub node_selector: BTreeMap<String, String>,
    /// What runs the pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub runtime_class: Option<RuntimeClassRef>,
    /// Taints of nodes that do not matter.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub tolerations: Vec<Toleration>,
    /// Values for parameters of strategies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub param_values: Vec<ParamValue>,
}

/// A RuntimeClass by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RuntimeClassRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// A set of ways to build: one for each platform.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "shipwright.io",
    version = "v1alpha1",
    kind = "ImagePlatformClass",
    plural = "imageplatformclasses",
    doc = "A set of ways to build images, one for each platform.",
    status = "ImagePlatformClassStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(
        name = "Available",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Available\")].reason"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ImagePlatformClassSpec {
    /// Which; no two for the same platform.
    #[schemars(length(min = 1, max = 64))]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
    pub image_platforms: Vec<ImagePlatformRef>,
}

/// An ImagePlatform by name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ImagePlatformRef {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}

/// Whether a class can be used, and for what.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ImagePlatformClassStatus {
    /// `Available` is always among them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// What was found, in the order of the spec.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub image_platforms: Vec<FoundImagePlatform>,
}

/// An ImagePlatform of a class, and what it is for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FoundImagePlatform {
    /// Its name.
    pub name: String,
    /// For which platform.
    #[serde(flatten)]
    pub platform: Platform,
}
