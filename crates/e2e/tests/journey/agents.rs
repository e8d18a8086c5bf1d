//! A host with a real `portolan-agent`, which is told digests and asks its own policy.

use std::time::Duration;

use anyhow::{Result, ensure};
use portolan_e2e::{
    Agent, AgentRoot, Output, Testbed, machine_config, ok, portolan, run_with_input, wait_for,
};
use serde_json::{Value, json};

use crate::site::Site;
use crate::tampered::Tampered;

pub(crate) struct Host {
    agent: Agent,
    root: AgentRoot,
}

impl Host {
    pub(crate) fn new(site: &Site) -> Result<Self> {
        let root = AgentRoot(site.dir.path().join("agent"));
        let registries = site.dir.path().join("registries.toml");
        let registry = &Testbed::get().registry.cluster;
        std::fs::write(&registries, format!("[host.\"{registry}\"]\nplain_http = true\n"))?;
        // KVM where a guest boots on it, software emulation else.
        let config = format!(
            "registries = {registries:?}\n{}[verification]\npolicy = {:?}\n",
            machine_config("auto"),
            site.key.policy(),
        );
        Ok(Self { agent: Agent::start(&root, &config)?, root })
    }

    /// `portolan agent run`, which waits until it runs, has run, or never will.
    fn run(&self, id: &str, spec: &Value) -> Result<Output> {
        let mut command = portolan();
        command.args(["agent", "run", "-f", "-", "--wait", "--timeout", "240", "--id", id]);
        command.arg("--socket").arg(self.agent.socket());
        run_with_input(&mut command, spec.to_string().as_bytes())
    }

    /// A machine of this spec writes this line, from a disk of the very digest.
    pub(crate) fn boots(&self, spec: &Value, line: &str) -> Result<()> {
        let said = self.run("app", spec)?;
        ensure!(said.code == Some(0), "{said}\n{}", self.agent.log());
        let ended = self.agent.reaches("app", "stopped")?;
        ensure!(ended["exit"]["code"] == 0, "{ended}");
        ensure!(ended["cached"] == false, "it was fetched for this start: {ended}");
        let console =
            ok(portolan().args(["agent", "logs", "app", "--socket"]).arg(self.agent.socket()));
        ensure!(console.lines().any(|one| one.trim() == line), "{console}");
        let cache = self.agent.get("/v1/cache")?;
        let disks = cache["rootdisks"].as_array().map(Vec::as_slice).unwrap_or_default();
        let [disk] = disks else { anyhow::bail!("one disk, not {cache}") };
        ensure!(disk["resolved_digest"] == spec["image"]["resolved_digest"], "{cache}");
        let deleted = self.agent.request("DELETE", "/v1/instances/app", None)?;
        ensure!(deleted.status < 300, "{deleted:?}");
        wait_for("the instance to go", Duration::from_secs(30), || {
            let left = std::fs::read_dir(self.root.join("instances"))?.count();
            ensure!(left == 0, "{left} instances");
            Ok(())
        })
    }

    /// The tampered child is refused by the signed index that lists it, and by the one that was released.
    pub(crate) fn refuses(&self, spec: &Value, tampered: &Tampered) -> Result<()> {
        let released = spec["image"]["index_digest"].clone();
        for (id, index) in [("by-its-index", json!(tampered.index)), ("by-ours", released)] {
            let mut spec = spec.clone();
            spec["image"]["resolved_digest"] = json!(tampered.child);
            spec["image"]["index_digest"] = index;
            let said = self.run(id, &spec)?;
            ensure!(said.code == Some(1), "{said}\n{}", self.agent.log());
            let status = self.agent.get(&format!("/v1/instances/{id}"))?;
            ensure!(status["reason"] == "verification_failed", "{status}");
            ensure!(status["message"].to_string().contains(&tampered.child), "{status}");
            ensure!(status["started_at"].is_null(), "{status}");
        }
        let cache = self.agent.get("/v1/cache")?.to_string();
        ensure!(!cache.contains(&tampered.child), "no disk was made of it: {cache}");
        Ok(())
    }
}
