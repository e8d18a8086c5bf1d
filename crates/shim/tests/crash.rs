//! An installer that is killed before each of its changes: the next run finishes, and nothing is left over.
//!
//! The test binary starts itself again as the process that is killed.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan_shim::node::Watch;
use portolan_shim::node::install::{Source, install};
use portolan_shim::node::request::Name;
use portolan_shim::node::uninstall::uninstall;
use support::{Tree, ok, program, wanted};

/// What the child does: where, with which program, and at which change it dies. Set only there.
const CHILD: &str = "PORTOLAN_TEST_SHIM_CHILD";

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
    let node = support::node(Path::new(root));
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
    let task = format!("{what} {} {} {at}", tree.dir.path().display(), assets.display());
    let mut command = Command::new(std::env::current_exe().unwrap());
    let status = command.args(["--exact", "child_that_is_killed"]).env(CHILD, task);
    let status = status.stdout(std::process::Stdio::null()).status().unwrap();
    assert!(status.success() || status.signal() == Some(9), "{what} {at}: {status}");
    !status.success()
}

/// Nodes on which every kind of change is made: a block, a file of our own, a drop-in in a new directory,
/// upstream's remains.
fn trees() -> Vec<Tree> {
    let block = Tree::with("version = 2");
    let bare = Tree::empty();
    bare.write("usr/bin/containerd", "");
    let dropin = Tree::with("version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    std::fs::create_dir_all(dropin.path("opt/rcm")).unwrap();
    dropin.write("opt/rcm/foreign", "not ours");
    vec![block, bare, dropin]
}

#[tokio::test]
async fn killed_before_any_change_the_next_run_finishes() {
    let (first, second) = (program(1, 2000), program(2, 2000));
    let (one, two) = (Tree::assets("spin", &first), Tree::assets("spin", &second));
    for tree in trees() {
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
}
