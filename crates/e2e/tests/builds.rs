//! Builds from end to end: Builds of the command line, the controller, Tekton, pods with the shipped image and
//! strategies, and what is in the registry afterwards, run.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    BuildSite, Controller, Output, Running, Testbed, condition, deploy, free_port, json as parsed,
    ok, portolan, run, step_image, tool, wait_for,
};
use serde_json::{Value, json};

/// Five pods one after the other, on two processors that others use too.
const PATIENCE: Duration = Duration::from_secs(240);

/// A site with its controller, the shipped strategies, and a class of both platforms.
struct Works {
    site: BuildSite,
    controller: Controller,
    class: String,
    dir: tempfile::TempDir,
}

impl Works {
    fn new(prefix: &str) -> Result<Self> {
        let site = BuildSite::new(prefix)?;
        let controller = site.lead(&step_image(), &[])?;
        let testbed = Testbed::get();
        testbed.apply(&testbed.read_manifest(&deploy("strategies/portolan.yaml"))?)?;
        // Privileged, so its image is the administrator's choice: here the testbed's.
        let mut buildah = testbed.read_manifest(&deploy("strategies/buildah.yaml"))?;
        buildah["spec"]["steps"][0]["image"] = json!(testbed.image("buildah")?);
        testbed.apply(&buildah)?;
        let class = site.namespace.name().to_owned();
        let platform = |arch: &str, how: Value| {
            let mut spec = json!({"platform": {"os": "linux", "arch": arch}});
            spec.as_object_mut()
                .context("an object")?
                .extend(how.as_object().cloned().into_iter().flatten());
            testbed.apply(&json!({
                "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatform",
                "metadata": {"name": format!("{class}-{arch}")}, "spec": spec,
            }))
        };
        // One on nodes of its own kind, the other by a parameter: there is no such node.
        platform("amd64", json!({"nodeSelector": {"kubernetes.io/arch": "amd64"}}))?;
        let value = json!([{"name": "SHP_IMAGE_PLATFORM", "value": "linux/arm64"}]);
        platform("arm64", json!({"paramValues": value}))?;
        let names = ["amd64", "arm64"].map(|arch| json!({"name": format!("{class}-{arch}")}));
        testbed.apply(&json!({
            "apiVersion": "shipwright.io/v1alpha1", "kind": "ImagePlatformClass",
            "metadata": {"name": class}, "spec": {"imagePlatforms": names},
        }))?;
        Ok(Self { site, controller, class, dir: tempfile::tempdir()? })
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = portolan();
        command.env("KUBECONFIG", &Testbed::get().kubeconfig).args(args);
        command.args(["--namespace", self.site.namespace.name()]);
        command
    }

    /// `portolan ARGS`, with all that is known where it fails.
    fn ok(&self, args: &[&str]) -> Result<String> {
        let said = run(&mut self.command(args))?;
        ensure!(said.code == Some(0), "{said}\n{}", self.told());
        Ok(said.stdout)
    }

    fn told(&self) -> String {
        let namespace = &self.site.namespace;
        let look = |args: &[&str]| namespace.kubectl(args).unwrap_or_else(|e| format!("{e:#}"));
        let pods = look(&["get", "pods", "-o", "wide"]);
        let runs = look(&["get", "buildruns", "-o", "yaml"]);
        format!("{pods}\n{runs}\n{}", self.controller.log())
    }

    /// Where an image of the test goes, as pods and as we write it.
    fn image(&self, name: &str) -> [String; 2] {
        let registry = &Testbed::get().registry;
        let of = |host: &str| format!("{host}/{}/{name}:1", self.class);
        [of(&registry.cluster), of(&registry.loopback)]
    }

    /// The words of `build create` for a Build of both platforms.
    fn create<'a>(&'a self, name: &'a str, strategy: &'a str, image: &'a str) -> Vec<&'a str> {
        let both = ["--platform=linux/amd64", "--platform=linux/arm64", "--platform-class"];
        let how = [
            "build",
            "create",
            name,
            "--strategy",
            strategy,
            "--output",
            image,
            "--output-insecure",
        ];
        [&how[..], &both, &[&self.class]].concat()
    }

    /// Follows a run to its end.
    fn follow(&self, args: &[&str]) -> Result<Output> {
        run(self.command(args).arg("--follow"))
    }

    /// The only run of a Build.
    fn run_of(&self, build: &str) -> Result<Value> {
        let label = format!("build.shipwright.io/name={build}");
        let runs = self.site.namespace.kubectl_json(&["get", "buildruns", "-l", &label])?;
        let found = runs["items"].as_array().and_then(|all| all.first()).cloned();
        found.with_context(|| format!("no run of {build}\n{}", self.told()))
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        for (kind, name) in [
            ("imageplatformclass", self.class.clone()),
            ("imageplatform", format!("{}-amd64", self.class)),
            ("imageplatform", format!("{}-arm64", self.class)),
        ] {
            let _ = Testbed::get().kubectl(&["delete", kind, &name, "--ignore-not-found"]);
        }
    }
}

/// `examples/hello`, as somebody has it.
fn hello_source() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/hello")
}

fn git(dir: &Path, args: &[&str]) {
    let mut command = Command::new("git");
    command.arg("-C").arg(dir).args([
        "-c",
        "user.name=A Developer",
        "-c",
        "user.email=a@b.example",
    ]);
    ok(command.args(args));
}

/// A repository that pods clone, served on the bridge.
struct Repository {
    url: String,
    _server: Running,
}

impl Repository {
    fn serve(files: &Path, parent: &Path) -> Result<Self> {
        let work = parent.join("app.git");
        ok(Command::new("cp").arg("-r").arg(files).arg(&work));
        git(&work, &["init", "--quiet", "--initial-branch=main"]);
        git(&work, &["add", "."]);
        git(&work, &["commit", "--quiet", "-m", "An application"]);
        let address = Testbed::get().bridge_address;
        let port = free_port(address)?;
        let mut daemon = Command::new("git");
        daemon.args(["daemon", "--export-all", "--reuseaddr"]);
        daemon.arg(format!("--base-path={}", parent.display()));
        daemon.arg(format!("--listen={address}")).arg(format!("--port={port}")).arg(parent);
        let server = Running::start(&mut daemon)?;
        let url = format!("git://{address}:{port}/app.git");
        wait_for("git daemon", Duration::from_secs(10), || {
            let found = run(Command::new("git").args(["ls-remote", &url]))?;
            ensure!(found.code == Some(0), "{found}");
            Ok(())
        })?;
        Ok(Self { url, _server: server })
    }
}

/// The platforms of an index with their digests, as crane reads it.
fn children(index: &str) -> Vec<(String, String)> {
    let manifest = parsed(&ok(Command::new(tool("crane")).args(["manifest", "--insecure", index])));
    let entries = manifest["manifests"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let platform = |entry: &Value| {
        format!("{}/{}", text(&entry["platform"]["os"]), text(&entry["platform"]["architecture"]))
    };
    entries.iter().map(|entry| (platform(entry), text(&entry["digest"]))).collect()
}

/// Runs the image of the node's platform in a pod, and the other's program under qemu-user.
fn both_run(works: &Works, [cluster, loopback]: &[String; 2]) -> Result<()> {
    let namespace = &works.site.namespace;
    namespace.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "hello"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "hello", "image": cluster}]},
    }))?;
    wait_for("the pod to end", Duration::from_secs(60), || {
        let pod = namespace.kubectl_json(&["get", "pod", "hello"])?;
        ensure!(pod["status"]["phase"] == "Succeeded", "{}", pod["status"]);
        Ok(())
    })?;
    assert_eq!(namespace.kubectl(&["logs", "hello"])?, "hello from linux/amd64\n");
    namespace.kubectl(&["delete", "pod", "hello", "--wait=false"])?;
    let disk = works.dir.path().join("arm64.ext4");
    let tree = works.dir.path().join("arm64");
    ok(portolan()
        .args(["rootdisk", "build", loopback, "--platform", "linux/arm64", "--output"])
        .arg(&disk));
    ok(portolan().args(["rootdisk", "extract"]).arg(&disk).arg(&tree));
    let said = ok(Command::new(tool("qemu-aarch64-static")).arg(tree.join("hello")));
    assert_eq!(said, "hello from linux/arm64\n");
    Ok(())
}

/// Nothing may be under the tag, nor was it ever.
fn not_published(image: &str) -> Result<()> {
    let found = run(portolan().args(["image", "inspect", image]))?;
    ensure!(found.code == Some(4), "{found}");
    Ok(())
}

#[test]
fn a_git_build_for_two_platforms_ends_with_an_index_whose_images_run() -> Result<()> {
    let works = Works::new("journey")?;
    let repository = Repository::serve(&hello_source(), works.dir.path())?;
    let image = works.image("app");
    let git = ["--source-git-url", &repository.url, "--source-git-revision", "main"];
    let create = [&works.create("app", "portolan", &image[0])[..], &git];
    works.ok(&[
        &create.concat()[..],
        &["--param-value", &format!("portolan-image={}", step_image())],
    ]
    .concat())?;
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
    assert_eq!(status["output"]["digest"], portolan_e2e::digest(&image[1]), "{status}");
    both_run(&works, &image)?;

    // The same Build on this machine, from its own file, gives the same index.
    let file = works.dir.path().join("build.json");
    let mut build = works.site.namespace.kubectl_json(&["get", "build", "app"])?;
    build["spec"]["output"]["image"] = json!(works.image("laptop")[1]);
    build["metadata"] = json!({"name": "app"});
    std::fs::write(&file, build.to_string())?;
    let strategy = deploy("strategies/portolan.yaml");
    let platforms = works.dir.path().join("platforms.json");
    let resources = "imageplatforms,imageplatformclasses";
    std::fs::write(&platforms, Testbed::get().kubectl(&["get", resources, "-o", "json"])?)?;
    let mut command = portolan();
    command.args(["build", "run", "--engine", "local", "-o", "json"]);
    for file in [&file, &strategy, &platforms] {
        command.arg("-f").arg(file);
    }
    let here = parsed(&ok(&mut command));
    assert_eq!(here["output"]["digest"], status["output"]["digest"], "{here}");
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
    let create =
        [&works.create("app", "portolan", &image[0])[..], &["--source-git-url", &repository.url]];
    works.ok(&[
        &create.concat()[..],
        &["--param-value", &format!("portolan-image={}", step_image())],
    ]
    .concat())?;
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
    wait_for("both pods at work", Duration::from_secs(90), || {
        let phases = pods()?;
        ensure!(phases == ["Running", "Running"], "{phases:?}\n{}", works.told());
        Ok(())
    })?;
    works.ok(&["buildrun", "cancel", &name])?;
    works.site.reaches(&name, "False", "BuildRunCanceled", Duration::from_secs(60))?;
    wait_for("no pod at work", Duration::from_secs(90), || {
        let phases = pods()?;
        ensure!(phases.iter().all(|phase| phase != "Running" && phase != "Pending"), "{phases:?}");
        Ok(())
    })?;
    Testbed::get().kubectl(&["delete", "clusterbuildstrategy", &works.class])?;
    not_published(&image[1])
}

#[test]
fn a_directory_of_this_machine_is_uploaded_and_built() -> Result<()> {
    let works = Works::new("upload")?;
    let image = works.image("app");
    let create = works.create("app", "portolan", &image[0]);
    works
        .ok(&[&create[..], &["--param-value", &format!("portolan-image={}", step_image())]]
            .concat())?;
    let source = hello_source();
    let source = source.to_str().context("a path that is text")?;
    let said = works.follow(&["build", "upload", "app", source])?;
    ensure!(said.code == Some(0), "{said}\n{}", works.told());
    both_run(&works, &image)
}

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
