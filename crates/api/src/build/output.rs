//! Where the image goes, and for which platforms.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::platform::Platform;

/// Where the image of a Build goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.multiArch) && has(self.platforms))",
    "message": "multiArch and platforms exclude each other: platforms is multiArch without a class"
}]))]
pub struct Output {
    /// What is pushed: `registry/repository[:tag]`.
    pub image: String,
    /// The rest.
    #[serde(flatten)]
    pub settings: OutputSettings,
}

/// What one run says in place of the Build.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "!(has(self.multiArch) && has(self.platforms))",
    "message": "multiArch and platforms exclude each other: platforms is multiArch without a class"
}]))]
pub struct OutputOverride {
    /// What is pushed; as the Build says where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The rest.
    #[serde(flatten)]
    pub settings: OutputSettings,
}

/// All of an output but its name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OutputSettings {
    /// Whether plain HTTP and unknown certificates are fine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub insecure: Option<bool>,
    /// The Secret that opens the registry.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub push_secret: Option<String>,
    /// Annotations of the manifest, and of the index.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
    /// Labels in the image's configuration.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// `Zero`, `SourceTimestamp`, `BuildTimestamp` or seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<String>,
    /// Whether the image is searched for known weaknesses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vulnerability_scan: Option<VulnerabilityScan>,
    /// One image for many platforms, as a class says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_arch: Option<MultiArch>,
    /// One image for many platforms, each built on nodes of its own kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64))]
    pub platforms: Vec<Platform>,
}

/// One image for many platforms.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MultiArch {
    /// The ImagePlatformClass that says how each is built.
    #[schemars(length(min = 1, max = 253))]
    pub image_platform_class: String,
    /// Which.
    #[schemars(length(min = 1, max = 64))]
    pub platforms: Vec<Platform>,
}

/// A search for known weaknesses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct VulnerabilityScan {
    /// Whether it is made.
    #[serde(default)]
    pub enabled: bool,
    /// Whether a finding ends the build.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fail_on_finding: Option<bool>,
    /// What does not count.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ignore: Option<IgnoredVulnerabilities>,
}

/// Findings that do not count.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IgnoredVulnerabilities {
    /// By name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub id: Vec<String>,
    /// This bad or less.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub severity: Option<Severity>,
    /// Those that nobody has mended yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unfixed: Option<bool>,
}

/// How bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Little.
    Low,
    /// Some.
    Medium,
    /// Much.
    High,
}
