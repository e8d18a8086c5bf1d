//! Every row of the table from Tekton's reasons to ours.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::build::{BuildRun, BuildRunStatus, PlatformState};
use portolan_api::condition::Status;
use serde_json::{Value, json};

use super::{Seen, mirror};
use crate::objects::{Executor, Pod, TaskRun};
use crate::runs::cancel_word;

fn time(second: i64) -> Time {
    Time(jiff::Timestamp::from_second(second).unwrap())
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

fn run(canceled: bool, many: bool) -> BuildRun {
    let mut output = json!({"image": "registry.example/app:1"});
    if many {
        output["multiArch"] = json!({"imagePlatformClass": "all", "platforms": [
            {"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"},
        ]});
    }
    read(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
        "metadata": {"name": "app-1", "namespace": "team", "uid": "u"},
        "spec": {"build": {"name": "app"}, "state": canceled.then_some("BuildRunCanceled")},
        "status": {"buildSpec": {
            "strategy": {"name": "s"}, "output": output, "timeout": "5m",
        }},
    }))
}

fn condition(status: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "Succeeded", "status": status, "reason": reason, "message": message}])
}

fn task(status: &str, reason: &str) -> Executor {
    Executor::Task(read(json!({
        "metadata": {"name": "app-1-abc", "namespace": "team"},
        "status": {
            "conditions": condition(status, reason, "as Tekton says"), "podName": "app-1-abc-pod",
            "startTime": "2026-01-01T00:00:00Z",
        },
    })))
}

fn pod(status: Value) -> Vec<Arc<Pod>> {
    vec![Arc::new(read(json!({"metadata": {"name": "app-1-abc-pod"}, "status": status})))]
}

/// A container that ended so.
fn ended(name: &str, code: i32, reason: &str, at: i64) -> Value {
    json!({
        "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": code, "reason": reason, "finishedAt": time(at)}},
    })
}

fn seen(run: &BuildRun, executor: &Executor, pods: &[Arc<Pod>]) -> BuildRunStatus {
    mirror(run, &Seen { executor, tasks: &[], pods }, &time(100))
}

#[track_caller]
fn says(status: &BuildRunStatus, holds: Status, reason: &str, message: &str) {
    let condition = &status.conditions[0];
    assert_eq!((condition.status, condition.reason.as_str()), (holds, reason), "{condition:?}");
    assert!(condition.message.contains(message), "{condition:?}");
    assert_eq!(status.completion_time.is_some(), holds != Status::Unknown);
}

#[test]
fn every_reason_of_a_task_run_has_its_word() {
    let (going, well, badly) = (Status::Unknown, Status::True, Status::False);
    let text = "The BuildRun and underlying TaskRun were canceled successfully.";
    for (canceled, told, holds, reason, message) in [
        (false, ("Unknown", "Started"), going, "Started", "as Tekton says"),
        (false, ("Unknown", "Pending"), going, "Pending", "as Tekton says"),
        (false, ("Unknown", "Running"), going, "Running", "as Tekton says"),
        (true, ("Unknown", "Running"), going, "BuildRunCanceled", "Tekton has not ended it yet"),
        (true, ("False", "TaskRunCancelled"), badly, "BuildRunCanceled", text),
        (false, ("False", "TaskRunCancelled"), badly, "TaskRunCancelled", "as Tekton says"),
        (
            false,
            ("False", "TaskRunTimeout"),
            badly,
            "BuildRunTimeout",
            "BuildRun app-1 failed to finish within 300s",
        ),
        (false, ("True", "Succeeded"), well, "Succeeded", "as Tekton says"),
        (true, ("True", "Succeeded"), well, "Succeeded", "before it could be canceled"),
        (
            false,
            ("False", "TaskRunImagePullFailed"),
            badly,
            "TaskRunImagePullFailed",
            "as Tekton says",
        ),
        (false, ("False", "CouldntGetTask"), badly, "CouldntGetTask", "as Tekton says"),
    ] {
        let status = seen(&run(canceled, false), &task(told.0, told.1), &[]);
        says(&status, holds, reason, message);
        let executor = status.executor.as_ref().unwrap();
        assert_eq!(executor.name, "app-1-abc");
        assert_eq!(status.task_run_name.as_deref(), Some("app-1-abc"));
        assert!(status.start_time.is_some());
    }
}

#[test]
fn a_pod_says_better_than_tekton_how_a_step_failed() {
    let logs = "kubectl --namespace team logs app-1-abc-pod";
    let containers = |all: Value| json!({"phase": "Failed", "containerStatuses": all});
    for (status, reason, message) in [
        (json!({"reason": "Evicted", "message": "no disk"}), "PodEvicted", "no disk".to_owned()),
        (
            containers(json!([ended("step-build", 137, "OOMKilled", 1)])),
            "StepOutOfMemory",
            format!("{logs} --container=step-build"),
        ),
        (
            containers(json!([ended("step-image-processing", 22, "Error", 1)])),
            "VulnerabilitiesFound",
            format!("{logs} --container=step-image-processing"),
        ),
        (
            // Kubelets sort by name; Tekton ends those that come after the one that failed.
            containers(json!([
                ended("step-a-later", 1, "Error", 9),
                ended("step-build", 3, "Error", 2)
            ])),
            "Failed",
            format!(
                "buildrun step step-build failed, for detailed information: {logs} --container=step-build"
            ),
        ),
        (
            containers(json!([ended("step-build", 0, "Completed", 1)])),
            "Failed",
            format!("{logs} --all-containers"),
        ),
    ] {
        for told in ["Failed", "StepFailed", "StepOOM", "PodEvicted"] {
            let found = seen(&run(false, false), &task("False", told), &pod(status.clone()));
            says(&found, Status::False, reason, &message);
            let location = found.failure_details.unwrap().location.unwrap();
            assert_eq!(location.pod.as_deref(), Some("app-1-abc-pod"));
        }
    }
    let gone = seen(&run(false, false), &task("False", "Failed"), &[]);
    says(&gone, Status::False, "Failed", "buildrun failed, pod team/app-1-abc-pod not found");
}

#[test]
fn a_step_says_itself_what_went_wrong() {
    let Executor::Task(mut failed) = task("False", "Failed") else { panic!("a task") };
    let last = r#"[{"key":"shp-error-reason","value":"GitError","type":1},{"key":"shp-error-message","value":"no such host","type":1},{"key":"StartedAt","value":"x","type":3}]"#;
    failed.status.steps = read(json!([
        {"container": "step-skipped", "terminated": {"exitCode": 1}, "terminationReason": "Skipped"},
        {"container": "step-source-default", "terminated": {"exitCode": 128, "message": last}},
    ]));
    let pods = pod(json!({"containerStatuses": [
        ended("step-skipped", 1, "Error", 1), ended("step-source-default", 128, "Error", 2),
    ]}));
    let status = seen(&run(false, false), &Executor::Task(failed), &pods);
    says(&status, Status::False, "Failed", "step-source-default failed");
    let details = status.failure_details.unwrap();
    assert_eq!(details.reason.as_deref(), Some("GitError"));
    assert_eq!(details.message.as_deref(), Some("no such host"));
    assert_eq!(details.location.unwrap().container.as_deref(), Some("step-source-default"));
}

#[test]
fn results_become_output_and_source() {
    let Executor::Task(mut done) = task("True", "Succeeded") else { panic!("a task") };
    done.status.results = read(json!([
        {"name": "shp-image-digest", "value": "sha256:aa\n"},
        {"name": "shp-image-size", "value": "42"},
        {"name": "shp-image-vulnerabilities", "value": "CVE-1:h,CVE-2:l,x:?"},
        {"name": "shp-source-default-commit-sha", "value": "c0ffee"},
        {"name": "shp-source-default-source-timestamp", "value": "1619426578"},
        {"name": "shp-error-reason", "value": ""},
        {"name": "others", "value": ["a", "list"]},
    ]));
    let status = seen(&run(false, false), &Executor::Task(done), &[]);
    let output = status.output.unwrap();
    assert_eq!((output.digest.as_deref(), output.size), (Some("sha256:aa"), Some(42)));
    let found: Vec<_> = output.vulnerabilities.iter().map(|one| one.severity.as_str()).collect();
    assert_eq!(found, ["high", "low", "unknown"]);
    let source = status.source.unwrap();
    assert_eq!(source.git.unwrap().commit_sha.as_deref(), Some("c0ffee"));
    assert_eq!(source.timestamp, Some(time(1_619_426_578)));
    assert_eq!(status.failure_details, None);
}

fn pipeline(status: &str, reason: &str, results: Value, finally: Value) -> Executor {
    Executor::Pipeline(read(json!({
        "metadata": {"name": "app-1-abc", "namespace": "team", "annotations": {
            "buildrun.shipwright.io/image-platforms":
                "{\"linux/arm64\":{\"name\":\"emulated\",\"generation\":1}}",
        }},
        "spec": {"pipelineSpec": {"finally": finally}},
        "status": {"conditions": condition(status, reason, "as Tekton says"), "results": results},
    })))
}

fn child(name: &str, status: &str, reason: &str, results: Value) -> Arc<TaskRun> {
    Arc::new(read(json!({
        "metadata": {"name": format!("app-1-abc-{name}"), "labels": {"tekton.dev/pipelineTask": name}},
        "status": {
            "conditions": condition(status, reason, "of the task"),
            "podName": format!("{name}-pod"), "results": results,
        },
    })))
}

fn child_pod(name: &str, status: Value) -> Arc<Pod> {
    Arc::new(read(json!({"metadata": {"name": format!("{name}-pod")}, "status": status})))
}

fn states(status: &BuildRunStatus) -> Vec<PlatformState> {
    status.output.as_ref().unwrap().platforms.iter().map(|row| row.state).collect()
}

#[test]
fn every_reason_of_a_pipeline_run_has_its_word() {
    let (going, well, badly) = (Status::Unknown, Status::True, Status::False);
    let text = "The BuildRun and underlying PipelineRun were canceled successfully.";
    for (canceled, told, holds, reason, message) in [
        (false, ("Unknown", "Started"), going, "Started", "as Tekton says"),
        (false, ("Unknown", "Running"), going, "Running", "as Tekton says"),
        (
            true,
            ("Unknown", "CancelledRunningFinally"),
            going,
            "BuildRunCanceled",
            "not ended it yet",
        ),
        (true, ("False", "Cancelled"), badly, "BuildRunCanceled", text),
        (true, ("False", "CancelledRunningFinally"), badly, "BuildRunCanceled", text),
        (false, ("False", "Cancelled"), badly, "Cancelled", "as Tekton says"),
        (false, ("False", "PipelineRunTimeout"), badly, "BuildRunTimeout", "within 300s"),
        (false, ("True", "Succeeded"), well, "Succeeded", "as Tekton says"),
        (false, ("True", "Completed"), well, "Succeeded", "as Tekton says"),
        (false, ("False", "Failed"), badly, "Failed", "as Tekton says"),
        (
            false,
            ("False", "InvalidTaskResultReference"),
            badly,
            "InvalidTaskResultReference",
            "as Tekton says",
        ),
    ] {
        let executor = pipeline(told.0, told.1, json!([]), json!([]));
        let status = seen(&run(canceled, true), &executor, &[]);
        says(&status, holds, reason, message);
        assert_eq!(status.task_run_name, None);
        let state = if holds == going { PlatformState::Pending } else { PlatformState::Canceled };
        assert_eq!(states(&status), [state; 2], "{reason}");
    }
}

#[test]
fn every_platform_has_its_row_and_results_do_not_mix() {
    let digest = |value: &str| json!([{"name": "shp-image-digest", "value": value}, {"name": "shp-image-size", "value": "7"}]);
    let executor = pipeline("True", "Succeeded", digest("sha256:index"), json!([]));
    let tasks = [
        child("build-linux-arm64", "True", "Succeeded", digest("sha256:arm")),
        child("build-linux-amd64", "True", "Succeeded", digest("sha256:amd")),
        child(
            "source",
            "True",
            "Succeeded",
            json!([
                {"name": "shp-source-default-commit-sha", "value": "c0ffee"},
                {"name": "shp-source-bundle-digest", "value": "sha256:src"},
            ]),
        ),
    ];
    let run = run(false, true);
    let status = mirror(&run, &Seen { executor: &executor, tasks: &tasks, pods: &[] }, &time(1));
    let output = status.output.as_ref().unwrap();
    assert_eq!((output.digest.as_deref(), output.size), (Some("sha256:index"), None));
    let [amd, arm] = &output.platforms[..] else { panic!("{output:?}") };
    assert_eq!(
        (amd.arch.as_str(), amd.digest.as_deref(), amd.size),
        ("amd64", Some("sha256:amd"), Some(7))
    );
    assert_eq!(amd.image, "registry.example/app:1-linux-amd64");
    assert_eq!((arm.arch.as_str(), arm.digest.as_deref()), ("arm64", Some("sha256:arm")));
    assert_eq!(arm.image_platform.as_deref(), Some("emulated"));
    assert_eq!(arm.task_run.as_deref(), Some("app-1-abc-build-linux-arm64"));
    let source = status.source.clone().unwrap();
    assert_eq!(source.oci_artifact.unwrap().digest, "sha256:src");
    // A run that has ended stays as it ended.
    let ended = BuildRun { status: Some(status.clone()), ..run };
    let executor = pipeline("False", "Failed", json!([]), json!([]));
    assert_eq!(
        mirror(&ended, &Seen { executor: &executor, tasks: &[], pods: &[] }, &time(9)),
        status
    );
}

#[test]
fn the_platform_that_failed_is_named_and_the_others_keep_what_they_made() {
    let executor = pipeline("False", "Failed", json!([]), json!([]));
    let failed = child(
        "build-linux-arm64",
        "False",
        "Failed",
        json!([
            {"name": "shp-error-reason", "value": "PlatformMismatch"},
            {"name": "shp-error-message", "value": "it is for amd64"},
        ]),
    );
    let digest = json!([{"name": "shp-image-digest", "value": "sha256:amd"}]);
    let tasks = [child("build-linux-amd64", "True", "Succeeded", digest), failed];
    let pods = [child_pod(
        "build-linux-arm64",
        json!({"containerStatuses": [ended("step-build", 137, "OOMKilled", 1)]}),
    )];
    let status = mirror(
        &run(false, true),
        &Seen { executor: &executor, tasks: &tasks, pods: &pods },
        &time(1),
    );
    says(&status, Status::False, "StepOutOfMemory", "linux/arm64: buildrun step step-build failed");
    assert!(!status.conditions[0].message.contains("amd64:"), "{:?}", status.conditions);
    assert_eq!(states(&status), [PlatformState::Succeeded, PlatformState::Failed]);
    let output = status.output.unwrap();
    assert_eq!(output.digest, None, "there is no index");
    assert_eq!(output.platforms[0].digest.as_deref(), Some("sha256:amd"));
    let failure = output.platforms[1].failure.clone().unwrap();
    assert_eq!(failure.reason.as_deref(), Some("PlatformMismatch"));
    assert_eq!(failure.message.as_deref(), Some("it is for amd64"));
    assert_eq!(status.failure_details.unwrap().reason.as_deref(), Some("PlatformMismatch"));
}

#[test]
fn a_platform_that_no_node_can_build_says_why_it_waits() {
    let executor = pipeline("Unknown", "Running", json!([]), json!([]));
    let tasks = [
        child("build-linux-amd64", "Unknown", "Running", json!([])),
        child("build-linux-arm64", "Unknown", "Pending", json!([])),
    ];
    let pods = [
        child_pod("build-linux-amd64", json!({"phase": "Running"})),
        child_pod(
            "build-linux-arm64",
            json!({"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available"},
            ]}),
        ),
    ];
    let run = run(false, true);
    let status = mirror(&run, &Seen { executor: &executor, tasks: &tasks, pods: &pods }, &time(1));
    says(
        &status,
        Status::Unknown,
        "Running",
        "linux/arm64 waits: Unschedulable: 0/1 nodes are available",
    );
    assert_eq!(states(&status), [PlatformState::Running, PlatformState::Pending]);
    let pods = [child_pod(
        "build-linux-arm64",
        json!({"phase": "Pending", "containerStatuses": [{
            "name": "step-build", "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"waiting": {"reason": "ImagePullBackOff", "message": "not there"}},
        }]}),
    )];
    let status = mirror(&run, &Seen { executor: &executor, tasks: &tasks, pods: &pods }, &time(1));
    says(
        &status,
        Status::Unknown,
        "Running",
        "linux/arm64 waits: ImagePullBackOff of step-build: not there",
    );
}

#[test]
fn the_same_again_is_the_same_status() {
    let executor = pipeline("Unknown", "Running", json!([]), json!([]));
    let first =
        mirror(&run(false, true), &Seen { executor: &executor, tasks: &[], pods: &[] }, &time(1));
    let again = BuildRun { status: Some(first.clone()), ..run(false, true) };
    let second = mirror(&again, &Seen { executor: &executor, tasks: &[], pods: &[] }, &time(50));
    assert_eq!(first, second, "only a change of status changes its time");
}

#[test]
fn what_ends_an_executor_depends_on_what_is_left_to_tidy_up() {
    let plain = pipeline("Unknown", "Running", json!([]), json!([]));
    let pruning = pipeline("Unknown", "Running", json!([]), json!([{"name": "prune-source"}]));
    let over = pipeline("True", "Succeeded", json!([]), json!([]));
    for (executor, word) in [
        (&plain, Some("Cancelled")),
        (&pruning, Some("CancelledRunFinally")),
        (&over, None),
        (&task("Unknown", "Running"), Some("TaskRunCancelled")),
        (&task("False", "Failed"), None),
    ] {
        assert_eq!(cancel_word(&run(true, true), executor), word);
        assert_eq!(cancel_word(&run(false, true), executor), None);
    }
    let Executor::Task(mut told) = task("Unknown", "Running") else { panic!("a task") };
    told.spec.status = Some("TaskRunCancelled".to_owned());
    assert_eq!(cancel_word(&run(true, false), &Executor::Task(told)), None, "it was told already");
}
