//! Tekton's word on a run in ours.

use portolan_api::build::Failure;
use portolan_api::condition::Status;
use portolan_api::reason::outcome;

use super::{Parts, is_canceled};
use crate::objects::{Executor, TaskRun, TektonCondition};

/// Reasons of a TaskRun that its pod explains better.
const BY_POD: [&str; 4] = ["Failed", "StepFailed", "StepOOM", "PodEvicted"];
/// Reasons of a PipelineRun that somebody stopped.
const STOPPED: [&str; 5] = [
    "Cancelled",
    "CancelledRunningFinally",
    "CancelledRunFinally",
    "PipelineRunCancelled",
    "StoppedRunningFinally",
];

/// What the condition says, and what went wrong.
#[derive(Debug)]
pub(super) struct Verdict {
    pub(super) status: Status,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) failure: Option<Failure>,
}

impl Verdict {
    fn new(status: Status, reason: &str, message: impl Into<String>) -> Self {
        let (reason, message) = (reason.to_owned(), message.into());
        Self { status, reason, message, failure: None }
    }
}

impl Parts<'_> {
    pub(super) fn verdict(&self) -> Verdict {
        let progress = self.seen.executor.progress();
        let Some(condition) = progress.condition else {
            return self.under_way(outcome::PENDING, "Tekton has not looked at it yet");
        };
        match condition.status {
            Status::Unknown => self.under_way(&condition.reason, &condition.message),
            Status::True => self.succeeded(condition),
            Status::False => self.failed(condition),
        }
    }

    fn under_way(&self, reason: &str, message: &str) -> Verdict {
        if is_canceled(self.run) {
            return Verdict::new(
                Status::Unknown,
                outcome::CANCELED,
                "the BuildRun is to end; Tekton has not ended it yet",
            );
        }
        let mut message = message.to_owned();
        for wait in self.waits().into_iter().filter(|wait| !wait.is_empty()) {
            if !message.contains(&wait) {
                message = if message.is_empty() { wait } else { format!("{message}; {wait}") };
            }
        }
        Verdict::new(Status::Unknown, reason, message)
    }

    /// Whatever Tekton calls it: nothing of our pipelines may be left out.
    fn succeeded(&self, condition: &TektonCondition) -> Verdict {
        let message = match is_canceled(self.run) {
            true => "the BuildRun succeeded before it could be canceled".to_owned(),
            false => condition.message.clone(),
        };
        Verdict::new(Status::True, outcome::SUCCEEDED, message)
    }

    fn failed(&self, condition: &TektonCondition) -> Verdict {
        let TektonCondition { reason, message, .. } = condition;
        let passed = || Verdict::new(Status::False, reason, message.clone());
        match (self.seen.executor, reason.as_str()) {
            (Executor::Task(_), "TaskRunCancelled") if is_canceled(self.run) => {
                let text = "The BuildRun and underlying TaskRun were canceled successfully.";
                Verdict::new(Status::False, outcome::CANCELED, text)
            }
            (Executor::Pipeline(_), stopped) if STOPPED.contains(&stopped) => {
                match is_canceled(self.run) {
                    true => Verdict::new(
                        Status::False,
                        outcome::CANCELED,
                        "The BuildRun and underlying PipelineRun were canceled successfully.",
                    ),
                    false => passed(),
                }
            }
            (_, "TaskRunTimeout" | "PipelineRunTimeout") => self.timed_out(),
            (Executor::Task(task), reason) if BY_POD.contains(&reason) => {
                let failed = self.why(task);
                Verdict {
                    status: Status::False,
                    reason: failed.reason.to_owned(),
                    message: failed.message,
                    failure: Some(failed.details),
                }
            }
            (Executor::Pipeline(_), "Failed") => self.tasks_failed(message),
            _ => passed(),
        }
    }

    fn timed_out(&self) -> Verdict {
        let name = self.run.metadata.name.as_deref().unwrap_or_default();
        let asked = self.run.spec.timeout;
        let built = self.run.status.as_ref().and_then(|status| status.build_spec.as_ref());
        let message = match asked.or_else(|| built.and_then(|spec| spec.timeout)) {
            Some(limit) => {
                let limit = portolan_build::plan::duration(limit);
                format!("BuildRun {name} failed to finish within {limit}")
            }
            None => format!("BuildRun {name} failed to finish within the time that Tekton gives"),
        };
        Verdict::new(Status::False, outcome::TIMEOUT, message)
    }

    /// Every task that failed is named; the first gives the reason.
    fn tasks_failed(&self, told: &str) -> Verdict {
        let mut failed: Vec<&TaskRun> =
            self.seen.tasks.iter().map(AsRef::as_ref).filter(|task| has_failed(task)).collect();
        // In the order in which they failed, so that the cause comes first.
        failed.sort_by_key(|task| {
            let end = task.status.completion_time.as_ref().map(|time| time.0);
            (end, task.metadata.name.clone())
        });
        let Some(first) = failed.first() else {
            return Verdict::new(Status::False, outcome::FAILED, told);
        };
        let message: Vec<String> = failed
            .iter()
            .map(|task| format!("{}: {}", self.called(task), self.why(task).message))
            .collect();
        let first = self.why(first);
        Verdict {
            status: Status::False,
            reason: first.reason.to_owned(),
            message: message.join("; "),
            failure: Some(first.details),
        }
    }
}

/// Whether a task ended badly by itself. One that was stopped because another failed did not.
pub(super) fn has_failed(task: &TaskRun) -> bool {
    task.progress().condition.is_some_and(|condition| {
        condition.status == Status::False && condition.reason != "TaskRunCancelled"
    })
}

/// Whether a pod tells better than Tekton why a task failed.
pub(super) fn is_explained_by_pod(task: &TaskRun) -> bool {
    task.progress().condition.is_some_and(|condition| BY_POD.contains(&condition.reason.as_str()))
}
