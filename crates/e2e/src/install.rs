//! `portolan install` on the cluster, as somebody would carry it out, and all of it taken away again.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{Forward, Output, Testbed, ours, run_with_input, wait_for};

/// Where Gatekeeper asks the verifier.
const PORT: u16 = 6001;

/// The cluster after this, whatever became of the test: other tests find none of it.
#[derive(Debug)]
pub struct Installation {
    /// Where agents keep images: what they left below this machine's own root would stay there.
    agents: tempfile::TempDir,
}

impl Installation {
    /// Where the programs run.
    pub const NAMESPACE: &'static str = "portolan-system";
    const OTHERS: [&'static str; 2] = ["portolan-shims", "portolan-nodes"];

    /// Applies what `portolan install FLAGS` prints to a cluster where nothing is under these names.
    pub fn new(flags: &[&str]) -> Result<Self> {
        // What tests before this one left.
        let gone = ["delete", "namespace", Self::NAMESPACE];
        let patience = ["--ignore-not-found", "--timeout=120s"];
        let gone = [&gone[..], &Self::OTHERS, &patience].concat();
        Testbed::get().kubectl(&gone)?;
        let installation = Self { agents: tempfile::tempdir()? };
        installation.apply(flags)?;
        Ok(installation)
    }

    /// Applies what is printed until the cluster has taken all of it: kinds come with what defines them.
    pub fn apply(&self, flags: &[&str]) -> Result<()> {
        let root = self.agents.path().display().to_string();
        let printed = ours(&[&["install", "--agent-root", &root][..], flags].concat());
        wait_for("the cluster to take everything", Duration::from_secs(120), || {
            let mut command = Testbed::get().kubectl_command()?;
            // Other tests of this cluster have applied some of it by other means.
            command.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
            let said = run_with_input(&mut command, printed.as_bytes())?;
            ensure!(said.code == Some(0), "{said}");
            Ok(())
        })
    }

    /// Tells the verifier that the testbed's registry speaks plain HTTP, as its owner would, and lets Gatekeeper reach
    /// it.
    pub fn open_to_gatekeeper(&self) -> Result<()> {
        let testbed = Testbed::get();
        self.configure("portolan-verifier", &json!({"registries.toml": Self::registries()}))?;
        Forward::start(testbed.bridge_address, Self::NAMESPACE, "portolan-verifier", PORT)
    }

    /// How the testbed's registry is spoken to, as a file says it.
    pub fn registries() -> String {
        format!("[host.\"{}\"]\nplain_http = true\n", Testbed::get().registry.cluster)
    }

    /// Changes files of a program's configuration, and starts it again: it reads them once.
    pub fn configure(&self, program: &str, files: &Value) -> Result<()> {
        self.patch(&format!("configmap/{program}"), &json!({ "data": files }))?;
        self.kubectl(&["rollout", "restart", &format!("deployment/{program}")]).map(drop)
    }

    /// Changes an object of ours, as whoever installed it may.
    pub fn patch(&self, object: &str, patch: &Value) -> Result<()> {
        self.kubectl(&["patch", object, "-p", &patch.to_string()]).map(drop)
    }

    /// Waits until every copy of a Deployment is as it should be, and ready.
    pub fn ready(&self, name: &str) -> Result<()> {
        let deployment = format!("deployment/{name}");
        let status = self.kubectl(&["rollout", "status", &deployment, "--timeout=120s"]);
        status.map(drop).with_context(|| self.told())
    }

    /// What the pods are and what they said, for a test that failed.
    pub fn told(&self) -> String {
        let words = ["describe pods", "logs -l app.kubernetes.io/part-of=portolan --tail=50"];
        let look = |line: &str| {
            let args: Vec<&str> = line.split(' ').collect();
            self.kubectl(&args).unwrap_or_else(|error| format!("{error:#}"))
        };
        words.map(look).join("\n")
    }

    fn kubectl(&self, args: &[&str]) -> Result<String> {
        Testbed::get().kubectl(&[&["--namespace", Self::NAMESPACE][..], args].concat())
    }

    /// Takes it away, definitions and all objects of them included.
    pub fn remove(&self) -> Result<Output> {
        let printed = ours(&["uninstall", "--crds"]);
        let mut command = Testbed::get().kubectl_command()?;
        command.args(["delete", "--ignore-not-found", "--timeout=120s", "-f", "-"]);
        run_with_input(&mut command, printed.as_bytes())
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        let _ = self.remove();
    }
}
