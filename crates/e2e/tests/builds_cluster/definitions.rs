//! What the API server takes and refuses, and what a class says of itself.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use portolan_e2e::{BuildSite, Testbed, condition, deploy, wait_for};
use serde_json::{Value, json};

use crate::objects::{
    OfCluster, SOON, build, busybox, fixture, kubectl_apply, merge, run, two_platforms,
};

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
    for field in full.as_object().context("fields")?.keys() {
        assert_eq!(kept["spec"][field], whole["spec"][field], "{field}");
    }
    // The proposal's Build of the class `all`, with its own spelling of one platform.
    let platforms: Vec<Value> = ["amd64", "s390x", "arm64", "ppcle64"]
        .into_iter()
        .map(|arch| json!({"arch": arch, "os": "linux"}))
        .collect();
    let sample =
        json!({"output": {"multiArch": {"imagePlatformClass": "all", "platforms": platforms}}});
    let said = site.namespace.try_create(build("sample", "s", &sample))?;
    assert_eq!(said.code, Some(0), "{said}");
    let kept: Value = serde_json::from_str(&said.stdout)?;
    assert_eq!(kept["spec"]["output"]["multiArch"], sample["output"]["multiArch"]);
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
    Ok(())
}

#[test]
fn every_field_of_a_run_is_kept_and_what_is_wrong_is_refused() -> Result<()> {
    let site = BuildSite::new("run-fields")?;
    let linux = json!({"os": "linux", "arch": "amd64"});
    let full = json!({
        "source": {"type": "Local", "local": {"name": "local-copy", "timeout": "1m30s"}},
        "serviceAccount": ".generate", "timeout": "45m",
        "paramValues": [{"name": "a", "configMapValue": {"name": "m", "key": "k", "format": "x=${CONFIGMAP_VALUE}"}}, {"name": "c", "values": [{"value": "d"}]}],
        "output": {"insecure": false, "pushSecret": "p", "annotations": {"a": "b"}, "labels": {"c": "d"}, "timestamp": "BuildTimestamp",
                   "multiArch": {"imagePlatformClass": "default", "platforms": [linux, {"os": "linux", "arch": "arm", "variant": "v7"}]}},
        "env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}],
        "volumes": [{"name": "v", "secret": {"secretName": "s"}}],
        "stepResources": [{"name": "build", "resources": {"requests": {"cpu": "100m"}}}],
        "nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"}],
        "schedulerName": "s", "runtimeClassName": "r",
        "retention": {"ttlAfterFailed": "1m", "ttlAfterSucceeded": "48h"},
        "state": "BuildRunCanceled",
    });
    let whole = run("whole", "app", &full);
    let said = site.namespace.try_create(whole.clone())?;
    assert_eq!(said.code, Some(0), "{said}");
    let kept: Value = serde_json::from_str(&said.stdout)?;
    for field in full.as_object().context("fields")?.keys() {
        assert_eq!(kept["spec"][field], whole["spec"][field], "{field}");
    }
    // A Build of its own, as whole as one that is stored.
    let mut embedded = run("embedded", "", &json!({}));
    embedded["spec"]["build"] =
        json!({"spec": {"strategy": {"name": "s"}, "output": {"image": "h.example/a:1"}}});
    let said = site.namespace.try_create(embedded)?;
    assert_eq!(said.code, Some(0), "{said}");
    for (spec, told) in [
        (json!({"build": null}), "build"),
        (json!({"state": "Paused"}), "Paused"),
        (json!({"source": {"type": "Git"}}), "Git"),
        (json!({"source": {"type": "Local", "git": {"url": "a"}}}), "spec.source.git"),
        (json!({"timeout": 5}), "timeout"),
        (json!({"paramValues": [{"value": "x"}]}), "name"),
        (json!({"output": {"multiArch": {"platforms": [linux]}}}), "imagePlatformClass"),
        (
            json!({"output": {"multiArch": {"imagePlatformClass": "a", "platforms": [{"os": "linux"}]}}}),
            "arch",
        ),
        (
            json!({"output": {"multiArch": {"imagePlatformClass": "a", "platforms": [linux]}, "platforms": [linux]}}),
            "exclude each other",
        ),
        (json!({"stepResources": [{"name": "build"}]}), "resources"),
        (json!({"build": {"name": null, "spec": {"output": {"image": "a"}}}}), "strategy"),
    ] {
        let said = site.namespace.try_create(run("bad", "a", &spec))?;
        assert!(said.code != Some(0) && said.stderr.contains(told), "{spec}\n{said}");
    }
    Ok(())
}

#[test]
fn every_field_of_a_strategy_is_kept_and_what_is_wrong_is_refused() -> Result<()> {
    let site = BuildSite::new("strategy-fields")?;
    let full = json!({
        "parameters": [
            {"name": "a", "description": "a text", "type": "string", "default": ""},
            {"name": "b", "description": "a list", "type": "array", "defaults": ["x"]},
        ],
        "securityContext": {"runAsUser": 1000, "runAsGroup": 1001},
        "steps": [{
            "name": "build", "image": "i", "command": ["c"], "args": ["$(params.a)", "$(params.b[*])"], "workingDir": "/w",
            "env": [{"name": "A", "value": "b"}], "resources": {"limits": {"memory": "1Gi"}},
            "volumeMounts": [{"name": "v", "mountPath": "/v"}], "imagePullPolicy": "Always",
            "securityContext": {"privileged": true},
        }],
        "volumes": [{"name": "v", "description": "files", "overridable": true, "emptyDir": {}}],
    });
    let object = |kind: &str, name: &str, spec: &Value| json!({"apiVersion": "shipwright.io/v1beta1", "kind": kind, "metadata": {"name": name}, "spec": spec});
    let name = site.namespace.name();
    for kind in ["BuildStrategy", "ClusterBuildStrategy"] {
        let create = |name: &str, spec: &Value| match kind {
            "BuildStrategy" => site.namespace.try_create(object(kind, name, spec)),
            _ => Testbed::get().try_create(&object(kind, name, spec)),
        };
        let said = create(name, &full)?;
        assert_eq!(said.code, Some(0), "{said}");
        let kept: Value = serde_json::from_str(&said.stdout)?;
        assert_eq!(kept["spec"], full, "{kind}");
        for (change, told) in [
            (json!({"steps": null}), "steps"),
            (json!({"steps": [{"image": "i"}]}), "name"),
            (
                json!({"steps": [{"name": "a", "image": "i"}, {"name": "a", "image": "i"}]}),
                "Duplicate",
            ),
            (json!({"parameters": [{"name": "a"}]}), "description"),
            (
                json!({"parameters": [{"name": "a", "description": "d", "type": "object"}]}),
                "object",
            ),
            (json!({"volumes": [{"emptyDir": {}}]}), "name"),
        ] {
            let mut spec = full.clone();
            merge(&mut spec, &change);
            let said = create("bad", &spec)?;
            assert!(said.code != Some(0) && said.stderr.contains(told), "{kind} {change}\n{said}");
        }
    }
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

/// The roles are asked as the API server asks them, for people who have nothing but them.
#[test]
fn who_edits_a_namespace_reads_platforms_and_cluster_admins_write_them() -> Result<()> {
    let site = BuildSite::new("roles")?;
    let testbed = Testbed::get();
    let file = deploy("rbac/shipwright-aggregate.yaml").display().to_string();
    testbed.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &file])?;
    let person = |role: &str| format!("{}-{role}", site.namespace.name());
    let mut bindings = Vec::new();
    for role in ["view", "edit", "admin", "cluster-admin"] {
        let name = person(role);
        testbed.apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
        }))?;
        bindings.push(OfCluster("clusterrolebinding", name));
    }
    let may = |role: &str, verb: &str, resource: &str| -> Result<bool> {
        let (resource, person) = (format!("{resource}.shipwright.io"), person(role));
        let mut command = testbed.kubectl_command()?;
        command.args(["auth", "can-i", verb, &resource, "--as", &person, "--all-namespaces"]);
        let said = portolan_e2e::run(&mut command)?;
        match said.stdout.trim() {
            "yes" => Ok(true),
            "no" => Ok(false),
            _ => bail!("{said}"),
        }
    };
    // Roles are put together by a controller of the cluster.
    wait_for("the roles to be put together", SOON, || {
        for (role, verb) in [("view", "get"), ("edit", "create"), ("admin", "create")] {
            ensure!(may(role, verb, "builds")?, "{role} may not {verb} Builds yet");
        }
        Ok(())
    })?;
    assert!(!may("view", "create", "builds")? && !may("view", "create", "buildruns")?);
    for resource in ["imageplatforms", "imageplatformclasses"] {
        for (role, reads, writes) in
            [("edit", true, false), ("admin", true, false), ("cluster-admin", true, true)]
        {
            for (verbs, expected) in [
                (&["get", "list", "watch"][..], reads),
                (&["create", "update", "patch", "delete"], writes),
            ] {
                for verb in verbs {
                    assert_eq!(may(role, verb, resource)?, expected, "{role} {verb} {resource}");
                }
            }
        }
        assert!(!may("view", "create", resource)?, "{resource}");
    }
    Ok(())
}
