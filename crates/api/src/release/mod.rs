//! portolan.dev/v1alpha1: Release, the record of what an image was when it was resolved and verified.
//!
//! Agents run digests alone, and somebody has to say which: a Release does, once, where everybody can look it up.

mod keys;
mod status;

use kube_derive::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use keys::*;
pub use status::*;

/// The group of the resource.
pub const GROUP: &str = "portolan.dev";

/// The key of a ConfigMap that holds a policy.
pub const POLICY_KEY: &str = "policy.yaml";

/// A rule over the whole object, which the types of specs cannot speak of: a status is needed for it. A spec whose
/// image is Ready stays as it is; one that follows its tag says so before.
pub(crate) const UNCHANGING: &str = "!has(oldSelf.status) || !has(oldSelf.status.conditions) || !oldSelf.status.conditions.exists(c, c.type == 'Ready' && c.status == 'True') || (has(oldSelf.spec.track) && oldSelf.spec.track) || self.spec == oldSelf.spec";
/// What is said to who breaks it.
pub(crate) const UNCHANGING_MESSAGE: &str =
    "a Release that is Ready does not change: make a new one, or one with track: true";

/// What is released, and what has to hold of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema, CustomResource)]
#[kube(
    group = "portolan.dev",
    version = "v1alpha1",
    kind = "Release",
    namespaced,
    doc = "An image, resolved once, with who signed it and what each platform runs.",
    status = "ReleaseStatus",
    derive = "PartialEq",
    crates(kube_core = "::kube_core"),
    printcolumn(name = "Image", type_ = "string", json_path = ".spec.image"),
    printcolumn(
        name = "Verified",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Verified\")].status"
    ),
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status"
    ),
    printcolumn(
        name = "Reason",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].reason"
    ),
    printcolumn(name = "Digest", type_ = "string", json_path = ".status.digest", priority = 1),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp")
)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseSpec {
    /// What is released: registry/repository[:tag][@digest]. A tag is resolved once.
    #[schemars(length(min = 1, max = 1024))]
    pub image: String,
    /// What it is released for, such as linux/arm64; all that the image has where nothing is said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 64), inner(length(min = 1, max = 128)))]
    pub platforms: Vec<String>,
    /// Who must have signed it. Without one nobody looks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicySource>,
    /// Secrets of the namespace with logins for the registry.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub pull_secrets: Vec<SecretName>,
    /// Whether the tag is followed when it moves. What was before is then in the history.
    #[serde(default)]
    pub track: bool,
    /// Whether it is Ready only when it is verified.
    #[serde(default = "yes")]
    pub require_verification: bool,
}

fn yes() -> bool {
    true
}

impl ReleaseSpec {
    /// An image, with what holds where nothing else is said.
    pub fn new(image: impl Into<String>) -> Self {
        Self {
            image: image.into(),
            platforms: Vec::new(),
            policy: None,
            pull_secrets: Vec::new(),
            track: false,
            require_verification: true,
        }
    }
}

/// Where a policy is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicySource {
    /// A ConfigMap of the namespace: policy.yaml, and beside it the keys and roots that it names.
    #[schemars(length(min = 1, max = 253))]
    pub config_map: String,
}

/// A Secret of the namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SecretName {
    /// Its name.
    #[schemars(length(min = 1, max = 253))]
    pub name: String,
}
