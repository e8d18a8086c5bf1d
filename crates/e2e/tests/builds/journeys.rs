//! From a repository to an index whose images run, or to the name of the platform that failed.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Repository, Testbed, condition, digest, hello_source, json as parsed, ok, tool, wait_for,
};
use serde_json::json;

use crate::works::{PATIENCE, Works, both_run, children, not_published};

/// What nobody on the way may replace.
const LITERAL: &str = "$(params.portolan-image) $(context.taskRun.name) $(HOME) $$";

#[test]
fn a_git_build_for_two_platforms_ends_with_an_index_whose_images_run() -> Result<()> {
    let works = Works::new("journey")?;
    // A part of the repository is built, and both have names that Tekton or a pod would replace.
    let files = works.dir.path().join("files");
    std::fs::create_dir(&files)?;
    ok(Command::new("cp").arg("-r").arg(hello_source()).arg(files.join("app$(HOME)")));
    std::fs::write(files.join("README"), "not built")?;
    let repository = Repository::serve(&files, works.dir.path())?;
    let named = works.dir.path().join("$(context.taskRun.name).git");
    std::os::unix::fs::symlink(works.dir.path().join("app.git"), named)?;
    let url = repository.url.replace("app.git", "$(context.taskRun.name).git");
    let image = works.image("app");
    let (annotation, label) = (format!("org.example={LITERAL}"), format!("example={LITERAL}"));
    works.make(
        "app",
        &image[0],
        &[
            "--source-git-url",
            &url,
            "--source-git-revision",
            "main",
            "--source-context-dir",
            "app$(HOME)",
            "--output-timestamp",
            "SourceTimestamp",
            "--annotation",
            &annotation,
            "--label",
            &label,
        ],
    )?;
    let said = works.follow(&["build", "run", "app"])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());

    let found = works.run_of("app")?;
    let status = &found["status"];
    assert_eq!(condition(&found, "Succeeded").context("a condition")?["status"], "True");
    assert_eq!(status["source"]["git"]["commitAuthor"], "A Developer", "{status}");
    let listed = children(&image[1]);
    let names: Vec<&str> = listed.iter().map(|(platform, _)| platform.as_str()).collect();
    assert_eq!(names, ["linux/amd64", "linux/arm64"]);
    let rows = status["output"]["platforms"].as_array().context("rows")?;
    for (row, (_, digest)) in rows.iter().zip(&listed) {
        assert_eq!((&row["digest"], &row["state"]), (&json!(digest), &json!("Succeeded")), "{row}");
    }
    assert_eq!(status["output"]["digest"], digest(&image[1]), "{status}");
    both_run(&works, &image)?;
    says_what_was_asked_for(&works.dir.path().join("app.git"), &image[1])?;

    // The same Build on this machine, from its own file, gives the same index.
    let here = works.here("app", &works.image("laptop")[1], &[])?;
    assert_eq!(here["output"]["digest"], status["output"]["digest"], "{here}");
    assert_eq!(here["source"]["git"], status["source"]["git"], "{here}");
    assert_eq!(here["source"]["timestamp"], status["source"]["timestamp"], "{here}");
    // And so does the Build that is in the cluster, by its name.
    let [_, named] = works.image("named");
    let how = ["build", "run", "app", "--engine", "local", "-o", "json", "--output", &named];
    let by_name = parsed(&works.ok(&how)?);
    assert_eq!(by_name["output"]["digest"], status["output"]["digest"], "{by_name}");
    let platforms = [0, 1].map(|row| by_name["output"]["platforms"][row]["imagePlatform"].clone());
    assert_eq!(platforms, ["amd64", "arm64"].map(|arch| json!(format!("{}-{arch}", works.class))));
    Ok(())
}

/// A label that pods wait for some node to have; no node has it afterwards.
struct Held(String);

impl Held {
    fn new(name: &str) -> Self {
        Self(format!("portolan.dev/{name}"))
    }

    fn go(&self) -> Result<()> {
        let label = format!("{}=go", self.0);
        Testbed::get().kubectl(&["label", "nodes", "--all", "--overwrite", &label]).map(drop)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = Testbed::get().kubectl(&["label", "nodes", "--all", &format!("{}-", self.0)]);
    }
}

/// What a run needs of its class is in its PipelineRun from the beginning.
#[test]
fn a_class_that_changes_and_goes_in_mid_run_changes_nothing_of_it() -> Result<()> {
    let works = Works::new("midrun")?;
    let repository = Repository::serve(&hello_source(), works.dir.path())?;
    let image = works.image("app");
    // No node is like that, so the run goes no further than its PipelineRun until one is.
    let held = Held::new(&works.class);
    let selector = format!("{}=go", held.0);
    let more = ["--source-git-url", &repository.url, "--node-selector", &selector];
    works.make("app", &image[0], &more)?;
    works.ok(&["build", "run", "app"])?;
    let found = wait_for("the run", Duration::from_secs(20), || works.run_of("app"))?;
    let name = found["metadata"]["name"].as_str().context("a name")?.to_owned();
    let executor = works.site.executor(&name)?["metadata"]["uid"].clone();
    // From now on this class would build for something else, and on no node.
    let testbed = Testbed::get();
    let (class, platforms) =
        (&works.class, ["amd64", "arm64"].map(|arch| format!("{}-{arch}", works.class)));
    for (platform, patch) in platforms.iter().zip([
        r#"{"spec":{"nodeSelector":{"portolan.dev/no-such":"node"}}}"#,
        r#"{"spec":{"paramValues":[{"name":"SHP_IMAGE_PLATFORM","value":"linux/s390x"}]}}"#,
    ]) {
        testbed.kubectl(&["patch", "imageplatform", platform, "--type=merge", "-p", patch])?;
    }
    testbed.kubectl(&["delete", "imageplatformclass", class])?;
    testbed.kubectl(&["delete", "imageplatform", &platforms[0], &platforms[1]])?;
    let going = works.site.run(&name)?;
    let ended = condition(&going, "Succeeded").is_some_and(|found| found["status"] != "Unknown");
    ensure!(!ended, "it ended before its class went: {going}");
    held.go()?;
    let done = works.site.reaches(&name, "True", "Succeeded", PATIENCE);
    let done = done.with_context(|| works.told())?;
    let listed = children(&image[1]);
    let names: Vec<&str> = listed.iter().map(|(platform, _)| platform.as_str()).collect();
    assert_eq!(names, ["linux/amd64", "linux/arm64"]);
    let rows = &done["status"]["output"]["platforms"];
    for (at, platform) in platforms.iter().enumerate() {
        assert_eq!(
            (&rows[at]["imagePlatform"], &rows[at]["state"]),
            (&json!(platform), &json!("Succeeded"))
        );
    }
    assert_eq!(works.site.executor(&name)?["metadata"]["uid"], executor, "the same PipelineRun");
    Ok(())
}

/// Annotations and labels as they were written, and the time of the commit.
fn says_what_was_asked_for(repository: &Path, image: &str) -> Result<()> {
    let crane =
        |args: &[&str]| parsed(&ok(Command::new(tool("crane")).args(args).arg("--insecure")));
    assert_eq!(crane(&["manifest", image])["annotations"]["org.example"], LITERAL);
    let config = crane(&["config", "--platform", "linux/arm64", image]);
    assert_eq!(config["config"]["Labels"]["example"], LITERAL, "{config}");
    let commit =
        ok(Command::new("git").arg("-C").arg(repository).args(["log", "-1", "--format=%ct"]));
    let time = config["created"].as_str().context("a time")?;
    let time: jiff::Timestamp = time.parse()?;
    assert_eq!(time.as_second().to_string(), commit.trim());
    Ok(())
}

#[test]
fn one_platform_that_fails_is_named_and_nothing_is_published() -> Result<()> {
    let works = Works::new("halfway")?;
    let files = works.dir.path().join("half");
    std::fs::create_dir(&files)?;
    ok(Command::new("cp").arg("-r").arg(hello_source()).arg(files.join("app")));
    std::fs::remove_dir_all(files.join("app/bin/arm64"))?;
    let repository = Repository::serve(&files.join("app"), works.dir.path())?;
    let image = works.image("app");
    works.make("app", &image[0], &["--source-git-url", &repository.url])?;
    let said = works.follow(&["build", "run", "app"])?;
    ensure!(said.code == Some(1), "{said}\n{}", works.told());
    assert!(said.stderr.contains("linux/arm64"), "{said}");
    let found = works.run_of("app")?;
    let why = condition(&found, "Succeeded").context("a condition")?;
    assert_eq!((&why["status"], &why["reason"]), (&json!("False"), &json!("Failed")), "{why}");
    assert!(why["message"].as_str().is_some_and(|text| text.contains("linux/arm64")), "{why}");
    let rows = &found["status"]["output"]["platforms"];
    assert_eq!(rows[0]["state"], "Succeeded", "{rows}");
    assert_eq!(rows[1]["state"], "Failed", "{rows}");
    not_published(&image[1])
}

#[test]
fn a_canceled_run_leaves_no_pod_at_work() -> Result<()> {
    let works = Works::new("cancel")?;
    // It goes with what else is called so.
    Testbed::get().apply(&json!({
        "apiVersion": "shipwright.io/v1beta1", "kind": "ClusterBuildStrategy",
        "metadata": {"name": works.class},
        "spec": {
            "parameters": [{"name": "SHP_IMAGE_PLATFORM", "description": "d", "type": "string", "default": ""}],
            "steps": [{
                "name": "wait", "image": Testbed::get().image("busybox")?,
                "command": ["/bin/sh", "-c", "sleep 600"],
            }],
        },
    }))?;
    let image = works.image("app");
    works.ok(&works.create("app", &works.class, &image[0]))?;
    works.ok(&["build", "run", "app"])?;
    let found = wait_for("the run", Duration::from_secs(20), || works.run_of("app"))?;
    let name = found["metadata"]["name"].as_str().context("a name")?.to_owned();
    let pods = || -> Result<Vec<String>> {
        let pods = works.site.namespace.kubectl_json(&["get", "pods"])?;
        let all = pods["items"].as_array().cloned().unwrap_or_default();
        Ok(all
            .iter()
            .map(|pod| pod["status"]["phase"].as_str().unwrap_or_default().to_owned())
            .collect())
    };
    wait_for("both pods at work", PATIENCE, || {
        let phases = pods()?;
        let running = phases.iter().filter(|phase| *phase == "Running").count();
        ensure!(running == 2, "{phases:?}\n{}", works.told());
        Ok(())
    })?;
    works.ok(&["buildrun", "cancel", &name])?;
    works.site.reaches(&name, "False", "BuildRunCanceled", Duration::from_secs(60))?;
    wait_for("no pod at work", Duration::from_secs(90), || {
        let phases = pods()?;
        ensure!(phases.iter().all(|phase| phase != "Running" && phase != "Pending"), "{phases:?}");
        Ok(())
    })?;
    not_published(&image[1])
}
