//! What runs become on a real Tekton, and how they end.

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{BuildSite, Testbed, condition, wait_for};
use serde_json::{Value, json};

use crate::objects::{
    LONG, SOON, build, busybox, many, merge, nothing_forbidden, run, strategy, two_platforms,
};

#[test]
fn an_ordinary_build_is_a_task_run_that_succeeds() -> Result<()> {
    let site = BuildSite::new("ordinary")?;
    // Before the Build's strategy is there it cannot be used; afterwards it can.
    let controller = site.lead(busybox()?, &[])?;
    site.apply(build("app", "plain", &json!({"output": {"pushSecret": "login"}})))?;
    let registered = |status: &str, reason: &str| {
        wait_for(reason, SOON, || {
            let build = site.namespace.kubectl_json(&["get", "build", "app"])?;
            let said = &build["status"];
            ensure!(said["registered"] == status && said["reason"] == reason, "{said}");
            Ok(())
        })
    };
    registered("False", "SpecOutputSecretRefNotFound")?;
    site.apply(json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "login"},
                      "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": "{\"auths\":{}}"}}))?;
    registered("False", "BuildStrategyNotFound")?;
    site.apply(strategy("plain", 0, 0)?)?;
    registered("True", "Succeeded")?;
    site.apply(run("first", "app", &json!({})))?;
    let done =
        site.reaches("first", "True", "Succeeded", LONG).with_context(|| controller.log())?;
    assert_eq!(done["status"]["executor"]["kind"], "TaskRun");
    assert_eq!(done["status"]["taskRunName"], done["status"]["executor"]["name"]);
    assert_eq!(done["status"]["output"]["digest"], format!("sha256:{:064}", 7));
    assert_eq!(done["status"]["buildSpec"]["strategy"]["name"], "plain");
    assert!(
        done["status"]["completionTime"].is_string() && done["status"]["startTime"].is_string()
    );
    assert_eq!(done["metadata"]["labels"]["build.shipwright.io/name"], "app");
    // The account that strategies push with has the secret now.
    let account = site.namespace.kubectl_json(&["get", "serviceaccount", "default"])?;
    assert!(account["secrets"].to_string().contains("\"login\""), "{account}");
    // An account of the run's own, and a strategy that fails.
    site.apply(strategy("failing", 0, 3)?)?;
    site.apply(build("bad", "failing", &json!({})))?;
    site.apply(run("second", "bad", &json!({"serviceAccount": ".generate"})))?;
    let executor = site.executor("second")?;
    assert_eq!(executor["spec"]["serviceAccountName"], "second");
    let failed = site.reaches("second", "False", "Failed", LONG)?;
    let details = &failed["status"]["failureDetails"]["location"];
    assert_eq!(details["container"], "step-build", "{}", failed["status"]);
    let message =
        condition(&failed, "Succeeded").context("one")?["message"].as_str().unwrap_or_default();
    assert!(message.contains("logs") && message.contains("--container=step-build"), "{message}");
    wait_for("the run's account to go", SOON, || {
        ensure!(
            site.namespace.kubectl(&["get", "serviceaccount", "second"]).is_err(),
            "it is there"
        );
        Ok(())
    })?;
    nothing_forbidden(&controller);
    Ok(())
}

#[test]
fn many_platforms_are_a_pipeline_run_that_tekton_takes_and_the_one_that_failed_is_named()
-> Result<()> {
    let site = BuildSite::new("many")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let platforms = two_platforms(&class)?;
    site.apply(strategy("plain", 10, 0)?)?;
    // What is applied together with its class and Build waits for them.
    site.apply(build("app", "plain", &many(&class)))?;
    site.apply(run("one", "app", &json!({})))?;
    let executor = site.executor("one").with_context(|| controller.log())?;
    assert_eq!(executor["kind"], "PipelineRun");
    let tasks: Vec<&str> = executor["spec"]["pipelineSpec"]["tasks"]
        .as_array()
        .context("tasks")?
        .iter()
        .filter_map(|task| task["name"].as_str())
        .collect();
    assert_eq!(tasks, ["build-linux-amd64", "build-linux-arm64", "assemble-index"]);
    // A class that changes in mid run, and then goes, changes nothing.
    let [_, arm, _] = &platforms;
    Testbed::get().kubectl(&[
        "patch",
        "imageplatform",
        &arm.1,
        "--type=merge",
        "-p",
        r#"{"spec":{"platform":{"arch":"s390x"},"nodeSelector":{"portolan.dev/no-such":"node"}}}"#,
    ])?;
    wait_for("the class to change", SOON, || {
        let found = Testbed::get().kubectl_json(&["get", "imageplatformclass", &class])?;
        let second = &found["status"]["imagePlatforms"][1];
        ensure!(second["arch"] == "s390x", "{second}");
        Ok(())
    })?;
    drop(platforms);
    // The strategy's step succeeds; ours does not exist in this image, so no platform has a digest.
    let failed = site.reaches("one", "False", "Failed", LONG).with_context(|| controller.log())?;
    let message =
        condition(&failed, "Succeeded").context("one")?["message"].as_str().unwrap_or_default();
    for part in ["linux/amd64: ", "linux/arm64: ", "step-image-processing"] {
        assert!(message.contains(part), "{message}");
    }
    let rows = failed["status"]["output"]["platforms"].as_array().context("rows")?;
    let shown: Vec<String> = rows
        .iter()
        .map(|row| format!("{} {} {}", row["arch"], row["state"], row["image"]))
        .collect();
    assert_eq!(
        shown,
        [
            r#""amd64" "Failed" "registry.example/team/app:1-linux-amd64""#,
            r#""arm64" "Failed" "registry.example/team/app:1-linux-arm64""#,
        ],
        "{rows:?}"
    );
    assert_eq!(rows[0]["imagePlatform"], format!("{class}-amd64"));
    assert_eq!(rows[1]["imagePlatform"], format!("{class}-arm64"));
    for row in rows {
        site.namespace.kubectl(&[
            "get",
            "taskrun",
            row["taskRun"].as_str().context("a TaskRun")?,
        ])?;
    }
    assert!(failed["status"]["output"]["digest"].is_null(), "no index: {failed}");
    nothing_forbidden(&controller);
    Ok(())
}

#[test]
fn tekton_takes_every_shape_of_pipeline_and_a_platform_without_a_node_says_so() -> Result<()> {
    let site = BuildSite::new("shapes")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    let mut leaves = strategy("leaves", 0, 0)?;
    leaves["spec"]["steps"][0]["args"] =
        json!(["$(params.shp-output-directory)", "$(params.list[*])"]);
    leaves["spec"]["securityContext"] = json!({"runAsUser": 1000, "runAsGroup": 1000});
    leaves["spec"]["volumes"] = json!([{"name": "extra", "overridable": true, "emptyDir": {}}]);
    leaves["spec"]["steps"][0]["volumeMounts"] =
        json!([{"name": "extra", "mountPath": "/extra", "readOnly": true}]);
    site.apply(leaves)?;
    for (kind, name) in [("Secret", "values"), ("ConfigMap", "values")] {
        site.apply(json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}}))?;
    }
    let git = json!({"source": {"type": "Git", "git": {"url": "https://git.example/a.git"}},
                     "output": {"timestamp": "SourceTimestamp", "annotations": {"a": "b"}, "labels": {"b": "c"}}});
    let oci = json!({"source": {"type": "OCI", "ociArtifact": {"image": "registry.example/src:1", "prune": "AfterPull"}}, "timeout": "10m"});
    let local = json!({"source": {"type": "Local", "local": {"timeout": "1m"}}, "volumes": [{"name": "extra", "configMap": {"name": "values"}}]});
    let values = json!({"paramValues": [{"name": "list", "values": [
        {"value": "$(params.nobody)"}, {"secretValue": {"name": "values", "key": "k"}},
    ]}]});
    let scheduled = json!({"nodeSelector": {"portolan.dev/no-such": "node"}, "schedulerName": "default-scheduler",
                           "tolerations": [{"key": "k", "operator": "Exists"}]});
    for (name, more) in
        [("git", git), ("oci", oci), ("local", local), ("values", values), ("scheduled", scheduled)]
    {
        let mut spec = many(&class);
        merge(&mut spec, &more);
        site.apply(build(name, "leaves", &spec))?;
        site.apply(run(name, name, &json!({})))?;
        let executor =
            site.executor(name).with_context(|| format!("{name}\n{}", controller.log()))?;
        let kind = executor["kind"].as_str().context("a kind")?.to_lowercase();
        let object = executor["metadata"]["name"].as_str().context("a name")?.to_owned();
        wait_for("Tekton to begin", SOON, || {
            let found = site.namespace.kubectl_json(&["get", &kind, &object])?;
            let said = condition(&found, "Succeeded").context("no condition")?;
            // What is wrong with a pipeline is told before any task of it begins.
            ensure!(found["status"]["childReferences"][0]["name"].is_string(), "{said}");
            Ok(())
        })
        .with_context(|| name.to_owned())?;
    }
    let waiting = wait_for("the pods to wait", SOON, || {
        let found = site.run("scheduled")?;
        let said = condition(&found, "Succeeded").context("no condition")?.clone();
        let message = said["message"].as_str().unwrap_or_default();
        ensure!(message.contains("linux/arm64 waits: Unschedulable"), "{said}");
        Ok(found)
    })?;
    assert_eq!(waiting["status"]["output"]["platforms"][0]["state"], "Pending");
    nothing_forbidden(&controller);
    Ok(())
}

/// How many pods of a run are at work, and are not asked to end.
fn pods(site: &BuildSite, run: &str) -> Result<usize> {
    let label = format!("buildrun.shipwright.io/name={run}");
    let pods = site.namespace.kubectl_json(&["get", "pods", "-l", &label])?;
    let running = |pod: &&Value| {
        pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
    };
    Ok(pods["items"].as_array().context("pods")?.iter().filter(running).count())
}

fn pods_end(site: &BuildSite, run: &str) -> Result<()> {
    wait_for("the pods to end", LONG, || {
        ensure!(pods(site, run)? == 0, "pods of {run} run");
        Ok(())
    })
}

#[test]
fn cancel_ends_the_pods_and_a_deleted_executor_ends_the_run() -> Result<()> {
    let site = BuildSite::new("cancel")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    site.apply(strategy("slow", 300, 0)?)?;
    site.apply(build("app", "slow", &many(&class)))?;
    site.apply(build("one", "slow", &json!({})))?;
    for (name, build) in
        [("many", "app"), ("single", "one"), ("deleted", "app"), ("deleted-one", "one")]
    {
        site.apply(run(name, build, &json!({})))?;
        site.executor(name)?;
    }
    wait_for("both platforms to be built", LONG, || {
        let rows = site.run("many")?["status"]["output"]["platforms"].clone();
        ensure!(rows[0]["state"] == "Running" && rows[1]["state"] == "Running", "{rows}");
        ensure!(pods(&site, "many")? == 2 && pods(&site, "single")? == 1, "not yet");
        Ok(())
    })
    .with_context(|| controller.log())?;
    for name in ["many", "single"] {
        site.namespace.kubectl(&[
            "patch",
            "buildrun",
            name,
            "--type=merge",
            "-p",
            r#"{"spec":{"state":"BuildRunCanceled"}}"#,
        ])?;
    }
    for name in ["many", "single"] {
        let ended = site.reaches(name, "False", "BuildRunCanceled", LONG)?;
        assert!(ended.to_string().contains("were canceled successfully"), "{ended}");
        pods_end(&site, name)?;
    }
    assert_eq!(site.run("many")?["status"]["output"]["platforms"][1]["state"], "Canceled");
    for (name, kind) in [("deleted", "pipelinerun"), ("deleted-one", "taskrun")] {
        let executor =
            site.executor(name)?["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        site.namespace.kubectl(&["delete", kind, &executor, "--wait=false"])?;
        let ended = site.reaches(name, "False", "TaskRunIsMissing", SOON)?;
        assert!(ended.to_string().contains(&format!("{executor} doesn't exist")), "{ended}");
    }
    nothing_forbidden(&controller);
    Ok(())
}

#[test]
fn a_run_that_takes_longer_than_its_timeout_ends_with_its_pods() -> Result<()> {
    let site = BuildSite::new("timeout")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    site.apply(strategy("slow", 300, 0)?)?;
    // The Build's word counts, and a run's own before it.
    let brief = json!({"timeout": "15s"});
    let mut wide = many(&class);
    merge(&mut wide, &brief);
    site.apply(build("wide", "slow", &wide))?;
    site.apply(build("one", "slow", &json!({"timeout": "1h"})))?;
    site.apply(run("wide", "wide", &json!({})))?;
    site.apply(run("one", "one", &brief))?;
    for (name, kind) in [("wide", "PipelineRun"), ("one", "TaskRun")] {
        let ended = site
            .reaches(name, "False", "BuildRunTimeout", LONG)
            .with_context(|| controller.log())?;
        let status = &ended["status"];
        let message = format!("BuildRun {name} failed to finish within 15s");
        assert_eq!(condition(&ended, "Succeeded").context("one")?["message"], message);
        assert_eq!(status["executor"]["kind"], kind);
        assert!(status["completionTime"].is_string(), "{status}");
        pods_end(&site, name)?;
    }
    let output = &site.run("wide")?["status"]["output"];
    let states: Vec<&Value> =
        output["platforms"].as_array().context("rows")?.iter().map(|row| &row["state"]).collect();
    assert_eq!(states, ["Canceled", "Canceled"], "{output}");
    assert!(output["digest"].is_null(), "no index: {output}");
    nothing_forbidden(&controller);
    Ok(())
}
