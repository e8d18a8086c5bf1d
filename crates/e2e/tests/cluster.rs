//! The testbed is what it says: a Kubernetes 1.36 node that runs pods, and a Tekton that runs
//! pipelines.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{Namespace, Testbed, wait_for};
use serde_json::{Value, json};

#[test]
fn the_node_is_ready_and_of_kubernetes_1_36() -> Result<()> {
    let testbed = Testbed::get();
    let node = testbed.kubectl_json(&["get", "node", &testbed.node])?;
    assert_eq!(condition(&node, "Ready").context("no condition Ready")?.0, "True");
    let version = node["status"]["nodeInfo"]["kubeletVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with("v1.36."), "the kubelet is {version}");
    let server = testbed.kubectl_json(&["version"])?;
    let version = server["serverVersion"]["gitVersion"].as_str().unwrap_or_default();
    assert!(version.starts_with("v1.36."), "the API server is {version}");
    Ok(())
}

#[test]
fn a_pod_runs_to_its_end_and_its_log_is_read() -> Result<()> {
    let namespace = Namespace::new("pod")?;
    namespace.apply(pod(
        "speaker",
        // The kernel's name, so that the words come from the container and not from the spec.
        "echo \"said by $(uname -s) in $(hostname)\"",
    )?)?;
    finished(&namespace, "speaker")?;
    assert_eq!(namespace.kubectl(&["logs", "speaker"])?.trim(), "said by Linux in speaker");
    Ok(())
}

#[test]
fn a_pod_that_fails_is_seen_to_fail() -> Result<()> {
    let namespace = Namespace::new("pod")?;
    namespace.apply(pod("failing", "exit 7")?)?;
    let pod = finished(&namespace, "failing")?;
    assert_eq!(pod["status"]["phase"], "Failed");
    let state = &pod["status"]["containerStatuses"][0]["state"];
    assert_eq!(state["terminated"]["exitCode"], 7, "{state}");
    Ok(())
}

#[test]
fn a_pod_reaches_the_api_server_and_the_registry() -> Result<()> {
    let testbed = Testbed::get();
    let namespace = Namespace::new("pod")?;
    // What an in-cluster client goes by. Busybox has no TLS to verify with, so a connection will do.
    let registry = &testbed.registry.cluster;
    let script = format!(
        "nc -w 5 $KUBERNETES_SERVICE_HOST $KUBERNETES_SERVICE_PORT < /dev/null && echo api && \
         wget -q -O - http://{registry}/v2/_catalog"
    );
    namespace.apply(pod("caller", &script)?)?;
    finished(&namespace, "caller")?;
    let log = namespace.kubectl(&["logs", "caller"])?;
    assert!(log.starts_with("api\n") && log.contains("testbed/busybox"), "{log}");
    Ok(())
}

#[test]
fn tekton_passes_a_result_from_one_task_to_the_next() -> Result<()> {
    let namespace = Namespace::new("tekton")?;
    namespace.apply(pipeline_run()?)?;
    let run = wait_for("the PipelineRun to end", Duration::from_secs(120), || {
        let run = namespace.kubectl_json(&["get", "pipelinerun", "two-tasks"])?;
        let (status, message) = condition(&run, "Succeeded").context("no condition yet")?;
        ensure!(status != "Unknown", "{message}");
        Ok(run)
    })?;
    let (status, message) = condition(&run, "Succeeded").context("no condition")?;
    assert_eq!(status, "True", "{message}");
    // 6 * 7 is computed in the first task and handed on by the second.
    assert_eq!(run["status"]["results"], json!([{ "name": "answer", "value": "got 42" }]));
    let children = run["status"]["childReferences"].as_array().map_or(0, Vec::len);
    assert_eq!(children, 2, "{}", run["status"]["childReferences"]);
    Ok(())
}

#[test]
fn tekton_refuses_what_its_webhook_finds_wrong() -> Result<()> {
    let namespace = Namespace::new("tekton")?;
    let mut run = pipeline_run()?;
    run["spec"]["pipelineSpec"]["tasks"][1]["params"][0]["value"] =
        json!("$(tasks.nobody.results.number)");
    let error = namespace.apply(run).err().context("a result of no task was accepted")?;
    let text = format!("{error:#}");
    assert!(text.contains("webhook.pipeline.tekton.dev"), "{text}");
    Ok(())
}

fn pod(name: &str, script: &str) -> Result<Value> {
    Ok(json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name },
        "spec": {
            "restartPolicy": "Never",
            "containers": [{
                "name": "main",
                "image": Testbed::get().image("busybox")?,
                "command": ["sh", "-c", script],
            }],
        },
    }))
}

fn finished(namespace: &Namespace, pod: &str) -> Result<Value> {
    wait_for("the pod to end", Duration::from_secs(60), || {
        let pod = namespace.kubectl_json(&["get", "pod", pod])?;
        let phase = pod["status"]["phase"].as_str().unwrap_or_default();
        ensure!(phase == "Succeeded" || phase == "Failed", "{}", pod["status"]);
        Ok(pod)
    })
}

/// Status and message of a condition.
fn condition<'a>(object: &'a Value, kind: &str) -> Option<(&'a str, &'a str)> {
    let conditions = object["status"]["conditions"].as_array()?;
    let found = conditions.iter().find(|condition| condition["type"] == kind)?;
    Some((found["status"].as_str()?, found["message"].as_str().unwrap_or_default()))
}

fn pipeline_run() -> Result<Value> {
    let image = Testbed::get().image("busybox")?;
    let step = |script: &str| json!([{ "name": "step", "image": image, "script": script }]);
    Ok(json!({
        "apiVersion": "tekton.dev/v1",
        "kind": "PipelineRun",
        "metadata": { "name": "two-tasks" },
        "spec": { "pipelineSpec": {
            "tasks": [
                { "name": "compute", "taskSpec": {
                    "results": [{ "name": "number", "type": "string" }],
                    "steps": step("#!/bin/sh\nprintf %s $((6 * 7)) > $(results.number.path)\n"),
                }},
                { "name": "report",
                  "params": [{ "name": "number", "value": "$(tasks.compute.results.number)" }],
                  "taskSpec": {
                    "params": [{ "name": "number", "type": "string" }],
                    "results": [{ "name": "answer", "type": "string" }],
                    "steps": step("#!/bin/sh\nprintf 'got %s' $(params.number) > $(results.answer.path)\n"),
                }},
            ],
            "results": [{ "name": "answer", "value": "$(tasks.report.results.answer)" }],
        }},
    }))
}
