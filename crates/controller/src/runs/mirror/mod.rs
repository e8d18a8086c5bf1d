//! How a run goes, from how its executor goes. Pure: the same objects give the same status.
//!
//! | file | what it holds |
//! |---|---|
//! | `verdict` | the condition: Tekton's word in ours |
//! | `failure` | which container failed, and how |
//! | `waiting` | why a pod does not start |
//! | `output` | digests, sizes, a row for each platform, what was built |

mod failure;
mod output;
#[cfg(test)]
mod tests;
mod verdict;
mod waiting;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::build::{
    BuildRun, BuildRunState, BuildRunStatus, Executor as ExecutorName, ExecutorKind, SUCCEEDED,
};
use portolan_api::condition::{Condition, Status};
use portolan_api::keys;
use portolan_build::plan;

use crate::objects::{Executor, Pod, TaskRun, label};

/// What there is of a run in the cluster.
#[derive(Debug)]
pub struct Seen<'a> {
    /// What does the work.
    pub executor: &'a Executor,
    /// The TaskRuns of a pipeline.
    pub tasks: &'a [Arc<TaskRun>],
    /// Their pods.
    pub pods: &'a [Arc<Pod>],
}

/// The status of a run whose executor is there. A run that has ended keeps the status it ended
/// with.
pub fn mirror(run: &BuildRun, seen: &Seen<'_>, now: &Time) -> BuildRunStatus {
    let mut status = run.status.clone().unwrap_or_default();
    if status.completion_time.is_some() {
        return status;
    }
    let rows = match &status.build_spec {
        Some(spec) => plan::rows(spec, &run.spec),
        None => Vec::new(),
    };
    let parts = Parts { run, seen, rows: &rows };
    let verdict = parts.verdict();
    let progress = seen.executor.progress();
    named(&mut status, seen.executor);
    status.start_time = progress.start.cloned().or(status.start_time);
    if verdict.status != Status::Unknown {
        status.completion_time = Some(progress.end.unwrap_or(now).clone());
    }
    status.output = parts.output(&verdict);
    status.source = parts.source();
    status.failure_details = verdict.failure;
    set_condition(&mut status, verdict.status, &verdict.reason, verdict.message, now);
    status
}

/// Says which object does the work.
pub fn named(status: &mut BuildRunStatus, executor: &Executor) {
    let name = executor.metadata().name.clone().unwrap_or_default();
    let kind = executor.kind();
    status.task_run_name = (kind == ExecutorKind::TaskRun).then(|| name.clone());
    status.executor = Some(ExecutorName { name, kind });
}

/// The one condition of a run. Its time is that of the last change of its status.
pub fn set_condition(
    status: &mut BuildRunStatus,
    holds: Status,
    reason: &str,
    message: String,
    now: &Time,
) {
    let new = Condition {
        kind: SUCCEEDED.to_owned(),
        status: holds,
        reason: reason.to_owned(),
        message,
        last_transition_time: None,
        observed_generation: None,
    };
    let new = new.since(&status.conditions, now);
    status.conditions.retain(|condition| condition.kind != SUCCEEDED);
    status.conditions.push(new);
}

/// Whether somebody wants the run to end.
pub fn is_canceled(run: &BuildRun) -> bool {
    run.spec.state == Some(BuildRunState::BuildRunCanceled)
}

/// A run with all that belongs to it.
struct Parts<'a> {
    run: &'a BuildRun,
    seen: &'a Seen<'a>,
    rows: &'a [plan::Row],
}

impl<'a> Parts<'a> {
    fn namespace(&self) -> &'a str {
        self.run.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The TaskRun of one task of the pipeline.
    fn task(&self, name: &str) -> Option<&'a TaskRun> {
        let is_it =
            |task: &&Arc<TaskRun>| label(&task.metadata, keys::TEKTON_PIPELINE_TASK) == Some(name);
        self.seen.tasks.iter().find(is_it).map(Arc::as_ref)
    }

    fn pod(&self, task: &TaskRun) -> Option<&'a Pod> {
        let name = &task.status.pod_name;
        let of_task = |pod: &&Arc<Pod>| match name.as_str() {
            "" => label(&pod.metadata, keys::TEKTON_TASK_RUN) == task.metadata.name.as_deref(),
            name => pod.metadata.name.as_deref() == Some(name),
        };
        self.seen.pods.iter().find(of_task).map(Arc::as_ref)
    }

    /// What people call a task of the pipeline.
    fn called(&self, task: &TaskRun) -> String {
        let name = label(&task.metadata, keys::TEKTON_PIPELINE_TASK).unwrap_or_default();
        match self.rows.iter().find(|row| row.task == name) {
            Some(row) => row.platform.to_string(),
            None => name.to_owned(),
        }
    }
}
