//! Shims on the testbed's own node: the controller's Jobs really run there, go into the host and start its
//! containerd again, and pods run with what they brought. A program of its own, so that no other test has a stream
//! open when containerd ends; its tests take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Controller, Cri, FileServer, Namespace, ShimSite, Testbed, condition, portolan, programs_below,
    run, shim_archive, step_image, wait_for,
};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

const PATIENCE: Duration = Duration::from_secs(180);
/// What selects the node.
const SELECT: &str = "e2e-shim-jobs";

/// The node, as a test of shims has it: selected, with archives to install, and left as it was.
struct Site {
    /// Where shims are installed: in the cluster's folder, so that a test that is killed leaves nothing on the machine.
    install_dir: PathBuf,
    archives: FileServer,
    names: Vec<&'static str>,
    /// In which somebody else has a file, where containerd reads such.
    dropins: Option<PathBuf>,
}

impl Site {
    fn new(names: &[&'static str]) -> Result<Self> {
        let testbed = Testbed::get();
        testbed.kubectl(&["label", "node", &testbed.node, &format!("{SELECT}=yes")])?;
        let mut site = Self {
            install_dir: testbed.scratch("shim-jobs")?.join("opt/rcm"),
            archives: FileServer::start(testbed.bridge_address)?,
            names: names.to_vec(),
            dropins: None,
        };
        if std::fs::read_to_string(config())?.contains("imports") {
            let dir = config().with_file_name("containerd.d");
            std::fs::create_dir(&dir)?;
            site.dropins = Some(dir.clone());
            std::fs::write(dir.join("10-foreign.toml"), "# of somebody else\nversion = 3\n")?;
        }
        Ok(site)
    }

    fn lead(&self, site: &ShimSite, more: &[&str]) -> Result<Controller> {
        let dir = self.install_dir.display().to_string();
        site.lead(&step_image(), &[&["--shim-install-dir", &dir], more].concat())
    }

    /// Serves an archive; its URL and digest.
    fn archive(&self, file: &str, name: &str, program: &[u8]) -> Result<(String, String)> {
        let bytes = shim_archive(&format!("containerd-shim-{name}"), program)?;
        let digest = hex(&bytes);
        Ok((self.archives.put(file, bytes), digest))
    }

    /// Everything on the node that an installer may touch.
    fn traces(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let run_dir = config().parent().context("a folder")?.to_owned();
        let mut found = BTreeMap::from([(config(), std::fs::read(config())?)]);
        // Names alone: logs and data grow.
        for entry in std::fs::read_dir(run_dir)? {
            found.entry(entry?.path()).or_default();
        }
        let scratch = self.install_dir.ancestors().nth(2).context("a folder")?;
        let dirs = [scratch, Path::new("/etc/containerd"), Path::new("/opt/rcm")];
        for dir in dirs.into_iter().chain(self.dropins.as_deref()) {
            walk(dir, &mut found)?;
        }
        Ok(found)
    }

    /// The shims' programs that run, each by the digest that it is kept under.
    fn running(&self) -> BTreeSet<String> {
        let digest = |path: PathBuf| {
            let dir = path.parent()?.file_name()?;
            Some(dir.to_string_lossy().into_owned())
        };
        programs_below(&self.install_dir).into_iter().filter_map(digest).collect()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let testbed = Testbed::get();
        // First who runs by them: nothing takes such pods away when their shim is gone.
        let pods = ["delete", "pods", "--all-namespaces", "--wait", "--timeout=60s", "-l"];
        let _ = testbed.kubectl(&[&pods[..], &[&format!("{SELECT}=yes")]].concat());
        for name in &self.names {
            let free = r#"{"metadata":{"finalizers":null}}"#;
            let _ = testbed.kubectl(&["patch", "shim", name, "--type=merge", "-p", free]);
            let _ = testbed.kubectl(&["delete", "shim", name, "--ignore-not-found"]);
            // After a failure, what is there of it goes by hand: others need this node.
            let mut uninstall = portolan();
            uninstall.args(["node", "uninstall", "--host-root", "/", "--name", name]);
            uninstall.arg("--config").arg(config()).arg("--install-dir").arg(&self.install_dir);
            let _ = run(&mut uninstall);
        }
        let _ = testbed.kubectl(&["label", "node", &testbed.node, &format!("{SELECT}-")]);
        if let Some(dir) = &self.dropins {
            let _ = std::fs::remove_dir_all(dir);
        }
    }
}

fn config() -> PathBuf {
    Testbed::get().containerd_socket.with_file_name("containerd.toml")
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn walk(dir: &Path, found: &mut BTreeMap<PathBuf, Vec<u8>>) -> Result<()> {
    for entry in std::fs::read_dir(dir).into_iter().flatten() {
        let path = entry?.path();
        let is_dir = path.symlink_metadata()?.is_dir();
        found.insert(path.clone(), if is_dir { Vec::new() } else { std::fs::read(&path)? });
        if is_dir {
            walk(&path, found)?;
        }
    }
    Ok(())
}

fn shim(name: &str, (location, sha256): &(String, String)) -> Value {
    json!({
        "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": name},
        "spec": {
            "nodeSelector": {SELECT: "yes"},
            "fetchStrategy": {"platforms": [
                {"os": "linux", "arch": std::env::consts::ARCH, "location": location, "sha256": sha256},
            ]},
            "runtimeClass": {"name": name, "handler": name},
            "rolloutStrategy": {"type": "rolling", "rolling": {"maxUpdate": 1}},
        },
    })
}

/// The node's containerd, by the number of its process.
fn containerd() -> Result<u32> {
    let program = Testbed::get().containerd.display().to_string();
    let entries = std::fs::read_dir("/proc")?.flatten();
    let mut pids = entries.filter_map(|entry| {
        let pid = entry.file_name().to_str()?.parse::<u32>().ok()?;
        let line = std::fs::read(entry.path().join("cmdline")).ok()?;
        (line.split(|byte| *byte == 0).next()? == program.as_bytes()).then_some(pid)
    });
    pids.next().context("containerd does not run")
}

fn node() -> Result<Value> {
    Testbed::get().kubectl_json(&["get", "node", &Testbed::get().node])
}

/// Since when the node is ready: it never was not, if that stays.
fn ready_since() -> Result<String> {
    let node = node()?;
    let ready = condition(&node, "Ready").context("no condition")?;
    ensure!(ready["status"] == "True", "{ready}");
    Ok(ready["lastTransitionTime"].to_string())
}

fn get_shim(name: &str) -> Result<Value> {
    Testbed::get().kubectl_json(&["get", "shim", name])
}

/// What Jobs and their pods say, for a test that failed.
fn jobs() -> String {
    let testbed = Testbed::get();
    let said = ["jobs,pods", "events"].map(|what| {
        testbed.kubectl(&["-n", ShimSite::JOBS, "get", what, "-o", "wide"]).unwrap_or_default()
    });
    let logs = testbed.kubectl(&[
        "-n",
        ShimSite::JOBS,
        "logs",
        "-l",
        "spinkube.dev/job=true",
        "--all-containers",
        "--prefix",
        "--tail=20",
    ]);
    format!("{}\n{}", said.join("\n"), logs.unwrap_or_default())
}

/// Waits until the node failed for this reason; what is told of it.
fn fails(name: &str, reason: &str, controller: &Controller) -> Result<Value> {
    let told = wait_for(&format!("{name} to fail for {reason}"), PATIENCE, || {
        let shim = get_shim(name)?;
        let status = &shim["status"];
        ensure!(status["failures"][0]["reason"] == reason, "{status}");
        ensure!(status["observedGeneration"] == shim["metadata"]["generation"], "{status}");
        let degraded = condition(&shim, "Degraded").context("no condition yet")?;
        ensure!(degraded["status"] == "True" && degraded["reason"] == "NodesFailed", "{status}");
        ensure!(node()?["metadata"]["labels"][name] == "failed", "the label is not yet there");
        Ok(status.clone())
    });
    told.with_context(|| format!("{}\n{}", jobs(), controller.log()))
}

/// Waits until the node has what the Shim says now.
fn installed(name: &str, controller: &Controller) -> Result<()> {
    let end = wait_for(&format!("{name} to be installed"), PATIENCE, || {
        let shim = get_shim(name)?;
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
    end.with_context(|| format!("{}\n{}", jobs(), controller.log()))?;
    assert_eq!(node()?["metadata"]["labels"][name], "provisioned");
    Ok(())
}

/// Starts a pod with this class, and waits until it has said where it is.
fn runs(namespace: &Namespace, pod: &str, class: &str) -> Result<()> {
    namespace.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": {SELECT: "yes"}},
        "spec": {
            "runtimeClassName": class, "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "containers": [{
                "name": "main", "image": Testbed::get().image("busybox")?,
                "command": ["/bin/sh", "-c", "echo runs in $(hostname); exec sleep 3600"],
            }],
        },
    }))?;
    wait_for(&format!("{pod} to run"), PATIENCE, || {
        let log = namespace.kubectl(&["logs", pod])?;
        ensure!(log.trim() == format!("runs in {pod}"), "{log}");
        Ok(())
    })
    .with_context(|| namespace.kubectl(&["describe", "pod", pod]).unwrap_or_default())
}

/// Deletes a Shim, and waits until it is gone.
fn goes(name: &str, controller: &Controller) -> Result<()> {
    Testbed::get().kubectl(&["delete", "shim", name, "--wait=false"])?;
    let gone = wait_for(&format!("{name} to go"), PATIENCE, || {
        ensure!(get_shim(name).is_err(), "it is there");
        Ok(())
    });
    gone.with_context(|| format!("{}\n{}", jobs(), controller.log()))
}

/// The program of another processor: this one's, with another name for it in its head.
fn foreign(program: &[u8]) -> Vec<u8> {
    // e_machine: 183 is aarch64, 62 x86-64.
    let mut program = program.to_vec();
    program[18] = if program[18] == 62 { 183 } else { 62 };
    program
}

#[test]
fn shim_jobs_bring_a_shim_to_a_real_node_and_take_it_away_without_a_trace() -> Result<()> {
    let name = "e2e-renamed";
    let (testbed, site) = (Testbed::get(), ShimSite::new()?);
    let own = Site::new(&[name])?;
    let namespace = Namespace::new("shim-jobs")?;
    let controller = own.lead(&site, &[])?;
    let cri = Cri::at(&testbed.containerd_socket)?;
    let program = std::fs::read(testbed.containerd.with_file_name("containerd-shim-runc-v2"))?;
    let (before, since, first) = (own.traces()?, ready_since()?, containerd()?);
    // What the kernel does not read of a program makes it another one.
    let newer = [&program[..], b"\n"].concat();
    let good = own.archive("one.tar.gz", name, &program)?;

    // Another digest than the archive's.
    testbed.apply(&shim(name, &(good.0.clone(), "ab".repeat(32))))?;
    let told = fails(name, "DigestMismatch", &controller)?;
    let message = told["failures"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&good.1), "it says what the archive is: {told}");
    assert_eq!((own.traces()?, containerd()?), (before.clone(), first), "the node is untouched");

    // A program of another processor.
    testbed.apply(&shim(name, &own.archive("arm.tar.gz", name, &foreign(&program))?))?;
    fails(name, "WrongArchitecture", &controller)?;
    assert_eq!((own.traces()?, containerd()?), (before.clone(), first), "the node is untouched");

    // As it should be.
    testbed.apply(&shim(name, &good))?;
    installed(name, &controller)?;
    let second = containerd()?;
    ensure!(second != first, "containerd was not started again");
    ensure!(cri.handlers()?.contains(name), "{:?}", cri.handlers()?);
    let class = testbed.kubectl_json(&["get", "runtimeclass", name])?;
    assert_eq!(class["handler"], name);
    runs(&namespace, "old", name)?;
    assert_eq!(own.running(), BTreeSet::from([hex(&program)]), "by the shim that was installed");

    // A newer one comes while a pod runs with the old one.
    testbed.apply(&shim(name, &own.archive("two.tar.gz", name, &newer)?))?;
    installed(name, &controller)?;
    ensure!(containerd()? != second, "containerd was not started again");
    runs(&namespace, "new", name)?;
    assert_eq!(own.running(), BTreeSet::from([hex(&program), hex(&newer)]));
    assert_eq!(
        namespace.kubectl_json(&["get", "pod", "old"])?["status"]["phase"],
        "Running",
        "what ran before runs on"
    );

    // All of it goes.
    namespace.kubectl(&["delete", "pod", "old", "new", "--wait=true"])?;
    goes(name, &controller)?;
    ensure!(testbed.kubectl(&["get", "runtimeclass", name]).is_err(), "the class went with it");
    ensure!(!cri.handlers()?.contains(name), "containerd still knows it");
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    let metadata = node()?["metadata"].to_string();
    ensure!(!metadata.contains(name), "{metadata}");
    assert_eq!(ready_since()?, since, "the node was ready all the time");
    Ok(())
}

/// An operator's own way to start containerd again, with much that a kubelet would make something else of; each time is
/// written down.
fn restart_command(log: &Path) -> String {
    format!(
        "for one in /proc/[0-9]*; do \
           if [ \"$(tr '\\0' ' ' < $one/cmdline | cut -d ' ' -f 1)\" = {} ]; then kill ${{one##*/}}; fi; \
         done; echo $$ >> {}",
        Testbed::get().containerd.display(),
        log.display()
    )
}

#[test]
fn shim_jobs_of_two_shims_take_turns_and_what_drifted_is_repaired() -> Result<()> {
    let (one, two) = ("e2e-one", "e2e-two");
    let (testbed, site) = (Testbed::get(), ShimSite::new()?);
    let own = Site::new(&[one, two])?;
    let namespace = Namespace::new("shim-jobs")?;
    let restarts = tempfile::NamedTempFile::new()?;
    let controller =
        own.lead(&site, &["--shim-restart-command", &restart_command(restarts.path())])?;
    let restarted =
        || Ok::<_, anyhow::Error>(std::fs::read_to_string(restarts.path())?.lines().count());
    let cri = Cri::at(&testbed.containerd_socket)?;
    let program = std::fs::read(testbed.containerd.with_file_name("containerd-shim-runc-v2"))?;
    let before = own.traces()?;
    let archives = [(one, "1"), (two, "22")]
        .map(|(name, more)| (name, [&program[..], more.as_bytes()].concat()));
    let [(_, first), (_, second)] = &archives;

    // Both at once: one Job after the other, and a restart for each.
    for (name, program) in &archives {
        testbed.apply(&shim(name, &own.archive(name, name, program)?))?;
    }
    for name in [one, two] {
        installed(name, &controller)?;
        runs(&namespace, name, name)?;
    }
    assert_eq!(own.running(), BTreeSet::from([hex(first), hex(second)]));
    assert_eq!(restarted()?, 2, "{}", controller.log());

    // Somebody takes away what makes it a program, and the machine is started again.
    let placed = own.install_dir.join(two).join(hex(second)).join(format!("containerd-shim-{two}"));
    let mode = || Ok::<_, anyhow::Error>(std::fs::metadata(&placed)?.permissions().mode() & 0o777);
    std::fs::set_permissions(&placed, std::fs::Permissions::from_mode(0o644))?;
    let boot = json!({"status": {"nodeInfo": {"bootID": "e2e"}}}).to_string();
    let patch = ["patch", "node", &testbed.node, "--subresource=status", "--type=strategic", "-p"];
    let repaired = wait_for("the program to be one again", PATIENCE, || {
        // The kubelet knows better, and says so every now and then.
        testbed.kubectl(&[&patch[..], &[&boot]].concat())?;
        ensure!(mode()? == 0o755, "{:o}", mode()?);
        Ok(())
    });
    repaired.with_context(|| format!("{}\n{}", jobs(), controller.log()))?;
    installed(two, &controller)?;
    assert_eq!(restarted()?, 2, "nothing that containerd reads has changed");

    // One goes, and comes and goes before it is there; the other stays as it is.
    namespace.kubectl(&["delete", "pod", one, "--wait=true"])?;
    goes(one, &controller)?;
    testbed.apply(&shim(one, &own.archive("again", one, first)?))?;
    wait_for("a Job", PATIENCE, || {
        let label = format!("spinkube.dev/shimName={one},spinkube.dev/operation=install");
        let jobs = testbed.kubectl_json(&["-n", ShimSite::JOBS, "get", "jobs", "-l", &label])?;
        let running = |job: &Value| job["status"]["active"] == 1;
        ensure!(jobs["items"].as_array().is_some_and(|all| all.iter().any(running)), "{jobs}");
        Ok(())
    })?;
    goes(one, &controller)?;
    let known = cri.handlers()?;
    ensure!(!known.contains(one) && known.contains(two), "{known:?}");
    ensure!(!own.install_dir.join(one).exists(), "something is left of it");
    assert_eq!(namespace.kubectl_json(&["get", "pod", two])?["status"]["phase"], "Running");

    namespace.kubectl(&["delete", "pod", two, "--wait=true"])?;
    goes(two, &controller)?;
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    ready_since().map(drop)
}
