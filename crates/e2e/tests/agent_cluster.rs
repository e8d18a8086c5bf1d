//! Agents on a real node, as `portolan install` brings them: labelled Releases are fetched before anybody asks, the node is
//! told when its image cache is full and pods are kept away, what the machine is becomes labels, and no agent can do more
//! to a node than that.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Entry, Layer, Mount, Namespace, Output, Testbed, architecture, condition, hello_reference,
    json as parsed, ours, portolan, run, run_with_input, step_image, wait_for, write_image,
};
use serde_json::{Value, json};

const SYSTEM: &str = "portolan-system";
const AGENTS: &str = "portolan-nodes";
const COMPONENTS: [&str; 2] = ["--components", "agent,releases"];
const TAINT: &str = "portolan.dev/image-cache-pressure";
/// No node has this kernel.
const MISFITS: &str = r#"{"schemaVersion": "0.1.0", "namespaces": {"kernel": {"plugins": {"kernelVersion": {"data": {"range": "[999.0,)"}}}}}}"#;
const LONG: Duration = Duration::from_secs(180);

/// What is installed, on a disk of its own; gone when dropped, whatever became of the test.
struct Installed {
    /// Where agents keep images: a small file system, so that it can be filled.
    disk: Mount,
    namespace: Namespace,
    images: tempfile::TempDir,
}

impl Installed {
    fn new() -> Result<Self> {
        let testbed = Testbed::get();
        // What tests before this one left under the same names.
        let delete = ["delete", "namespace", SYSTEM, AGENTS];
        testbed.kubectl(&[&delete[..], &["--ignore-not-found", "--timeout=120s"]].concat())?;
        let installed = Self {
            disk: Mount::small(192)?,
            namespace: Namespace::new("prefetch")?,
            images: tempfile::tempdir()?,
        };
        let root = installed.disk.path().display().to_string();
        let image = step_image();
        let flags = ["--image", &image, "--agent-root", &root, "--agent-taint", "--agent-labels"];
        let printed = ours(
            &[&["install", "-o", "json", "--replicas", "1"][..], &COMPONENTS, &flags].concat(),
        );
        let mut objects = parsed(&printed);
        let items = objects["items"].as_array_mut().context("a list")?;
        items.iter_mut().for_each(of_this_testbed);
        wait_for("the cluster to take everything", LONG, || {
            let mut command = testbed.kubectl_command()?;
            command.args(["apply", "--server-side", "--force-conflicts", "-f", "-"]);
            let said = run_with_input(&mut command, objects.to_string().as_bytes())?;
            ensure!(said.code == Some(0), "{said}");
            Ok(())
        })?;
        for (namespace, what) in
            [(AGENTS, "daemonset/portolan-agent"), (SYSTEM, "deployment/portolan-controller")]
        {
            let wait = ["-n", namespace, "rollout", "status", what, "--timeout=180s"];
            testbed.kubectl(&wait).with_context(|| told(namespace))?;
        }
        Ok(installed)
    }

    fn socket(&self) -> PathBuf {
        self.disk.join("agent.sock")
    }

    /// `portolan agent ARGS -o json` on the node, where the pod's socket is.
    fn agent(&self, args: &[&str]) -> Result<Value> {
        let mut command = portolan();
        command.arg("agent").args(args).arg("--socket").arg(self.socket());
        let said = run(command.args(["-o", "json"]))?;
        ensure!(said.code == Some(0), "{said}");
        serde_json::from_str(&said.stdout).context("JSON")
    }

    /// An image for this node with a file that no other has, as pods name it, and its digest.
    fn image(&self, name: &str) -> Result<(String, String)> {
        let layer = Layer::new().with(Entry::file("name", name));
        let dir = self.images.path().join(name);
        let image = write_image(&dir, &[layer], json!({"Cmd": ["/name"]}))?;
        Ok(push(name, &image))
    }

    /// The same, with needs that no node meets.
    fn image_for_nobody(&self, name: &str) -> Result<(String, String)> {
        let (image, digest) = self.image(name)?;
        let needs = self.images.path().join(format!("{name}.json"));
        std::fs::write(&needs, MISFITS)?;
        ours(&["compat", "attach", &pushed(name), "--file", &needs.display().to_string()]);
        Ok((image, digest))
    }

    fn release(&self, name: &str, image: &str, change: impl FnOnce(&mut Value)) -> Result<()> {
        let mut release = json!({
            "apiVersion": "portolan.dev/v1alpha1", "kind": "Release",
            "metadata": {"name": name, "labels": {"portolan.dev/prefetch": "true"}},
            "spec": {"image": image, "requireVerification": false},
        });
        change(&mut release);
        self.namespace.apply(release)
    }

    fn is(&self, name: &str, status: &str) -> Result<()> {
        wait_for(&format!("{name} to be Ready={status}"), LONG, || {
            let found = self.namespace.kubectl_json(&["get", "release.portolan.dev", name])?;
            let ready = condition(&found, "Ready").context("no condition yet")?;
            ensure!(ready["status"] == status, "{ready}");
            Ok(())
        })
        .with_context(|| told(SYSTEM))
    }

    fn cached(&self) -> Result<Vec<String>> {
        let cache = self.agent(&["cache", "ls"])?;
        let disks = cache["rootdisks"].as_array().context("rootdisks")?;
        Ok(disks
            .iter()
            .filter_map(|one| one["resolved_digest"].as_str())
            .map(str::to_owned)
            .collect())
    }
}

impl Drop for Installed {
    fn drop(&mut self) {
        let printed = ours(&[&["uninstall"][..], &COMPONENTS].concat());
        if let Ok(mut command) = Testbed::get().kubectl_command() {
            command.args(["delete", "--ignore-not-found", "--timeout=120s", "-f", "-"]);
            let _ = run_with_input(&mut command, printed.as_bytes());
        }
        // Other components would share the controller, so it stays; here it is nobody else's.
        let delete = ["delete", "namespace", SYSTEM, "--ignore-not-found", "--timeout=120s"];
        let _ = Testbed::get().kubectl(&delete);
        // The pods are what holds the disk.
        let _ = wait_for("the namespace to be gone", LONG, || {
            let said =
                Testbed::get().kubectl(&["get", "namespace", AGENTS, "--ignore-not-found"])?;
            ensure!(said.trim().is_empty(), "{said}");
            Ok(())
        });
        let node = &Testbed::get().node;
        let _ = Testbed::get().kubectl(&["taint", "node", node, &format!("{TAINT}-")]);
    }
}

/// The testbed's registry speaks plain HTTP, as its owner would say.
fn plain_http() -> String {
    format!("[host.\"{}\"]\nplain_http = true\n", Testbed::get().registry.cluster)
}

/// What the owner of this cluster would say of its registry; and pressure shall be over soon.
fn of_this_testbed(object: &mut Value) {
    match (object["kind"].as_str(), object["metadata"]["name"].as_str()) {
        (Some("ConfigMap"), Some("portolan-agent")) => {
            let toml = object["data"]["agent.toml"].as_str().unwrap_or_default();
            object["data"]["agent.toml"] = json!(format!("{toml}\n[cache]\nsettle = \"2s\"\n"));
            object["data"]["registries.toml"] = json!(plain_http());
        }
        (Some("ConfigMap"), Some("portolan-controller")) => {
            object["data"]["registries.toml"] = json!(plain_http());
        }
        _ => {}
    }
}

/// Pushes it where pods find it: what they call it, and its digest.
fn push(name: &str, image: &str) -> (String, String) {
    let pushed = pushed(name);
    ours(&["image", "copy", image, &pushed]);
    let cluster = &Testbed::get().registry.cluster;
    (format!("{cluster}/{}", path(name)), portolan_e2e::digest(&pushed))
}

fn path(name: &str) -> String {
    format!("prefetch-{}/{name}:1", std::process::id())
}

/// Where this test finds what it pushed.
fn pushed(name: &str) -> String {
    format!("{}/{}", Testbed::get().registry.loopback, path(name))
}

/// An image that this node does not run.
fn of_another_platform() -> String {
    let other = if architecture() == "amd64" { "linux/arm64" } else { "linux/amd64" };
    push("hello", &hello_reference());
    let repository =
        format!("{}/prefetch-{}/hello", Testbed::get().registry.loopback, std::process::id());
    let tagged = format!("{repository}:1");
    let resolved = parsed(&ours(&["image", "resolve", &tagged, "--platform", other, "-o", "json"]));
    let digest = resolved["chosen"]["digest"].as_str().expect("a digest");
    push("elsewhere", &format!("{repository}@{digest}")).0
}

fn told(namespace: &str) -> String {
    let said = |args: &[&str]| {
        Testbed::get().kubectl(&[&["-n", namespace], args].concat()).unwrap_or_default()
    };
    let logs = ["logs", "--tail=60", "--prefix", "-l", "app.kubernetes.io/part-of!=x"];
    format!("{}\n{}", said(&["describe", "pods"]), said(&logs))
}

fn node() -> Result<Value> {
    let testbed = Testbed::get();
    testbed.kubectl_json(&["get", "node", &testbed.node])
}

fn has_taint(node: &Value) -> bool {
    node["spec"]["taints"].as_array().into_iter().flatten().any(|one| one["key"] == TAINT)
}

/// Waits until the node says so of its image cache, by condition and by taint.
fn pressure(status: &str) -> Result<()> {
    wait_for(&format!("pressure to be {status}"), LONG, || {
        let node = node()?;
        let said = condition(&node, "PortolanImageCachePressure").context("no condition")?;
        ensure!(said["status"] == status, "{said}");
        ensure!(has_taint(&node) == (status == "True"), "{}", node["spec"]);
        ensure!(condition(&node, "Ready").is_some(), "the kubelet's conditions are gone");
        Ok(())
    })
    .with_context(|| told(AGENTS))
}

#[test]
fn agents_of_a_cluster_prefetch_tell_their_node_and_may_do_nothing_else() -> Result<()> {
    let installed = Installed::new()?;
    labelled_releases_that_are_ready_and_for_this_node_are_fetched(&installed)?;
    what_the_machine_is_becomes_labels()?;
    agents_are_held_to_their_own_node_and_to_what_is_theirs()?;
    doctor_is_content()?;
    a_full_disk_keeps_pods_away_until_there_is_room(&installed)?;
    an_agent_that_ends_takes_its_taint_back(&installed)
}

fn labelled_releases_that_are_ready_and_for_this_node_are_fetched(
    installed: &Installed,
) -> Result<()> {
    let (wanted, wanted_digest) = installed.image("wanted")?;
    let (unlabelled, _) = installed.image("unlabelled")?;
    let (refused, _) = installed.image("refused")?;
    let (unfit, unfit_digest) = installed.image_for_nobody("unfit")?;
    let elsewhere = of_another_platform();
    installed.release("unlabelled", &unlabelled, |one| one["metadata"]["labels"] = json!({}))?;
    installed
        .release("refused", &refused, |one| one["spec"]["requireVerification"] = json!(true))?;
    installed.release("elsewhere", &elsewhere, |_| {})?;
    // Who records a Release does not know the nodes: it is Ready.
    installed.release("unfit", &unfit, |_| {})?;
    for (name, status) in
        [("unlabelled", "True"), ("refused", "False"), ("elsewhere", "True"), ("unfit", "True")]
    {
        installed.is(name, status)?;
    }
    // The last, so that the others were seen before it.
    installed.release("wanted", &wanted, |_| {})?;
    installed.is("wanted", "True")?;
    wait_for("the image to be in the node's cache", LONG, || {
        ensure!(installed.cached()?.contains(&wanted_digest), "{}", installed.agent(&["status"])?);
        Ok(())
    })
    .with_context(|| told(AGENTS))?;
    assert_eq!(installed.cached()?, [wanted_digest], "and nothing else");
    // It is there a moment before the agent has counted it.
    let status = wait_for("the agent to have counted it", LONG, || {
        let status = installed.agent(&["status"])?;
        let prefetch = &status["prefetch"];
        let counts = ["here", "skipped", "failed"].map(|key| prefetch["releases"][key].clone());
        ensure!(prefetch["current"] == true && counts == [1, 2, 1].map(Value::from), "{prefetch}");
        Ok(status)
    })?;
    let prefetch = &status["prefetch"];
    let why = |name: &str| {
        let release = format!("{}/{name}", installed.namespace.name());
        let all = prefetch["absent"].as_array().into_iter().flatten();
        all.filter(|one| one["release"] == release)
            .map(|one| format!("{} {}", one["state"], one["message"]))
            .collect::<String>()
    };
    assert!(why("refused").contains("NoPolicy"), "{prefetch}");
    assert!(why("elsewhere").contains("runs there"), "{prefetch}");
    let unfit = why("unfit");
    assert!(unfit.contains("failed") && unfit.contains("host_incompatible"), "{prefetch}");
    assert!(unfit.contains("does not meet"), "known, and not only unknown: {prefetch}");
    assert!(!installed.cached()?.contains(&unfit_digest));
    // Nobody holds it; and what is labelled later is heard of without a restart.
    let cache = installed.agent(&["cache", "ls"])?;
    assert_eq!(cache["rootdisks"][0]["pins"], 0, "{cache}");
    let label = ["label", "release.portolan.dev", "unlabelled", "portolan.dev/prefetch=true"];
    installed.namespace.kubectl(&label)?;
    wait_for("what was labelled later", LONG, || {
        ensure!(installed.cached()?.len() == 2, "{}", installed.agent(&["status"])?);
        Ok(())
    })
}

fn what_the_machine_is_becomes_labels() -> Result<()> {
    let testbed = Testbed::get();
    testbed.kubectl(&["label", "node", &testbed.node, "example.com/mine=1", "--overwrite"])?;
    wait_for("labels of the node", LONG, || {
        let node = node()?;
        let labels = node["metadata"]["labels"].as_object().context("labels")?;
        let facts = labels.keys().filter(|name| name.starts_with("feature.node.kubernetes.io/"));
        ensure!(facts.count() > 3, "{labels:?}");
        ensure!(
            labels.contains_key("feature.node.kubernetes.io/kernel-version.full"),
            "{labels:?}"
        );
        ensure!(labels["example.com/mine"] == "1" && labels.contains_key("kubernetes.io/os"));
        Ok(())
    })
    .with_context(|| told(AGENTS))?;
    testbed.kubectl(&["label", "node", &testbed.node, "example.com/mine-"]).map(drop)
}

/// The agent's own token, as somebody would have it who took it from its pod.
fn token() -> Result<String> {
    let testbed = Testbed::get();
    let pods = testbed.kubectl_json(&["-n", AGENTS, "get", "pods"])?;
    let metadata = &pods["items"][0]["metadata"];
    let text = |field: &str| metadata[field].as_str().context("a pod").map(str::to_owned);
    let (name, uid) = (text("name")?, text("uid")?);
    let token = testbed.kubectl(&[
        "-n",
        AGENTS,
        "create",
        "token",
        "portolan-agent",
        "--bound-object-kind=Pod",
        &format!("--bound-object-name={name}"),
        &format!("--bound-object-uid={uid}"),
    ])?;
    Ok(token.trim().to_owned())
}

/// `kubectl` with that token and no other login.
fn as_agent(token: &str, args: &[&str]) -> Result<Output> {
    let testbed = Testbed::get();
    let admin = testbed.kubectl_json(&["config", "view", "--raw"])?;
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": admin["clusters"][0]["cluster"]}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {"token": token}}],
    });
    let file = tempfile::NamedTempFile::new()?;
    std::fs::write(file.path(), config.to_string())?;
    let mut command = testbed.kubectl_command()?;
    run(command.env("KUBECONFIG", file.path()).arg("--kubeconfig").arg(file.path()).args(args))
}

/// Lets the agents' account look at what `kubectl` looks at before it patches a status; agents do without.
struct MayLook;

impl MayLook {
    const NAME: &str = "portolan-e2e-may-look";

    fn new() -> Result<Self> {
        let group = "rbac.authorization.k8s.io";
        let (version, name) = (format!("{group}/v1"), Self::NAME);
        Testbed::get().apply(&json!({
            "apiVersion": version, "kind": "ClusterRole", "metadata": {"name": name},
            "rules": [{"apiGroups": [""], "resources": ["nodes/status"], "verbs": ["get"]}],
        }))?;
        Testbed::get().apply(&json!({
            "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": {"name": name},
            "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
            "subjects": [{"kind": "ServiceAccount", "name": "portolan-agent", "namespace": AGENTS}],
        }))?;
        Ok(Self)
    }
}

impl Drop for MayLook {
    fn drop(&mut self) {
        for kind in ["clusterrolebinding", "clusterrole"] {
            let _ = Testbed::get().kubectl(&["delete", kind, Self::NAME, "--ignore-not-found"]);
        }
    }
}

fn agents_are_held_to_their_own_node_and_to_what_is_theirs() -> Result<()> {
    let testbed = Testbed::get();
    let _look = MayLook::new()?;
    testbed
        .apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "elsewhere"}}))?;
    let token = token()?;
    let own = testbed.node.as_str();
    let patch = |node: &str, more: &[&str], patch: Value| {
        let patch = patch.to_string();
        let args = ["patch", "node", node, "-p", &patch];
        as_agent(&token, &[&args[..], more].concat())
    };
    let status: [&str; 1] = ["--subresource=status"];
    let merge: [&str; 1] = ["--type=merge"];
    let taints =
        |taint: &str, effect: &str| json!({"spec": {"taints": [{"key": taint, "effect": effect}]}});
    // The time of now: of an agent that was heard of long ago, doctor says that it is silent.
    let time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
    let said = |kind: &str| {
        json!({"status": {"conditions": [{
            "type": kind, "status": "False", "reason": "Tried", "message": "",
            "lastHeartbeatTime": time, "lastTransitionTime": time,
        }]}})
    };
    // Each by its own sentence of the policy.
    for (node, more, change, word) in [
        ("elsewhere", &merge, taints(TAINT, "NoSchedule"), "its own node alone"),
        ("elsewhere", &status, said("PortolanDegraded"), "its own node alone"),
        (own, &merge, taints("theirs", "NoExecute"), "alone"),
        (own, &merge, taints(TAINT, "NoExecute"), "alone"),
        (own, &merge, json!({"spec": {"unschedulable": true}}), "nothing else of a node's spec"),
        (
            own,
            &merge,
            json!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}}),
            "labels of facts",
        ),
        (
            own,
            &merge,
            json!({"metadata": {"labels": {"kubernetes.io/os": null}}}),
            "labels of facts",
        ),
        (own, &merge, json!({"metadata": {"annotations": {"a": "b"}}}), "neither annotations"),
        (own, &status, said("Ready"), "conditions PortolanDegraded"),
        (own, &status, json!({"metadata": {"labels": {"a": "b"}}}), "labels of facts"),
        (
            own,
            &status,
            json!({"status": {"capacity": {"example.com/x": "1"}}}),
            "nothing else of a node's status",
        ),
    ] {
        let said = patch(node, more, change.clone())?;
        ensure!(said.code == Some(1) && said.stderr.contains(word), "{node} {change}: {said}");
    }
    // What is theirs they may.
    for (more, change) in [
        (&status, said("PortolanDegraded")),
        (&merge, json!({"metadata": {"labels": {"feature.node.kubernetes.io/tried": "1"}}})),
        (&merge, json!({"metadata": {"labels": {"feature.node.kubernetes.io/tried": null}}})),
    ] {
        let said = patch(own, more, change.clone())?;
        ensure!(said.code == Some(0), "{change}: {said}");
    }
    for forbidden in [
        &["get", "secrets", "-A"][..],
        &["get", "pods", "-A"],
        &["delete", "node", "elsewhere"],
        &["get", "nodes"],
    ] {
        let said = as_agent(&token, forbidden)?;
        ensure!(said.code == Some(1) && said.stderr.contains("orbidden"), "{forbidden:?}: {said}");
    }
    // A token that is bound to no pod names no node.
    let loose = testbed.kubectl(&["-n", AGENTS, "create", "token", "portolan-agent"])?;
    let change = said("PortolanDegraded").to_string();
    let args = ["patch", "node", own, "--subresource=status", "-p", &change];
    let said = as_agent(loose.trim(), &args)?;
    ensure!(said.code == Some(1) && said.stderr.contains("its own node alone"), "{said}");
    testbed.kubectl(&["delete", "node", "elsewhere"]).map(drop)
}

fn doctor_is_content() -> Result<()> {
    let mut command = portolan();
    command.env("KUBECONFIG", &Testbed::get().kubeconfig);
    let said = run(command.args(["doctor", "--only", "cluster", "-o", "json"]))?;
    let findings = parsed(&said.stdout);
    let agents = findings.as_array().into_iter().flatten().filter(|one| one["check"] == "agents");
    let states: Vec<_> = agents.map(|one| one["state"].clone()).collect();
    ensure!(states == ["ok"], "{findings:#}");
    Ok(())
}

fn a_full_disk_keeps_pods_away_until_there_is_room(installed: &Installed) -> Result<()> {
    pressure("False")?;
    let filler = installed.disk.join("somebody-elses");
    std::fs::write(&filler, vec![1; 180 << 20]).context("fill the disk")?;
    pressure("True")?;
    // Nothing is fetched meanwhile.
    let (late, digest) = installed.image("late")?;
    installed.release("late", &late, |_| {})?;
    installed.is("late", "True")?;
    wait_for("the agent to hear of it", LONG, || {
        let status = installed.agent(&["status"])?;
        let absent = status["prefetch"]["absent"].as_array().context("absent")?;
        let late = absent
            .iter()
            .find(|one| one["release"].as_str().is_some_and(|name| name.ends_with("/late")));
        let late = late.with_context(|| status["prefetch"].to_string())?;
        ensure!(late["message"].as_str().is_some_and(|why| why.contains("no room")), "{late}");
        Ok(())
    })?;
    assert!(!installed.cached()?.contains(&digest));
    std::fs::remove_file(&filler)?;
    pressure("False")?;
    wait_for("what waited for room", LONG, || {
        ensure!(installed.cached()?.contains(&digest), "{}", installed.agent(&["status"])?);
        Ok(())
    })
}

fn an_agent_that_ends_takes_its_taint_back(installed: &Installed) -> Result<()> {
    let filler = installed.disk.join("somebody-elses");
    std::fs::write(&filler, vec![1; 180 << 20]).context("fill the disk")?;
    pressure("True")?;
    // As docs/agents-on-kubernetes.md has it.
    let delete = ["-n", AGENTS, "delete", "daemonset", "portolan-agent", "--cascade=foreground"];
    Testbed::get().kubectl(&[&delete[..], &["--timeout=120s"]].concat())?;
    wait_for("the taint to be gone with the agent", Duration::from_secs(30), || {
        ensure!(!has_taint(&node()?), "it is there");
        Ok(())
    })
}
