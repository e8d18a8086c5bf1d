//! The agent keeps a condition of a real node, with no more rights than it says it needs.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{Agent, Namespace, Testbed, wait_for};
use serde_json::{Value, json};

/// What is given to an agent, deleted with the test: cluster objects have no namespace to go with.
struct Account {
    namespace: Namespace,
}

impl Account {
    /// An account that may look at nodes and patch their status.
    fn new() -> Result<Self> {
        let namespace = Namespace::new("agent-node")?;
        let account = Self { namespace };
        let name = account.namespace.name();
        account.namespace.apply(json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "agent" },
        }))?;
        Testbed::get().apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": { "name": name },
            "rules": [
                { "apiGroups": [""], "resources": ["nodes"], "verbs": ["get"] },
                { "apiGroups": [""], "resources": ["nodes/status"], "verbs": ["patch"] },
            ],
        }))?;
        Testbed::get().apply(&json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": name },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name,
            },
            "subjects": [{ "kind": "ServiceAccount", "name": "agent", "namespace": name }],
        }))?;
        Ok(account)
    }

    /// The `[report]` of an agent that uses it, with its files in `dir`.
    fn report(&self, dir: &std::path::Path) -> Result<String> {
        let testbed = Testbed::get();
        let token = self.namespace.kubectl(&["create", "token", "agent"])?;
        let ca = wait_for("the cluster's certificate", Duration::from_secs(30), || {
            let map = self.namespace.kubectl_json(&["get", "configmap", "kube-root-ca.crt"])?;
            map["data"]["ca.crt"].as_str().map(str::to_owned).context("no ca.crt")
        })?;
        let config = testbed.kubectl_json(&["config", "view", "--minify"])?;
        let server = config["clusters"][0]["cluster"]["server"].as_str().context("no server")?;
        let (token_file, ca_file) = (dir.join("token"), dir.join("ca.crt"));
        std::fs::write(&token_file, token)?;
        std::fs::write(&ca_file, ca)?;
        Ok(format!(
            "[report]\nname = {:?}\n[report.node]\nserver = {server:?}\ntoken_file = {token_file:?}\nca_file = {ca_file:?}\n",
            testbed.node
        ))
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        for kind in ["clusterrolebinding", "clusterrole"] {
            let _ = Testbed::get().kubectl(&["delete", kind, self.namespace.name()]);
        }
    }
}

/// Waits until the node's condition has this status.
fn condition(status: &str, agent: &Agent) -> Result<Value> {
    let testbed = Testbed::get();
    wait_for("the node's condition", Duration::from_secs(60), || {
        let node = testbed.kubectl_json(&["get", "node", &testbed.node])?;
        let conditions = node["status"]["conditions"].as_array().context("no conditions")?;
        let ready = conditions.iter().find(|one| one["type"] == "Ready");
        ensure!(ready.is_some(), "the kubelet's conditions are gone: {conditions:?}");
        let ours = conditions.iter().find(|one| one["type"] == "PortolanDegraded");
        let ours = ours.context("no condition of ours")?;
        ensure!(ours["status"] == status, "{ours}");
        Ok(ours.clone())
    })
    .with_context(|| agent.log())
}

#[test]
fn a_real_node_is_told_when_its_agent_is_degraded_and_when_it_recovered() -> Result<()> {
    let account = Account::new()?;
    let dir = tempfile::tempdir()?;
    let report = account.report(dir.path())?;
    let root = dir.path().join("root");
    let well = format!("{report}[cache]\ntarget_percent = 100\nhigh_water_percent = 100\n");
    // More than one percent of any disk is taken, and an empty cache has nothing to evict.
    let full = format!("{report}[cache]\ntarget_percent = 1\nhigh_water_percent = 1\n");

    let agent = Agent::start(&root, &well)?;
    let first = condition("False", &agent)?;
    assert_eq!(first["reason"], "AgentHealthy");
    drop(agent);

    let agent = Agent::start(&root, &full)?;
    let second = condition("True", &agent)?;
    assert_eq!(second["reason"], "DiskFull", "{second}");
    let status = agent.get("/v1/status")?;
    assert_eq!(status["degraded"][0]["reason"], "disk_full", "{status}");
    drop(agent);

    let agent = Agent::start(&root, &well)?;
    let third = condition("False", &agent)?;
    let transition = third["lastTransitionTime"].as_str().context("no time")?.to_owned();
    drop(agent);

    // A restart is no transition.
    let agent = Agent::start(&root, &well)?;
    wait_for("a heartbeat of the new agent", Duration::from_secs(60), || {
        let metrics = agent.request("GET", "/metrics", None)?.body;
        let none = "status_reports_total{target=\"node\",result=\"ok\"} 0\n";
        ensure!(metrics.contains("status_reports_total") && !metrics.contains(none), "{metrics}");
        Ok(())
    })?;
    assert_eq!(condition("False", &agent)?["lastTransitionTime"], transition.as_str());
    Ok(())
}
