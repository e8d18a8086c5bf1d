//! The neutral form of a run: what is done, by which steps, in which pods. Renderers turn it into
//! objects of a cluster or into work on this machine.

use std::collections::BTreeMap;

use portolan_api::Duration;
use portolan_api::k8s_openapi::api::core::v1::{
    EnvVar, ResourceRequirements, SecurityContext, Toleration, Volume, VolumeMount,
};
use portolan_core::{Platform, Reference};
use serde::Serialize;

/// Everything that is done for one run.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// What the executor is called; the same every time that it is planned.
    pub name: String,
    /// Where it lives.
    pub namespace: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its annotations.
    pub annotations: BTreeMap<String, String>,
    /// The run that owns it, where that has been stored.
    pub owner: Option<Owner>,
    /// Who runs its pods.
    pub service_account: Option<String>,
    /// How long it may take.
    pub timeout: Option<Duration>,
    /// Where pods run, unless a task says otherwise.
    pub pod: Pod,
    /// The work.
    pub work: Work,
}

/// A BuildRun that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Owner {
    /// Its name.
    pub name: String,
    /// What tells it from others of that name.
    pub uid: String,
}

/// The work of a run.
#[derive(Debug, Clone, PartialEq)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub enum Work {
    /// One image, in one pod.
    Single(Task),
    /// An image for each platform and an index over them, in three phases.
    Multi(Phases),
}

/// Source, platforms, index.
#[derive(Debug, Clone, PartialEq)]
pub struct Phases {
    /// Gets the source and stores it as an artifact. An artifact that is there already, and a
    /// build without a source, need no such task.
    pub source: Option<Task>,
    /// One for each platform, in the order in which they were asked for.
    pub platforms: Vec<PlatformTask>,
    /// Puts the index together, once every platform is there.
    pub index: Task,
    /// Deletes the source artifact, whatever came before.
    pub prune: Option<Task>,
}

/// The build of one platform.
#[derive(Debug, Clone, PartialEq)]
pub struct PlatformTask {
    /// Which.
    pub platform: Platform,
    /// The ImagePlatform that says how; none where nodes of that kind are enough.
    pub image_platform: Option<String>,
    /// Where its image goes.
    pub image: Reference,
    /// Where its pod runs: everything, not only what differs.
    pub pod: Pod,
    /// What its pod does.
    pub task: Task,
}

/// Where a pod runs.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Pod {
    /// Labels of the node.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub node_selector: BTreeMap<String, String>,
    /// Taints of nodes that do not matter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tolerations: Vec<Toleration>,
    /// Who chooses the node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scheduler_name: Option<String>,
    /// What runs it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub runtime_class_name: Option<String>,
}

impl Pod {
    /// Whether nothing is said.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// What one pod does.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// What it is called.
    pub name: String,
    /// What its steps can be told, and what they are told.
    pub params: Vec<Param>,
    /// What it tells others.
    pub results: Vec<TaskResult>,
    /// What is run, one after the other.
    pub steps: Vec<Step>,
    /// What steps mount.
    pub volumes: Vec<Volume>,
    /// Whether steps share a directory with the source.
    pub workspace: bool,
}

/// A parameter and its value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// What it is where nothing is said.
    pub default: Option<Value>,
    /// What is said.
    pub value: Option<Value>,
}

impl Param {
    /// One of ours: there is always a value.
    pub(super) fn ours(name: &str, description: &str, value: Value) -> Self {
        Self {
            name: name.to_owned(),
            description: description.to_owned(),
            default: None,
            value: Some(value),
        }
    }

    /// Whether it takes a list.
    pub fn is_list(&self) -> bool {
        let told = self.value.as_ref().or(self.default.as_ref());
        matches!(told, Some(Value::List(_) | Value::Results(_)))
    }
}

/// The value of a parameter.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A text in the words of Tekton: what somebody wrote has no reference in it any more.
    Text(String),
    /// Such texts.
    List(Vec<String>),
    /// What another task says.
    Result {
        /// The task.
        task: String,
        /// Its result.
        result: String,
        /// What stands before it.
        prefix: String,
    },
    /// What other tasks say, each with what stands before it.
    Results(Vec<(String, String, String)>),
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

/// Something that a task tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TaskResult {
    /// Its name.
    pub name: String,
    /// What it says.
    pub description: String,
    /// Whether it may be left unsaid by a task that succeeds.
    #[serde(skip)]
    pub optional: bool,
}

/// One program run.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// What it is called.
    pub name: String,
    /// The image it runs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The program.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub command: Vec<String>,
    /// Its arguments.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub args: Vec<String>,
    /// Where it starts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_dir: Option<String>,
    /// Its variables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub env: Vec<EnvVar>,
    /// What it may use.
    #[serde(rename = "computeResources", skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// What is mounted for it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub volume_mounts: Vec<VolumeMount>,
    /// When its image is pulled.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// What it may do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
}
