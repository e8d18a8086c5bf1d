//! How a run goes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::BuildSpec;
use crate::condition::Condition;

/// The condition that a run always ends with.
pub const SUCCEEDED: &str = "Succeeded";

/// How a run goes.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BuildRunStatus {
    /// One of type `Succeeded`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Vec<Condition>,
    /// When it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    /// When it ended; nothing changes afterwards.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_time: Option<Time>,
    /// What is run, as it was when it began.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_spec: Option<Box<BuildSpec>>,
    /// What does the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub executor: Option<Executor>,
    /// The same where it is a TaskRun, for those who still read it here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run_name: Option<String>,
    /// What was built.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceStatus>,
    /// What came out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<OutputStatus>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure_details: Option<Failure>,
}

/// What does the work of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Executor {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: ExecutorKind,
}

/// What kind of object does the work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ExecutorKind {
    /// One pod.
    TaskRun,
    /// A pod for each part.
    PipelineRun,
    /// This machine, without a cluster.
    Local,
}

/// What was built.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SourceStatus {
    /// Of a repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git: Option<GitResult>,
    /// Of an artifact: the one given, or the one that the source was packed into.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oci_artifact: Option<OciArtifactResult>,
    /// When it was last changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timestamp: Option<Time>,
}

/// What was cloned.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GitResult {
    /// The commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_sha: Option<String>,
    /// Who made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit_author: Option<String>,
    /// The branch, where none was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch_name: Option<String>,
}

/// What was pulled.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OciArtifactResult {
    /// Its digest.
    pub digest: String,
}

/// What came out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct OutputStatus {
    /// Of the image, or of the index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Configuration and layers as they are stored; of an index nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Known weaknesses in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vulnerabilities: Vec<Vulnerability>,
    /// A row for each platform, in the order in which they were asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub platforms: Vec<PlatformStatus>,
}

/// How one platform goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct PlatformStatus {
    /// Operating system.
    pub os: String,
    /// Architecture.
    pub arch: String,
    /// Its variant, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// The ImagePlatform that said how.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_platform: Option<String>,
    /// Where this platform's image goes.
    pub image: String,
    /// Of this platform's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Configuration and layers as they are stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<i64>,
    /// Known weaknesses in it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vulnerabilities: Vec<Vulnerability>,
    /// How far it is.
    pub state: PlatformState,
    /// The TaskRun that builds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_run: Option<String>,
    /// What went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<Failure>,
}

/// How far a platform is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum PlatformState {
    /// It waits.
    Pending,
    /// It is being built.
    Running,
    /// Its image is in the registry.
    Succeeded,
    /// It has none.
    Failed,
    /// Somebody stopped it.
    Canceled,
}

/// A known weakness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Vulnerability {
    /// What it is called.
    pub id: String,
    /// How bad it is.
    pub severity: String,
}

/// What went wrong.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Failure {
    /// In one word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// In a sentence.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// Where.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub location: Option<FailureLocation>,
}

/// Where something went wrong.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct FailureLocation {
    /// The pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<String>,
    /// The container in it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}
