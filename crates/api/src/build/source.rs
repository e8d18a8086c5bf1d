//! Where the source of a build comes from.

use kube_core::Duration;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::duration;

/// Where the source comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Source {
    /// Which of the parts below counts.
    #[serde(rename = "type")]
    pub kind: SourceKind,
    /// The directory in it that is built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_dir: Option<String>,
    /// Of `Git`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<Git>,
    /// Of `OCI`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_artifact: Option<OciArtifact>,
    /// Of `Local`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub local: Option<Local>,
}

/// What kind of source it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum SourceKind {
    /// A repository.
    Git,
    /// An artifact in a registry.
    #[serde(rename = "OCI")]
    Oci,
    /// Sent from somebody's machine.
    Local,
}

/// A repository.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Git {
    /// Where it is.
    pub url: String,
    /// A branch, tag or commit; the default branch where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// The Secret that opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clone_secret: Option<String>,
    /// How much history: 1 where nothing is said, 0 for all of it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub depth: Option<i32>,
}

/// An artifact in a registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct OciArtifact {
    /// Where it is.
    pub image: String,
    /// Whether it is deleted after it was pulled; kept where nothing is said.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prune: Option<Prune>,
    /// The Secret that opens it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_secret: Option<String>,
}

/// Whether a source artifact is deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum Prune {
    /// It stays.
    Never,
    /// Once everybody who needs it has it.
    AfterPull,
}

/// Sent from somebody's machine.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Local {
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// How long it is waited for.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "duration::optional"
    )]
    pub timeout: Option<Duration>,
}
