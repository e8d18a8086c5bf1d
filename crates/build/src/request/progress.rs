//! How far a run is: a row for each phase and platform, and in the end one answer.

use portolan_api::build::{BuildRun, PlatformState, SourceKind};
use portolan_api::condition::{self, Condition, Status};

use super::pods::{self, Part, PodView, Progress};

/// The condition that says how a run ended.
pub const SUCCEEDED: &str = "Succeeded";
/// The reason of a run that somebody stopped.
const CANCELED: &str = "BuildRunCanceled";

/// How far a part of a run is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// It waits.
    Pending,
    /// It is at work.
    Running,
    /// It is done.
    Succeeded,
    /// It went wrong.
    Failed,
    /// Somebody stopped it.
    Canceled,
}

impl State {
    /// For people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Running => "running",
            Self::Succeeded => "succeeded",
            Self::Failed => "failed",
            Self::Canceled => "canceled",
        }
    }
}

impl From<PlatformState> for State {
    fn from(state: PlatformState) -> Self {
        match state {
            PlatformState::Pending => Self::Pending,
            PlatformState::Running => Self::Running,
            PlatformState::Succeeded => Self::Succeeded,
            PlatformState::Failed => Self::Failed,
            PlatformState::Canceled => Self::Canceled,
        }
    }
}

/// One part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// `source`, a platform, `index`, or `build` where there is one image.
    pub part: String,
    /// How far it is.
    pub state: State,
    /// The step that is at work, what came out, or why nothing did.
    pub detail: String,
}

/// How a run stands as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Not at its end.
    Going,
    /// With this digest, where one is told.
    Succeeded(Option<String>),
    /// Why, with the platforms that failed named.
    Failed(String),
    /// Somebody stopped it.
    Canceled(String),
}

/// The condition that says how a run stands.
pub fn succeeded(run: &BuildRun) -> Option<&Condition> {
    condition::find(&run.status.as_ref()?.conditions, SUCCEEDED)
}

/// How a run stands.
pub fn outcome(run: &BuildRun) -> Outcome {
    let Some(condition) = succeeded(run) else { return Outcome::Going };
    let output = run.status.as_ref().and_then(|status| status.output.as_ref());
    match condition.status {
        Status::Unknown => Outcome::Going,
        Status::True => Outcome::Succeeded(output.and_then(|output| output.digest.clone())),
        Status::False if condition.reason == CANCELED => {
            Outcome::Canceled(condition.message.clone())
        }
        Status::False => {
            let failed: Vec<String> = output
                .iter()
                .flat_map(|output| &output.platforms)
                .filter(|row| row.state == PlatformState::Failed)
                .map(|row| pods::of_row(row).to_string())
                .filter(|platform| !condition.message.contains(platform))
                .collect();
            let told = format!("{}: {}", condition.reason, condition.message);
            Outcome::Failed(match failed.is_empty() {
                true => told,
                false => format!("{told} (failed: {})", failed.join(", ")),
            })
        }
    }
}

/// A row for each part of a run, in the order in which they come.
pub fn rows(run: &BuildRun, pods: &[PodView]) -> Vec<Row> {
    let platforms = pods::platforms(run);
    let end = match outcome(run) {
        Outcome::Going => None,
        Outcome::Succeeded(_) => Some(State::Succeeded),
        Outcome::Failed(_) => Some(State::Failed),
        Outcome::Canceled(_) => Some(State::Canceled),
    };
    let find = |part: &Part| pods.iter().find(|pod| pod.part == *part);
    if platforms.is_empty() {
        return vec![part_row(&Part::Whole, find(&Part::Whole), end)];
    }
    let mut all = Vec::new();
    if has_source(run) || find(&Part::Source).is_some() {
        // When platforms begin, the source is there.
        let past = pods.iter().any(|pod| matches!(pod.part, Part::Platform(..)));
        let past = past.then_some(State::Succeeded);
        all.push(part_row(&Part::Source, find(&Part::Source), past.or(end)));
    }
    let status = run.status.as_ref().and_then(|status| status.output.as_ref());
    for (at, platform) in platforms.iter().enumerate() {
        let part = Part::Platform(at, platform.to_string());
        let mut row = part_row(&part, find(&part), end.filter(|end| *end != State::Failed));
        let told = status.and_then(|status| status.platforms.get(at));
        if let Some(told) = told.filter(|told| told.state != PlatformState::Pending) {
            row.state = told.state.into();
            let failure = told.failure.as_ref().and_then(|failure| failure.message.clone());
            if let Some(told) = told.digest.clone().or(failure) {
                row.detail = told;
            }
        }
        all.push(row);
    }
    let mut index = part_row(&Part::Index, find(&Part::Index), end);
    if let (State::Succeeded, Some(digest)) = (index.state, status.and_then(|s| s.digest.clone())) {
        index.detail = digest;
    }
    // Nothing was put together where a platform is missing.
    if index.state == State::Failed && find(&Part::Index).is_none() {
        index.state = State::Pending;
        index.detail = "not begun".to_owned();
    }
    all.push(index);
    all
}

fn has_source(run: &BuildRun) -> bool {
    let spec = run.spec.build.spec.as_deref();
    let status = run.status.as_ref();
    let spec = spec.or_else(|| status.and_then(|status| status.build_spec.as_deref()));
    let own = run.spec.source.is_some();
    own || spec
        .and_then(|spec| spec.source.as_ref())
        .is_some_and(|source| source.kind != SourceKind::Oci)
}

/// What a pod says of a part; `known` is what is said elsewhere, and counts where the pod does not
/// know it yet.
fn part_row(part: &Part, pod: Option<&PodView>, known: Option<State>) -> Row {
    let told = |state: State, detail: String| Row { part: part.label().to_owned(), state, detail };
    let Some(pod) = pod else {
        return told(known.unwrap_or(State::Pending), String::new());
    };
    match pod.phase.as_str() {
        "Succeeded" => told(State::Succeeded, String::new()),
        "Failed" => {
            let state = known.filter(|known| *known == State::Canceled).unwrap_or(State::Failed);
            let at = pod
                .containers
                .iter()
                .find(|c| matches!(c.progress, Progress::Ended(code) if code != 0));
            let detail = at.map(|at| format!("step {}", at.step())).unwrap_or_default();
            told(state, detail)
        }
        _ if known.is_some_and(|known| known != State::Running) => {
            told(known.unwrap_or(State::Running), String::new())
        }
        "Running" => {
            // All steps of a pod run at once as far as a cluster knows; the first that has not
            // ended is the one whose turn it is.
            let now = pod.containers.iter().find(|c| !matches!(c.progress, Progress::Ended(_)));
            told(State::Running, now.map(|now| now.step().to_owned()).unwrap_or_default())
        }
        _ => {
            let why = pod.unschedulable.clone().or_else(|| {
                pod.containers.iter().find_map(|container| match &container.progress {
                    Progress::Waiting(why) => why.clone(),
                    _ => None,
                })
            });
            told(State::Pending, why.unwrap_or_default())
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::super::pods::tests::{ended, pod, run, running, two_platforms};
    use super::super::pods::view;
    use super::*;

    fn condition(status: &str, reason: &str, message: &str) -> Value {
        json!([{ "type": "Succeeded", "status": status, "reason": reason, "message": message }])
    }

    fn platform(arch: &str, state: &str) -> Value {
        json!({ "os": "linux", "arch": arch, "image": "i", "state": state })
    }

    #[test]
    fn a_run_ends_with_one_answer_and_the_failed_platform_in_it() {
        let status = |conditions: Value, platforms: Value| json!({ "conditions": conditions, "output": { "digest": "sha256:1", "platforms": platforms } });
        let rows = json!([platform("amd64", "Succeeded"), platform("arm64", "Failed")]);
        for (status, expected) in [
            (json!({}), Outcome::Going),
            (status(condition("Unknown", "Running", ""), json!([])), Outcome::Going),
            (
                status(condition("True", "Succeeded", ""), json!([])),
                Outcome::Succeeded(Some("sha256:1".to_owned())),
            ),
            (
                status(condition("False", "BuildRunCanceled", "stopped"), json!([])),
                Outcome::Canceled("stopped".to_owned()),
            ),
            (
                status(condition("False", "Failed", "it broke"), rows.clone()),
                Outcome::Failed("Failed: it broke (failed: linux/arm64)".to_owned()),
            ),
            (
                status(condition("False", "Failed", "linux/arm64 broke"), rows),
                Outcome::Failed("Failed: linux/arm64 broke".to_owned()),
            ),
        ] {
            assert_eq!(outcome(&run(two_platforms(), status.clone())), expected, "{status}");
        }
    }

    fn told(run: &BuildRun, pods: &[PodView]) -> Vec<String> {
        let told = |row: Row| format!("{} {} {}", row.part, row.state.word(), row.detail);
        rows(run, pods).into_iter().map(|row| told(row).trim().to_owned()).collect()
    }

    #[test]
    fn each_phase_and_platform_has_a_row() {
        let source = json!({
            "buildSpec": {
                "source": { "type": "Git", "git": { "url": "u" } },
                "strategy": { "name": "s" }, "output": { "image": "i" },
            },
        });
        let started = run(two_platforms(), source.clone());
        let begun = |all: &[_]| told(&started, &view(&started, all));
        assert_eq!(
            begun(&[]),
            ["source pending", "linux/arm64 pending", "linux/amd64 pending", "index pending"]
        );
        let steps = [("step-git", ended(0)), ("step-push", running())];
        assert_eq!(begun(&[pod("s", Some("source"), "Running", &steps)])[0], "source running push");
        let waiting = json!({ "waiting": { "reason": "ImagePullBackOff", "message": "no image" } });
        let pods = [
            pod("s", Some("source"), "Succeeded", &[]),
            pod("a", Some("build-linux-arm64"), "Pending", &[("step-a", waiting)]),
            pod("b", Some("build-linux-amd64"), "Failed", &[("step-build", ended(2))]),
        ];
        assert_eq!(
            begun(&pods),
            [
                "source succeeded",
                "linux/arm64 pending ImagePullBackOff: no image",
                "linux/amd64 failed step build",
                "index pending",
            ]
        );
    }

    #[test]
    fn a_finished_run_tells_digests_and_what_was_never_begun() {
        let mut good = [platform("arm64", "Succeeded"), platform("amd64", "Succeeded")];
        good[0]["digest"] = json!("sha256:2");
        let status = json!({
            "conditions": condition("True", "Succeeded", ""),
            "output": { "digest": "sha256:1", "platforms": good },
        });
        let done = run(two_platforms(), status);
        let expected =
            ["linux/arm64 succeeded sha256:2", "linux/amd64 succeeded", "index succeeded sha256:1"];
        assert_eq!(told(&done, &[]), expected);
        let mut bad = [platform("arm64", "Failed"), platform("amd64", "Succeeded")];
        bad[0]["failure"] = json!({ "message": "no compiler" });
        let status = json!({
            "conditions": condition("False", "Failed", "x"), "output": { "platforms": bad },
        });
        let failed = run(two_platforms(), status);
        let expected =
            ["linux/arm64 failed no compiler", "linux/amd64 succeeded", "index pending not begun"];
        assert_eq!(told(&failed, &[]), expected);
        let single = run(Value::Null, json!({ "conditions": condition("True", "Succeeded", "") }));
        assert_eq!(told(&single, &[]), ["build succeeded"]);
    }
}
