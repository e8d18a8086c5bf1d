//! Strategies that run programs, and what is shipped.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Repository, Testbed, condition, deploy, digest, hello_reference, hello_source, ok, ours,
    resolved, step_image, wait_for,
};
use serde_json::{Value, json};

use crate::works::{PATIENCE, Works, both_run, children, not_published};

#[test]
fn an_ordinary_build_with_run_is_made_by_buildah() -> Result<()> {
    let works = Works::new("buildah")?;
    let files = works.dir.path().join("files");
    std::fs::create_dir(&files)?;
    let busybox = Testbed::get().image("busybox")?;
    std::fs::write(
        files.join("Dockerfile"),
        format!(
            "FROM {busybox}\nRUN echo built by buildah > /built\nCMD [\"/bin/cat\", \"/built\"]\n"
        ),
    )?;
    let repository = Repository::serve(&files, works.dir.path())?;
    let [cluster, _] = works.image("app");
    let registry = &Testbed::get().registry.cluster;
    works.ok(&[
        "build",
        "create",
        "app",
        "--strategy",
        "buildah",
        "--output",
        &cluster,
        "--output-insecure",
        "--source-git-url",
        &repository.url,
        "--param-item",
        &format!("registries-insecure={registry}"),
    ])?;
    let said = works.follow(&["build", "run", "app"])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    let found = works.run_of("app")?;
    assert_eq!(found["status"]["executor"]["kind"], "TaskRun", "{found}");
    let namespace = &works.site.namespace;
    namespace.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "built"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "built", "image": cluster}]},
    }))?;
    wait_for("the pod to end", PATIENCE, || {
        let pod = namespace.kubectl_json(&["get", "pod", "built"])?;
        ensure!(pod["status"]["phase"] == "Succeeded", "{}", pod["status"]);
        Ok(())
    })?;
    assert_eq!(namespace.kubectl(&["logs", "built"])?, "built by buildah\n");
    Ok(())
}

/// On a node of one architecture, programs of the other run because the kernel was told how.
#[test]
fn programs_of_both_platforms_are_run_by_buildah() -> Result<()> {
    let works = Works::new("emulated")?;
    let files = works.dir.path().join("files");
    ok(Command::new("cp").arg("-r").arg(hello_source()).arg(&files));
    let text = "FROM scratch\nARG TARGETARCH\nCOPY bin/${TARGETARCH}/hello /hello\nRUN [\"/hello\"]\nENTRYPOINT [\"/hello\"]\n";
    std::fs::remove_file(files.join("Containerfile"))?;
    std::fs::write(files.join("Dockerfile"), text)?;
    let repository = Repository::serve(&files, works.dir.path())?;
    let image = works.image("app");
    let create = works.create("app", "buildah", &image[0]);
    works.ok(&[&create[..], &["--source-git-url", &repository.url]].concat())?;
    let said = works.follow(&["build", "run", "app"])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    let found = works.run_of("app")?;
    let name = found["metadata"]["name"].as_str().context("a name")?;
    let logs = works.ok(&["buildrun", "logs", name])?;
    for platform in ["linux/amd64", "linux/arm64"] {
        assert!(
            logs.contains(&format!("hello from {platform}")),
            "{platform} was not run:\n{logs}"
        );
    }
    both_run(&works, &image)
}

/// What is printed for a developer to follow is really there.
#[test]
fn shipped_strategies_platforms_and_classes_are_taken_by_the_cluster() -> Result<()> {
    let works = Works::new("shipped")?;
    let testbed = Testbed::get();
    for folder in ["strategies", "platforms"] {
        let folder = deploy(folder).display().to_string();
        testbed.kubectl(&["apply", "--server-side", "-f", &folder])?;
    }
    let listed = works.ok(&["strategy", "list"])?;
    for name in ["buildah", "buildkit", "buildpacks", "kaniko", "ko", "portolan", "source-to-image"]
    {
        assert!(listed.contains(name), "{name} is missing:\n{listed}");
    }
    wait_for("the class `default`", Duration::from_secs(20), || {
        works.ok(&["platform-class", "check", "default"]).map(drop)
    })?;
    let platforms = deploy("platforms").display().to_string();
    testbed.kubectl(&["delete", "-f", &platforms]).map(drop)
}

/// Strategies that push by themselves, a copy of `from`: `pushing` tells nobody what; `telling` leaves the digest, as most
/// of upstream's do, in a file that is root's. Where arm64 is asked for, `foreign` says what is pushed, if anything.
fn strategies(from: &str) -> [Value; 2] {
    let platform =
        "platform=linux/amd64; test -z \"$0\" || platform=$1; test \"$platform\" = nothing || ";
    let copy = "portolan image copy \"$2\" \"$3\" --platform \"$platform\"";
    let tell = "portolan image resolve \"$2\" --platform \"$platform\" > \"$4\"";
    let strategy = |name: &str, script: String, more: &[&str], step: Value| {
        let mut args = vec!["$(params.SHP_IMAGE_PLATFORM)", "$(params.foreign)", from];
        args.push("$(params.shp-output-image)");
        args.extend(more);
        let mut strategy = json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildStrategy", "metadata": {"name": name},
            "spec": {
                "parameters": [
                    {"name": "SHP_IMAGE_PLATFORM", "description": "the platform", "default": ""},
                    {"name": "foreign", "description": "what is pushed for arm64"},
                ],
                "steps": [{
                    "name": "push", "image": step_image(), "command": ["sh", "-c", script], "args": args,
                    "env": [{"name": "PORTOLAN_REGISTRIES", "value": "/settings/registries.toml"}],
                    "volumeMounts": [{"name": "settings", "mountPath": "/settings", "readOnly": true}],
                }],
                "volumes": [{"name": "settings", "configMap": {"name": "settings"}}],
            },
        });
        strategy["spec"]["steps"][0]["securityContext"] = step;
        strategy
    };
    let root = json!({"runAsUser": 0, "runAsGroup": 0});
    let result = ["$(results.shp-image-digest.path)"];
    [
        strategy("pushing", format!("{platform}exec {copy}"), &[], Value::Null),
        strategy("telling", format!("{platform}{{ {copy} && {tell}; }}"), &result, root),
    ]
}

/// A site with both, and what they push from, as we write it.
fn pushed_by_strategies(prefix: &str) -> Result<(Works, String)> {
    let works = Works::new(prefix)?;
    let [from, hello] = works.image("hello");
    ours(&["image", "copy", &hello_reference(), &hello]);
    for strategy in strategies(&from) {
        works.site.apply(strategy)?;
    }
    let plain = format!("[host.\"{}\"]\nplain_http = true\n", Testbed::get().registry.cluster);
    works.site.apply(json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"},
        "data": {"registries.toml": plain},
    }))?;
    Ok((works, hello))
}

/// Root wrote the result before us; what came of the image by our step is what Tekton tells.
#[test]
fn the_digest_that_a_strategy_leaves_is_read_and_told_anew() -> Result<()> {
    let (works, hello) = pushed_by_strategies("tells")?;
    let [image, loopback] = works.image("app");
    let create = works.create("app", "telling", &image);
    let more = ["--strategy-kind", "BuildStrategy", "--param-value", "foreign=linux/arm64"];
    works.ok(&[&create[..], &more, &["--label", "example=told"]].concat())?;
    works.site.apply(json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": "app"},
        "spec": {"build": {"name": "app"}},
    }))?;
    let done = works.site.reaches("app", "True", "Succeeded", PATIENCE);
    let output = done.with_context(|| works.told())?["status"]["output"].take();
    let children = children(&loopback);
    let rows = output["platforms"].as_array().context("rows")?;
    assert_eq!((rows.len(), children.len()), (2, 2), "{output}");
    for (row, (platform, digest)) in rows.iter().zip(&children) {
        assert_eq!(row["digest"], json!(digest), "{row}");
        assert_ne!(*digest, resolved(&hello, platform), "it has a label now");
    }
    Ok(())
}

#[test]
fn what_a_strategy_pushes_by_itself_is_found_and_has_to_be_what_was_asked_for() -> Result<()> {
    let (works, hello) = pushed_by_strategies("pushes")?;
    for (name, foreign) in [("app", "linux/arm64"), ("wrong", "linux/riscv64"), ("none", "nothing")]
    {
        let [image, _] = works.image(name);
        let foreign = format!("foreign={foreign}");
        let create = works.create(name, "pushing", &image);
        let more = ["--strategy-kind", "BuildStrategy", "--param-value", &foreign];
        works.ok(&[&create[..], &more].concat())?;
        works.site.apply(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun", "metadata": {"name": name},
            "spec": {"build": {"name": name}},
        }))?;
    }
    let done = works.site.reaches("app", "True", "Succeeded", PATIENCE);
    let output = done.with_context(|| works.told())?["status"]["output"].take();
    let pushed = ["linux/amd64", "linux/arm64"].map(|one| (one.to_owned(), resolved(&hello, one)));
    for (row, (_, digest)) in output["platforms"].as_array().context("rows")?.iter().zip(&pushed) {
        assert_eq!(row["digest"], json!(digest), "{row}");
        assert!(row["size"].is_number(), "{row}");
    }
    let [_, image] = works.image("app");
    assert_eq!(children(&image), pushed);
    assert_eq!(output["digest"], digest(&image), "{output}");

    let mismatch = "linux/riscv64 came out where linux/arm64 was asked for";
    for (name, reason, told) in [
        ("wrong", "PlatformMismatch", mismatch),
        ("none", "ImagePushFailed", "the strategy pushed nothing to "),
    ] {
        let failed = works.site.reaches(name, "False", "Failed", PATIENCE);
        let failed = failed.with_context(|| works.told())?;
        let why = condition(&failed, "Succeeded").context("a condition")?["message"].to_string();
        assert!(why.contains("linux/arm64: ") && !why.contains("linux/amd64: "), "{why}");
        let output = &failed["status"]["output"];
        let [amd64, arm64] = [0, 1].map(|at| &output["platforms"][at]);
        assert_eq!(amd64["state"], "Succeeded", "{amd64}");
        assert_eq!(
            (&arm64["state"], &arm64["failure"]["reason"]),
            (&json!("Failed"), &json!(reason))
        );
        assert!(arm64["failure"]["message"].to_string().contains(told), "{arm64}");
        assert!(output["digest"].is_null(), "no index: {output}");
        not_published(&works.image(name)[1])?;
    }
    Ok(())
}
