//! Shims on nodes that are trees of files: what upstream's installer got wrong, one test each, and what a
//! node must survive.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what was skipped is said aloud")]

mod support;

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use portolan_core::Digest;
use portolan_shim::node::install::{Node, Restart, Source, install};
use portolan_shim::node::preset::{Overrides, detect};
use portolan_shim::node::request::{Options, Wanted};
use portolan_shim::node::{HostRoot, Quiet, config, upstream};
use portolan_shim::report::{Phase, Reason};
use support::{MAIN, Tree, ok, program, wanted};

fn placed(tree: &Tree, name: &str, program: &[u8]) -> std::path::PathBuf {
    let sha256 = Digest::sha256(program).hex();
    tree.path(&format!("opt/rcm/{name}/{sha256}/containerd-shim-{name}"))
}

#[tokio::test]
async fn a_shim_comes_and_goes_without_a_trace() {
    for config in ["version = 2", "version = 3\n", "", "[plugins]\n", "version = 2\r\n"] {
        let tree = Tree::with(config);
        let before = tree.snapshot();
        let report = ok(tree.install("spin-v2", &program(1, 5000)).await);
        assert!(report.changed && !report.restarted);
        assert_eq!((report.phase, report.distro.as_deref()), (Phase::Done, Some("default")));
        assert!(tree.read(MAIN).starts_with(config));
        assert_eq!(
            fs::read(placed(&tree, "spin-v2", &program(1, 5000))).unwrap(),
            program(1, 5000)
        );
        ok(tree.verify("spin-v2").await);
        // The same again changes nothing.
        let installed = tree.snapshot();
        assert!(!ok(tree.install("spin-v2", &program(1, 5000)).await).changed);
        assert_eq!(tree.snapshot(), installed);
        assert!(ok(tree.uninstall("spin-v2").await).changed);
        assert_eq!(tree.snapshot(), before);
    }
}

/// N1: the file was truncated where it was, which fails while it runs and is half a program after a crash.
#[tokio::test]
async fn n1_a_running_program_is_no_hindrance_and_stays_while_it_runs() {
    let tree = Tree::with("version = 2\n");
    symlink("/proc", tree.path("proc")).unwrap();
    let mut node = tree.node();
    // This machine's own daemons are none of this tree's.
    node.overrides =
        Overrides { config: Some(format!("/{MAIN}")), distro: Some("default".to_owned()) };
    let sleep = fs::read(fs::canonicalize("/bin/sleep").unwrap()).unwrap();
    ok(tree.install_by(&node, "s", &sleep).await);
    let old = placed(&tree, "s", &sleep);
    let mut child = Command::new(&old).arg("60").spawn().unwrap();
    ok(tree.install_by(&node, "s", &program(2, 1000)).await);
    assert!(placed(&tree, "s", &program(2, 1000)).exists());
    assert!(old.exists(), "containerd calls it again to clean up");
    child.kill().unwrap();
    child.wait().unwrap();
    ok(tree.install_by(&node, "s", &program(3, 1000)).await);
    assert!(!old.exists() && !placed(&tree, "s", &program(2, 1000)).exists(), "nobody needs them");
    let state = tree.read("opt/rcm/.portolan/state.json");
    assert_eq!(state.matches("\"versions\"").count(), 1);
}

/// N2: a digest was written down before it was known whether the copy was whole.
#[tokio::test]
async fn n2_what_is_written_down_is_what_is_there() {
    let Some(mount) = Mount::tmpfs(300_000) else { return };
    fs::create_dir_all(mount.path.join("etc/containerd")).unwrap();
    fs::write(mount.path.join(MAIN), "version = 2\n").unwrap();
    let before = support::snapshot(&mount.path);
    let node = support::node(&mount.path);
    let assets = Tree::assets("spin", &program(1, 600_000));
    let source = Source::Assets(assets.path().to_owned());
    let outcome = install(&node, &wanted("spin"), &source, &Quiet).await;
    assert_eq!(outcome.report.reason, Some(Reason::HostTrouble), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("No space left"), "{}", outcome.report.message);
    assert_eq!(support::snapshot(&mount.path), before, "a full disk leaves nothing half done");
    let assets = Tree::assets("spin", &program(1, 1000));
    let source = Source::Assets(assets.path().to_owned());
    ok(install(&node, &wanted("spin"), &source, &Quiet).await);
}

/// There is room for the program, and none for the configuration.
#[tokio::test]
async fn a_disk_that_is_full_where_the_configuration_is_leaves_the_node_as_it_was() {
    let tree = Tree::empty();
    fs::create_dir_all(tree.path("etc/containerd")).unwrap();
    let Some(_etc) = Mount::at(tree.path("etc/containerd"), 16 << 10) else { return };
    tree.write(MAIN, "version = 2\n");
    let mut filled = fs::File::create(tree.path("etc/containerd/filled")).unwrap();
    while std::io::Write::write_all(&mut filled, &[1; 1024]).is_ok() {}
    drop(filled);
    let before = tree.snapshot();
    let outcome = tree.install("spin", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::HostTrouble), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("No space left"), "{}", outcome.report.message);
    assert_eq!(tree.snapshot(), before, "nothing is left of it, the program neither");
    fs::remove_file(tree.path("etc/containerd/filled")).unwrap();
    ok(tree.install("spin", &program(1, 1000)).await);
    assert!(tree.read(MAIN).contains("runtimes.spin]"));
}

#[tokio::test]
async fn a_host_that_is_read_only_is_said_to_be_that() {
    let Some(mount) = Mount::tmpfs(3_000_000) else { return };
    fs::create_dir_all(mount.path.join("etc/containerd")).unwrap();
    fs::write(mount.path.join(MAIN), "version = 2\n").unwrap();
    mount.run(&["-o", "remount,ro"]);
    let assets = Tree::assets("spin", &program(1, 1000));
    let source = Source::Assets(assets.path().to_owned());
    let outcome = install(&support::node(&mount.path), &wanted("spin"), &source, &Quiet).await;
    assert_eq!(outcome.report.reason, Some(Reason::HostTrouble), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("Read-only"), "{}", outcome.report.message);
    mount.run(&["-o", "remount,rw,noexec"]);
    let outcome = install(&support::node(&mount.path), &wanted("spin"), &source, &Quiet).await;
    assert_eq!(outcome.report.reason, Some(Reason::NodeNotSupported), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("noexec"), "{}", outcome.report.message);
}

fn restarting(tree: &Tree, command: &str) -> Node {
    let command = Some(command.to_owned());
    Node {
        restart: Restart { off: false, command, patience: Duration::from_secs(2) },
        ..tree.node()
    }
}

/// N3: after a restart that failed, the retry saw an unchanged program and said that all was well.
#[tokio::test]
async fn n3_a_restart_that_failed_is_made_up_for() {
    let tree = Tree::with("version = 2\n");
    let before = tree.snapshot();
    let outcome = tree.install_by(&restarting(&tree, "exit 1"), "spin", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack), "{}", outcome.report.message);
    assert_eq!(tree.snapshot(), before, "as before");
    let count = tempfile::tempdir().unwrap();
    let log = count.path().join("log");
    let counting = restarting(&tree, &format!("echo once >> {}", log.display()));
    assert!(ok(tree.install_by(&counting, "spin", &program(1, 1000)).await).restarted);
    assert!(!ok(tree.install_by(&counting, "spin", &program(1, 1000)).await).restarted);
    assert_eq!(fs::read_to_string(&log).unwrap(), "once\n", "once, and not for nothing");
    // Not started again on purpose: whoever comes next makes up for it.
    ok(tree.install("other", &program(2, 1000)).await);
    ok(tree.install("third", &program(3, 1000)).await);
    assert!(ok(tree.install_by(&counting, "other", &program(2, 1000)).await).restarted);
    assert_eq!(fs::read_to_string(&log).unwrap(), "once\nonce\n", "one for both");
}

/// N4: a second uninstall, or one after a failed install, was an error for ever.
#[tokio::test]
async fn n4_uninstall_can_be_repeated() {
    let tree = Tree::with("version = 2\n");
    let before = tree.snapshot();
    assert!(!ok(tree.uninstall("spin").await).changed, "what was never there");
    assert_eq!(tree.snapshot(), before);
    ok(tree.install("spin", &program(1, 1000)).await);
    fs::remove_file(placed(&tree, "spin", &program(1, 1000))).unwrap();
    ok(tree.uninstall("spin").await);
    assert_eq!(tree.snapshot(), before, "also where the program was gone already");
    assert!(!ok(tree.uninstall("spin").await).changed);
    assert_eq!(tree.snapshot(), before);
    // No containerd at all.
    ok(Tree::empty().uninstall("spin").await);
}

/// Options are what the runtime is told, too.
#[tokio::test]
async fn options_that_differ_are_told() {
    let tree = Tree::with("version = 2\n");
    let mut options = Options::default();
    options.set("SystemdCgroup", "true").unwrap();
    let wanted = Wanted::new("spin", None, None, options).unwrap();
    let assets = Tree::assets("spin", &program(1, 1000));
    let source = Source::Assets(assets.path().to_owned());
    ok(install(&tree.node(), &wanted, &source, &Quiet).await);
    ok(tree.install("other", &program(2, 1000)).await);
    ok(tree.verify("spin").await);
    let text = tree.read(MAIN);
    for other in [
        text.replace("SystemdCgroup = true", "SystemdCgroup = false"),
        text.replace("runtime_type = \"/opt/rcm/spin/", "# runtime_type = \"/opt/rcm/spin/"),
    ] {
        tree.write(MAIN, &other);
        let outcome = tree.verify("spin").await;
        assert_eq!(outcome.report.reason, Some(Reason::Drifted), "{}", outcome.report.message);
    }
    ok(install(&tree.node(), &wanted, &source, &Quiet).await);
    ok(tree.verify("spin").await);
}

/// A runtime that was taken off before its shims.
#[tokio::test]
async fn a_node_without_its_runtime_loses_what_was_written_for_it() {
    let tree = Tree::empty();
    let main = "var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    tree.write(main, "version = 2\n");
    ok(tree.install("spin", &program(1, 1000)).await);
    assert!(tree.path(&format!("{main}.tmpl")).exists());
    fs::remove_file(tree.path(main)).unwrap();
    assert!(ok(tree.uninstall("spin").await).changed);
    assert!(!tree.path(&format!("{main}.tmpl")).exists() && !tree.path("opt").exists());
}

/// Killed while containerd was asked about a configuration.
#[tokio::test]
async fn a_configuration_on_trial_is_swept() {
    let tree = Tree::with("version = 2\n");
    let before = tree.snapshot();
    for install in [true, false] {
        for left in [".portolan-trial", ".portolan-new-.portolan-trial~"] {
            tree.write(&format!("etc/containerd/{left}"), "version = 2\n");
        }
        if install {
            ok(tree.install("spin", &program(1, 1000)).await);
            assert!(!tree.path("etc/containerd/.portolan-trial").exists());
        }
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), before, "{install}");
    }
}

/// N11: D-Bus was installed and restarted on the host.
#[test]
fn n11_nothing_is_installed_and_no_other_service_touched() {
    fn sources(dir: &Path, out: &mut Vec<(String, String)>) {
        for entry in fs::read_dir(dir).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                sources(&path, out);
            } else {
                out.push((path.display().to_string(), fs::read_to_string(&path).unwrap()));
            }
        }
    }
    let mut all = Vec::new();
    sources(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src/node"), &mut all);
    assert!(all.len() > 20);
    for (path, text) in all {
        for word in ["apt-get", "\"dnf\"", "\"apk\"", "\"yum\"", "\"dbus", "daemon-reexec"] {
            assert!(!text.contains(word), "{path} has {word}");
        }
    }
}

/// N12: two installers at once lost each other's entries.
// Who waits for the lock keeps its thread: one for each, and one more.
#[tokio::test(flavor = "multi_thread", worker_threads = 7)]
async fn n12_installers_take_turns() {
    let tree = std::sync::Arc::new(Tree::with("version = 2\n"));
    let before = tree.snapshot();
    let names = ["a", "b", "c", "d", "e", "f"];
    let at_once = names.map(|name| {
        let tree = std::sync::Arc::clone(&tree);
        tokio::spawn(async move { tree.install(name, &program(name.as_bytes()[0], 1000)).await })
    });
    for one in at_once {
        ok(one.await.unwrap());
    }
    for name in names {
        ok(tree.verify(name).await);
        assert!(tree.read(MAIN).contains(&format!("runtimes.{name}]")));
    }
    let at_once = names.map(|name| {
        let tree = std::sync::Arc::clone(&tree);
        tokio::spawn(async move { tree.uninstall(name).await })
    });
    for one in at_once {
        ok(one.await.unwrap());
    }
    assert_eq!(tree.snapshot(), before);
    // Who waits in vain says so.
    let held = fs::File::open(tree.dir.path()).unwrap();
    held.lock().unwrap();
    let hasty = Node { lock: Duration::from_millis(50), ..tree.node() };
    let outcome = tree.install_by(&hasty, "a", &program(1, 10)).await;
    assert_eq!(outcome.report.reason, Some(Reason::Locked), "{}", outcome.report.message);
}

/// N14: a node whose containerd runs on its own defaults was not supported.
#[tokio::test]
async fn n14_containerd_without_a_file_gets_one_and_loses_it_again() {
    let tree = Tree::empty();
    tree.write("usr/bin/containerd", "");
    let before = tree.snapshot();
    ok(tree.install("spin", &program(1, 1000)).await);
    let text = tree.read(MAIN);
    assert!(text.contains("version = 2\n") && text.contains("runtimes.runc]"), "{text}");
    ok(tree.verify("spin").await);
    ok(tree.install("two", &program(2, 1000)).await);
    ok(tree.uninstall("spin").await);
    ok(tree.verify("two").await);
    ok(tree.uninstall("two").await);
    assert_eq!(tree.snapshot(), before, "its directories too");
    let nothing = Tree::empty();
    let outcome = nothing.install("spin", &program(1, 10)).await;
    assert_eq!(outcome.report.reason, Some(Reason::NodeNotSupported));
    assert!(outcome.report.message.contains("/var/lib/rancher/k3s"), "{}", outcome.report.message);
    assert!(nothing.snapshot().is_empty());
}

/// N16: the mode of a file that was there already was never corrected.
#[tokio::test]
async fn n16_modes_and_damage_are_corrected() {
    let tree = Tree::with("version = 2\n");
    fs::set_permissions(tree.path(MAIN), fs::Permissions::from_mode(0o640)).unwrap();
    ok(tree.install("spin", &program(1, 1000)).await);
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode(&tree.path(MAIN)), 0o640, "what is not ours keeps its mode");
    let binary = placed(&tree, "spin", &program(1, 1000));
    assert_eq!(mode(&binary), 0o755);
    fs::set_permissions(&binary, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(tree.verify("spin").await.report.reason, Some(Reason::Drifted));
    assert!(ok(tree.install("spin", &program(1, 1000)).await).changed);
    assert_eq!(mode(&binary), 0o755);
    fs::write(&binary, b"damaged").unwrap();
    assert_eq!(tree.verify("spin").await.report.reason, Some(Reason::Drifted));
    ok(tree.install("spin", &program(1, 1000)).await);
    ok(tree.verify("spin").await);
    tree.write(MAIN, "version = 2\n");
    assert_eq!(tree.verify("spin").await.report.reason, Some(Reason::Drifted));
    ok(tree.install("spin", &program(1, 1000)).await);
    ok(tree.verify("spin").await);
}

/// N17: on k0s, the directory of drop-ins was taken for granted; N9: the file in it had no version.
#[tokio::test]
async fn n17_k0s_gets_its_directory_and_a_version() {
    let tree = Tree::empty();
    tree.write(
        "etc/k0s/containerd.toml",
        "# k0s_managed=true\nversion = 2\nimports = [\"/run/k0s/containerd-cri.toml\"]\n",
    );
    tree.write(MAIN, "version = 2\n");
    let before = tree.snapshot();
    let report = ok(tree.install("spin", &program(1, 1000)).await);
    assert_eq!(report.distro.as_deref(), Some("k0s"), "what is special comes before what is usual");
    let text = tree.read("etc/k0s/containerd.d/portolan-spin.toml");
    assert!(text.contains("version = 2\n"), "{text}");
    ok(tree.verify("spin").await);
    ok(tree.uninstall("spin").await);
    assert_eq!(tree.snapshot(), before);
}

/// k0s merges the files of its directory into one that its configuration imports: what is ours is there without our
/// marks once it was started again, and is not somebody else's for that.
#[tokio::test]
async fn n17_what_k0s_made_of_our_files_is_not_somebody_elses() {
    let tree = Tree::empty();
    tree.write(
        "etc/k0s/containerd.toml",
        "# k0s_managed=true\nversion = 2\nimports = [\"/run/k0s/containerd-cri.toml\"]\n",
    );
    let table = |name: &str| {
        format!(
            "[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}]\nruntime_type = \"x\"\n"
        )
    };
    let merged = |names: &[&str]| {
        let tables: String = names.iter().map(|name| table(name)).collect();
        tree.write("run/k0s/containerd-cri.toml", &format!("version = 2\n{tables}"));
    };
    merged(&["runc"]);
    let before = tree.snapshot();
    ok(tree.install("spin", &program(1, 1000)).await);
    merged(&["runc", "spin"]);
    assert!(!ok(tree.install("spin", &program(1, 1000)).await).changed);
    ok(tree.install("spin", &program(2, 1000)).await);
    ok(tree.install("other", &program(3, 1000)).await);
    ok(tree.verify("spin").await);
    // What a person says beside them is theirs, also before k0s has read it.
    tree.write("etc/k0s/containerd.d/own.toml", &format!("version = 2\n{}", table("own")));
    for (handler, words) in [("spin", "that of the shim spin"), ("own", "a runtime own of its own")]
    {
        let wanted = Wanted::new("third", Some(handler), None, Options::default()).unwrap();
        let assets = Tree::assets("third", &program(4, 1000));
        let source = Source::Assets(assets.path().to_owned());
        let report = install(&tree.node(), &wanted, &source, &Quiet).await.report;
        assert_eq!(report.reason, Some(Reason::ConfigRefused), "{}", report.message);
        assert!(report.message.contains(words), "{}", report.message);
    }
    fs::remove_file(tree.path("etc/k0s/containerd.d/own.toml")).unwrap();
    for name in ["spin", "other"] {
        ok(tree.uninstall(name).await);
    }
    merged(&["runc"]);
    assert_eq!(tree.snapshot(), before);
}

#[tokio::test]
async fn every_kind_of_node_is_known_by_what_is_there() {
    for (marker, text, expected, edited) in [
        (
            "var/snap/microk8s/current/args/containerd-template.toml",
            "version = 2\n",
            "microk8s",
            "",
        ),
        (
            "var/lib/rancher/rke2/agent/etc/containerd/config.toml",
            "version = 2\n",
            "rke2",
            "var/lib/rancher/rke2/agent/etc/containerd/config.toml.tmpl",
        ),
        (
            "var/lib/rancher/k3s/agent/etc/containerd/config.toml",
            "version = 3\n",
            "k3s",
            "var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.tmpl",
        ),
        ("etc/k0s/containerd.toml", "", "k0s", "etc/k0s/containerd.d/portolan-spin.toml"),
    ] {
        let tree = Tree::with("version = 2\n");
        tree.write(marker, text);
        let before = tree.snapshot();
        let report = ok(tree.install("spin", &program(1, 1000)).await);
        assert_eq!(report.distro.as_deref(), Some(expected));
        let edited = if edited.is_empty() { marker } else { edited };
        assert!(tree.read(edited).contains("runtimes.spin]"), "{expected}");
        assert_eq!(tree.read(MAIN), "version = 2\n", "{expected}: the other file is not its");
        ok(tree.verify("spin").await);
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), before, "{expected}");
    }
    for (marker, expected) in
        [("kind/version", "kind"), ("var/lib/minikube/kubeconfig", "minikube")]
    {
        let tree = Tree::with("version = 2\n");
        tree.write(marker, "");
        assert_eq!(
            ok(tree.install("spin", &program(1, 10)).await).distro.as_deref(),
            Some(expected)
        );
    }
}

#[tokio::test]
async fn the_running_daemon_is_believed_before_files() {
    let tree = Tree::with("version = 2\n");
    tree.write("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2\n");
    tree.write("srv/c.toml", "version = 2\n");
    tree.process(7, &["/usr/bin/dockerd", "-c", "/x"], "host", 0);
    let dockers = ["containerd", "--config", "/var/run/docker/containerd/containerd.toml"];
    tree.process(8, &dockers, "host", 0);
    tree.process(9, &["/usr/local/bin/containerd", "--config=/srv/c.toml"], "host", 0);
    let before = tree.snapshot();
    let assets = Tree::assets("spin", &program(1, 10));
    let source = Source::Assets(assets.path().to_owned());
    let report = ok(install(&tree.node(), &wanted("spin"), &source, &Quiet).await);
    assert_eq!(report.distro.as_deref(), Some("default"));
    assert!(tree.read("srv/c.toml").contains("runtimes.spin]"));
    ok(tree.uninstall("spin").await);
    assert_eq!(tree.snapshot(), before);
    let mut node = tree.node();
    node.overrides.distro = Some("k3s".to_owned());
    assert_eq!(
        ok(install(&node, &wanted("spin"), &source, &Quiet).await).distro.as_deref(),
        Some("k3s")
    );
    node.overrides.distro = Some("nixos".to_owned());
    let outcome = install(&node, &wanted("spin"), &source, &Quiet).await;
    assert_eq!(outcome.report.reason, Some(Reason::BadRequest));
}

/// What is found is run as root of the host: a pod, or a user, that calls its program containerd must not
/// have it run, nor lead the installer to another configuration.
#[test]
fn a_process_that_is_not_the_hosts_is_not_believed() {
    let tree = Tree::with("version = 2\n");
    for path in ["usr/bin/containerd", "home/me/containerd", "data/k3s"] {
        tree.write(path, "");
    }
    let k3s = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    let root = HostRoot::open(tree.dir.path()).unwrap();
    let look = || detect(&root, &Overrides::default()).unwrap();
    // A cluster in a pod, and somebody who is not root.
    tree.process(5, &["/home/me/containerd", "-c", k3s], "pod", 0);
    tree.process(6, &["/home/me/containerd", "-c", k3s], "host", 1000);
    for pid in [5, 6] {
        tree.runs(pid, "home/me/containerd");
    }
    let site = look();
    assert_eq!((site.preset.name, site.daemon), ("default", None));
    assert_eq!(site.program.as_deref(), Some("/usr/bin/containerd"));
    // The host's own; what it calls itself is no proof of what it runs.
    tree.process(9, &["/home/me/containerd"], "host", 0);
    tree.runs(9, "usr/bin/containerd");
    let site = look();
    assert_eq!(site.daemon.map(|daemon| daemon.pid), Some(9));
    assert_eq!(site.program.as_deref(), Some("/usr/bin/containerd"));
    // One program of many names is called by the right one.
    symlink("/data/k3s", tree.path("data/containerd")).unwrap();
    tree.process(9, &["/data/containerd"], "host", 0);
    tree.runs(9, "data/k3s");
    assert_eq!(look().program.as_deref(), Some("/data/containerd"));
    // A program that others can change is not run.
    fs::set_permissions(tree.path("data/k3s"), fs::Permissions::from_mode(0o775)).unwrap();
    assert_eq!(look().program.as_deref(), Some("/usr/bin/containerd"));
    fs::set_permissions(tree.path("usr/bin"), fs::Permissions::from_mode(0o777)).unwrap();
    assert_eq!(look().program, None);
}

#[tokio::test]
async fn a_system_that_cannot_be_changed_is_left_alone() {
    for id in ["talos", "\"bottlerocket\""] {
        let tree = Tree::with("version = 2\n");
        tree.write("etc/os-release", &format!("NAME=x\nID={id}\n"));
        let before = tree.snapshot();
        let outcome = tree.install("spin", &program(1, 10)).await;
        assert_eq!(
            outcome.report.reason,
            Some(Reason::NodeNotSupported),
            "{}",
            outcome.report.message
        );
        assert_eq!(tree.snapshot(), before);
    }
}

#[tokio::test]
async fn a_configuration_that_is_refused_leaves_the_node_as_it_was() {
    let own = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.spin]\nruntime_type = \"x\"\n";
    for text in ["version = 2\n[broken\n", "version = 9\n", own] {
        let tree = Tree::with(text);
        let before = tree.snapshot();
        let outcome = tree.install("spin", &program(1, 1000)).await;
        assert_eq!(
            outcome.report.reason,
            Some(Reason::ConfigRefused),
            "{}",
            outcome.report.message
        );
        assert_eq!(tree.snapshot(), before);
    }
}

/// A new program, options that changed, another handler: the same file, brought up to date.
#[tokio::test]
async fn an_update_replaces_what_was_said() {
    let tree = Tree::with("version = 2");
    let before = tree.snapshot();
    ok(tree.install("spin", &program(1, 1000)).await);
    let mut options = Options::default();
    options.set("SystemdCgroup", "true").unwrap();
    let other = Wanted::new("spin", Some("spin-two"), None, options).unwrap();
    let assets = Tree::assets("spin", &program(2, 1000));
    let source = Source::Assets(assets.path().to_owned());
    ok(install(&tree.node(), &other, &source, &Quiet).await);
    let text = tree.read(MAIN);
    assert!(text.contains("runtimes.spin-two.options]\nSystemdCgroup = true\n"), "{text}");
    assert!(!text.contains("runtimes.spin]"), "{text}");
    assert!(!placed(&tree, "spin", &program(1, 1000)).exists(), "the old one is gone");
    ok(tree.verify("spin").await);
    ok(tree.uninstall("spin").await);
    assert_eq!(tree.snapshot(), before);
}

fn upstream_block(name: &str) -> String {
    format!(
        "\n# RCM runtime config for {name}\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}]\nruntime_type = \"/opt/rcm/bin/containerd-shim-{name}\"\n"
    )
}

fn upstream_state(names: &[&str]) -> String {
    let shim = |name: &&str| {
        let path = format!("/opt/rcm/bin/containerd-shim-{name}");
        ((*name).to_owned(), upstream::Shim { sha256: "ab".repeat(32), path })
    };
    upstream::State { shims: names.iter().map(shim).collect() }.to_text()
}

/// What runtime-class-manager left is taken over by an install, and taken away by an uninstall.
#[tokio::test]
async fn upstreams_installation_is_taken_over() {
    let base = "version = 2\n";
    for take_over in [true, false] {
        let tree =
            Tree::with(&format!("{base}{}{}", upstream_block("spin"), upstream_block("spin-v2")));
        tree.write("opt/rcm/rcm-lock.json", &upstream_state(&["spin", "spin-v2"]));
        for name in ["spin", "spin-v2"] {
            tree.write(&format!("opt/rcm/bin/containerd-shim-{name}"), "x");
        }
        if take_over {
            ok(tree.install("spin", &program(1, 1000)).await);
            let text = tree.read(MAIN);
            assert_eq!(text.matches("runtimes.spin]").count(), 1, "{text}");
            assert!(config::parse("x", &text).is_ok());
            ok(tree.verify("spin").await);
        }
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.read(MAIN), format!("{base}{}", upstream_block("spin-v2")), "{take_over}");
        assert_eq!(tree.read("opt/rcm/rcm-lock.json"), upstream_state(&["spin-v2"]));
        assert!(!tree.path("opt/rcm/bin/containerd-shim-spin").exists());
        assert!(tree.path("opt/rcm/bin/containerd-shim-spin-v2").exists());
        ok(tree.uninstall("spin-v2").await);
        assert_eq!(tree.read(MAIN), base);
        assert!(!tree.path("opt/rcm/rcm-lock.json").exists() && !tree.path("opt/rcm/bin").exists());
    }
}

#[tokio::test]
async fn a_configuration_behind_a_link_is_edited_where_it_is() {
    let tree = Tree::empty();
    tree.write("var/real.toml", "version = 2\n");
    fs::create_dir_all(tree.path("etc/containerd")).unwrap();
    symlink("/var/real.toml", tree.path(MAIN)).unwrap();
    let before = tree.snapshot();
    ok(tree.install("spin", &program(1, 10)).await);
    assert!(fs::symlink_metadata(tree.path(MAIN)).unwrap().is_symlink());
    assert!(tree.read("var/real.toml").contains("runtimes.spin]"));
    ok(tree.uninstall("spin").await);
    assert_eq!(tree.snapshot(), before);
}

/// A small file system, gone when dropped.
struct Mount {
    path: PathBuf,
    /// The directory, where it is there for this alone.
    own: Option<tempfile::TempDir>,
}

impl Mount {
    fn tmpfs(bytes: usize) -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let mut mount = Self::at(dir.path().to_owned(), bytes)?;
        mount.own = Some(dir);
        Some(mount)
    }

    fn at(path: PathBuf, bytes: usize) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: it mounts a small tmpfs, which needs root");
            return None;
        }
        let mount = Self { path, own: None };
        mount.run(&["-t", "tmpfs", "-o", &format!("size={bytes}"), "tmpfs"]);
        Some(mount)
    }

    fn run(&self, args: &[&str]) {
        assert!(Command::new("mount").args(args).arg(&self.path).status().unwrap().success());
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.path).status();
        drop(self.own.take());
    }
}
