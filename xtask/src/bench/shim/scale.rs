//! Thousands of nodes, three Shims: how soon all Jobs are there, beside a client that only creates them, at what cost, and
//! what is written when nothing changes.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::{Value, json};

use super::audit::Mark;
use super::client::Body;
use super::controllers::Controller;
use super::kubelets::{Kubelets, heartbeat};
use super::objects::{
    BARE, NAMESPACE, SHIMS, create_shims, in_parallel, is_supported, jobs, node_name, populate,
};
use super::plane::Plane;
use super::{at_most, row};
use crate::bench::report::Report;
use crate::testbed::build::Toolbox;
use crate::testbed::command::wait;

/// How many connections the bare client has: as many as the controller writes at once by default.
const WORKERS: usize = 32;
/// Longer than anybody waits.
const PATIENCE: Duration = Duration::from_secs(540);
/// A kubelet says so often how its node is, when nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(300);
/// Of slower ones the server hangs up on who brings their word.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// In so long nothing is written when nothing changes.
pub(super) const PROMISED_REST: Duration = Duration::from_secs(600);
const AT_ONCE: (Duration, Duration) = (Duration::ZERO, Duration::ZERO);

pub(super) fn run(
    report: &mut Report,
    tools: &Toolbox,
    program: &Path,
    nodes: usize,
    rest: Duration,
) -> Result<()> {
    println!("bench: a control plane with {nodes} nodes");
    let plane = Plane::start(tools)?;
    let definition = crate::root().join("deploy/crds/shims.runtime.spinkube.dev.yaml");
    plane.define(&definition, "/apis/runtime.spinkube.dev/v1alpha1/shims")?;
    populate(&plane, nodes)?;
    let installs = SHIMS.len() * (0..nodes).filter(|number| is_supported(*number)).count();
    let controller = Controller::ours(program, &plane)?;
    let ours = rollout(report, &plane, &controller, installs)?;
    at_rest(report, &plane, &controller, nodes, rest)?;
    one_label(report, &plane, &controller)?;
    drop(controller);
    println!("bench: a bare client makes the same Jobs");
    let (bare, jobs) = bare(&plane, installs)?;
    report.rows.push(row(format!("the same {jobs} Jobs, by a bare client"), bare, &[bare], None));
    let ratio = ours.as_secs_f64() / bare.as_secs_f64();
    at_most(report, "all Jobs made, in times of a bare client", ratio, 1.2);
    Ok(())
}

/// From three Shims to the last Job, and on until every node says that it has all of them: what it costs is all of that.
#[allow(clippy::cast_precision_loss, reason = "thousands")]
fn rollout(
    report: &mut Report,
    plane: &Plane,
    controller: &Controller,
    installs: usize,
) -> Result<Duration> {
    println!("bench: three Shims, {installs} installs");
    let mark = Mark::now(plane)?;
    let kubelets = Kubelets::new(plane, NAMESPACE, AT_ONCE);
    let began = Instant::now();
    let (made, jobs) = std::thread::scope(|scope| {
        kubelets.start(scope)?;
        let made = create_shims(plane).and_then(|()| all_made(&kubelets, installs));
        let done = made.and_then(|made| {
            wait("every node to have every Shim", PATIENCE, || complete(plane)).map(|()| made)
        });
        kubelets.stop()?;
        done
    })?;
    let (made, whole) = (made.saturating_duration_since(began), began.elapsed());
    wait("every node to say so", PATIENCE, || all_told(plane))?;
    let told = began.elapsed();
    std::thread::sleep(Duration::from_secs(3));
    let peak = controller.process.peak_memory()?;
    let what = format!("{installs} installs of three Shims begun, in {jobs} Jobs");
    report.rows.push(row(what, made, &[made], Some(peak)));
    report.rows.push(row("until every node has every Shim", whole, &[whole], Some(peak)));
    report.rows.push(row("until every node says so", told, &[told], Some(peak)));
    at_most(report, "memory of the controller at its peak, MiB", peak, 150.0);
    at_most(
        report,
        "processor time of the controller, s",
        controller.process.cpu()?.as_secs_f64(),
        60.0,
    );
    let writes = mark.writes(plane)?;
    let each = (writes.of("nodes") + writes.of("jobs")) as f64 / installs as f64;
    at_most(report, "writes of nodes and Jobs for each install", each, 3.0);
    let others = writes.total() - writes.of("nodes") - writes.of("jobs");
    let a_second = others as f64 / told.as_secs_f64();
    at_most(report, "other writes in a second, of three Shims", a_second, 4.0);
    report.notes.push(format!("{installs} installs: {writes}"));
    Ok(made)
}

/// Until all installs have begun: when the last of their Jobs was made, and how many those are.
fn all_made(kubelets: &Kubelets, installs: usize) -> Result<(Instant, usize)> {
    let end = Instant::now() + PATIENCE;
    let mut told = Instant::now();
    loop {
        let progress = kubelets.progress()?;
        if progress.made >= installs {
            ensure!(progress.made == installs, "{} begun of {installs} installs", progress.made);
            return Ok((progress.last.context("a Job")?, progress.jobs));
        }
        if Instant::now() > end {
            bail!("after {PATIENCE:?} only {} of {installs} installs have begun", progress.made);
        }
        if told.elapsed() > Duration::from_secs(10) {
            told = Instant::now();
            println!("bench: {} installs begun, {} ended", progress.made, progress.ended);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn complete(plane: &Plane) -> Result<()> {
    let mut connection = plane.connect()?;
    for name in SHIMS {
        let shim = connection.get(&format!("/apis/runtime.spinkube.dev/v1alpha1/shims/{name}"))?;
        let status = &shim["status"];
        let conditions = status["conditions"].as_array().cloned().unwrap_or_default();
        let done = conditions
            .iter()
            .any(|one| one["type"] == "Progressing" && one["reason"] == "Complete");
        ensure!(done && status["nodesReady"] == status["nodesUpdated"], "{name}: {status}");
    }
    Ok(())
}

/// Shims are told before nodes, which are written as there is time: only then is everything at rest.
fn all_told(plane: &Plane) -> Result<()> {
    let mut connection = plane.connect()?;
    for name in SHIMS {
        let selector = format!("runtime.spinkube.dev/{name}%3Dpending");
        let nodes = connection.get(&format!("/api/v1/nodes?limit=1&labelSelector={selector}"))?;
        let pending = &nodes["items"][0]["metadata"]["name"];
        ensure!(pending.is_null(), "{name} is pending on {pending}");
    }
    Ok(())
}

/// Nodes say that they live, as they do in any cluster, and nothing else happens.
#[allow(clippy::cast_precision_loss, reason = "few")]
fn at_rest(
    report: &mut Report,
    plane: &Plane,
    controller: &Controller,
    nodes: usize,
    rest: Duration,
) -> Result<()> {
    println!("bench: {} s in which nothing changes", rest.as_secs());
    let (mark, before) = (Mark::now(plane)?, controller.process.cpu()?);
    let mut connection = plane.connect()?;
    let pause = (HEARTBEAT / u32::try_from(nodes.max(1))?).min(LONGEST_PAUSE);
    let began = Instant::now();
    let mut number = 0;
    while began.elapsed() < rest {
        heartbeat(&mut connection, &node_name(number % nodes), number)?;
        number += 1;
        let next = began + pause * u32::try_from(number)?;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
    }
    let (writes, took) = (mark.writes(plane)?, controller.process.cpu()?.saturating_sub(before));
    at_most(report, &rest_row(rest), writes.total() as f64, 0.0);
    report.notes.push(format!(
        "{} s at rest, {number} heartbeats: {writes}, {:.2} s of processor time",
        rest.as_secs(),
        took.as_secs_f64()
    ));
    Ok(())
}

/// What the row says: who watched for less must not be read as if it were the promise.
fn rest_row(rest: Duration) -> String {
    let row = format!("writes in {} s in which nothing changes", rest.as_secs());
    if rest < PROMISED_REST {
        return format!("{row} (not the promise, which is of {} s)", PROMISED_REST.as_secs());
    }
    row
}

/// A label that selects nothing: the node is looked at, no other is, and nothing is written.
#[allow(clippy::cast_precision_loss, reason = "few")]
fn one_label(report: &mut Report, plane: &Plane, controller: &Controller) -> Result<()> {
    // Metrics are counted every second, or later when nothing happens; nothing waits longer than 20 s to be written.
    std::thread::sleep(Duration::from_secs(36));
    let (mark, before) = (Mark::now(plane)?, controller.looks()?);
    let change = json!({"metadata": {"labels": {"bench": "changed"}}}).to_string();
    let path = format!("/api/v1/nodes/{}", node_name(7));
    plane.connect()?.bytes("PATCH", &path, Body::Merge(change.as_bytes()))?;
    std::thread::sleep(Duration::from_secs(17));
    let looks = controller.looks()? - before;
    ensure!(looks > 0.0, "the node whose label changed was not looked at");
    at_most(report, "nodes looked at after a label of one changed", looks, 1.0);
    let writes = mark.writes(plane)?.total();
    at_most(report, "writes after a label of one node changed", writes as f64, 0.0);
    Ok(())
}

/// The same Jobs in another namespace, in the order in which they were made, while they are ended just so.
fn bare(plane: &Plane, installs: usize) -> Result<(Duration, usize)> {
    let mut same = Vec::new();
    let mut next = String::new();
    let mut connection = plane.connect()?;
    loop {
        let path =
            format!("{}?limit=500&labelSelector=spinkube.dev/job&continue={next}", jobs(NAMESPACE));
        let mut list = connection.get(&path)?;
        let items = list["items"].as_array_mut().context("a list of Jobs")?;
        same.extend(items.drain(..).map(as_it_was_sent));
        next = list["metadata"]["continue"].as_str().unwrap_or_default().to_owned();
        if next.is_empty() {
            break;
        }
    }
    same.sort_by(|a, b| a.0.cmp(&b.0));
    let same: Vec<String> = same.into_iter().map(|(_, text)| text).collect();
    let kubelets = Kubelets::new(plane, BARE, AT_ONCE);
    let path = jobs(BARE);
    std::thread::scope(|scope| {
        kubelets.start(scope)?;
        let began = Instant::now();
        let made = in_parallel(plane, WORKERS, same.len(), |connection, number| {
            connection.bytes("POST", &path, Body::Json(same[number].as_bytes())).map(drop)
        });
        let made = made.and_then(|()| all_made(&kubelets, installs));
        kubelets.stop()?;
        let (last, jobs) = made?;
        Ok((last.saturating_duration_since(began), jobs))
    })
}

/// When it was made, and what it was before the server filled it in.
fn as_it_was_sent(mut job: Value) -> (String, String) {
    let made = job["metadata"]["creationTimestamp"].as_str().unwrap_or_default().to_owned();
    job["apiVersion"] = json!("batch/v1");
    job["kind"] = json!("Job");
    let metadata = &job["metadata"];
    job["metadata"] = json!({
        "name": metadata["name"], "namespace": BARE, "labels": metadata["labels"],
        "annotations": metadata["annotations"], "ownerReferences": metadata["ownerReferences"],
    });
    if let Some(annotations) = job["metadata"]["annotations"].as_object_mut() {
        annotations.retain(|key, _| !key.starts_with("batch.kubernetes.io/"));
    }
    for pointer in ["/metadata/labels", "/spec/template/metadata/labels"] {
        let labels = job.pointer_mut(pointer).and_then(Value::as_object_mut);
        let own = |key: &String| key.contains("spinkube.dev/");
        labels.into_iter().for_each(|labels| labels.retain(|key, _| own(key)));
    }
    if let Some(job) = job.as_object_mut() {
        job.remove("status");
    }
    if let Some(spec) = job["spec"].as_object_mut() {
        spec.remove("selector");
    }
    (made, job.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shorter_rest_is_not_called_the_promise() {
        let row = |seconds| rest_row(Duration::from_secs(seconds));
        assert_eq!(row(600), "writes in 600 s in which nothing changes");
        assert!(row(60).starts_with("writes in 60 s") && row(60).contains("not the promise"));
    }

    #[test]
    fn a_job_is_sent_again_without_what_the_server_made_of_it() {
        let (made, text) = as_it_was_sent(json!({
            "metadata": {
                "name": "a", "namespace": "shims", "uid": "u", "resourceVersion": "7", "creationTimestamp": "t",
                "labels": {"spinkube.dev/job": "true", "controller-uid": "u"},
                "annotations": {"spinkube.dev/operation": "install", "batch.kubernetes.io/job-tracking": ""},
            },
            "spec": {
                "backoffLimit": 3, "selector": {"matchLabels": {"controller-uid": "u"}},
                "template": {"metadata": {"labels": {"spinkube.dev/job": "true", "job-name": "a"}}},
            },
            "status": {"succeeded": 1},
        }));
        let job: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(made, "t");
        assert_eq!(
            job,
            json!({
                "apiVersion": "batch/v1", "kind": "Job",
                "metadata": {
                    "name": "a", "namespace": "bare", "labels": {"spinkube.dev/job": "true"},
                    "annotations": {"spinkube.dev/operation": "install"}, "ownerReferences": null,
                },
                "spec": {
                    "backoffLimit": 3,
                    "template": {"metadata": {"labels": {"spinkube.dev/job": "true"}}},
                },
            })
        );
    }
}
