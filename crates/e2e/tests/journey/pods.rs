//! Pods in a namespace that Gatekeeper looks at, which run by a shim that a Shim brought to the node.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Cri, Namespace, Output, ShimNode, Testbed, run_with_input, runc_shim, wait_for,
};
use serde_json::{Value, json};

use crate::site::{Image, Site};
use crate::tampered::Tampered;

const SHIM: &str = "e2e-journey";
/// What selects the node. Not the Shim's own name: a label of that name tells how the Shim is there.
const NODES: &str = "e2e-journey-nodes";

/// Where shims are kept on the node: in a folder that goes with the cluster.
pub(crate) fn install_dir() -> String {
    ShimNode::install_dir_of(NODES).display().to_string()
}

pub(crate) struct Pods<'a> {
    namespace: Namespace,
    node: ShimNode,
    site: &'a Site,
}

impl<'a> Pods<'a> {
    /// Begins to install the shim.
    pub(crate) fn new(site: &'a Site) -> Result<Self> {
        let namespace = Namespace::new("journey-pods")?;
        let enforced = "portolan.dev/gatekeeper=enforced";
        Testbed::get().kubectl(&["label", "namespace", namespace.name(), enforced])?;
        let pods = Self { namespace, node: ShimNode::new(NODES, &[SHIM])?, site };
        let archive = pods.node.archive("shim.tar.gz", SHIM, &runc_shim()?)?;
        Testbed::get().apply(&pods.node.shim(SHIM, &archive))?;
        Ok(pods)
    }

    /// The node has it, and the class names it.
    pub(crate) fn shim_is_installed(&self) -> Result<()> {
        self.node.installed(SHIM).with_context(|| self.site.installation.told())?;
        let class = Testbed::get().kubectl_json(&["get", "runtimeclass", SHIM])?;
        ensure!(class["handler"] == SHIM, "{class}");
        Ok(())
    }

    pub(crate) fn shim_goes(&self) -> Result<()> {
        self.namespace.kubectl(&["delete", "pod", "app", "--wait=true", "--timeout=60s"])?;
        self.node.goes(SHIM).with_context(|| self.site.installation.told())
    }

    fn pod(&self, image: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": "app", "namespace": self.namespace.name(), "labels": self.node.pod_labels(),
            },
            "spec": {
                "runtimeClassName": SHIM, "restartPolicy": "Never",
                "containers": [{"name": "app", "image": image}],
            },
        })
    }

    /// Not a try: what is admitted runs.
    fn create(&self, pod: &Value) -> Result<Output> {
        let mut command = Testbed::get().kubectl_command()?;
        run_with_input(command.args(["create", "-f", "-"]), pod.to_string().as_bytes())
    }

    /// The released image is admitted, and writes this line from a container of the shim.
    pub(crate) fn runs(&self, image: &Image, line: &str) -> Result<()> {
        let reference = format!("{}@{}", image.repository, image.index);
        // The verifier was started anew a while ago; Gatekeeper asks it for the first time.
        wait_for("the pod to be admitted", Duration::from_secs(60), || {
            let said = self.create(&self.pod(&reference))?;
            ensure!(said.code == Some(0), "{said}");
            Ok(())
        })
        .with_context(|| self.site.installation.told())?;
        let ended = wait_for("the pod to end", Duration::from_secs(90), || {
            let pod = self.namespace.kubectl_json(&["get", "pod", "app"])?;
            ensure!(pod["status"]["phase"] == "Succeeded", "{}", pod["status"]);
            Ok(pod)
        });
        let describe = ["describe", "pod", "app"];
        let ended = ended.with_context(|| self.namespace.kubectl(&describe).unwrap_or_default())?;
        let log = self.namespace.kubectl(&["logs", "app"])?;
        ensure!(log.trim() == line, "{log}");
        // The kubelet's own word for what ran, and the runtime's for how.
        let ran = &ended["status"]["containerStatuses"][0];
        ensure!(ran["imageID"].to_string().contains(&image.index), "{ran}");
        let cri = Cri::at(&Testbed::get().containerd_socket)?;
        let uid = ended["metadata"]["uid"].as_str().context("a uid")?;
        let label = format!("io.kubernetes.pod.uid={uid}");
        let found = cri.crictl(&["pods", "--label", &label, "-o", "json"])?;
        let found: Value = serde_json::from_str(&found)?;
        ensure!(found["items"][0]["runtimeHandler"] == SHIM, "{found}");
        Ok(())
    }

    /// The index is signed and is let through by nobody: its child is not.
    pub(crate) fn refuses(&self, tampered: &Tampered) -> Result<()> {
        let mut pod = self.pod(&tampered.index_reference());
        pod["metadata"]["name"] = json!("tampered");
        let said = self.create(&pod)?;
        ensure!(said.code == Some(1) && said.stderr.contains("[verified-images]"), "{said}");
        let by_the_verifier = said.stderr.contains("does not pass");
        ensure!(by_the_verifier && said.stderr.contains(&tampered.child), "{said}");
        Ok(())
    }
}
