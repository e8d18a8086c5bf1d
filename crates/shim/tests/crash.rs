//! An installer that is killed before each of its changes: the next run finishes, and nothing is left over.
//!
//! The test binary starts itself again as the process that is killed.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan_shim::node::install::{Source, install};
use portolan_shim::node::request::Name;
use portolan_shim::node::uninstall::uninstall;
use portolan_shim::node::{Watch, upstream};
use support::{Tree, ok, program, wanted};

/// What the child does: where, with which program, and at which change it dies. Set only there.
const CHILD: &str = "PORTOLAN_TEST_SHIM_CHILD";

/// How it starts the runtime again, if at all.
const RESTART: &str = "PORTOLAN_TEST_SHIM_RESTART";

struct Dying(AtomicUsize);

impl Watch for Dying {
    fn before(&self, _: &'static str, _: &Path) {
        if self.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            let own = rustix::process::getpid();
            rustix::process::kill_process(own, rustix::process::Signal::KILL).unwrap();
        }
    }
}

#[tokio::test]
async fn child_that_is_killed() {
    let Ok(task) = std::env::var(CHILD) else { return };
    let mut words = task.split(' ');
    let mut next = || words.next().unwrap();
    let (what, root, assets, at) = (next(), next(), next(), next());
    let watch = Dying(AtomicUsize::new(at.parse().unwrap()));
    let node = match std::env::var(RESTART) {
        Ok(line) => support::restarting(Path::new(root), &line),
        Err(_) => support::node(Path::new(root)),
    };
    let outcome = match what {
        "install" => {
            let source = Source::Assets(PathBuf::from(assets));
            install(&node, &wanted("spin"), &source, &watch).await
        }
        _ => uninstall(&node, &Name::parse("x", "spin").unwrap(), &watch).await,
    };
    ok(outcome);
}

/// Whether it was killed; false when it came to its end.
fn die(what: &str, tree: &Tree, assets: &Path, at: usize) -> bool {
    run(what, tree, assets, at, None)
}

fn run(what: &str, tree: &Tree, assets: &Path, at: usize, restart: Option<&str>) -> bool {
    let task = format!("{what} {} {} {at}", tree.dir.path().display(), assets.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.args(["--exact", "child_that_is_killed"]).env(CHILD, task);
    let status = status.envs(restart.map(|line| (RESTART, line)));
    let status = status.stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{what} {at}: {status}");
    !status.success()
}

/// Nodes on which every kind of change is made: a block, a file of our own, a drop-in in a new directory, a
/// template, a file in a directory of the distribution's.
fn trees() -> Vec<Tree> {
    let block = Tree::with("version = 2");
    let bare = Tree::empty();
    bare.write("usr/bin/containerd", "");
    let dropin = Tree::with("version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    std::fs::create_dir_all(dropin.path("opt/rcm")).unwrap();
    dropin.write("opt/rcm/foreign", "not ours");
    let template = Tree::empty();
    template.write("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2\n");
    let merged = Tree::empty();
    merged.write("etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n");
    vec![block, bare, dropin, template, merged]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn killed_before_any_change_the_next_run_finishes() {
    let each: Vec<_> = trees().into_iter().map(|tree| tokio::spawn(survives(tree))).collect();
    for one in each {
        one.await.unwrap();
    }
}

async fn survives(tree: Tree) {
    let (first, second) = (program(1, 2000), program(2, 2000));
    let (one, two) = (Tree::assets("spin", &first), Tree::assets("spin", &second));
    let before = tree.snapshot();
    let mut kills = 0;
    // A first install, then the next run; and a first install, then an uninstall.
    for at in 1.. {
        if !die("install", &tree, one.path(), at) {
            break;
        }
        kills += 1;
        ok(tree.install("spin", &first).await);
        ok(tree.verify("spin").await);
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), before, "install killed at {at}, finished, uninstalled");
        assert!(die("install", &tree, one.path(), at));
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), before, "install killed at {at}, uninstalled");
    }
    assert!(kills > 8, "{kills}");
    // An update.
    for at in 1.. {
        ok(tree.install("spin", &first).await);
        let killed = die("install", &tree, two.path(), at);
        ok(tree.install("spin", &second).await);
        ok(tree.verify("spin").await);
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), before, "update killed at {at}");
        if !killed {
            break;
        }
    }
    // An uninstall.
    for at in 1.. {
        ok(tree.install("spin", &first).await);
        let killed = die("uninstall", &tree, one.path(), at);
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), before, "uninstall killed at {at}");
        if !killed {
            break;
        }
    }
}

/// A node with what upstream's installer left of this shim, and of another.
fn upstreams() -> Tree {
    let block = |name: &str| {
        format!(
            "\n# RCM runtime config for {name}\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}]\nruntime_type = \"/opt/rcm/bin/containerd-shim-{name}\"\n"
        )
    };
    let tree = Tree::with(&format!("version = 2\n{}{}", block("spin"), block("other")));
    let shim = |name: &str| {
        let path = format!("/opt/rcm/bin/containerd-shim-{name}");
        tree.write(&path[1..], "x");
        (name.to_owned(), upstream::Shim { sha256: "ab".repeat(32), path })
    };
    let state = upstream::State { shims: ["spin", "other"].map(shim).into() };
    tree.write("opt/rcm/rcm-lock.json", &state.to_text());
    tree
}

#[tokio::test]
async fn killed_while_upstreams_is_taken_over_or_away_the_next_run_finishes() {
    let first = program(1, 2000);
    let assets = Tree::assets("spin", &first);
    let clean = upstreams();
    ok(clean.uninstall("spin").await);
    let clean = clean.snapshot();
    for at in 1.. {
        let tree = upstreams();
        let killed = die("install", &tree, assets.path(), at);
        ok(tree.install("spin", &first).await);
        ok(tree.verify("spin").await);
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), clean, "install killed at {at}");
        if !killed {
            break;
        }
    }
    for at in 1.. {
        let tree = upstreams();
        let killed = die("uninstall", &tree, assets.path(), at);
        ok(tree.uninstall("spin").await);
        assert_eq!(tree.snapshot(), clean, "uninstall killed at {at}");
        if !killed {
            assert!(at > 5, "{at}");
            break;
        }
    }
}

/// Killed while the runtime is started again, by the very command that does it: the next run makes up for it.
#[tokio::test]
async fn killed_while_the_runtime_is_started_again_the_next_run_does_it() {
    let first = program(1, 2000);
    for what in ["install", "uninstall"] {
        let tree = upstreams();
        let assets = Tree::assets("spin", &first);
        let log = tempfile::tempdir().unwrap();
        let log = log.path().join("log");
        let killing = "kill -9 $PPID; sleep 5";
        assert!(run(what, &tree, assets.path(), 0, Some(killing)));
        let counting = format!("echo once >> {}", log.display());
        let node = support::restarting(tree.dir.path(), &counting);
        let outcome = match what {
            "install" => tree.install_by(&node, "spin", &first).await,
            _ => support::uninstall(&node, "spin").await,
        };
        assert!(ok(outcome).restarted, "{what}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "once\n", "{what}");
        ok(support::uninstall(&node, "spin").await);
        assert!(!tree.path("opt/rcm/.portolan").exists(), "{what}");
    }
}
