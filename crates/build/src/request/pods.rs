//! Pods of a run: what each is for, and which one waits for a source.

use portolan_api::ResourceExt as _;
use portolan_api::build::{BuildRun, PlatformStatus};
use portolan_api::k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use portolan_core::Platform;

use crate::names;
use crate::plan::{LOCK_FILE, SOURCE_ROOT};
use crate::source::Announced;

/// Which task of a PipelineRun a pod is of.
const PIPELINE_TASK: &str = "tekton.dev/pipelineTask";
/// What Tekton puts before the name of a step.
const STEP: &str = "step-";
/// The task that gets the source.
const SOURCE_TASK: &str = "source";
/// The task that puts the index together.
const INDEX_TASK: &str = "assemble-index";
/// The container that waits for a source.
const UPLOAD_CONTAINER: &str = "step-source-local";

/// What a pod is for. In the order in which people want to read of them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// Getting the source.
    Source,
    /// Everything, in a run for one image.
    Whole,
    /// The platform at this place among those asked for.
    Platform(usize, String),
    /// The index.
    Index,
    /// Something else, by the name of its task.
    Other(String),
}

impl Part {
    /// What lines of its log begin with.
    pub fn label(&self) -> &str {
        match self {
            Self::Source => "source",
            Self::Whole => "build",
            Self::Platform(_, platform) => platform,
            Self::Index => "index",
            Self::Other(task) => task,
        }
    }
}

/// How far a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It has not begun.
    Waiting(Option<String>),
    /// It runs.
    Running,
    /// It ended, with this code.
    Ended(i32),
}

/// A step of a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    /// As the pod calls it.
    pub name: String,
    /// How far it is.
    pub progress: Progress,
}

impl Container {
    /// As the strategy calls it.
    pub fn step(&self) -> &str {
        self.name.strip_prefix(STEP).unwrap_or(&self.name)
    }
}

/// A pod, as far as following a run goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodView {
    /// Its name.
    pub name: String,
    /// What it is for.
    pub part: Part,
    /// `Pending`, `Running`, `Succeeded`, `Failed`.
    pub phase: String,
    /// Its steps, in order.
    pub containers: Vec<Container>,
    /// Why it has no node yet.
    pub unschedulable: Option<String>,
}

/// Which platforms a run is for: what its status says, else what it and its Build ask for.
pub fn platforms(run: &BuildRun) -> Vec<Platform> {
    let status = run.status.as_ref();
    let rows = status.and_then(|status| status.output.as_ref()).map(|output| &output.platforms);
    if let Some(rows) = rows.filter(|rows| !rows.is_empty()) {
        return rows.iter().map(of_row).collect();
    }
    let own = run.spec.output.as_ref().map(|output| &output.settings);
    let spec = run.spec.build.spec.as_deref();
    let spec = spec.or_else(|| status.and_then(|status| status.build_spec.as_deref()));
    let all = own.into_iter().chain(spec.map(|spec| &spec.output.settings));
    let said = all.map(|settings| match &settings.multi_arch {
        Some(multi_arch) => multi_arch.platforms.as_slice(),
        None => settings.platforms.as_slice(),
    });
    let said = said.into_iter().find(|platforms| !platforms.is_empty()).unwrap_or_default();
    said.iter().map(portolan_api::platform::Platform::normalised).collect()
}

/// The platform of a row.
pub fn of_row(row: &PlatformStatus) -> Platform {
    let platform = Platform::new(&row.os, &row.arch);
    match &row.variant {
        Some(variant) => platform.with_variant(variant).normalised(),
        None => platform.normalised(),
    }
}

/// The pods of a run, in the order in which people want to read of them.
pub fn view(run: &BuildRun, pods: &[Pod]) -> Vec<PodView> {
    let platforms = platforms(run);
    let mut views: Vec<PodView> = pods.iter().map(|pod| one(pod, &platforms)).collect();
    views.sort_by(|a, b| (&a.part, &a.name).cmp(&(&b.part, &b.name)));
    views
}

fn one(pod: &Pod, platforms: &[Platform]) -> PodView {
    let status = pod.status.as_ref();
    let states = status.and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    let steps = pod.spec.iter().flat_map(|spec| &spec.containers);
    let steps = steps.filter(|container| container.name.starts_with(STEP));
    let containers = steps.map(|container| Container {
        name: container.name.clone(),
        progress: progress(states.iter().find(|state| state.name == container.name)),
    });
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let homeless = conditions.iter().find(|condition| {
        condition.type_ == "PodScheduled"
            && condition.status == "False"
            && condition.reason.as_deref() == Some("Unschedulable")
    });
    PodView {
        name: pod.name_any(),
        part: part(pod.labels().get(PIPELINE_TASK).map(String::as_str), platforms),
        phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
        containers: containers.collect(),
        unschedulable: homeless.map(|condition| condition.message.clone().unwrap_or_default()),
    }
}

fn part(task: Option<&str>, platforms: &[Platform]) -> Part {
    match task {
        None => Part::Whole,
        Some(SOURCE_TASK) => Part::Source,
        Some(INDEX_TASK) => Part::Index,
        Some(task) => {
            let mut all = platforms.iter().enumerate();
            let found = all.find(|(_, platform)| names::build_task(platform) == task);
            match found {
                Some((at, platform)) => Part::Platform(at, platform.to_string()),
                None => Part::Other(task.to_owned()),
            }
        }
    }
}

fn progress(status: Option<&ContainerStatus>) -> Progress {
    let Some(state) = status.and_then(|status| status.state.as_ref()) else {
        return Progress::Waiting(None);
    };
    match (&state.terminated, &state.running, &state.waiting) {
        (Some(ended), _, _) => Progress::Ended(ended.exit_code),
        (None, Some(_), _) => Progress::Running,
        (None, None, waiting) => {
            let told = waiting.as_ref().map(|waiting| {
                [&waiting.reason, &waiting.message]
                    .into_iter()
                    .flatten()
                    .map(String::as_str)
                    .collect::<Vec<_>>()
                    .join(": ")
            });
            Progress::Waiting(told.filter(|told| !told.is_empty()))
        }
    }
}

/// Whether a source can be sent, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Upload {
    /// Not yet, and why as far as it is known.
    NotYet(String),
    /// To this container.
    To {
        /// Of this pod.
        pod: String,
        /// By this name.
        container: String,
    },
    /// No more.
    Over(String),
}

/// Which of a run's pods waits for a source.
pub fn upload(pods: &[PodView]) -> Upload {
    let waits = pods.iter().find_map(|pod| {
        let container = pod.containers.iter().find(|c| c.name == UPLOAD_CONTAINER)?;
        matches!(pod.part, Part::Source | Part::Whole).then_some((pod, container))
    });
    let Some((pod, container)) = waits else {
        return Upload::NotYet("there is no pod yet".to_owned());
    };
    match &container.progress {
        Progress::Running => {
            Upload::To { pod: pod.name.clone(), container: container.name.clone() }
        }
        Progress::Ended(code) => Upload::Over(format!(
            "the pod {} has stopped waiting for a source (exit code {code})",
            pod.name
        )),
        Progress::Waiting(why) => {
            let why = pod.unschedulable.as_ref().or(why.as_ref());
            Upload::NotYet(match why {
                Some(why) => format!("the pod {} waits: {why}", pod.name),
                None => format!("the pod {} has not begun", pod.name),
            })
        }
    }
}

/// What is run in the waiting container: our own program, which takes the source from its stdin.
pub fn receive_command(announced: &Announced) -> Vec<String> {
    let (digest, size) = (announced.digest.to_string(), announced.size.to_string());
    let diff_id = announced.diff_id.to_string();
    [
        ["portolan", "step", "receive-upload"].as_slice(),
        &["--target", SOURCE_ROOT, "--lock-file", LOCK_FILE],
        &["--digest", &digest, "--size", &size, "--diff-id", &diff_id],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;

    pub(crate) fn run(output: Value, status: Value) -> BuildRun {
        serde_json::from_value(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": { "name": "r" },
            "spec": { "build": { "name": "b" }, "output": output }, "status": status,
        }))
        .unwrap()
    }

    pub(crate) fn two_platforms() -> Value {
        let platforms =
            json!([{ "os": "linux", "arch": "arm64" }, { "os": "linux", "arch": "amd64" }]);
        json!({ "multiArch": { "imagePlatformClass": "default", "platforms": platforms } })
    }

    pub(crate) fn pod(name: &str, task: Option<&str>, phase: &str, steps: &[(&str, Value)]) -> Pod {
        let mut labels = serde_json::Map::new();
        labels.extend(task.map(|task| (PIPELINE_TASK.to_owned(), json!(task))));
        let names: Vec<Value> = steps.iter().map(|(name, _)| json!({ "name": name })).collect();
        let states: Vec<Value> = steps
            .iter()
            .map(|(name, state)| {
                json!({
                    "name": name, "state": state, "image": "", "imageID": "", "ready": true,
                    "restartCount": 0,
                })
            })
            .collect();
        serde_json::from_value(json!({
            "metadata": { "name": name, "labels": labels }, "spec": { "containers": names },
            "status": { "phase": phase, "containerStatuses": states },
        }))
        .unwrap()
    }

    pub(crate) fn running() -> Value {
        json!({ "running": {} })
    }

    pub(crate) fn ended(code: i32) -> Value {
        json!({ "terminated": { "exitCode": code } })
    }

    #[test]
    fn pods_are_known_by_their_task_and_come_in_the_order_of_phases() {
        let pods = [
            pod("d", Some("assemble-index"), "Pending", &[]),
            pod("a", Some("build-linux-amd64"), "Running", &[]),
            pod("b", Some("build-linux-arm64"), "Running", &[]),
            pod("e", Some("prune-source"), "Pending", &[]),
            pod("c", Some("source"), "Succeeded", &[]),
        ];
        let views = view(&run(two_platforms(), json!({})), &pods);
        let labels: Vec<&str> = views.iter().map(|view| view.part.label()).collect();
        assert_eq!(labels, ["source", "linux/arm64", "linux/amd64", "index", "prune-source"]);
        let single = view(&run(Value::Null, json!({})), &[pod("p", None, "Running", &[])]);
        assert_eq!(single[0].part, Part::Whole);
    }

    #[test]
    fn platforms_are_those_of_the_status_or_of_what_was_asked() {
        let spec = json!({
            "strategy": { "name": "s" },
            "output": { "image": "i", "platforms": [{ "os": "linux", "arch": "s390x" }] },
        });
        let row = json!({
            "os": "linux", "arch": "arm", "variant": "v7", "image": "i", "state": "Pending",
        });
        for (run, expected) in [
            (run(Value::Null, json!({})), vec![]),
            (run(two_platforms(), json!({})), vec!["linux/arm64", "linux/amd64"]),
            (run(Value::Null, json!({ "buildSpec": spec })), vec!["linux/s390x"]),
            (
                run(two_platforms(), json!({ "output": { "platforms": [row] } })),
                vec!["linux/arm/v7"],
            ),
        ] {
            let found: Vec<String> = platforms(&run).iter().map(ToString::to_string).collect();
            assert_eq!(found, expected, "{run:?}");
        }
    }

    #[test]
    fn only_the_pod_that_waits_for_a_source_is_sent_one() {
        let run = run(two_platforms(), json!({}));
        let of = |task: Option<&str>, name: &str, state: Value| {
            upload(&view(&run, &[pod("p", task, "Running", &[(name, state)])]))
        };
        let to = Upload::To { pod: "p".to_owned(), container: UPLOAD_CONTAINER.to_owned() };
        assert_eq!(of(Some("source"), UPLOAD_CONTAINER, running()), to);
        assert_eq!(of(None, UPLOAD_CONTAINER, running()), to);
        for (task, name, state) in [
            (Some("build-linux-arm64"), UPLOAD_CONTAINER, running()),
            (Some("source"), "step-source-default", running()),
            (
                Some("source"),
                UPLOAD_CONTAINER,
                json!({ "waiting": { "reason": "PodInitializing" } }),
            ),
        ] {
            assert!(matches!(of(task, name, state), Upload::NotYet(_)), "{task:?} {name}");
        }
        assert!(matches!(of(None, UPLOAD_CONTAINER, ended(1)), Upload::Over(_)));
        assert_eq!(upload(&[]), Upload::NotYet("there is no pod yet".to_owned()));
    }
}
