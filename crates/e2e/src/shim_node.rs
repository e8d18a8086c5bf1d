//! The testbed's own node as a place for shims: selected, with archives to install, and left as it was.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use crate::{
    FileServer, ShimSite, Testbed, condition, portolan, programs_below, run, sha256, shim_archive,
    wait_for,
};

const PATIENCE: Duration = Duration::from_secs(180);

/// The node while a test has Shims for it.
#[derive(Debug)]
pub struct ShimNode {
    /// What selects the node, and marks the pods that run by shims.
    label: &'static str,
    /// Where shims are installed: in the cluster's folder, so that a test that is killed leaves nothing on the machine.
    install_dir: PathBuf,
    archives: FileServer,
    names: Vec<&'static str>,
}

impl ShimNode {
    /// Labels the node; `names` are of the Shims that may be there.
    pub fn new(label: &'static str, names: &[&'static str]) -> Result<Self> {
        let testbed = Testbed::get();
        testbed.kubectl(&["label", "node", &testbed.node, &format!("{label}=yes")])?;
        testbed.scratch(label)?;
        Ok(Self {
            label,
            install_dir: Self::install_dir_of(label),
            archives: FileServer::start(testbed.bridge_address)?,
            names: names.to_vec(),
        })
    }

    /// Where the shims of a test with this label are kept, for a controller that begins before it.
    pub fn install_dir_of(label: &str) -> PathBuf {
        Testbed::get().scratch_dir(label).join("opt/rcm")
    }

    /// For the controller that serves the Shims.
    pub fn install_dir(&self) -> &Path {
        &self.install_dir
    }

    /// Serves an archive with this program; its URL and digest.
    pub fn archive(&self, file: &str, name: &str, program: &[u8]) -> Result<(String, String)> {
        let bytes = shim_archive(&format!("containerd-shim-{name}"), program)?;
        let digest = sha256(&bytes);
        Ok((self.archives.put(file, bytes), digest))
    }

    /// A Shim of this archive for the node.
    pub fn shim(&self, name: &str, (location, sha256): &(String, String)) -> Value {
        json!({
            "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name},
            "spec": {
                "nodeSelector": {self.label: "yes"},
                "fetchStrategy": {"platforms": [
                    {"os": "linux", "arch": std::env::consts::ARCH, "location": location, "sha256": sha256},
                ]},
                "runtimeClass": {"name": name, "handler": name},
                "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
            },
        })
    }

    /// The labels of pods that run by a shim: they go before it.
    pub fn pod_labels(&self) -> Value {
        json!({self.label: "yes"})
    }

    /// A Shim as it is.
    pub fn get(&self, name: &str) -> Result<Value> {
        Testbed::get().kubectl_json(&["get", "shim", name])
    }

    /// The node as it is.
    pub fn node(&self) -> Result<Value> {
        Testbed::get().kubectl_json(&["get", "node", &Testbed::get().node])
    }

    /// Waits until the node has what the Shim says now.
    pub fn installed(&self, name: &str) -> Result<()> {
        let end = wait_for(&format!("{name} to be installed"), PATIENCE, || {
            let shim = self.get(name)?;
            let status = &shim["status"];
            let counts = ["nodes", "nodesReady", "nodesUpdated"].map(|key| status[key].as_i64());
            ensure!(counts == [Some(1); 3], "{status}");
            ensure!(status["observedGeneration"] == shim["metadata"]["generation"], "{status}");
            for (kind, value) in
                [("Available", "True"), ("Degraded", "False"), ("RuntimeClassReady", "True")]
            {
                let found = condition(&shim, kind).context("no condition yet")?;
                ensure!(found["status"] == value, "{status}");
            }
            Ok(())
        });
        end.with_context(|| self.told())?;
        let label = &self.node()?["metadata"]["labels"][name];
        ensure!(label == "provisioned", "the node's label is {label}");
        Ok(())
    }

    /// Deletes a Shim, and waits until it is gone.
    pub fn goes(&self, name: &str) -> Result<()> {
        Testbed::get().kubectl(&["delete", "shim", name, "--wait=false"])?;
        let gone = wait_for(&format!("{name} to go"), PATIENCE, || {
            ensure!(self.get(name).is_err(), "it is there");
            Ok(())
        });
        gone.with_context(|| self.told())
    }

    /// What Jobs and their pods say, for a test that failed.
    pub fn told(&self) -> String {
        let jobs = |args: &[&str]| {
            let all = [&["--namespace", ShimSite::JOBS][..], args].concat();
            Testbed::get().kubectl(&all).unwrap_or_default()
        };
        let pods = ["logs", "-l", "spinkube.dev/job=true", "--all-containers", "--prefix"];
        [
            jobs(&["get", "jobs,pods", "-o", "wide"]),
            jobs(&["get", "events", "-o", "wide"]),
            jobs(&[&pods[..], &["--tail=20"]].concat()),
        ]
        .join("\n")
    }

    /// The shims' programs that run, each by the digest that it is kept under.
    pub fn running(&self) -> BTreeSet<String> {
        let digest = |path: PathBuf| {
            let dir = path.parent()?.file_name()?;
            Some(dir.to_string_lossy().into_owned())
        };
        programs_below(&self.install_dir).into_iter().filter_map(digest).collect()
    }
}

impl Drop for ShimNode {
    fn drop(&mut self) {
        let testbed = Testbed::get();
        // First who runs by them: nothing takes such pods away when their shim is gone.
        let pods = ["delete", "pods", "--all-namespaces", "--wait", "--timeout=60s", "-l"];
        let _ = testbed.kubectl(&[&pods[..], &[&format!("{}=yes", self.label)]].concat());
        for name in &self.names {
            let free = r#"{"metadata":{"finalizers":null}}"#;
            let _ = testbed.kubectl(&["patch", "shim", name, "--type=merge", "-p", free]);
            let _ = testbed.kubectl(&["delete", "shim", name, "--ignore-not-found"]);
            // After a failure, what is there of it goes by hand: others need this node.
            let mut uninstall = portolan();
            uninstall.args(["node", "uninstall", "--host-root", "/", "--name", name]);
            uninstall.arg("--config").arg(containerd_config());
            uninstall.arg("--install-dir").arg(&self.install_dir);
            let _ = run(&mut uninstall);
        }
        let _ = testbed.kubectl(&["label", "node", &testbed.node, &format!("{}-", self.label)]);
    }
}

/// The configuration of the node's containerd.
pub fn containerd_config() -> PathBuf {
    Testbed::get().containerd_socket.with_file_name("containerd.toml")
}

/// The program that the node's containerd runs pods by: as good a shim as any under another name.
pub fn runc_shim() -> Result<Vec<u8>> {
    let file = Testbed::get().containerd.with_file_name("containerd-shim-runc-v2");
    std::fs::read(&file).with_context(|| format!("read {}", file.display()))
}
