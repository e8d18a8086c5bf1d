//! Why a Job failed: what its pods say in their last words, else what is said of them. Pure.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{ContainerState, ContainerStatus, PodStatus};
use portolan_shim::report::{Part, Phase, Reason, Report};

use super::facts::Failure;

/// Why a Job failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Outcome {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// Whether the same would fail again.
    pub(crate) permanent: bool,
    /// Whether the node is known to be as before: it was refused before anything was put there.
    pub(crate) untouched: bool,
    /// Whether a program that ran there says so, by its last words or its exit code.
    pub(crate) said: bool,
}

/// What a Job that failed came to, for each of its Shims.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Verdict {
    /// For those that nothing else is said of.
    pub(crate) all: Outcome,
    /// By Shim; nothing where all went well with it.
    pub(crate) parts: BTreeMap<String, Option<Outcome>>,
}

impl Verdict {
    /// Why it failed for a Shim; nothing where it did not. What several failed by together may be the fault of one
    /// of them, so each is tried again, alone.
    pub(crate) fn of(&self, shim: &str, shared: bool) -> Option<Outcome> {
        let all = || Outcome { permanent: self.all.permanent && !shared, ..self.all.clone() };
        self.parts.get(shim).cloned().unwrap_or_else(|| Some(all()))
    }
}

impl From<Outcome> for Verdict {
    fn from(all: Outcome) -> Self {
        Self { all, parts: BTreeMap::new() }
    }
}

/// What is kept of a message: it is written on nodes, and once more for each Shim.
pub(crate) const MAX_MESSAGE: usize = 300;

impl Outcome {
    fn new(reason: &str, message: &str, permanent: bool) -> Self {
        let shown = |c: char| if c.is_control() { ' ' } else { c };
        let message: String = message.chars().take(MAX_MESSAGE).map(shown).collect();
        let message = message.trim().to_owned();
        Self { reason: reason.to_owned(), message, permanent, untouched: false, said: permanent }
    }

    /// A Job that did not even fail in time.
    pub(crate) fn silent() -> Self {
        Self::new("NodeSilent", "the Job did not end within its time; is the node gone?", false)
    }
}

/// From pods, the newest first, and from what the Job itself says.
pub(crate) fn of_failed(pods: &[PodStatus], failure: &Failure) -> Verdict {
    let Failure { reason, message, pods: failed } = failure;
    let reported = pods.iter().find_map(|pod| containers(pod).find_map(reported));
    let waiting = || pods.iter().find_map(|pod| containers(pod).find_map(waiting));
    let ended = || pods.iter().find_map(|pod| containers(pod).find_map(ended));
    let unsaid = || match reason.as_str() {
        // Ours, and the message has the exit code, which is all that is left of its pod.
        "PodFailurePolicy" => {
            let permanent = exit_code(message).is_none_or(|code| SILENTLY.contains(&code));
            Outcome::new("JobFailed", message, permanent)
        }
        "" => Outcome::new("JobFailed", message, false),
        reason => Outcome::new(reason, message, false),
    };
    let mut verdict =
        reported.unwrap_or_else(|| waiting().or_else(ended).unwrap_or_else(unsaid).into());
    // Whose time is over has its pods deleted before it has failed, and who is driven away may be deleted by whoever does that:
    // those that are left are not all that ran.
    let whole = reason != "DeadlineExceeded" && pods.len() >= *failed;
    verdict.all.untouched = whole && spared(pods, None);
    for (shim, part) in &mut verdict.parts {
        part.iter_mut().for_each(|part| part.untouched = whole && spared(pods, Some(shim)));
    }
    verdict
}

/// Whether no pod did anything on the node, for this Shim or at all: its provisioner never ran, or says itself that it came
/// no further than to a refusal. One that ended without a word may have done anything, also where a later one is refused.
fn spared(pods: &[PodStatus], shim: Option<&str>) -> bool {
    let refused = |report: &Report| {
        let own = report.parts.iter().find(|part| Some(&*part.name) == shim);
        let early = report.phase < Phase::Place || report.as_before;
        early || own.is_some_and(|own| own.reason.is_some() && !own.together)
    };
    let idle = |state: &ContainerState| match (&state.running, &state.terminated) {
        (None, None) => true,
        (None, Some(ended)) => ended.message.as_deref().and_then(read).is_some_and(|r| refused(&r)),
        (Some(_), _) => false,
    };
    let spared = |pod: &PodStatus| {
        // Who is driven away may lose what was said of its containers.
        let all = pod.container_statuses.as_deref().unwrap_or_default();
        !all.is_empty() && all.iter().flat_map(states).all(idle)
    };
    !pods.is_empty() && pods.iter().all(spared)
}

fn read(message: &str) -> Option<Report> {
    serde_json::from_str(message).ok()
}

fn containers(pod: &PodStatus) -> impl Iterator<Item = &ContainerStatus> {
    // What is done first, first: the others only say that they were not reached.
    let init = pod.init_container_statuses.iter().flatten();
    init.chain(pod.container_statuses.iter().flatten())
}

fn states(container: &ContainerStatus) -> impl Iterator<Item = &ContainerState> {
    container.state.iter().chain(&container.last_state)
}

/// What the program itself says of its failure. One that ended well speaks of no failure of the Job: it left what it
/// refused to the next.
fn reported(container: &ContainerStatus) -> Option<Verdict> {
    let ended = states(container).filter_map(|state| state.terminated.as_ref());
    ended.filter(|ended| ended.exit_code != 0).find_map(|ended| {
        let report = read(ended.message.as_deref()?)?;
        let all = said(report.reason?, &report.message, report.phase < Phase::Place);
        // What is refused for one alone is refused before anything is put on the node.
        let own = |part: &Part| part.reason.map(|reason| said(reason, &part.message, true));
        // What a part failed by together with others is what all of it failed by.
        let told = report.parts.iter().filter(|part| !part.together);
        let parts = told.map(|part| (part.name.clone(), own(part))).collect();
        Some(Verdict { all, parts })
    })
}

fn said(reason: Reason, message: &str, early: bool) -> Outcome {
    let name = serde_json::to_value(reason).ok();
    let name = name.as_ref().and_then(|name| name.as_str()).unwrap_or("JobFailed");
    // What a server or a proxy refuses may be allowed in the ConfigMap for downloads, or by whoever keeps them; what is wrong with
    // a node may be put right there, and a handler is free when the Shim that has it goes. Nobody here hears of that, and
    // another try touches no node.
    let elsewhere = match reason {
        Reason::NotDownloadable => true,
        Reason::ConfigRefused | Reason::NodeNotSupported => early,
        _ => false,
    };
    let permanent = reason.is_permanent() && !elsewhere;
    Outcome { said: true, ..Outcome::new(name, message, permanent) }
}

/// Why a container could not be started.
fn waiting(container: &ContainerStatus) -> Option<Outcome> {
    let waiting = container.state.as_ref()?.waiting.as_ref()?;
    let reason = waiting.reason.as_deref().filter(|reason| *reason != "PodInitializing")?;
    Some(Outcome::new(reason, waiting.message.as_deref().unwrap_or_default(), false))
}

/// A program that ended without a report. What a kubelet has of it then are the last lines of its log.
fn ended(container: &ContainerStatus) -> Option<Outcome> {
    let ended = states(container).filter_map(|state| state.terminated.as_ref());
    let ended = ended.into_iter().find(|ended| ended.exit_code != 0)?;
    let (name, code) = (&container.name, ended.exit_code);
    let message = match ended.message.as_deref().map(str::trim).unwrap_or_default() {
        "" => format!("{name} ended with {code} and said nothing"),
        log => format!("{name} ended with {code}: {log}"),
    };
    Some(Outcome::new("JobFailed", &message, SILENTLY.contains(&code)))
}

/// The exit code in what a Job says of a rule that ended it: "Container downloader for pod n/p failed with exit code 5 matching
/// FailJob rule at index 1".
fn exit_code(message: &str) -> Option<i32> {
    message.split_once("exit code ")?.1.split(' ').next()?.parse().ok()
}

/// The container that downloads, the first of several.
pub(crate) const DOWNLOADER: &str = "downloader";
/// Exit codes by which a program says that the same would fail again: the answer is no, bad input, not found.
pub(crate) const PERMANENT: [i32; 3] = [1, 2, 4];
/// Those of them that say so without a report. Bad input without one is a variable or a flag that could not be read: what the
/// operator writes into the ConfigMap for downloads, of which nobody hears here.
const SILENTLY: [i32; 2] = [1, 4];
/// The exit code by which a program says that its trouble may pass.
pub(crate) const PASSING: i32 = 5;

#[cfg(test)]
mod tests {
    use portolan_shim::report::{MAX_PARTS, room};
    use serde_json::{Value, json};

    use super::*;

    fn failed(pods: &[PodStatus], reason: &str, message: &str) -> Verdict {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        of_failed(pods, &Failure { reason, message, pods: pods.len() })
    }

    fn pods(containers: Value) -> Vec<PodStatus> {
        vec![serde_json::from_value(containers).unwrap()]
    }

    #[test]
    fn the_last_words_of_a_container_say_why_and_whether_it_would_fail_again() {
        for (reason, permanent) in [
            ("DigestMismatch", true),
            ("RolledBack", true),
            ("DownloadFailed", false),
            ("NotDownloadable", false),
        ] {
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
            let outcome = failed(&pods, "BackoffLimitExceeded", "");
            let expected = Outcome::new(reason, "a b", permanent);
            let expected = Outcome { untouched: true, said: true, ..expected };
            assert_eq!(outcome, expected.into(), "its provisioner never ran");
        }
    }

    /// The pod of a Job for several Shims, whose provisioner ended so.
    fn shared(exit_code: i32, report: &Value) -> Vec<PodStatus> {
        let refused = json!({"operation": "fetch", "phase": "fetch", "reason": "DigestMismatch"});
        let status = |name: &str, code: i32, message: &Value| {
            json!({
                "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": code, "message": message.to_string()}},
            })
        };
        pods(json!({
            "initContainerStatuses": [
                status("downloader", 0, &json!({"operation": "fetch", "phase": "done"})),
                status("downloader-2", 0, &refused),
            ],
            "containerStatuses": [status("provisioner", exit_code, report)],
        }))
    }

    #[test]
    fn of_several_shims_each_has_what_is_said_of_it() {
        let report = json!({
            "operation": "install", "phase": "done", "reason": "DigestMismatch", "message": "b: not it",
            "parts": [
                {"name": "a"},
                {"name": "b", "reason": "DigestMismatch", "message": "not it"},
                {"name": "c", "reason": "DownloadFailed", "message": "later"},
            ],
        });
        let verdict = failed(&shared(1, &report), "PodFailurePolicy", "");
        let of =
            |shim: &str| verdict.of(shim, true).map(|one| (one.reason, one.message, one.permanent));
        assert_eq!(of("a"), None, "it was installed");
        assert_eq!(of("b"), Some(("DigestMismatch".into(), "not it".into(), true)));
        assert_eq!(of("c"), Some(("DownloadFailed".into(), "later".into(), false)));
    }

    /// A kubelet keeps so much of a pod's words, and cuts each container's to its share; here is one container of somebody
    /// else's beside ours.
    #[test]
    fn as_many_shims_as_may_be_have_their_words_after_a_kubelet_cut_them() {
        for count in 2..=MAX_PARTS {
            let part = |at: usize| {
                let name = format!("{at}{}", "n".repeat(62));
                let reason = ["DigestMismatch", "LocationNotAllowed"].get(at % 3);
                json!({"name": name, "reason": reason, "message": "\"ä".repeat(2000)})
            };
            let parts: Vec<Value> = (0..count).map(part).collect();
            let report = json!({
                "operation": "install", "phase": "configure", "reason": "LocationNotAllowed",
                "message": "m".repeat(5000), "runtimeVersion": "v".repeat(5000), "parts": parts,
            });
            let report: Report = serde_json::from_value(report).unwrap();
            let mut message = report.to_message(room(count));
            message.truncate(12288 / (count + 2));
            let pods = pods(json!({"containerStatuses": [{
                "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 1, "message": message}},
            }]}));
            let verdict = failed(&pods, "PodFailurePolicy", "");
            for (at, part) in parts.iter().enumerate() {
                let outcome = verdict.of(part["name"].as_str().unwrap(), true);
                assert_eq!(outcome.is_none(), at % 3 == 2, "{at} of {count}: {outcome:?}");
            }
        }
    }

    #[test]
    fn a_downloader_that_cannot_leave_word_speaks_for_its_own_shim() {
        let part = json!({"name": "b", "reason": "DigestMismatch", "message": "not it"});
        let report = json!({
            "operation": "fetch", "phase": "fetch", "reason": "DigestMismatch",
            "message": "b: not it", "parts": [part],
        });
        let pods = pods(json!({
            "initContainerStatuses": [{
                "name": "downloader-2", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 2, "message": report.to_string()}},
            }],
            "containerStatuses": [{
                "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "PodInitializing"}},
            }],
        }));
        let verdict = failed(&pods, "PodFailurePolicy", "");
        let of = |shim: &str| verdict.of(shim, true).expect("a failure");
        assert_eq!((&*of("b").message, of("b").permanent), ("not it", true));
        assert_eq!((&*of("a").message, of("a").permanent), ("b: not it", false));
        assert!(of("a").untouched && of("b").untouched);
    }

    /// Shim `a` has the handler that `b` wants; `a` goes, and nobody edits `b`.
    #[test]
    fn what_may_be_put_right_on_the_node_is_tried_again_where_nothing_was_done_there() {
        for (reason, phase, permanent) in [
            ("ConfigRefused", "detect", false),
            ("NodeNotSupported", "detect", false),
            ("ConfigRefused", "configure", true),
            ("NodeNotSupported", "place", true),
            ("WrongArchitecture", "extract", true),
            ("DigestMismatch", "fetch", true),
        ] {
            let report = json!({"operation": "install", "phase": phase, "reason": reason});
            let verdict = failed(&shared(2, &report), "PodFailurePolicy", "");
            assert_eq!(verdict.all.permanent, permanent, "{reason} {phase}");
        }
        let report = json!({
            "operation": "install", "phase": "done", "reason": "ConfigRefused",
            "parts": [{"name": "b", "reason": "ConfigRefused"}],
        });
        assert!(
            !failed(&shared(1, &report), "PodFailurePolicy", "").of("b", true).unwrap().permanent
        );
    }

    /// The one that is guilty is found when each is tried alone.
    #[test]
    fn what_several_failed_by_together_is_tried_again_and_so_is_what_nothing_is_said_of() {
        let report = json!({
            "operation": "install", "phase": "ready", "reason": "RolledBack", "message": "not taken",
            "parts": [
                {"name": "a", "reason": "RolledBack", "together": true},
                {"name": "b", "reason": "WrongArchitecture", "message": "arm"},
            ],
        });
        let verdict = failed(&shared(1, &report), "PodFailurePolicy", "");
        let expected = Outcome { said: true, ..Outcome::new("RolledBack", "not taken", false) };
        assert_eq!(verdict.of("a", true), Some(expected.clone()));
        assert_eq!(verdict.of("unsaid", true), Some(expected));
        let own = Outcome { untouched: true, ..Outcome::new("WrongArchitecture", "arm", true) };
        assert_eq!(verdict.of("b", true), Some(own));
        for code in [137, 1] {
            let silent = failed(&shared(code, &json!("killed")), "BackoffLimitExceeded", "");
            let outcome = silent.of("b", true).expect("a failure");
            assert_eq!((&*outcome.reason, outcome.permanent), ("JobFailed", false));
            assert_eq!(silent.of("b", false).unwrap().permanent, code == 1, "alone it is the one");
        }
    }

    #[test]
    fn a_node_is_untouched_only_where_every_pod_says_that_it_came_no_further_than_to_a_refusal() {
        let pod = |state: Value| {
            let pod = pods(json!({"containerStatuses": [{
                "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }]}));
            pod.into_iter().next().unwrap()
        };
        let ended = |phase: &str, reason: &str| {
            let report = json!({"operation": "install", "phase": phase, "reason": reason});
            pod(json!({"terminated": {"exitCode": 1, "message": report.to_string()}}))
        };
        // What the runtime goes by is what it was.
        let as_before = |phase: &str, reason: &str| {
            let report =
                json!({"operation": "install", "phase": phase, "reason": reason, "asBefore": true});
            pod(json!({"terminated": {"exitCode": 2, "message": report.to_string()}}))
        };
        let refused = || ended("extract", "WrongArchitecture");
        let waits = || pod(json!({"waiting": {"reason": "ImagePullBackOff"}}));
        let killed = || pod(json!({"terminated": {"exitCode": 137}}));
        // Who is over its time has lost the pods that ran last.
        let late = "DeadlineExceeded";
        for (pods, reason, untouched) in [
            (vec![refused()], "X", true),
            (vec![waits(), refused()], "X", true),
            (vec![ended("detect", "ConfigRefused")], "X", true),
            (vec![ended("place", "HostTrouble")], "X", false),
            (vec![ended("ready", "RolledBack")], "X", false),
            (vec![as_before("configure", "ConfigRefused")], "X", true),
            (vec![as_before("ready", "HostTrouble"), refused()], "X", true),
            (vec![as_before("configure", "ConfigRefused"), killed()], "X", false),
            (vec![refused(), killed()], "X", false),
            (vec![refused(), PodStatus::default()], "X", false),
            (vec![pod(json!({"running": {}}))], "X", false),
            (vec![], "X", false),
            (vec![refused()], late, false),
            (vec![waits()], late, false),
            (vec![], late, false),
        ] {
            let untold = failed(&pods, reason, "").all.untouched;
            assert_eq!(untold, untouched, "{reason}: {pods:?}");
        }
        // Of one that was driven away in the middle nothing is left but the number.
        let gone = Failure { reason: "X".to_owned(), pods: 2, ..Failure::default() };
        assert!(!of_failed(&[refused()], &gone).all.untouched);
        assert!(of_failed(&[refused(), refused()], &gone).all.untouched);
        let parts = json!({
            "operation": "install", "phase": "ready", "reason": "RolledBack",
            "parts": [{"name": "b", "reason": "WrongArchitecture"}],
        });
        for (reason, untouched) in [("PodFailurePolicy", true), (late, false)] {
            let verdict = failed(&shared(1, &parts), reason, "");
            assert_eq!(verdict.of("b", true).unwrap().untouched, untouched, "{reason}");
        }
    }

    #[test]
    fn a_program_says_it_by_its_last_words_or_its_exit_code_and_nobody_else_does() {
        let one = |state: Value| {
            pods(json!({"containerStatuses": [{
                "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": state,
            }]}))
        };
        let report = json!({"operation": "verify", "phase": "place", "reason": "Drifted"});
        for (pods, reason, said) in [
            (one(json!({"terminated": {"exitCode": 1, "message": report.to_string()}})), "X", true),
            (one(json!({"terminated": {"exitCode": 1}})), "X", true),
            (one(json!({"terminated": {"exitCode": 137}})), "X", false),
            (one(json!({"waiting": {"reason": "ImagePullBackOff"}})), "X", false),
            (vec![], "PodFailurePolicy", true),
            (vec![], "DeadlineExceeded", false),
        ] {
            assert_eq!(failed(&pods, reason, "").all.said, said, "{reason}: {pods:?}");
        }
        assert!(!Outcome::silent().said);
    }

    /// A wrong value in the ConfigMap for downloads failed every node for good, with an exit code for a reason.
    #[test]
    fn what_a_downloader_could_not_read_is_told_and_may_be_put_right() {
        let log = "error: invalid value 'soon' for '--retry-wait <SECONDS>'\n";
        let pods = pods(json!({
            "initContainerStatuses": [{
                "name": "downloader", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"terminated": {"exitCode": 2, "message": log}},
            }],
            "containerStatuses": [{
                "name": "provisioner", "image": "", "imageID": "", "ready": false, "restartCount": 0,
                "state": {"waiting": {"reason": "PodInitializing"}},
            }],
        }));
        let outcome = failed(&pods, "PodFailurePolicy", "").all;
        let told = format!("downloader ended with 2: {}", log.trim());
        assert_eq!((&*outcome.reason, outcome.message), ("JobFailed", told));
        assert!(outcome.untouched && !outcome.permanent && !outcome.said);
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
            (json!({"terminated": {"exitCode": 4, "message": "not a report"}}), "JobFailed", true),
            (json!({"terminated": {"exitCode": 255}}), "JobFailed", false),
            (json!({"running": {}}), "DeadlineExceeded", false),
        ] {
            let outcome = failed(&one(state.clone()), "DeadlineExceeded", "").all;
            assert_eq!((&*outcome.reason, outcome.permanent), (reason, permanent), "{state}");
        }
        for (code, permanent) in [(1, true), (2, false), (4, true), (5, false)] {
            let rule = format!(
                "Container downloader for pod n/p failed with exit code {code} matching FailJob rule at index 1"
            );
            let gone = failed(&[], "PodFailurePolicy", &rule).all;
            assert_eq!((gone.permanent, gone.message), (permanent, rule), "{code}");
        }
        assert!(failed(&[], "PodFailurePolicy", "").all.permanent);
        let long = failed(&[], "X", &"\u{1b}ä".repeat(9999)).all;
        assert!(long.message.chars().count() <= MAX_MESSAGE && !long.message.contains('\u{1b}'));
    }
}
