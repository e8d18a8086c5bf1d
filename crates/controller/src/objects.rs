//! Tekton's objects and pods, with what is looked at and nothing else. A PipelineRun repeats its
//! whole pipeline in its status, and so does each TaskRun its task: read as a whole, five hundred runs
//! would fill the memory with what nobody asks.

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::PodStatus;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use portolan_api::build::ExecutorKind;
use portolan_api::condition::Status;
use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::resource::resource;

/// The group of Tekton's objects.
pub const TEKTON: &str = "tekton.dev";

resource!(TaskRun: NamespaceResourceScope, TEKTON, "taskruns");
resource!(PipelineRun: NamespaceResourceScope, TEKTON, "pipelineruns");
resource!(Pod: NamespaceResourceScope, "", "pods");

/// The work of one pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TaskRun {
    /// Which.
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: TaskRunSpec,
    /// How it goes.
    pub status: TaskRunStatus,
}

/// What was asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct TaskRunSpec {
    /// `TaskRunCancelled` ends it.
    pub status: Option<String>,
}

/// How a TaskRun goes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TaskRunStatus {
    /// One of type `Succeeded`.
    pub conditions: Vec<TektonCondition>,
    /// When it began.
    pub start_time: Option<Time>,
    /// When it ended.
    pub completion_time: Option<Time>,
    /// Its pod.
    pub pod_name: String,
    /// What its steps told.
    pub results: Vec<TektonResult>,
    /// Its steps, in their order.
    pub steps: Vec<StepState>,
}

/// The work of many pods.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PipelineRun {
    /// Which.
    pub metadata: ObjectMeta,
    /// What was asked for.
    pub spec: PipelineRunSpec,
    /// How it goes.
    pub status: PipelineRunStatus,
}

/// What was asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PipelineRunSpec {
    /// `Cancelled` or `CancelledRunFinally` ends it.
    pub status: Option<String>,
    /// What it does.
    pub pipeline_spec: PipelineSpec,
}

/// What a pipeline does.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct PipelineSpec {
    /// What is done at the end, whatever came before.
    pub finally: Vec<IgnoredAny>,
}

/// How a PipelineRun goes.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PipelineRunStatus {
    /// One of type `Succeeded`.
    pub conditions: Vec<TektonCondition>,
    /// When it began.
    pub start_time: Option<Time>,
    /// When it ended.
    pub completion_time: Option<Time>,
    /// What it told.
    pub results: Vec<TektonResult>,
}

/// A condition as Tekton has them.
#[derive(Debug, Clone, Deserialize)]
pub struct TektonCondition {
    /// What.
    #[serde(rename = "type")]
    pub kind: String,
    /// Whether it holds.
    pub status: Status,
    /// In one word.
    #[serde(default)]
    pub reason: String,
    /// In a sentence.
    #[serde(default)]
    pub message: String,
}

/// Something that was told.
#[derive(Debug, Clone, Deserialize)]
pub struct TektonResult {
    /// Its name.
    pub name: String,
    /// A text, or something that we never ask for.
    #[serde(default)]
    pub value: ResultValue,
}

/// The value of a result.
#[derive(Debug, Clone, Deserialize)]
#[serde(untagged)]
pub enum ResultValue {
    /// What ours are.
    Text(String),
    /// A list or an object.
    Other(IgnoredAny),
}

impl Default for ResultValue {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

/// How a step ended.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct StepState {
    /// Its container.
    pub container: String,
    /// When it has ended.
    pub terminated: Option<Terminated>,
    /// `Skipped` where one before it failed.
    pub termination_reason: String,
}

/// How a container ended.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Terminated {
    /// 0 is well.
    pub exit_code: i32,
    /// In a word.
    pub reason: String,
    /// What it left: results, in JSON.
    pub message: String,
}

/// A pod without what it was asked to do.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct Pod {
    /// Which.
    pub metadata: ObjectMeta,
    /// How it goes.
    pub status: PodStatus,
}

/// What does the work of a run.
#[derive(Debug, Clone)]
pub enum Executor {
    /// One pod.
    Task(TaskRun),
    /// Many.
    Pipeline(PipelineRun),
}

/// `Succeeded` of Tekton, with the times.
#[derive(Debug, Clone, Copy)]
pub struct Progress<'a> {
    /// Before Tekton has looked, none.
    pub condition: Option<&'a TektonCondition>,
    /// When it began.
    pub start: Option<&'a Time>,
    /// When it ended.
    pub end: Option<&'a Time>,
    /// What it told.
    pub results: &'a [TektonResult],
}

impl Executor {
    /// Which object.
    pub fn metadata(&self) -> &ObjectMeta {
        match self {
            Self::Task(run) => &run.metadata,
            Self::Pipeline(run) => &run.metadata,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> ExecutorKind {
        match self {
            Self::Task(_) => ExecutorKind::TaskRun,
            Self::Pipeline(_) => ExecutorKind::PipelineRun,
        }
    }

    /// How far it is.
    pub fn progress(&self) -> Progress<'_> {
        match self {
            Self::Task(run) => run.progress(),
            Self::Pipeline(PipelineRun { status, .. }) => Progress {
                condition: succeeded(&status.conditions),
                start: status.start_time.as_ref(),
                end: status.completion_time.as_ref(),
                results: &status.results,
            },
        }
    }
}

impl TaskRun {
    /// How far it is.
    pub fn progress(&self) -> Progress<'_> {
        let status = &self.status;
        Progress {
            condition: succeeded(&status.conditions),
            start: status.start_time.as_ref(),
            end: status.completion_time.as_ref(),
            results: &status.results,
        }
    }
}

impl<'a> Progress<'a> {
    /// Whether nothing more will come of it.
    pub fn is_over(&self) -> bool {
        self.condition.is_some_and(|condition| condition.status != Status::Unknown)
    }

    /// What was told under a name; an empty text is nothing.
    pub fn result(&self, name: &str) -> Option<&'a str> {
        self.results.iter().find_map(|result| match &result.value {
            ResultValue::Text(text) if result.name == name => {
                Some(text.trim()).filter(|text| !text.is_empty())
            }
            _ => None,
        })
    }
}

fn succeeded(conditions: &[TektonCondition]) -> Option<&TektonCondition> {
    conditions.iter().find(|condition| condition.kind == "Succeeded")
}

/// Whether an object belongs to the BuildRun with this UID. Names can be taken by others.
pub fn is_owned(metadata: &ObjectMeta, uid: &str) -> bool {
    metadata.owner_references.iter().flatten().any(|owner| owner.uid == uid)
}

/// The value of a label.
pub fn label<'a>(metadata: &'a ObjectMeta, key: &str) -> Option<&'a str> {
    metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Takes out what nobody here looks at, before it is kept.
pub fn strip(metadata: &mut ObjectMeta) {
    metadata.managed_fields = None;
    if let Some(annotations) = &mut metadata.annotations {
        annotations.remove(portolan_api::keys::LAST_APPLIED);
    }
}
