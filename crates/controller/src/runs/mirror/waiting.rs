//! Why a pod does not start. A platform that no node can build is not refused: nodes may come. So
//! whoever waits must be able to read why.

use k8s_openapi::api::core::v1::PodStatus;

use super::Parts;
use super::failure::cut;
use crate::objects::{Executor, TaskRun};

/// What every pod passes through.
const USUAL: [&str; 2] = ["PodInitializing", "ContainerCreating"];

impl Parts<'_> {
    /// Everything that waits, each with the platform it is for.
    pub(super) fn waits(&self) -> Vec<String> {
        match self.seen.executor {
            Executor::Task(task) => self.wait(task).into_iter().collect(),
            Executor::Pipeline(_) => self
                .seen
                .tasks
                .iter()
                .filter_map(|task| {
                    Some(format!("{} waits: {}", self.called(task), self.wait(task)?))
                })
                .collect(),
        }
    }

    /// Why one task waits.
    pub(super) fn wait(&self, task: &TaskRun) -> Option<String> {
        if task.progress().is_over() {
            return None;
        }
        why(&self.pod(task)?.status)
    }
}

fn why(status: &PodStatus) -> Option<String> {
    if status.phase.as_deref() != Some("Pending") {
        return None;
    }
    let unscheduled = status
        .conditions
        .iter()
        .flatten()
        .find(|condition| condition.type_ == "PodScheduled" && condition.status == "False");
    if let Some(condition) = unscheduled {
        let reason = condition.reason.as_deref().unwrap_or("Unschedulable");
        let message = condition.message.as_deref().unwrap_or_default();
        return Some(cut(&format!("{reason}: {message}")));
    }
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    all.filter_map(|container| {
        let waiting = container.state.as_ref()?.waiting.as_ref()?;
        let reason = waiting.reason.as_deref().filter(|reason| !USUAL.contains(reason))?;
        let message = waiting.message.as_deref().unwrap_or_default();
        Some(cut(&format!("{} of {}: {message}", reason, container.name)))
    })
    .next()
}
