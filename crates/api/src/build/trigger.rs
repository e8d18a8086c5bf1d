//! What starts a run by itself. Kept and checked here; acted on by Shipwright's Triggers.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What starts a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Trigger {
    /// Any of these.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub when: Vec<When>,
    /// The Secret that events are signed with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trigger_secret: Option<String>,
}

/// One event.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct When {
    /// What it is called.
    pub name: String,
    /// `GitHub`, `Image` or `Pipeline`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of `GitHub`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub github: Option<WhenGitHub>,
    /// Of `Image`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<WhenImage>,
    /// Of `Pipeline`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub object_ref: Option<ObjectRef>,
}

/// Something happened on GitHub.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhenGitHub {
    /// What.
    #[schemars(length(min = 1))]
    pub events: Vec<GitHubEvent>,
    /// To which branches.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub branches: Vec<String>,
}

/// What happened on GitHub.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum GitHubEvent {
    /// Somebody asks for a merge.
    PullRequest,
    /// Somebody pushed.
    Push,
}

/// An image changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhenImage {
    /// Which.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub names: Vec<String>,
}

/// A pipeline of Tekton ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ObjectRef {
    /// Which.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub status: Vec<String>,
    /// Which, by labels.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub selector: BTreeMap<String, String>,
}
