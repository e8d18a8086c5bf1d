//! What an image was when it was resolved and verified.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::condition::Condition;

/// It is known which images these are.
pub const RESOLVED: &str = "Resolved";
/// The policy lets them in.
pub const VERIFIED: &str = "Verified";
/// They may be run.
pub const READY: &str = "Ready";

/// So many platforms are recorded.
pub const MAX_RESOLVED: usize = 128;
/// So many signers of one image are told.
pub const MAX_SIGNERS: usize = 16;
/// So many of those before are kept.
pub const MAX_HISTORY: usize = 10;

/// What an image was when it was resolved and verified.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleaseStatus {
    /// The generation that all of this is about.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Resolved`, `Verified`, `Ready`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(
        length(max = 8),
        extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"])
    )]
    pub conditions: Vec<Condition>,
    /// What was resolved, as the spec had it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// Where it is: registry/repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repository: Option<String>,
    /// What the image named at that moment: the index, or the one image where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// The same where it is an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_digest: Option<String>,
    /// When it was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Time>,
    /// By which policy it was verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<PolicyRecord>,
    /// Who signed what `digest` names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub verified_by: Vec<Signer>,
    /// What each platform runs, in the order of the index.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub resolved: Vec<ResolvedImage>,
    /// Of a Release that follows its tag: where that is by now, and why it is not followed there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate: Option<Candidate>,
    /// Of a Release that follows its tag: what it was before, the latest first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 10))]
    pub history: Vec<Past>,
}

/// What one platform runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ResolvedImage {
    /// What it runs on: os/architecture[/variant].
    pub platform: String,
    /// The manifest.
    pub digest: String,
    /// Configuration and layers as they are stored, in bytes.
    pub size: i64,
    /// Who signed this very image.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 16))]
    pub verified_by: Vec<Signer>,
    /// What says what it needs of its host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compatibility: Option<CompatibilityRecord>,
}

/// Who signed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signer {
    /// As the policy calls them.
    pub name: String,
    /// The key or identity it was made with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Who vouches for that identity.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
}

/// The policy that an image was held to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PolicyRecord {
    /// The ConfigMap, or the file.
    pub name: String,
    /// Of the policy with every key and root that it names: another digest is another policy.
    pub digest: String,
    /// The rule of it that decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rule: Option<String>,
}

/// The artifact that says what an image needs of its host.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompatibilityRecord {
    /// The artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// What it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// Why it cannot be used, where it cannot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// Where a tag is by now, and why it is not followed there.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// What the tag names; nothing where it names nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// One word.
    pub reason: String,
    /// A sentence for people.
    pub message: String,
    /// Since when.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Time>,
}

/// What a Release was before its tag moved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Past {
    /// As the spec had it.
    pub image: String,
    /// What it named.
    pub digest: String,
    /// When it was resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_at: Option<Time>,
    /// When another took its place, or it was no longer Ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaced_at: Option<Time>,
    /// What each platform ran.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 128))]
    pub resolved: Vec<PastImage>,
}

/// What one platform ran.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PastImage {
    /// What it runs on.
    pub platform: String,
    /// The manifest.
    pub digest: String,
}
