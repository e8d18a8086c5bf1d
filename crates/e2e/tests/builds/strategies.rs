//! Strategies that run programs, and what is shipped.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{Testbed, deploy, ok, wait_for};
use serde_json::json;

use crate::works::{PATIENCE, Repository, Works, both_run, hello_source};

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
