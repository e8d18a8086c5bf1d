//! Builds on a real API server and a real Tekton: what its definitions take and refuse, what runs become,
//! and what a controller does that is killed, doubled or not alone. It is allowed what
//! `deploy/controller/rbac.yaml` allows, and nothing else.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{BuildSite, Controller, Testbed, condition, run_with_input, wait_for};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(20);
const LONG: Duration = Duration::from_secs(120);

/// Steps of ours run nothing here: what they do is tested with the image that has it.
fn busybox() -> Result<&'static str> {
    Testbed::get().image("busybox")
}

/// A strategy that tells a digest, waits for `hold` seconds and ends with `code`.
fn strategy(name: &str, hold: u32, code: u32) -> Result<Value> {
    let script = format!(
        "printf sha256:%064d 7 > $(results.shp-image-digest.path); sleep {hold}; exit {code}"
    );
    Ok(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildStrategy", "metadata": {"name": name},
        "spec": {
            "parameters": [
                {"name": "SHP_BUILD_PLATFORM", "description": "the platform", "default": ""},
                {"name": "list", "description": "a list", "type": "array", "defaults": []},
            ],
            "steps": [{
                "name": "build", "image": busybox()?, "command": ["sh", "-c", script],
                "args": ["$(params.SHP_BUILD_PLATFORM)", "$(params.list[*])"],
            }],
        },
    }))
}

fn build(name: &str, strategy: &str, more: &Value) -> Value {
    let mut build = json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "Build", "metadata": {"name": name},
        "spec": {"strategy": {"name": strategy}, "output": {"image": "registry.example/team/app:1"}},
    });
    merge(&mut build["spec"], more);
    build
}

fn run(name: &str, build: &str, more: &Value) -> Value {
    let mut run = json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": name},
        "spec": {"build": {"name": build}},
    });
    merge(&mut run["spec"], more);
    run
}

fn merge(into: &mut Value, more: &Value) {
    match (into, more) {
        (Value::Object(into), Value::Object(more)) => {
            for (key, value) in more {
                merge(into.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (into, more) => *into = more.clone(),
    }
}

/// An object of the cluster that goes with the test.
struct OfCluster(&'static str, String);

impl OfCluster {
    fn apply(object: &Value) -> Result<Self> {
        let kind = match object["kind"].as_str() {
            Some("ImagePlatform") => "imageplatform",
            _ => "imageplatformclass",
        };
        let name = object["metadata"]["name"].as_str().context("a name")?.to_owned();
        Testbed::get().apply(object)?;
        Ok(Self(kind, name))
    }

    fn platform(name: &str, arch: &str, more: &Value) -> Result<Self> {
        let mut platform = json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform", "metadata": {"name": name},
            "spec": {"platform": {"os": "linux", "arch": arch}},
        });
        merge(&mut platform["spec"], more);
        Self::apply(&platform)
    }

    fn class(name: &str, platforms: &[&str]) -> Result<Self> {
        let named: Vec<Value> = platforms.iter().map(|name| json!({"name": name})).collect();
        Self::apply(&json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": name}, "spec": {"imagePlatforms": named},
        }))
    }
}

impl Drop for OfCluster {
    fn drop(&mut self) {
        let _ = Testbed::get().kubectl(&["delete", self.0, &self.1, "--ignore-not-found"]);
    }
}

/// Two platforms that any node builds, and a class of them.
fn two_platforms(name: &str) -> Result<[OfCluster; 3]> {
    let value = |platform: &str| json!({"paramValues": [{"name": "SHP_BUILD_PLATFORM", "value": platform}]});
    let (amd, arm) = (format!("{name}-amd64"), format!("{name}-arm64"));
    Ok([
        OfCluster::platform(&amd, "amd64", &value("linux/amd64"))?,
        OfCluster::platform(&arm, "arm64", &value("linux/arm64"))?,
        OfCluster::class(name, &[&amd, &arm])?,
    ])
}

fn many(class: &str) -> Value {
    json!({"output": {"multiArch": {"imagePlatformClass": class, "platforms": [
        {"os": "linux", "arch": "amd64"}, {"os": "linux", "arch": "arm64"},
    ]}}})
}

fn kubectl_apply(manifest: &str) -> Result<portolan_e2e::Output> {
    let mut command = Testbed::get().kubectl_command()?;
    run_with_input(command.args(["apply", "-f", "-"]), manifest.as_bytes())
}

fn fixture(name: &str) -> Result<String> {
    let path = format!("{}/../../fixtures/build/{name}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).with_context(|| path)
}

#[test]
fn the_definitions_take_the_proposals_examples_and_refuse_what_is_wrong() -> Result<()> {
    let site = BuildSite::new("definitions")?;
    let output = kubectl_apply(&fixture("proposal-platforms.yaml")?)?;
    assert_eq!(output.code, Some(0), "{output}");
    let _gone: Vec<OfCluster> =
        ["linux-amd64-native", "linux-s390x-kata-remote", "linux-ppcle64-emulated"]
            .into_iter()
            .map(|name| OfCluster("imageplatform", name.to_owned()))
            .chain([OfCluster("imageplatformclass", "all".to_owned())])
            .collect();
    // Everything that the table of fields has.
    let full = json!({
        "source": {"type": "Git", "contextDir": "src", "git": {"url": "https://git.example/a.git", "revision": "main", "cloneSecret": "s", "depth": 1}},
        "trigger": {"when": [{"name": "push", "type": "GitHub", "github": {"events": ["Push"], "branches": ["main"]}}], "triggerSecret": "t"},
        "strategy": {"kind": "ClusterBuildStrategy", "stepResources": [{"name": "build", "resources": {"limits": {"memory": "1Gi"}}}]},
        "paramValues": [{"name": "a", "value": "b"}, {"name": "c", "values": [{"value": "d"}, {"secretValue": {"name": "s", "key": "k", "format": "x=${SECRET_VALUE}"}}]}],
        "output": {"insecure": true, "pushSecret": "p", "annotations": {"a": "b"}, "labels": {"c": "d"}, "timestamp": "Zero",
                   "vulnerabilityScan": {"enabled": false, "failOnFinding": true, "ignore": {"id": ["CVE-1"], "severity": "low", "unfixed": true}}},
        "timeout": "1h2m", "env": [{"name": "A", "value": "b"}],
        "retention": {"failedLimit": 1, "succeededLimit": 10000, "ttlAfterFailed": "1m", "ttlAfterSucceeded": "48h", "atBuildDeletion": true},
        "volumes": [{"name": "v", "emptyDir": {}}], "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists"}], "schedulerName": "s", "runtimeClassName": "r",
    });
    let whole = build("whole", "s", &full);
    let said = site.namespace.try_create(whole.clone())?;
    assert_eq!(said.code, Some(0), "{said}");
    let kept: Value = serde_json::from_str(&said.stdout)?;
    for (field, value) in full.as_object().context("fields")? {
        let mut expected = whole["spec"][field].clone();
        if field == "timeout" {
            expected = kept["spec"]["timeout"].clone();
        }
        assert_eq!(kept["spec"][field], expected, "{field} {value}");
    }
    let platform = |spec: Value| json!({"apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform", "metadata": {"name": "bad"}, "spec": spec});
    let linux = json!({"os": "linux", "arch": "amd64"});
    for (object, told) in [
        (platform(json!({"platform": linux})), "at least one of nodeSelector"),
        (
            platform(json!({"platform": linux, "nodeSelector": {}, "paramValues": []})),
            "at least one of nodeSelector",
        ),
        (platform(json!({"platform": {"os": "linux"}, "nodeSelector": {"a": "b"}})), "arch"),
        (
            platform(
                json!({"platform": {"os": "Linux", "arch": "amd64"}, "nodeSelector": {"a": "b"}}),
            ),
            "should match",
        ),
        (
            platform(json!({"platform": linux, "paramValues": [{"name": "shp-x", "value": ""}]})),
            "the system sets those",
        ),
        (
            platform(
                json!({"platform": linux, "paramValues": [{"name": "x", "secretValue": {"name": "s", "key": "k"}}]}),
            ),
            "belongs to no namespace",
        ),
        (
            platform(
                json!({"platform": linux, "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}]}),
            ),
            "a toleration needs",
        ),
        (
            json!({"apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass", "metadata": {"name": "bad"}, "spec": {"imagePlatforms": []}}),
            "imagePlatforms",
        ),
        (
            json!({"apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass", "metadata": {"name": "bad"}, "spec": {"imagePlatforms": [{"name": "a"}, {"name": "a"}]}}),
            "Duplicate",
        ),
    ] {
        let said = Testbed::get().try_create(&object)?;
        assert!(said.code != Some(0) && said.stderr.contains(told), "{object}\n{said}");
    }
    for (spec, told) in [
        (json!({"output": {"image": null}}), "image"),
        (json!({"strategy": {"name": null}}), "name"),
        (
            json!({"output": {"multiArch": {"imagePlatformClass": "a", "platforms": []}}}),
            "platforms",
        ),
        (json!({"output": {"multiArch": {"platforms": [linux]}}}), "imagePlatformClass"),
        (
            json!({"output": {"multiArch": {"imagePlatformClass": "a", "platforms": [linux]}, "platforms": [linux]}}),
            "exclude each other",
        ),
        (json!({"retention": {"failedLimit": 0}}), "failedLimit"),
        (json!({"retention": {"succeededLimit": 10001}}), "succeededLimit"),
        (json!({"source": {"type": "Svn"}}), "Svn"),
        (json!({"source": {"git": {"url": "a"}}}), "type"),
    ] {
        let said = site.namespace.try_create(build("bad", "s", &spec))?;
        assert!(said.code != Some(0) && said.stderr.contains(told), "{spec}\n{said}");
    }
    let said = site.namespace.try_create(run("bad", "a", &json!({"state": "Paused"})))?;
    assert!(said.code != Some(0) && said.stderr.contains("Paused"), "{said}");
    Ok(())
}

#[test]
fn a_class_follows_its_platforms() -> Result<()> {
    let site = BuildSite::new("classes")?;
    let _controller = site.lead(busybox()?, &[])?;
    let name = site.namespace.name().to_owned();
    let [amd, _arm, _class] = two_platforms(&name)?;
    let says = |status: &str, reason: &str, platforms: &[&str]| {
        wait_for(reason, SOON, || {
            let class = Testbed::get().kubectl_json(&["get", "imageplatformclass", &name])?;
            let found = condition(&class, "Available").context("no condition")?;
            ensure!(found["status"] == status && found["reason"] == reason, "{found}");
            ensure!(found["observedGeneration"] == class["metadata"]["generation"], "{class}");
            let listed: Vec<&str> = class["status"]["imagePlatforms"]
                .as_array()
                .map(|all| all.iter().filter_map(|one| one["arch"].as_str()).collect())
                .unwrap_or_default();
            ensure!(listed == platforms, "{listed:?}");
            Ok(class["metadata"]["resourceVersion"].as_str().unwrap_or_default().to_owned())
        })
    };
    let version = says("True", "AllImagePlatformsAvailable", &["amd64", "arm64"])?;
    // Nothing is written while nothing changes.
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(says("True", "AllImagePlatformsAvailable", &["amd64", "arm64"])?, version);
    Testbed::get().kubectl(&[
        "patch",
        "imageplatform",
        &amd.1,
        "--type=merge",
        "-p",
        r#"{"spec":{"platform":{"arch":"arm64"}}}"#,
    ])?;
    says("False", "DuplicatePlatform", &["arm64", "arm64"])?;
    Testbed::get().kubectl(&["delete", "imageplatform", &amd.1])?;
    says("False", "ImagePlatformNotFound", &["arm64"])?;
    let _again = OfCluster::platform(&amd.1, "s390x", &json!({"nodeSelector": {"a": "b"}}))?;
    says("True", "AllImagePlatformsAvailable", &["s390x", "arm64"])?;
    Ok(())
}

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

/// The shipped roles are enough.
fn nothing_forbidden(controller: &Controller) {
    let log = controller.log();
    assert!(!log.contains("orbidden"), "{log}");
}

#[test]
fn many_platforms_are_a_pipeline_run_that_tekton_takes_and_the_one_that_failed_is_named()
-> Result<()> {
    let site = BuildSite::new("many")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let platforms = two_platforms(&class)?;
    site.apply(strategy("plain", 0, 0)?)?;
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
    // A class that goes in mid run changes nothing.
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

#[test]
fn a_refused_run_makes_nothing_and_names_everything_that_is_wrong() -> Result<()> {
    let site = BuildSite::new("refused")?;
    let controller = site.lead(busybox()?, &[])?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    let pinned = json!({"nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "builds", "operator": "Exists"}], "runtimeClass": {"name": "kata"}});
    let _third = OfCluster::platform(&format!("{class}-s390x"), "s390x", &pinned)?;
    let _pinned = OfCluster::class(&format!("{class}-pinned"), &[&format!("{class}-s390x")])?;
    let _broken = OfCluster::class(&format!("{class}-broken"), &["nobody"])?;
    site.apply(strategy("plain", 0, 0)?)?;
    site.apply(build("app", "plain", &many(&class)))?;
    let other = |class: &str, platforms: Value| json!({"output": {"multiArch": {"imagePlatformClass": class, "platforms": platforms}}});
    let linux = |arch: &str| json!({"os": "linux", "arch": arch});
    let mut collides = other(&format!("{class}-pinned"), json!([linux("s390x")]));
    merge(
        &mut collides,
        &json!({"nodeSelector": {"disk": "slow"}, "runtimeClassName": "gvisor",
                                 "tolerations": [{"key": "builds", "operator": "Exists"}]}),
    );
    let mut twice = many(&class);
    merge(&mut twice, &json!({"paramValues": [{"name": "SHP_BUILD_PLATFORM", "value": "x"}]}));
    let cases: [(&str, Value, &str, &[&str]); 12] = [
        ("no-build", run("", "nobody", &json!({})), "BuildNotFound", &["nobody"]),
        (
            "no-class",
            run("", "app", &other("nobody", json!([linux("amd64")]))),
            "ImagePlatformClassNotFound",
            &["nobody"],
        ),
        (
            "broken",
            run("", "app", &other(&format!("{class}-broken"), json!([linux("amd64")]))),
            "ImagePlatformClassNotAvailable",
            &["ImagePlatformNotFound"],
        ),
        (
            "unsupported",
            run("", "app", &other(&class, json!([linux("amd64"), linux("riscv64")]))),
            "PlatformNotSupported",
            &["riscv64"],
        ),
        (
            "duplicate",
            run("", "app", &other(&class, json!([linux("amd64"), linux("amd64")]))),
            "InvalidPlatform",
            &["duplicate"],
        ),
        (
            "collisions",
            run("", "app", &collides),
            "NodeSelectorCollision",
            &["disk", "TolerationCollision", "builds", "RuntimeClassCollision", "gvisor"],
        ),
        (
            "params",
            run("", "app", &twice),
            "ParamValueCollision",
            &["amd64", "arm64", "SHP_BUILD_PLATFORM"],
        ),
        (
            "digest",
            run("", "app", &json!({"output": {"image": format!("h.example/a@sha256:{:064}", 1)}})),
            "OutputImageNotValid",
            &["name a tag"],
        ),
        (
            "undefined",
            run("", "app", &json!({"paramValues": [{"name": "nobody", "value": "x"}]})),
            "UndefinedParameter",
            &["nobody"],
        ),
        (
            "account",
            run("", "app", &json!({"serviceAccount": "nobody"})),
            "ServiceAccountNotFound",
            &["nobody"],
        ),
        (
            "secret",
            run("", "app", &json!({"output": {"pushSecret": "nobody"}})),
            "VolumeDoesNotExist",
            &["nobody"],
        ),
        (
            "canceled",
            run("", "app", &json!({"state": "BuildRunCanceled"})),
            "BuildRunCanceled",
            &["canceled"],
        ),
    ];
    for (name, mut object, _, _) in cases.clone() {
        object["metadata"]["name"] = json!(name);
        site.apply(object)?;
    }
    for (name, _, reason, parts) in &cases {
        let refused =
            site.reaches(name, "False", reason, SOON).with_context(|| controller.log())?;
        let message = condition(&refused, "Succeeded").context("one")?["message"]
            .as_str()
            .unwrap_or_default();
        for part in *parts {
            assert!(message.contains(part), "{name}: {message}");
        }
        assert!(refused["status"]["completionTime"].is_string(), "{refused}");
        assert!(refused["status"]["executor"].is_null(), "{refused}");
    }
    // A Build that cannot be used.
    site.apply(build("bad", "nobody", &json!({})))?;
    site.apply(run("unregistered", "bad", &json!({})))?;
    let refused = site.reaches("unregistered", "False", "BuildRegistrationFailed", SOON)?;
    assert!(refused.to_string().contains("reason: BuildStrategyNotFound"), "{refused}");
    assert_eq!(site.executors()?, 0);
    nothing_forbidden(&controller);
    Ok(())
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
    let pods = |run: &str| -> Result<usize> {
        let label = format!("buildrun.shipwright.io/name={run}");
        let pods = site.namespace.kubectl_json(&["get", "pods", "-l", &label])?;
        let running = |pod: &&Value| {
            pod["status"]["phase"] == "Running" && pod["metadata"]["deletionTimestamp"].is_null()
        };
        Ok(pods["items"].as_array().context("pods")?.iter().filter(running).count())
    };
    wait_for("both platforms to be built", LONG, || {
        let rows = site.run("many")?["status"]["output"]["platforms"].clone();
        ensure!(rows[0]["state"] == "Running" && rows[1]["state"] == "Running", "{rows}");
        ensure!(pods("many")? == 2 && pods("single")? == 1, "not yet");
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
        wait_for("the pods to end", LONG, || {
            ensure!(pods(name)? == 0, "pods of {name} run");
            Ok(())
        })?;
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
fn a_controller_that_is_killed_after_making_the_executor_loses_nothing() -> Result<()> {
    let site = BuildSite::new("killed")?;
    site.apply(strategy("slow", 20, 0)?)?;
    site.apply(build("app", "slow", &json!({})))?;
    let class = site.namespace.name().to_owned();
    let _platforms = two_platforms(&class)?;
    site.apply(build("wide", "slow", &many(&class)))?;
    // Killed as soon as the first executor is seen, wherever it is then with the others.
    let controller = site.lead(busybox()?, &[])?;
    for number in 0..10 {
        site.apply(run(
            &format!("run-{number}"),
            if number % 2 == 0 { "app" } else { "wide" },
            &json!({}),
        ))?;
    }
    let end = Instant::now() + SOON;
    while site.executors()? == 0 {
        ensure!(Instant::now() < end, "nothing is made\n{}", controller.log());
    }
    controller.kill();
    // The very moment between making and writing: an executor that no status names.
    site.apply(run("torn", "app", &json!({})))?;
    let controller = site.lead(busybox()?, &[])?;
    let named = site.executor("torn")?["metadata"]["name"].clone();
    controller.kill();
    site.namespace.kubectl(&[
        "patch", "buildrun", "torn", "--subresource=status", "--type=json",
        "-p", r#"[{"op":"remove","path":"/status/executor"},{"op":"remove","path":"/status/conditions"}]"#,
    ])?;
    let controller = site.lead(busybox()?, &[])?;
    for name in (0..10).map(|number| format!("run-{number}")).chain(["torn".to_owned()]) {
        site.executor(&name).with_context(|| controller.log())?;
    }
    assert_eq!(site.executor("torn")?["metadata"]["name"], named, "the same as before");
    let mut owners: Vec<String> = Vec::new();
    let all = site.namespace.kubectl_json(&["get", "taskruns,pipelineruns"])?;
    for object in all["items"].as_array().context("executors")? {
        if let Some(owner) = object["metadata"]["ownerReferences"]
            .as_array()
            .and_then(|all| all.iter().find(|one| one["kind"] == "BuildRun"))
        {
            owners.push(owner["name"].to_string());
        }
    }
    let made = owners.len();
    owners.sort();
    owners.dedup();
    assert_eq!((made, owners.len()), (11, 11), "one for each run");
    Ok(())
}

#[test]
fn of_two_controllers_one_acts_and_the_other_takes_over() -> Result<()> {
    let site = BuildSite::new("two")?;
    site.apply(strategy("plain", 0, 0)?)?;
    site.apply(build("app", "plain", &json!({})))?;
    let first = site.lead(busybox()?, &[])?;
    let mut second = site.start(busybox()?, &[])?;
    second.ready()?;
    site.apply(run("before", "app", &json!({})))?;
    site.executor("before")?;
    assert!(!second.is_leading(), "{}", second.log());
    assert!(!second.log().contains("made"), "{}", second.log());
    // Asked to end, it gives the lease back, and the other need not wait for it to run out.
    let since = Instant::now();
    first.terminate()?;
    second.leads()?;
    assert!(since.elapsed() < Duration::from_secs(12), "it took {:?}", since.elapsed());
    site.apply(run("after", "app", &json!({})))?;
    site.executor("after")?;
    // Killed, it gives nothing back: the lease runs out.
    second.kill();
    let mut third = site.start(busybox()?, &[])?;
    third.leads()?;
    // One whose lease somebody else holds stops.
    site.steal_lease()?;
    wait_for("the controller to end", SOON, || {
        ensure!(third.check().is_err(), "it runs");
        Ok(())
    })?;
    assert!(third.log().contains("the lease portolan-controller was lost"), "{}", third.log());
    assert_eq!(site.executors()?, 2);
    Ok(())
}

#[test]
fn runs_are_kept_as_long_and_as_many_as_asked_for() -> Result<()> {
    let site = BuildSite::new("kept")?;
    let _controller = site.lead(busybox()?, &[])?;
    site.apply(strategy("plain", 0, 0)?)?;
    site.apply(build(
        "app",
        "plain",
        &json!({"retention": {"failedLimit": 2, "atBuildDeletion": true}}),
    ))?;
    // Refused runs are failed runs, and quickly made.
    let bad = json!({"serviceAccount": "nobody"});
    for number in 0..4 {
        site.apply(run(&format!("run-{number}"), "app", &bad))?;
        // Ages are in whole seconds.
        std::thread::sleep(Duration::from_millis(1100));
    }
    let names = || -> Result<Vec<String>> {
        let all = site.namespace.kubectl_json(&["get", "buildruns"])?;
        let names = all["items"]
            .as_array()
            .context("runs")?
            .iter()
            .map(|run| run["metadata"]["name"].as_str().unwrap_or_default().to_owned());
        Ok(names.collect())
    };
    wait_for("the oldest to go", SOON, || {
        ensure!(names()? == ["run-2", "run-3"], "{:?}", names()?);
        Ok(())
    })?;
    let mut brief = bad.clone();
    merge(&mut brief, &json!({"retention": {"ttlAfterFailed": "3s"}}));
    site.apply(build("free", "plain", &json!({})))?;
    site.apply(run("brief", "free", &brief))?;
    site.reaches("brief", "False", "ServiceAccountNotFound", SOON)?;
    wait_for("its time to be over", SOON, || {
        ensure!(!names()?.contains(&"brief".to_owned()), "{:?}", names()?);
        Ok(())
    })?;
    // Runs go with their Build.
    site.namespace.kubectl(&["delete", "build", "app"])?;
    wait_for("the runs to go with it", SOON, || {
        ensure!(names()?.is_empty(), "{:?}", names()?);
        Ok(())
    })
}

#[test]
fn another_controller_is_noticed_and_taken_over_from_only_on_request() -> Result<()> {
    let site = BuildSite::new("other")?;
    site.apply(json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "shipwright-build-controller"},
        "spec": {"replicas": 1, "selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}},
            "spec": {"nodeSelector": {"portolan.dev/no-such": "node"}, "containers": [{"name": "a", "image": busybox()?}]},
        }},
    }))?;
    let mut refused = site.start(busybox()?, &[])?;
    wait_for("the controller to end", SOON, || {
        ensure!(refused.check().is_err(), "it runs");
        Ok(())
    })?;
    let log = refused.log();
    assert!(
        log.contains("another controller serves these resources") && log.contains("--takeover"),
        "{log}"
    );
    let taking = site.lead(busybox()?, &["--takeover"])?;
    assert!(taking.log().contains("taking over as asked"), "{}", taking.log());
    taking.terminate()?;
    site.namespace.kubectl(&[
        "scale",
        "deployment",
        "shipwright-build-controller",
        "--replicas=0",
    ])?;
    site.lead(busybox()?, &[])?;
    Ok(())
}
