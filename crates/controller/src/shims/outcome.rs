//! Why a Job failed: what its pods say in their last words, else what is said of them. Pure.

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use portolan_shim::report::Report;

/// Why a Job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether the same would fail again.
    pub(crate) permanent: bool,
}

/// What is kept of a message: it is written on nodes, and once more for each Shim.
pub(crate) const MAX_MESSAGE: usize = 300;

impl Outcome {
    fn new(reason: &str, message: &str, permanent: bool) -> Self {
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let message: String = message.chars().take(MAX_MESSAGE).map(shown).collect();
        Self { reason: reason.to_owned(), message: message.trim().to_owned(), permanent }
    }

    /// A Job that did not even fail in time.
    pub(crate) fn silent() -> Self {
        Self::new("NodeSilent", "the Job did not end within its time; is the node gone?", false)
    }
}

/// From pods, the newest first, and from what the Job itself says.
pub(crate) fn of_failed(pods: &[PodStatus], reason: &str, message: &str) -> Outcome {
    let reported = pods.iter().find_map(|pod| containers(pod).find_map(reported));
    let waiting = || pods.iter().find_map(|pod| containers(pod).find_map(waiting));
    let ended = || pods.iter().find_map(|pod| containers(pod).find_map(ended));
    reported.or_else(waiting).or_else(ended).unwrap_or_else(|| match reason {
        // Ours: an exit code that says that it is of no use to try again.
        "PodFailurePolicy" => Outcome::new("JobFailed", message, true),
        "" => Outcome::new("JobFailed", message, false),
        reason => Outcome::new(reason, message, false),
    })
}

fn containers(pod: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    // What is done first, first: the others only say that they were not reached.
    let init = pod.init_container_statuses.iter().flatten();
    init.chain(pod.container_statuses.iter().flatten())
}

fn states(container: &ContainerStatus) -> impl Iterator<Item = &ContainerState> {
    container.state.iter().chain(&container.last_state)
}

/// What the program itself says of its failure.
fn reported(container: &ContainerStatus) -> Option<Outcome> {
    states(container).filter_map(|state| state.terminated.as_ref()).find_map(|ended| {
        let report: Report = serde_json::from_str(ended.message.as_deref()?).ok()?;
        let reason = report.reason?;
        let name = serde_json::to_value(reason).ok()?;
        Some(Outcome::new(name.as_str()?, &report.message, reason.is_permanent()))
    })
}

/// Why a container could not be started.
fn waiting(container: &ContainerStatus) -> Option<Outcome> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| *reason != "PodInitializing")?;
    Some(Outcome::new(reason, waiting.message.as_deref().unwrap_or_default(), false))
}

/// A program that ended without a word.
fn ended(container: &ContainerStatus) -> Option<Outcome> {
    let ended = states(container).filter_map(|state| state.terminated.as_ref());
    let ended = ended.into_iter().find(|ended| ended.exit_code != 0)?;
    let message = format!("{} ended with {} and said nothing", container.name, ended.exit_code);
    Some(Outcome::new("JobFailed", &message, PERMANENT.contains(&ended.exit_code)))
}

/// Exit codes by which a program says that the same would fail again: the answer is no, bad input, not found.
pub(crate) const PERMANENT: [i32; 3] = [1, 2, 4];

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pods(containers: Value) -> Vec<PodStatus> {
        vec![serde_json::from_value(containers).unwrap()]
    }

    #[test]
    fn the_last_words_of_a_container_say_why_and_whether_it_would_fail_again() {
        for (reason, permanent) in
            [("DigestMismatch", true), ("RolledBack", true), ("DownloadFailed", false)]
        {
            let report = json!({"operation": "fetch", "phase": "fetch", "reason": reason, "message": "a\nb"});
            let pods = pods(json!({
                "initContainerStatuses": [{
                    "name": "downloader", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 1, "message": report.to_string()}},
                }],
                "containerStatuses": [{
                    "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"waiting": {"reason": "PodInitializing"}},
                }],
            }));
            let outcome = of_failed(&pods, "BackoffLimitExceeded", "");
            let expected = Outcome { reason: reason.into(), message: "a b".into(), permanent };
            assert_eq!(outcome, expected);
        }
    }

    #[test]
    fn without_last_words_what_the_cluster_says_is_told() {
        let one = |state: Value| {
            pods(json!({"containerStatuses": [{
                "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }]}))
        };
        for (state, reason, permanent) in [
            (json!({"waiting": {"reason": "ImagePullBackOff"}}), "ImagePullBackOff", false),
            (json!({"terminated": {"exitCode": 2, "message": "not a report"}}), "JobFailed", true),
            (json!({"terminated": {"exitCode": 255}}), "JobFailed", false),
            (json!({"running": {}}), "DeadlineExceeded", false),
        ] {
            let outcome = of_failed(&one(state.clone()), "DeadlineExceeded", "");
            assert_eq!((&*outcome.reason, outcome.permanent), (reason, permanent), "{state}");
        }
        assert!(of_failed(&[], "PodFailurePolicy", "").permanent);
        let long = of_failed(&[], "X", &"\u{1b}ä".repeat(9999));
        assert!(long.message.chars().count() <= MAX_MESSAGE && !long.message.contains('\u{1b}'));
    }
}
