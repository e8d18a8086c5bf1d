//! A site where everything that builds need is there, and what is looked at afterwards.

use std::process::Command;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    BuildSite, Controller, Output, Testbed, deploy, json as parsed, ok, portolan, run, step_image,
    tool, wait_for,
};
use serde_json::{Value, json};

/// Five pods one after the other, on two processors that others use too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(240);

/// A site with its controller, the shipped strategies, and a class of both platforms.
pub(crate) struct Works {
    pub(crate) site: BuildSite,
    controller: Controller,
    pub(crate) class: String,
    pub(crate) dir: tempfile::TempDir,
}

impl Works {
    pub(crate) fn new(prefix: &str) -> Result<Self> {
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

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = portolan();
        command.env("KUBECONFIG", &Testbed::get().kubeconfig).args(args);
        command.args(["--namespace", self.site.namespace.name()]);
        command
    }

    /// `portolan ARGS`, with all that is known where it fails.
    pub(crate) fn ok(&self, args: &[&str]) -> Result<String> {
        let said = run(&mut self.command(args))?;
        ensure!(said.code == Some(0), "{said}\n{}", self.told());
        Ok(said.stdout)
    }

    pub(crate) fn told(&self) -> String {
        let namespace = &self.site.namespace;
        let look = |args: &[&str]| namespace.kubectl(args).unwrap_or_else(|e| format!("{e:#}"));
        let pods = look(&["get", "pods", "-o", "wide"]);
        let runs = look(&["get", "buildruns", "-o", "yaml"]);
        format!("{pods}\n{runs}\n{}", self.controller.log())
    }

    /// Where an image of the test goes, as pods and as we write it.
    pub(crate) fn image(&self, name: &str) -> [String; 2] {
        let registry = &Testbed::get().registry;
        let of = |host: &str| format!("{host}/{}/{name}:1", self.class);
        [of(&registry.cluster), of(&registry.loopback)]
    }

    /// The words of `build create` for a Build of both platforms.
    pub(crate) fn create<'a>(
        &'a self,
        name: &'a str,
        strategy: &'a str,
        image: &'a str,
    ) -> Vec<&'a str> {
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

    /// Makes a Build of both platforms by the strategy `portolan`.
    pub(crate) fn make(&self, name: &str, image: &str, more: &[&str]) -> Result<()> {
        let step = format!("portolan-image={}", step_image());
        let base = self.create(name, "portolan", image);
        self.ok(&[&base[..], &["--param-value", &step], more].concat()).map(drop)
    }

    /// The status of the same Build on this machine, from files that the cluster printed.
    pub(crate) fn here(&self, build: &str, image: &str, more: &[&str]) -> Result<Value> {
        let file = self.dir.path().join("build.json");
        let mut found = self.site.namespace.kubectl_json(&["get", "build", build])?;
        found["spec"]["output"]["image"] = json!(image);
        found["metadata"] = json!({"name": build});
        std::fs::write(&file, found.to_string())?;
        let strategy = deploy("strategies/portolan.yaml");
        let platforms = self.dir.path().join("platforms.json");
        // Those of other tests come and go.
        let of_ours = [
            format!("imageplatformclass/{}", self.class),
            format!("imageplatform/{}-amd64", self.class),
            format!("imageplatform/{}-arm64", self.class),
        ];
        let mut get = vec!["get", "-o", "json"];
        get.extend(of_ours.iter().map(String::as_str));
        std::fs::write(&platforms, Testbed::get().kubectl(&get)?)?;
        let mut command = portolan();
        command.args(["build", "run", "--engine", "local", "-o", "json"]).args(more);
        for file in [&file, &strategy, &platforms] {
            command.arg("-f").arg(file);
        }
        Ok(parsed(&ok(&mut command)))
    }

    /// Follows a run to its end.
    pub(crate) fn follow(&self, args: &[&str]) -> Result<Output> {
        run(self.command(args).arg("--follow"))
    }

    /// The only run of a Build.
    pub(crate) fn run_of(&self, build: &str) -> Result<Value> {
        let label = format!("build.shipwright.io/name={build}");
        let runs = self.site.namespace.kubectl_json(&["get", "buildruns", "-l", &label])?;
        let found = runs["items"].as_array().and_then(|all| all.first()).cloned();
        found.with_context(|| format!("no run of {build}\n{}", self.told()))
    }
}

impl Drop for Works {
    fn drop(&mut self) {
        for (kind, name) in [
            ("clusterbuildstrategy", self.class.clone()),
            ("imageplatformclass", self.class.clone()),
            ("imageplatform", format!("{}-amd64", self.class)),
            ("imageplatform", format!("{}-arm64", self.class)),
        ] {
            let _ = Testbed::get().kubectl(&["delete", kind, &name, "--ignore-not-found"]);
        }
    }
}

/// The platforms of an index with their digests, as crane reads it.
pub(crate) fn children(index: &str) -> Vec<(String, String)> {
    let manifest = parsed(&ok(Command::new(tool("crane")).args(["manifest", "--insecure", index])));
    let entries = manifest["manifests"].as_array().cloned().unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let platform = |entry: &Value| {
        format!("{}/{}", text(&entry["platform"]["os"]), text(&entry["platform"]["architecture"]))
    };
    entries.iter().map(|entry| (platform(entry), text(&entry["digest"]))).collect()
}

/// Runs the image of the node's platform in a pod, and the other's program under qemu-user.
pub(crate) fn both_run(works: &Works, [cluster, loopback]: &[String; 2]) -> Result<()> {
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
pub(crate) fn not_published(image: &str) -> Result<()> {
    let found = run(portolan().args(["image", "inspect", image]))?;
    ensure!(found.code == Some(4), "{found}");
    Ok(())
}
