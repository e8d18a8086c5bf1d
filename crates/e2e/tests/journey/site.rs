//! A cluster with everything of Portolan installed, a repository to build, and a key that all who decide know.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Installation, Namespace, Repository, SigningKey, Testbed, architecture, digest, hello_source,
    json as parsed, ok, portolan, resolved, run, step_image,
};
use serde_json::{Value, json};

pub(crate) const PLATFORMS: [&str; 2] = ["linux/amd64", "linux/arm64"];
/// Five pods one after the other, on two processors.
const BUILD: Duration = Duration::from_secs(240);

/// What came of the build.
pub(crate) struct Image {
    /// As the cluster names it, without a tag.
    pub(crate) repository: String,
    /// The same on this machine, with its tag.
    pub(crate) here: String,
    /// Of the index.
    pub(crate) index: String,
    /// Of the image that this machine runs.
    pub(crate) resolved: String,
}

/// Where Releases are.
pub(crate) struct Releases {
    pub(crate) namespace: Namespace,
}

pub(crate) struct Site {
    pub(crate) releases: Releases,
    pub(crate) key: SigningKey,
    repository: Repository,
    pub(crate) dir: tempfile::TempDir,
    /// The last to go.
    pub(crate) installation: Installation,
}

impl Site {
    pub(crate) fn new() -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let key = SigningKey::generate(&dir.path().join("policy"));
        let policy = key.dir().display().to_string();
        let image = step_image();
        // One copy of each program: what two of them do is tested elsewhere.
        let flags = ["--image", &image, "--policy", &policy, "--action", "deny", "--replicas", "1"];
        let installation = Installation::new(&flags)?;
        installation.open_to_gatekeeper()?;
        let releases = Releases { namespace: Namespace::new("journey")? };
        releases.policy(&key)?;
        let repository = Repository::serve(&hello_source(), dir.path())?;
        let site = Self { releases, key, repository, dir, installation };
        site.settings()?;
        for name in ["portolan-controller", "portolan-verifier"] {
            site.installation.ready(name)?;
        }
        Ok(site)
    }

    /// What the owner of this cluster tells the controller: that its registry speaks plain HTTP, and that shims are kept in a
    /// folder which goes with the cluster.
    fn settings(&self) -> Result<()> {
        let own = format!(
            "registries = \"/etc/portolan/config/registries.toml\"\n[shims]\ninstall_dir = {:?}\n",
            crate::pods::install_dir()
        );
        self.installation.configure(
            "portolan-controller",
            &json!({"controller.toml": own, "registries.toml": Installation::registries()}),
        )
    }

    /// Builds what is in the repository for both platforms, as a run that is to become the Release `app-1`.
    pub(crate) fn build(&self) -> Result<Image> {
        let (namespace, registry) = (&self.releases.namespace, &Testbed::get().registry);
        let path = format!("{}/app", namespace.name());
        let output = format!("{}/{path}:1", registry.cluster);
        let create = ["build", "create", "app", "--strategy", "portolan", "--output-insecure"];
        let [amd, arm] = PLATFORMS;
        let what = ["--output", &output, "--platform", amd, "--platform", arm];
        let from = ["--source-git-url", &self.repository.url, "--namespace", namespace.name()];
        let mut command = portolan();
        command.env("KUBECONFIG", &Testbed::get().kubeconfig);
        ok(command.args(create).args(what).args(from));
        namespace.apply(json!({
            "apiVersion": "shipwright.io/v1beta1", "kind": "BuildRun",
            "metadata": {
                "name": "app-1", "labels": {"portolan.dev/release": "app-1"},
                "annotations": {"portolan.dev/release-policy": "makers"},
            },
            "spec": {"build": {"name": "app"}},
        }))?;
        let succeeded = ["Succeeded", "True", "Succeeded"];
        let built =
            namespace.reaches(("buildrun", "app-1"), succeeded, BUILD).with_context(|| {
                let pods = namespace.kubectl(&["get", "buildruns,taskruns,pods", "-o", "wide"]);
                format!("{}\n{}", pods.unwrap_or_default(), self.installation.told())
            })?;
        let here = format!("{}/{path}:1", registry.loopback);
        let image = Image {
            repository: format!("{}/{path}", registry.cluster),
            index: digest(&here),
            resolved: resolved(&here, &format!("linux/{}", architecture())),
            here,
        };
        let output = &built["status"]["output"];
        ensure!(output["digest"] == image.index.as_str(), "{output} and not {}", image.index);
        Ok(image)
    }
}

impl Releases {
    /// The policy as a ConfigMap, as people make it.
    fn policy(&self, key: &SigningKey) -> Result<()> {
        let files = [key.policy(), key.public()].map(|file| format!("--from-file={file}"));
        let [policy, public] = &files;
        self.namespace.kubectl(&["create", "configmap", "makers", policy, public]).map(drop)
    }

    pub(crate) fn create(&self, name: &str, image: &str) -> Result<()> {
        self.namespace.apply(json!({
            "apiVersion": "portolan.dev/v1alpha1", "kind": "Release", "metadata": {"name": name},
            "spec": {"image": image, "policy": {"configMap": "makers"}},
        }))
    }

    /// The Release, once `kind` has this status and reason.
    pub(crate) fn reaches(
        &self,
        name: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> Result<Value> {
        let release = ("release.portolan.dev", name);
        self.namespace.reaches(release, [kind, status, reason], Duration::from_secs(180))
    }

    /// The words of `portolan release workload` for this machine's platform.
    pub(crate) fn workload_words<'a>(&'a self, name: &'a str) -> Vec<&'a str> {
        let platform = match architecture() {
            "arm64" => PLATFORMS[1],
            _ => PLATFORMS[0],
        };
        let kubeconfig = Testbed::get().kubeconfig.to_str().unwrap_or_default();
        let place = ["--namespace", self.namespace.name(), "--kubeconfig", kubeconfig];
        [&["release", "workload", name, "--platform", platform][..], &place].concat()
    }

    /// The WorkloadSpec of a Release that is Ready.
    pub(crate) fn workload(&self, name: &str) -> Result<Value> {
        let said = run(portolan().args(self.workload_words(name)))?;
        ensure!(said.code == Some(0), "{said}");
        Ok(parsed(&said.stdout))
    }
}
