//! Shims on the real API server, with the roles that are shipped: definitions, Jobs, labels, RuntimeClasses. Nodes here are
//! objects without a machine, and the test is their kubelet: it says how pods end. What happens on a machine is
//! another file's.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Controller, Output, ShimSite, Testbed, condition, deploy, ok, portolan, run_with_input,
    wait_for,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(60);

/// Deleted at the end, whatever it takes.
struct OfCluster(&'static str, String);

impl Drop for OfCluster {
    fn drop(&mut self) {
        let testbed = Testbed::get();
        if self.0 == "shim" {
            let free = r#"{"metadata":{"finalizers":null}}"#;
            let _ = testbed.kubectl(&["patch", "shim", &self.1, "--type=merge", "-p", free]);
        }
        let _ = testbed.kubectl(&["delete", self.0, &self.1, "--ignore-not-found", "--wait=false"]);
    }
}

/// A Job of a stranger, deleted at the end.
struct Forged(String);

impl Drop for Forged {
    fn drop(&mut self) {
        let delete = ["-n", "default", "delete", "job", &self.0, "--wait=false"];
        let _ = Testbed::get().kubectl(&delete);
    }
}

fn fixture(name: &str) -> Result<String> {
    let path = deploy("crds").join("../../fixtures/shim").join(name);
    std::fs::read_to_string(&path).with_context(|| path.display().to_string())
}

fn create(text: &str) -> Result<Output> {
    let mut command = Testbed::get().kubectl_command()?;
    command.args(["create", "--dry-run=server", "-f", "-"]);
    run_with_input(&mut command, text.as_bytes())
}

fn shim(name: &str, label: &str, location: &str) -> Value {
    json!({
        "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name},
        "spec": {
            "nodeSelector": {label: "yes"},
            "fetchStrategy": {"platforms": [
                {"os": "linux", "arch": "x86_64", "location": location, "sha256": "AB".repeat(32)},
                {"os": "linux", "arch": "aarch64", "location": location},
            ]},
            "runtimeClass": {"name": format!("class-{name}"), "handler": name},
            "rolloutStrategy": {"type": "recreate"},
            "containerdRuntimeOptions": {"SystemdCgroup": "true"},
        },
    })
}

/// A node that is an object and nothing more.
fn node(name: &str, arch: &str, label: &str) -> Result<OfCluster> {
    let testbed = Testbed::get();
    testbed.apply(&json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {label: "yes"}},
        "spec": {"unschedulable": true},
    }))?;
    let gone = OfCluster("node", name.to_owned());
    let info = json!({
        "operatingSystem": "linux", "architecture": arch, "bootID": "boot-1",
        "containerRuntimeVersion": "containerd://1.7.2", "kernelVersion": "", "kubeProxyVersion": "",
        "kubeletVersion": "v1.36.3", "machineID": "", "osImage": "", "systemUUID": "",
    });
    set_status(name, &json!({"nodeInfo": info}))?;
    alive(name)?;
    Ok(gone)
}

fn set_status(node: &str, status: &Value) -> Result<()> {
    let patch = json!({ "status": status }).to_string();
    let args = ["patch", "node", node, "--subresource=status", "--type=strategic", "-p", &patch];
    Testbed::get().kubectl(&args).map(drop)
}

/// What a kubelet says again and again.
fn alive(node: &str) -> Result<()> {
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    set_status(
        node,
        &json!({"conditions": [{
            "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
            "lastHeartbeatTime": now, "lastTransitionTime": now,
        }]}),
    )
}

/// The Job of a node that has not ended.
fn job_of(shim: &str, node: &str) -> Result<Value> {
    wait_for(&format!("a Job for {node}"), PATIENCE, || {
        alive(node)?;
        let label = format!("spinkube.dev/shimName={shim}");
        let jobs =
            Testbed::get().kubectl_json(&["-n", ShimSite::JOBS, "get", "jobs", "-l", &label])?;
        let found = jobs["items"].as_array().into_iter().flatten().find(|job| {
            let ended = job["status"]["conditions"].as_array().is_some_and(|all| {
                all.iter().any(|one| ["Complete", "Failed"].iter().any(|kind| one["type"] == *kind))
            });
            job["spec"]["template"]["spec"]["nodeName"] == node && !ended
        });
        found.cloned().with_context(|| jobs.to_string())
    })
}

/// Ends the pod of a Job as a kubelet would.
fn end_pod(job: &Value, report: Option<&Value>) -> Result<()> {
    let testbed = Testbed::get();
    let of = |key: &str| job["metadata"][key].as_str().unwrap_or_default();
    let (namespace, label) =
        (of("namespace"), format!("batch.kubernetes.io/job-name={}", of("name")));
    let pod = wait_for("the Job's pod", PATIENCE, || {
        let pods = testbed.kubectl_json(&["-n", namespace, "get", "pods", "-l", &label])?;
        let pod = pods["items"].get(0).context("no pod yet")?;
        pod["metadata"]["name"].as_str().map(str::to_owned).context("a name")
    })?;
    // As a kubelet keeps words: a share of the pod's for each of its containers.
    let spec = &job["spec"]["template"]["spec"];
    let containers = ["containers", "initContainers"]
        .map(|kind| spec[kind].as_array().map_or(0, Vec::len))
        .iter()
        .sum::<usize>();
    let share = (12288 / containers.max(1)).min(4096);
    let ended = |name: &str, code: i32, message: &str| {
        let message = &message[..message.floor_char_boundary(share)];
        let time = "2026-01-01T00:00:00Z";
        json!({
            "name": name, "image": "", "imageID": "", "ready": false, "restartCount": 0,
            "state": {"terminated": {"exitCode": code, "message": message, "startedAt": time, "finishedAt": time}},
        })
    };
    let status = match report {
        None => json!({"phase": "Succeeded", "containerStatuses": [ended("provisioner", 0, "")]}),
        Some(report) => json!({
            "phase": "Failed",
            "initContainerStatuses": [ended("downloader", 1, &report.to_string())],
        }),
    };
    let patch = json!({ "status": status }).to_string();
    let args = [
        "-n",
        namespace,
        "patch",
        "pod",
        &pod,
        "--subresource=status",
        "--type=strategic",
        "-p",
        &patch,
    ];
    testbed.kubectl(&args).map(drop)
}

fn label_of(node: &str, key: &str) -> Result<String> {
    let node = Testbed::get().kubectl_json(&["get", "node", node])?;
    Ok(node["metadata"]["labels"][key].as_str().unwrap_or_default().to_owned())
}

fn labelled(node: &str, key: &str, value: &str, controller: &Controller) -> Result<()> {
    let end = wait_for(&format!("{node} to be {value:?}"), PATIENCE, || {
        alive(node)?;
        let found = label_of(node, key)?;
        ensure!(found == value, "{found:?}");
        Ok(())
    });
    end.with_context(|| controller.log())
}

/// Deletes a node while its Job runs: nobody waits for that any more.
fn leaves_in_mid_install(shim: &str, node: &str) -> Result<()> {
    let testbed = Testbed::get();
    let name = job_of(shim, node)?["metadata"]["name"].clone();
    testbed.kubectl(&["delete", "node", node])?;
    wait_for("the Job of a node that went to be ended", PATIENCE, || {
        let jobs = testbed.kubectl_json(&["-n", ShimSite::JOBS, "get", "jobs"])?;
        let mut all = jobs["items"].as_array().context("a list")?.iter();
        let found = all.find(|job| job["metadata"]["name"] == name);
        // Its pod stays until somebody finds that no kubelet has it.
        let left = found.filter(|job| job["metadata"]["deletionTimestamp"].is_null());
        ensure!(left.is_none(), "{left:?}");
        Ok(())
    })
}

fn get_shim(name: &str) -> Result<Value> {
    Testbed::get().kubectl_json(&["get", "shim", name])
}

#[test]
fn shims_of_the_proposal_are_taken_unchanged_and_bad_ones_are_refused() -> Result<()> {
    let _site = ShimSite::new()?;
    for file in ["proposal.yaml", "published.yaml"] {
        for (at, text) in fixture(file)?.split("---\n").enumerate() {
            let said = create(text)?;
            assert_eq!(said.code, Some(0), "{file}, example {at}: {said}");
        }
    }
    let good = shim("good", "a", "https://x.example/a");
    assert_eq!(create(&good.to_string())?.code, Some(0));
    // Upstream's own sample, with the deprecated type, and what upstream writes into every spec.
    let mut old = good.clone();
    old["spec"]["fetchStrategy"]["type"] = json!("anonymousHttp");
    old["spec"]["fetchStrategy"]["anonHttp"] = json!({"location": "https://x.example/a%2Fb"});
    old["spec"]["rolloutStrategy"]["rolling"] = json!({"maxUpdate": 0});
    assert_eq!(create(&old.to_string())?.code, Some(0));
    let edit = |path: &str, value: Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(path).expect(path) = value;
        bad
    };
    for (bad, told) in [
        (edit("/spec/fetchStrategy/platforms/0/arch", json!("sparc")), "Unsupported value"),
        (edit("/spec/fetchStrategy/platforms/0/os", json!("windows")), "Unsupported value"),
        (
            edit("/spec/fetchStrategy/platforms/0", json!({"os": "linux", "arch": "amd64"})),
            "location",
        ),
        (edit("/spec/fetchStrategy/platforms/0/sha256", json!("not hex")), "should match"),
        (edit("/spec/rolloutStrategy", json!({"type": "sideways"})), "Unsupported value"),
        (
            edit(
                "/spec/rolloutStrategy",
                json!({"type": "rolling", "rolling": {"maxUpdate": "many"}}),
            ),
            "should match",
        ),
        (edit("/metadata/name", json!("a".repeat(64))), "at most 63"),
    ] {
        let said = create(&bad.to_string())?;
        ensure!(said.code != Some(0) && said.stderr.contains(told), "{told}: {said}");
    }
    for rolling in [json!(3), json!("25%")] {
        let strategy = json!({"type": "rolling", "rolling": {"maxUpdate": rolling}});
        let said = create(&edit("/spec/rolloutStrategy", strategy).to_string())?;
        assert_eq!(said.code, Some(0), "{said}");
    }
    Ok(())
}

#[test]
fn a_shim_becomes_jobs_labels_and_a_class_and_goes_when_its_nodes_are_clean() -> Result<()> {
    let site = ShimSite::new()?;
    let testbed = Testbed::get();
    let (name, select) = ("e2e-spin", "e2e-shim-journey");
    let _shim = OfCluster("shim", name.to_owned());
    let _nodes = [
        node("shim-amd", "amd64", select)?,
        node("shim-arm", "arm64", select)?,
        node("shim-risc", "riscv64", select)?,
        node("shim-gone", "amd64", select)?,
    ];
    let controller = site.lead("registry.invalid/portolan", &["--shim-config-map", "downloads"])?;
    testbed.apply(&shim(name, select, "https://x.example/a.tar.gz"))?;
    // The Jobs, as the server has them.
    let job = job_of(name, "shim-amd").with_context(|| controller.log())?;
    let pod = &job["spec"]["template"]["spec"];
    ensure!(
        job["metadata"]["name"]
            .as_str()
            .is_some_and(|name| name.starts_with("shim-amd-e2e-spin-install-")),
        "{job}"
    );
    assert_eq!(pod["initContainers"][0]["name"], "downloader");
    assert_eq!(pod["initContainers"][0]["envFrom"][0]["configMapRef"]["name"], "downloads");
    assert_eq!(
        pod["initContainers"][0]["env"][2],
        json!({"name": "SHIM_SHA256", "value": "ab".repeat(32)})
    );
    assert_eq!(pod["containers"][0]["name"], "provisioner");
    assert_eq!(pod["automountServiceAccountToken"], false);
    assert_eq!(job["spec"]["podReplacementPolicy"], "Failed");
    labelled("shim-amd", name, "pending", &controller)?;
    // A Job of somebody else, with all that can be copied.
    let mut forged = json!({
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {
            "name": job["metadata"]["name"], "namespace": "default",
            "labels": {"spinkube.dev/job": "true", "spinkube.dev/shimName": name, "spinkube.dev/operation": "install"},
            "annotations": job["metadata"]["annotations"],
        },
        "spec": {"template": {"spec": {
            "restartPolicy": "Never", "nodeName": "shim-amd",
            "containers": [{"name": "provisioner", "image": testbed.image("busybox")?, "command": ["true"]}],
        }}},
    });
    forged["metadata"]["annotations"]["spinkube.dev/operation"] = json!("uninstall");
    testbed.apply(&forged)?;
    let forged_name = job["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    let _forged = Forged(forged_name.clone());
    end_pod(&forged, None)?;
    wait_for("the stranger's Job to be complete", PATIENCE, || {
        alive("shim-amd")?;
        let job = testbed.kubectl_json(&["-n", "default", "get", "job", &forged_name])?;
        let all = job["status"]["conditions"].as_array().into_iter().flatten();
        let mut ends = all.filter(|one| one["type"] == "Complete" && one["status"] == "True");
        ends.next().map(drop).with_context(|| job["status"].to_string())
    })?;
    // The real ones. What came of the one was heard of after the stranger's.
    let report = json!({"operation": "fetch", "phase": "fetch", "reason": "DigestMismatch", "message": "it is another archive"});
    end_pod(&job_of(name, "shim-arm")?, Some(&report))?;
    labelled("shim-arm", name, "failed", &controller)?;
    assert_eq!(label_of("shim-amd", name)?, "pending", "a stranger's Job says nothing");
    end_pod(&job, None)?;
    labelled("shim-amd", name, "provisioned", &controller)?;
    assert_eq!(label_of("shim-amd", &format!("runtime.spinkube.dev/{name}"))?, "provisioned");
    leaves_in_mid_install(name, "shim-gone").with_context(|| controller.log())?;
    let class = testbed.kubectl_json(&["get", "runtimeclass", &format!("class-{name}")])?;
    assert_eq!(
        (&class["handler"], &class["scheduling"]["nodeSelector"][select]),
        (&json!(name), &json!("yes"))
    );
    let found = wait_for("the status", PATIENCE, || {
        let found = get_shim(name)?;
        let status = &found["status"];
        let counts = ["nodes", "nodesReady", "nodesFailed", "nodesUnsupported"]
            .map(|key| status[key].as_i64());
        ensure!(counts == [Some(3), Some(1), Some(1), Some(1)], "{status}");
        ensure!(
            condition(&found, "Degraded").is_some_and(|one| one["reason"] == "NodesFailed"),
            "{status}"
        );
        Ok(found)
    })
    .with_context(|| controller.log())?;
    let failures = found["status"]["failures"].to_string();
    ensure!(
        failures.contains("DigestMismatch")
            && failures.contains("no platform artifact matches node shim-risc (linux/riscv64)"),
        "{failures}"
    );
    let events = testbed.kubectl(&[
        "get",
        "events",
        "-n",
        "default",
        "--field-selector",
        "involvedObject.name=shim-arm",
    ])?;
    ensure!(events.contains("DigestMismatch"), "{events}");
    // The command line says the same of the same cluster.
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), shim(name, select, "https://x.example/a.tar.gz").to_string())?;
    let mut plan = portolan();
    plan.env("KUBECONFIG", &testbed.kubeconfig)
        .args(["shim", "plan", "-o", "json", "-f"])
        .arg(file.path());
    let said = portolan_e2e::run(&mut plan)?;
    assert_eq!(said.code, Some(1), "{said}");
    let rows: Value = serde_json::from_str(&said.stdout)?;
    assert_eq!(rows.as_array().map(Vec::len), Some(3), "{rows}");
    // It stays until its nodes are clean.
    testbed.kubectl(&["delete", "shim", name, "--wait=false"])?;
    let uninstall = job_of(name, "shim-amd").with_context(|| controller.log())?;
    assert_eq!(uninstall["spec"]["template"]["spec"]["containers"][0]["args"][1], "uninstall");
    get_shim(name).context("it waits")?;
    end_pod(&uninstall, None)?;
    labelled("shim-amd", name, "", &controller)?;
    get_shim(name).context("it waits for the other one")?;
    testbed.kubectl(&["delete", "node", "shim-arm"])?;
    wait_for("the Shim to go", PATIENCE, || {
        ensure!(get_shim(name).is_err(), "{}", controller.log());
        Ok(())
    })?;
    let class = testbed.kubectl(&["get", "runtimeclass", &format!("class-{name}")]);
    ensure!(class.is_err(), "the class went with it");
    ok(portolan().args(["crds", "-o", "table"]));
    Ok(())
}

#[test]
fn upstreams_controller_is_not_disturbed_unless_taking_over_was_asked_for() -> Result<()> {
    let site = ShimSite::new()?;
    let testbed = Testbed::get();
    testbed.apply(&json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "rcm", "namespace": "default", "labels": {"app.kubernetes.io/name": "runtime-class-manager"}},
        "spec": {
            "replicas": 1, "selector": {"matchLabels": {"a": "rcm"}},
            "template": {"metadata": {"labels": {"a": "rcm"}}, "spec": {
                "nodeSelector": {"nobody": "has-this"}, "containers": [{"name": "manager", "image": "x"}],
            }},
        },
    }))?;
    let refused = site.lead("registry.invalid/portolan", &[]);
    let taken = site.lead("registry.invalid/portolan", &["--shim-takeover"]);
    testbed.kubectl(&["-n", "default", "delete", "deployment", "rcm"])?;
    let told = format!("{:#}", refused.err().context("it must not begin")?);
    ensure!(told.contains("Deployment rcm in namespace default"), "{told}");
    taken.map(drop)
}
