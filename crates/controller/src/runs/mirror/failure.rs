//! Which container of a task failed, and how.

use k8s_openapi::api::core::v1::{ContainerStateTerminated, ContainerStatus, PodStatus};
use portolan_api::build::{Failure, FailureLocation};
use portolan_api::reason::outcome;
use serde::Deserialize;

use super::Parts;
use super::verdict::is_explained_by_pod;
use crate::objects::{Pod, TaskRun};

/// The step that pushes and scans, and what it ends with when a scan found something.
const PROCESSING: &str = "step-image-processing";
const FOUND: i32 = 22;
/// Of what a step says of itself.
const MAX_TOLD: usize = 1024;

/// Why a task failed.
#[derive(Debug)]
pub(super) struct Failed {
    pub(super) reason: &'static str,
    pub(super) message: String,
    pub(super) details: Failure,
}

impl Parts<'_> {
    pub(super) fn why(&self, task: &TaskRun) -> Failed {
        let (reason, message, location) = match is_explained_by_pod(task) {
            true => self.by_pod(task),
            false => (outcome::FAILED, told_by_tekton(task), FailureLocation::default()),
        };
        let (word, sentence) = told_by_steps(task);
        let location = (location != FailureLocation::default()).then_some(location);
        Failed { reason, message, details: Failure { reason: word, message: sentence, location } }
    }

    fn by_pod(&self, task: &TaskRun) -> (&'static str, String, FailureLocation) {
        let namespace = self.namespace();
        let name = task.status.pod_name.as_str();
        if name.is_empty() {
            return (outcome::FAILED, told_by_tekton(task), FailureLocation::default());
        }
        let mut location = FailureLocation { pod: Some(name.to_owned()), container: None };
        let Some(pod) = self.pod(task) else {
            let message = format!("buildrun failed, pod {namespace}/{name} not found");
            return (outcome::FAILED, message, location);
        };
        if pod.status.reason.as_deref() == Some("Evicted") {
            let told = pod.status.message.as_deref().unwrap_or("the pod was evicted");
            return (outcome::POD_EVICTED, cut(told), location);
        }
        let logs = |what: &str| {
            format!("for detailed information: kubectl --namespace {namespace} logs {name} {what}")
        };
        let Some((container, ended)) = first_failed(task, pod) else {
            let message = format!(
                "buildrun failed due to an unexpected error in pod, {}",
                logs("--all-containers")
            );
            return (outcome::FAILED, message, location);
        };
        location.container = Some(container.to_owned());
        let see = logs(&format!("--container={container}"));
        let (reason, message) = if ended.reason.as_deref() == Some("OOMKilled") {
            (
                outcome::OUT_OF_MEMORY,
                format!("buildrun step {container} failed due to out-of-memory, {see}"),
            )
        } else if container == PROCESSING && ended.exit_code == FOUND {
            (outcome::VULNERABILITIES, format!("known weaknesses were found in the image, {see}"))
        } else {
            (outcome::FAILED, format!("buildrun step {container} failed, {see}"))
        };
        (reason, message, location)
    }
}

fn told_by_tekton(task: &TaskRun) -> String {
    task.progress().condition.map(|condition| cut(&condition.message)).unwrap_or_default()
}

/// The container that failed of itself. Those after it end badly too, because Tekton skips them, and
/// kubelets tell containers in no order of steps: Tekton knows the order.
fn first_failed<'a>(
    task: &'a TaskRun,
    pod: &'a Pod,
) -> Option<(&'a str, &'a ContainerStateTerminated)> {
    let by_step = task
        .status
        .steps
        .iter()
        .filter(|step| step.termination_reason != "Skipped")
        .filter(|step| step.terminated.as_ref().is_some_and(|ended| ended.exit_code != 0))
        .find_map(|step| ended_badly(&pod.status).find(|(name, _)| *name == step.container));
    by_step.or_else(|| {
        ended_badly(&pod.status)
            .min_by_key(|(name, ended)| (ended.finished_at.as_ref().map(|time| time.0), *name))
    })
}

fn ended_badly(status: &PodStatus) -> impl Iterator<Item = (&str, &ContainerStateTerminated)> {
    let init = status.init_container_statuses.iter().flatten();
    let all = init.chain(status.container_statuses.iter().flatten());
    all.filter_map(|one: &ContainerStatus| {
        let ended = one.state.as_ref()?.terminated.as_ref()?;
        (ended.exit_code != 0).then_some((one.name.as_str(), ended))
    })
}

/// A result in the last words of a container.
#[derive(Deserialize)]
struct Told {
    key: String,
    value: serde_json::Value,
}

/// Reason and message that a step gave: from Tekton's results, or from what the failed step left.
fn told_by_steps(task: &TaskRun) -> (Option<String>, Option<String>) {
    let left: Vec<Told> = task
        .status
        .steps
        .iter()
        .filter_map(|step| step.terminated.as_ref())
        .filter(|ended| ended.exit_code != 0)
        .filter_map(|ended| serde_json::from_str::<Vec<Told>>(&ended.message).ok())
        .flatten()
        .collect();
    let find = |name: &str| {
        let left = left.iter().find(|told| told.key == name).and_then(|told| told.value.as_str());
        let told = left.filter(|text| !text.is_empty()).or_else(|| task.progress().result(name));
        told.map(cut)
    };
    (find("shp-error-reason"), find("shp-error-message"))
}

/// Others' words, within bounds.
pub(super) fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TOLD) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}
