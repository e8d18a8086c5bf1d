//! Shims on the testbed's own node: the controller's Jobs really run there, go into the host and start its
//! containerd again, and pods run with what they brought. A program of its own, so that no other test has a stream
//! open when containerd ends; its tests take turns.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use portolan_e2e::{
    Controller, Cri, Namespace, ShimNode, ShimSite, Testbed, condition, containerd_config,
    runc_shim, sha256, step_image, wait_for,
};
use serde_json::{Value, json};

const PATIENCE: Duration = Duration::from_secs(180);

/// The node, as a test of shims has it.
struct Site {
    node: ShimNode,
    /// Goes after the node's shims.
    foreign: Option<Foreign>,
}

/// A file of somebody else, where containerd reads drop-ins.
struct Foreign(PathBuf);

impl Drop for Foreign {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl std::ops::Deref for Site {
    type Target = ShimNode;

    fn deref(&self) -> &ShimNode {
        &self.node
    }
}

impl Site {
    fn new(names: &[&'static str]) -> Result<Self> {
        let mut site = Self { node: ShimNode::new("e2e-shim-jobs", names)?, foreign: None };
        if std::fs::read_to_string(containerd_config())?.contains("imports") {
            let dir = containerd_config().with_file_name("containerd.d");
            std::fs::create_dir(&dir)?;
            site.foreign = Some(Foreign(dir.clone()));
            std::fs::write(dir.join("10-foreign.toml"), "# of somebody else\nversion = 3\n")?;
        }
        Ok(site)
    }

    fn lead(&self, site: &ShimSite, more: &[&str]) -> Result<Controller> {
        let dir = self.install_dir().display().to_string();
        site.lead(&step_image(), &[&["--shim-install-dir", &dir], more].concat())
    }

    /// Everything on the node that an installer may touch.
    fn traces(&self) -> Result<BTreeMap<PathBuf, Vec<u8>>> {
        let config = containerd_config();
        let run_dir = config.parent().context("a folder")?.to_owned();
        let mut found = BTreeMap::from([(config.clone(), std::fs::read(config)?)]);
        // Names alone, and only such as an installer gives: what containerd keeps there comes and goes.
        for entry in std::fs::read_dir(run_dir)? {
            let entry = entry?;
            if is_installers(&entry.file_name().to_string_lossy()) {
                found.entry(entry.path()).or_default();
            }
        }
        let scratch = self.install_dir().ancestors().nth(2).context("a folder")?;
        let dirs = [scratch, Path::new("/etc/containerd"), Path::new("/opt/rcm")];
        for dir in dirs.into_iter().chain(self.foreign.as_ref().map(|foreign| foreign.0.as_path()))
        {
            walk(dir, &mut found)?;
        }
        Ok(found)
    }
}

/// What is ours beside containerd's configuration: its own name with more behind it, drop-ins, and what has a random or a hidden
/// name while it is made or tried.
fn is_installers(name: &str) -> bool {
    let config = containerd_config();
    let config = config.file_name().unwrap_or_default().to_string_lossy();
    let random = name.len() == 32 && name.bytes().all(|byte| byte.is_ascii_hexdigit());
    random || name.starts_with(&*config) || name.starts_with('.') || name.contains("portolan")
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

/// Since when the node is ready: it never was not, if that stays.
fn ready_since(site: &Site) -> Result<String> {
    let node = site.node()?;
    let ready = condition(&node, "Ready").context("no condition")?;
    ensure!(ready["status"] == "True", "{ready}");
    Ok(ready["lastTransitionTime"].to_string())
}

/// Waits until the node failed for this reason; what is told of it.
fn fails(site: &Site, name: &str, reason: &str, controller: &Controller) -> Result<Value> {
    let told = wait_for(&format!("{name} to fail for {reason}"), PATIENCE, || {
        let shim = site.get(name)?;
        let status = &shim["status"];
        ensure!(status["failures"][0]["reason"] == reason, "{status}");
        ensure!(status["observedGeneration"] == shim["metadata"]["generation"], "{status}");
        let degraded = condition(&shim, "Degraded").context("no condition yet")?;
        ensure!(degraded["status"] == "True" && degraded["reason"] == "NodesFailed", "{status}");
        ensure!(site.node()?["metadata"]["labels"][name] == "failed", "the label is not yet there");
        Ok(status.clone())
    });
    told.with_context(|| format!("{}\n{}", site.told(), controller.log()))
}

/// Starts a pod with this class, and waits until it has said where it is.
fn runs(site: &Site, namespace: &Namespace, pod: &str, class: &str) -> Result<()> {
    namespace.apply(json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": pod, "labels": site.pod_labels()},
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
    let program = runc_shim()?;
    let (before, since, first) = (own.traces()?, ready_since(&own)?, containerd()?);
    // What the kernel does not read of a program makes it another one.
    let newer = [&program[..], b"\n"].concat();
    let good = own.archive("one.tar.gz", name, &program)?;

    // Another digest than the archive's.
    testbed.apply(&own.shim(name, &(good.0.clone(), "ab".repeat(32))))?;
    let told = fails(&own, name, "DigestMismatch", &controller)?;
    let message = told["failures"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&good.1), "it says what the archive is: {told}");
    assert_eq!((own.traces()?, containerd()?), (before.clone(), first), "the node is untouched");

    // A program of another processor.
    testbed.apply(&own.shim(name, &own.archive("arm.tar.gz", name, &foreign(&program))?))?;
    fails(&own, name, "WrongArchitecture", &controller)?;
    assert_eq!((own.traces()?, containerd()?), (before.clone(), first), "the node is untouched");

    // As it should be.
    testbed.apply(&own.shim(name, &good))?;
    own.installed(name).with_context(|| controller.log())?;
    let second = containerd()?;
    ensure!(second != first, "containerd was not started again");
    ensure!(cri.handlers()?.contains(name), "{:?}", cri.handlers()?);
    let class = testbed.kubectl_json(&["get", "runtimeclass", name])?;
    assert_eq!(class["handler"], name);
    runs(&own, &namespace, "old", name)?;
    assert_eq!(own.running(), BTreeSet::from([sha256(&program)]), "by the shim that was installed");

    // An update that is refused takes nothing away: pods go on being sent there, and run.
    testbed.apply(&own.shim(name, &(good.0.clone(), "ab".repeat(32))))?;
    let told = fails(&own, name, "DigestMismatch", &controller)?;
    assert_eq!((&told["nodes"], &told["nodesReady"]), (&json!(1), &json!(1)), "{told}");
    let label = format!("runtime.spinkube.dev/{name}");
    assert_eq!(own.node()?["metadata"]["labels"][&label], "provisioned");
    assert_eq!(containerd()?, second, "the node is untouched");
    runs(&own, &namespace, "meanwhile", name)?;
    assert_eq!(own.running(), BTreeSet::from([sha256(&program)]));

    // A newer one comes while a pod runs with the old one.
    testbed.apply(&own.shim(name, &own.archive("two.tar.gz", name, &newer)?))?;
    own.installed(name).with_context(|| controller.log())?;
    ensure!(containerd()? != second, "containerd was not started again");
    runs(&own, &namespace, "new", name)?;
    assert_eq!(own.running(), BTreeSet::from([sha256(&program), sha256(&newer)]));
    assert_eq!(
        namespace.kubectl_json(&["get", "pod", "old"])?["status"]["phase"],
        "Running",
        "what ran before runs on"
    );

    // All of it goes.
    namespace.kubectl(&["delete", "pod", "old", "meanwhile", "new", "--wait=true"])?;
    own.goes(name).with_context(|| controller.log())?;
    ensure!(testbed.kubectl(&["get", "runtimeclass", name]).is_err(), "the class went with it");
    ensure!(!cri.handlers()?.contains(name), "containerd still knows it");
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    let metadata = own.node()?["metadata"].to_string();
    ensure!(!metadata.contains(name), "{metadata}");
    assert_eq!(ready_since(&own)?, since, "the node was ready all the time");
    Ok(())
}

/// How often containerd was started again, by an operator's own command.
struct Restarts(tempfile::NamedTempFile);

impl Restarts {
    fn new() -> Result<Self> {
        Ok(Self(tempfile::NamedTempFile::new()?))
    }

    /// It has much that a kubelet would make something else of; each time is written down.
    fn command(&self) -> String {
        format!(
            "for one in /proc/[0-9]*; do \
               if [ \"$(tr '\\0' ' ' < $one/cmdline | cut -d ' ' -f 1)\" = {} ]; then kill ${{one##*/}}; fi; \
             done; echo $$ >> {}",
            Testbed::get().containerd.display(),
            self.0.path().display()
        )
    }

    fn count(&self) -> Result<usize> {
        Ok(std::fs::read_to_string(self.0.path())?.lines().count())
    }
}

/// A controller that finds these Shims when it begins: heard of at once, however busy the machine is.
fn lead_with(
    own: &Site,
    site: &ShimSite,
    restarts: &Restarts,
    shims: &[Value],
) -> Result<Controller> {
    Testbed::get().apply(&json!({"apiVersion": "v1", "kind": "List", "items": shims}))?;
    own.lead(site, &["--shim-restart-command", &restarts.command()])
}

/// Jobs that install a Shim with others, by their names.
fn shared_jobs(name: &str) -> Result<BTreeSet<String>> {
    installs(&format!("runtime.spinkube.dev/{name}"))
}

/// Jobs that install what this label says, also those that have ended.
fn installs(label: &str) -> Result<BTreeSet<String>> {
    let label = format!("spinkube.dev/operation=install,{label}");
    let jobs = Testbed::get().kubectl_json(&["-n", ShimSite::JOBS, "get", "jobs", "-l", &label])?;
    let name = |job: &Value| job["metadata"]["name"].as_str().map(str::to_owned);
    Ok(jobs["items"].as_array().into_iter().flatten().filter_map(name).collect())
}

#[test]
fn shim_jobs_of_two_shims_are_one_and_what_drifted_is_repaired() -> Result<()> {
    let (one, two) = ("e2e-one", "e2e-two");
    let (testbed, site) = (Testbed::get(), ShimSite::new()?);
    let own = Site::new(&[one, two])?;
    let namespace = Namespace::new("shim-jobs")?;
    let restarts = Restarts::new()?;
    let cri = Cri::at(&testbed.containerd_socket)?;
    let program = runc_shim()?;
    let before = own.traces()?;
    let archives = [(one, "1"), (two, "22")]
        .map(|(name, more)| (name, [&program[..], more.as_bytes()].concat()));
    let [(_, first), (_, second)] = &archives;

    // Both at once: one Job, and one restart.
    let shims = archives
        .iter()
        .map(|(name, program)| Ok(own.shim(name, &own.archive(name, name, program)?)));
    let controller = lead_with(&own, &site, &restarts, &shims.collect::<Result<Vec<_>>>()?)?;
    for name in [one, two] {
        own.installed(name).with_context(|| controller.log())?;
        runs(&own, &namespace, name, name)?;
    }
    assert_eq!(own.running(), BTreeSet::from([sha256(first), sha256(second)]));
    assert_eq!(restarts.count()?, 1, "{}\n{}", own.told(), controller.log());
    let shared = shared_jobs(one)?;
    ensure!(shared.len() == 1 && shared == shared_jobs(two)?, "{shared:?}");

    // Somebody takes away what makes it a program, and the machine is started again.
    let placed =
        own.install_dir().join(two).join(sha256(second)).join(format!("containerd-shim-{two}"));
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
    repaired.with_context(|| format!("{}\n{}", own.told(), controller.log()))?;
    own.installed(two).with_context(|| controller.log())?;
    assert_eq!(restarts.count()?, 1, "nothing that containerd reads has changed");

    // One goes, and comes and goes before it is there; the other stays as it is.
    namespace.kubectl(&["delete", "pod", one, "--wait=true"])?;
    own.goes(one).with_context(|| controller.log())?;
    let label = format!("spinkube.dev/shimName={one}");
    let earlier = installs(&label)?;
    testbed.apply(&own.shim(one, &own.archive("again", one, first)?))?;
    // It may have ended before anybody looks: it lives for seconds.
    wait_for("a Job", PATIENCE, || {
        let jobs = installs(&label)?;
        ensure!(!jobs.is_subset(&earlier), "{jobs:?}");
        Ok(())
    })?;
    own.goes(one).with_context(|| controller.log())?;
    let known = cri.handlers()?;
    ensure!(!known.contains(one) && known.contains(two), "{known:?}");
    ensure!(!own.install_dir().join(one).exists(), "something is left of it");
    assert_eq!(namespace.kubectl_json(&["get", "pod", two])?["status"]["phase"], "Running");

    namespace.kubectl(&["delete", "pod", two, "--wait=true"])?;
    own.goes(two).with_context(|| controller.log())?;
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    ready_since(&own).map(drop)
}

#[test]
fn shim_jobs_of_two_shims_of_which_one_is_refused_install_the_other() -> Result<()> {
    let (good, bad) = ("e2e-good", "e2e-refused");
    let (testbed, site) = (Testbed::get(), ShimSite::new()?);
    let own = Site::new(&[good, bad])?;
    let namespace = Namespace::new("shim-jobs")?;
    let restarts = Restarts::new()?;
    let program = runc_shim()?;
    let before = own.traces()?;
    let wrong = own.archive(bad, bad, &program)?;
    let right = own.archive(good, good, &program)?;

    let refused = (wrong.0.clone(), "ab".repeat(32));
    let both = [own.shim(good, &right), own.shim(bad, &refused)];
    let controller = lead_with(&own, &site, &restarts, &both)?;
    let told = fails(&own, bad, "DigestMismatch", &controller)?;
    let message = told["failures"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains(&wrong.1), "it says what the archive is: {told}");
    own.installed(good).with_context(|| controller.log())?;
    runs(&own, &namespace, good, good)?;
    assert_eq!(restarts.count()?, 1, "{}\n{}", own.told(), controller.log());
    let shared = shared_jobs(good)?;
    ensure!(shared.len() == 1 && shared == shared_jobs(bad)?, "{shared:?}");
    ensure!(!own.install_dir().join(bad).exists(), "nothing of it is there");

    // Put right, it comes by itself, and the other is left alone.
    testbed.apply(&own.shim(bad, &wrong))?;
    own.installed(bad).with_context(|| controller.log())?;
    assert_eq!((restarts.count()?, shared_jobs(bad)?.len()), (2, 1), "{}", own.told());
    assert_eq!(namespace.kubectl_json(&["get", "pod", good])?["status"]["phase"], "Running");
    namespace.kubectl(&["delete", "pod", good, "--wait=true"])?;
    own.goes(good).with_context(|| controller.log())?;
    own.goes(bad).with_context(|| controller.log())?;
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    ready_since(&own).map(drop)
}

/// NaN is TOML and no JSON: containerd reads it, starts, and cannot say any more how it is configured.
#[test]
fn shim_jobs_of_a_configuration_that_containerd_does_not_take_are_rolled_back() -> Result<()> {
    let name = "e2e-untaken";
    let (testbed, site) = (Testbed::get(), ShimSite::new()?);
    let own = Site::new(&[name])?;
    let namespace = Namespace::new("shim-jobs")?;
    let controller = own.lead(&site, &[])?;
    let cri = Cri::at(&testbed.containerd_socket)?;
    let (before, since, first) = (own.traces()?, ready_since(&own)?, containerd()?);
    let shim = own.shim(name, &own.archive("untaken", name, &runc_shim()?)?);
    let mut untaken = shim.clone();
    untaken["spec"]["containerdRuntimeOptions"] = json!({"Untaken": "nan"});

    testbed.apply(&untaken)?;
    let told = fails(&own, name, "RolledBack", &controller)?;
    let message = told["failures"][0]["message"].as_str().unwrap_or_default();
    ensure!(message.contains("NaN"), "it says what containerd said: {told}");
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    let second = containerd()?;
    ensure!(second != first, "containerd was not started again");
    ensure!(!cri.handlers()?.contains(name), "containerd still knows it");
    assert_eq!(ready_since(&own)?, since, "the node was ready all the time");

    // Put right, it comes by itself.
    testbed.apply(&shim)?;
    own.installed(name).with_context(|| controller.log())?;
    runs(&own, &namespace, "taken", name)?;
    namespace.kubectl(&["delete", "pod", "taken", "--wait=true"])?;
    own.goes(name).with_context(|| controller.log())?;
    assert_eq!(own.traces()?, before, "byte for byte as it was");
    assert_eq!(ready_since(&own)?, since, "the node was ready all the time");
    Ok(())
}
