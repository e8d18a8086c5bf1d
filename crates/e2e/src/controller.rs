//! `portolan-controller` as a process of a test, allowed what `deploy/controller/rbac.yaml` allows and
//! nothing else, and what tests of builds ask a cluster.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::process::http_ok;
use crate::testbed::portolan_controller;
use crate::{Namespace, Running, Testbed, deploy, free_port, wait_for};

/// Controllers serve the whole cluster, so tests with one run one after the other.
static ALONE: Mutex<()> = Mutex::new(());

/// The definitions, an account with the shipped roles, and a namespace for what is built.
#[derive(Debug)]
pub struct BuildSite {
    /// Where the controller keeps its lease.
    own: Namespace,
    /// Where Builds and runs of the test are.
    pub namespace: Namespace,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl BuildSite {
    /// Makes it; waits while another test has one.
    pub fn new(prefix: &str) -> Result<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let testbed = Testbed::get();
        let crds = deploy("crds").display().to_string();
        testbed.kubectl(&["apply", "--server-side", "--force-conflicts", "-f", &crds])?;
        testbed.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "-f", &crds])?;
        let site = Self {
            own: Namespace::new(&format!("{prefix}-system"))?,
            namespace: Namespace::new(prefix)?,
            dir: tempfile::tempdir()?,
            _alone: alone,
        };
        site.allow()?;
        Ok(site)
    }

    /// The shipped roles, with this test's names in the place of ours, and a kubeconfig of the account.
    fn allow(&self) -> Result<()> {
        let testbed = Testbed::get();
        let name = self.own.name();
        let file = deploy("controller/rbac.yaml").display().to_string();
        // Of many documents kubectl prints one after the other.
        let text = testbed.kubectl(&["create", "--dry-run=client", "-o", "json", "-f", &file])?;
        for object in serde_json::Deserializer::from_str(&text).into_iter::<Value>() {
            let mut object = object.context("output of kubectl create")?;
            let kind = object["kind"].as_str().unwrap_or_default().to_owned();
            let metadata = &mut object["metadata"];
            match metadata["namespace"].is_string() {
                true => metadata["namespace"] = json!(name),
                false => metadata["name"] = json!(name),
            }
            if kind.ends_with("Binding") {
                object["subjects"][0]["namespace"] = json!(name);
            }
            if kind == "ClusterRoleBinding" {
                object["roleRef"]["name"] = json!(name);
            }
            testbed.apply(&object)?;
        }
        write_kubeconfig(name, &self.kubeconfig())
    }

    fn kubeconfig(&self) -> PathBuf {
        self.dir.path().join("kubeconfig")
    }

    /// A controller whose steps run this image.
    pub fn start(&self, step_image: &str, more: &[&str]) -> Result<Controller> {
        // Its roles are those of builds alone.
        Controller::start(&self.kubeconfig(), step_image, &[&["--serve", "builds"], more].concat())
    }

    /// The same, once it acts.
    pub fn lead(&self, step_image: &str, more: &[&str]) -> Result<Controller> {
        let mut controller = self.start(step_image, more)?;
        controller.leads()?;
        Ok(controller)
    }

    /// Creates or updates an object of the test's namespace.
    pub fn apply(&self, object: Value) -> Result<()> {
        self.namespace.apply(object)
    }

    /// A run as it is.
    pub fn run(&self, name: &str) -> Result<Value> {
        self.namespace.kubectl_json(&["get", "buildrun", name])
    }

    /// The executor that a run names, once it does. Tekton's webhooks may take ten seconds each when pods have the
    /// processors, and then all is tried again.
    pub fn executor(&self, run: &str) -> Result<Value> {
        wait_for("the run's executor", Duration::from_secs(60), || {
            let found = self.run(run)?;
            let executor = &found["status"]["executor"];
            let (kind, name) = (executor["kind"].as_str(), executor["name"].as_str());
            let (kind, name) = kind.zip(name).with_context(|| found["status"].to_string())?;
            self.namespace.kubectl_json(&["get", &kind.to_lowercase(), name])
        })
    }

    /// The run, once its condition has this status (`True`, `False`, `Unknown`) and reason.
    pub fn reaches(&self, run: &str, status: &str, reason: &str, limit: Duration) -> Result<Value> {
        self.namespace.reaches(("buildrun", run), ["Succeeded", status, reason], limit)
    }

    /// How many TaskRuns and PipelineRuns were made for runs; those of pipelines do not count.
    pub fn executors(&self) -> Result<usize> {
        let all = self.namespace.kubectl_json(&["get", "taskruns,pipelineruns"])?;
        let own = |one: &&Value| one["metadata"]["labels"]["tekton.dev/pipelineRun"].is_null();
        Ok(all["items"].as_array().map_or(0, |all| all.iter().filter(own).count()))
    }

    /// Makes somebody else the holder of the controller's lease.
    pub fn steal_lease(&self) -> Result<()> {
        let now = self.own.kubectl_json(&["get", "lease", "portolan-controller"])?;
        let mut taken = now["spec"].clone();
        taken["holderIdentity"] = json!("somebody else");
        let patch = json!({ "spec": taken }).to_string();
        self.own
            .kubectl(&["patch", "lease", "portolan-controller", "--type=merge", "-p", &patch])
            .map(drop)
    }
}

impl Drop for BuildSite {
    fn drop(&mut self) {
        let names = [("clusterrole", self.own.name()), ("clusterrolebinding", self.own.name())];
        for (kind, name) in names {
            let _ = Testbed::get().kubectl(&["delete", kind, name, "--ignore-not-found"]);
        }
    }
}

/// A kubeconfig of the controller's account in a namespace.
fn write_kubeconfig(namespace: &str, file: &Path) -> Result<()> {
    let testbed = Testbed::get();
    let token = testbed.kubectl(&["-n", namespace, "create", "token", "portolan-controller"])?;
    let admin = testbed.kubectl_json(&["config", "view", "--raw"])?;
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": admin["clusters"][0]["cluster"]}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x", "namespace": namespace}}],
        "users": [{"name": "x", "user": {"token": token.trim()}}],
    });
    std::fs::write(file, kubeconfig.to_string()).context("write the kubeconfig")
}

/// What is shipped for Shims, under its own names, and a controller that serves them.
#[derive(Debug)]
pub struct ShimSite {
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl ShimSite {
    /// Where the Jobs are.
    pub const JOBS: &'static str = "portolan-shims";
    const OWN: &'static str = "portolan-system";

    /// Makes it; waits while another test has one.
    pub fn new() -> Result<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let testbed = Testbed::get();
        let crd = deploy("crds/shims.runtime.spinkube.dev.yaml").display().to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-f"];
        testbed.kubectl(&[&apply[..], &[&crd]].concat())?;
        testbed.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "-f", &crd])?;
        testbed.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": Self::OWN},
        }))?;
        for file in ["controller/rbac.yaml", "shims/rbac.yaml"] {
            let file = deploy(file).display().to_string();
            testbed.kubectl(&[&apply[..], &[&file]].concat())?;
        }
        let site = Self { dir: tempfile::tempdir()?, _alone: alone };
        write_kubeconfig(Self::OWN, &site.dir.path().join("kubeconfig"))?;
        Ok(site)
    }

    /// A controller that serves Shims, with Jobs that run this image, once it acts.
    pub fn lead(&self, image: &str, more: &[&str]) -> Result<Controller> {
        let own = ["--serve", "shims", "--shim-namespace", Self::JOBS];
        let file = self.dir.path().join("kubeconfig");
        let mut controller = Controller::start(&file, image, &[&own[..], more].concat())?;
        controller.leads()?;
        Ok(controller)
    }
}

/// What is shipped for Releases, under its own names, and controllers that serve them.
#[derive(Debug)]
pub struct ReleaseSite {
    /// Where Releases of the test are.
    pub namespace: Namespace,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl ReleaseSite {
    const OWN: &'static str = "portolan-system";

    /// Makes it; waits while another test has one.
    pub fn new(prefix: &str) -> Result<Self> {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let testbed = Testbed::get();
        let crds = deploy("crds").display().to_string();
        let apply = ["apply", "--server-side", "--force-conflicts", "-f"];
        testbed.kubectl(&[&apply[..], &[&crds]].concat())?;
        testbed.kubectl(&["wait", "--for=condition=Established", "--timeout=30s", "-f", &crds])?;
        testbed.apply(&json!({
            "apiVersion": "v1", "kind": "Namespace", "metadata": {"name": Self::OWN},
        }))?;
        for file in ["controller/rbac.yaml", "releases/rbac.yaml"] {
            let file = deploy(file).display().to_string();
            testbed.kubectl(&[&apply[..], &[&file]].concat())?;
        }
        let namespace = Namespace::new(prefix)?;
        let site = Self { namespace, dir: tempfile::tempdir()?, _alone: alone };
        write_kubeconfig(Self::OWN, &site.dir.path().join("kubeconfig"))?;
        Ok(site)
    }

    /// A controller that serves Releases.
    pub fn start(&self, more: &[&str]) -> Result<Controller> {
        let file = self.dir.path().join("kubeconfig");
        let own = ["--serve", "releases"];
        Controller::start(&file, "registry.invalid/unused", &[&own[..], more].concat())
    }

    /// The same, once it acts.
    pub fn lead(&self, more: &[&str]) -> Result<Controller> {
        let mut controller = self.start(more)?;
        controller.leads()?;
        Ok(controller)
    }

    /// A Release as it is.
    pub fn release(&self, name: &str) -> Result<Value> {
        self.namespace.kubectl_json(&["get", "release.portolan.dev", name])
    }

    /// The Release, once `kind` has this status and reason.
    pub fn reaches(&self, name: &str, kind: &str, status: &str, reason: &str) -> Result<Value> {
        let release = ("release.portolan.dev", name);
        self.namespace.reaches(release, [kind, status, reason], Duration::from_secs(60))
    }
}

/// A condition of an object.
pub fn condition<'a>(object: &'a Value, kind: &str) -> Option<&'a Value> {
    let conditions = object["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == kind)
}

/// A controller that runs.
#[derive(Debug)]
pub struct Controller {
    port: u16,
    process: Running,
}

impl Controller {
    fn start(kubeconfig: &Path, step_image: &str, more: &[&str]) -> Result<Self> {
        let port = free_port(Ipv4Addr::LOCALHOST.into())?;
        let mut command = Command::new(portolan_controller());
        command.arg("--kubeconfig").arg(kubeconfig);
        command.args(["--step-image", step_image, "--health", &format!("127.0.0.1:{port}")]);
        let process = Running::start(command.args(more))?;
        Ok(Self { port, process })
    }

    fn get(&self, path: &str) -> Result<()> {
        http_ok(&format!("127.0.0.1:{}", self.port), path)
    }

    /// Waits until it answers: it acts, or stands by.
    pub fn ready(&mut self) -> Result<()> {
        let log = |one: &Self| one.process.log();
        let end = wait_for("the controller to be ready", Duration::from_secs(30), || {
            self.process.check()?;
            self.get("/readyz")
        });
        end.with_context(|| log(self))
    }

    /// Waits until it acts.
    pub fn leads(&mut self) -> Result<()> {
        let end = wait_for("the controller to act", Duration::from_secs(40), || {
            self.process.check()?;
            self.get("/readyz")?;
            ensure!(self.is_leading(), "it stands by");
            Ok(())
        });
        end.with_context(|| self.process.log())
    }

    /// Whether it said that it acts.
    pub fn is_leading(&self) -> bool {
        self.process.log().contains("everything is listed")
    }

    /// What it printed.
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Its process.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Whether it still runs, as an error with its log if not.
    pub fn check(&mut self) -> Result<()> {
        self.process.check()
    }

    /// Ends it as a kernel does: it hears nothing of it.
    pub fn kill(self) {
        drop(self);
    }

    /// Ends it in order, and waits for that.
    pub fn terminate(mut self) -> Result<()> {
        self.process.signal(Signal::TERM)?;
        let waited = wait_for("the controller to end", Duration::from_secs(20), || {
            ensure!(self.process.check().is_err(), "it runs");
            Ok(())
        });
        waited.with_context(|| self.process.log())
    }
}
