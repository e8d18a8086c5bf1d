//! An installer that is killed before each of its changes: the next run finishes, and nothing is left over.
//!
//! The test binary starts itself again as the process that is killed.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan_shim::node::install::{Asked, Node, Source, install, install_all};
use portolan_shim::node::request::Name;
use portolan_shim::node::uninstall::uninstall;
use portolan_shim::node::{Watch, upstream};
use portolan_shim::report::Reason;
use support::{MAIN, Tree, ok, program, wanted};

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
        "both" => install_all(&node, both(Path::new(assets)), &watch).await,
        _ => uninstall(&node, &Name::parse("x", "spin").unwrap(), &watch).await,
    };
    ok(outcome);
}

/// Two shims as one change, from where the fetching stages left them.
fn both(assets: &Path) -> Vec<Asked> {
    let of = |name: &str| (wanted(name), Source::Assets(assets.join(name))).into();
    vec![of("spin"), of("other")]
}

/// What the fetching stages left of both.
fn both_assets(programs: &[(&str, Vec<u8>); 2]) -> tempfile::TempDir {
    let assets = tempfile::tempdir().unwrap();
    for (name, program) in programs {
        let dir = assets.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        Tree::leave(&dir, &format!("containerd-shim-{name}"), program);
    }
    assets
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

#[tokio::test(flavor = "multi_thread", worker_threads = 5)]
async fn killed_before_any_change_of_several_the_next_run_finishes_for_all_or_for_each() {
    let each: Vec<_> = trees().into_iter().map(|tree| tokio::spawn(both_survive(tree))).collect();
    for one in each {
        one.await.unwrap();
    }
}

async fn both_survive(tree: Tree) {
    let programs = [("spin", program(1, 2000)), ("other", program(2, 2000))];
    let assets = both_assets(&programs);
    let before = tree.snapshot();
    for at in 1.. {
        // Then the same again; each alone; one of them, and the other nobody wants any more; neither, in either order.
        for after in ["both", "each", "one", "none", "none but spin first"] {
            let killed = die("both", &tree, assets.path(), at);
            match after {
                "both" => {
                    let all = both(assets.path());
                    ok(install_all(&tree.node(), all, &portolan_shim::node::Quiet).await);
                }
                "each" => {
                    for (name, program) in &programs {
                        ok(tree.install(name, program).await);
                    }
                }
                "one" => {
                    ok(tree.uninstall("spin").await);
                    ok(tree.install("other", &programs[1].1).await);
                }
                _ => {}
            }
            for name in ["spin", "other"] {
                if after == "both" || after == "each" || (after, name) == ("one", "other") {
                    ok(tree.verify(name).await);
                }
            }
            let mut gone = ["other", "spin"];
            if after == "none but spin first" {
                gone.reverse();
            }
            for name in gone {
                ok(tree.uninstall(name).await);
            }
            assert_eq!(tree.snapshot(), before, "killed at {at}, then {after}");
            if !killed {
                assert!(at > 12, "{at}");
                return;
            }
        }
    }
}

/// A node with what upstream's installer left of this shim, and of another.
fn upstreams() -> Tree {
    upstreams_on("version = 2\n")
}

fn upstreams_block(name: &str) -> String {
    format!(
        "\n# RCM runtime config for {name}\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.{name}]\nruntime_type = \"/opt/rcm/bin/containerd-shim-{name}\"\n"
    )
}

fn upstreams_on(config: &str) -> Tree {
    let block = upstreams_block;
    let tree = Tree::with(&format!("{config}{}{}", block("spin"), block("other")));
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

/// Killed after the runtime was started again: it has read the configuration, and a second restart would be for nothing.
#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_runtime_was_started_again_the_next_run_does_not_start_it_twice() {
    let first = program(1, 2000);
    // When the runtime began, which may be before the configuration changed: then it has read nothing.
    for (began, restarts) in [("$(date +%s) + 2", 1), ("1000000100", 2)] {
        let tree = Tree::with("version = 2\n");
        support::runtime::start(&tree);
        tree.write("proc/stat", "btime 1000000000\n");
        let assets = Tree::assets("spin", &first);
        let restart = support::runtime::restart(&tree);
        // In hundredths of a second since the boot, as the kernel has it.
        let zeros = "0 ".repeat(18);
        let ticks = format!("$((({began} - 1000000000) * 100))");
        let killing = format!(
            "{restart} && echo \"9 (containerd) S {zeros}{ticks} 0\" > proc/9/stat; kill -9 $PPID; sleep 5"
        );
        assert!(run("install", &tree, assets.path(), 0, Some(&killing)));
        assert_eq!(tree.read("restarts"), "once\n");
        let node = support::restarting(tree.dir.path(), &restart);
        let report = ok(tree.install_by(&node, "spin", &first).await);
        assert_eq!(report.restarted, restarts == 2, "began at {began}");
        assert_eq!(tree.read("restarts").lines().count(), restarts, "began at {began}");
        ok(tree.verify("spin").await);
    }
}

/// A node whose runtime does not take a configuration that names `guilty`: it is down then, and up without it.
fn refusing(tree: &Tree, guilty: &str) -> Node {
    support::runtime::start(tree);
    let restart = support::runtime::restart(tree);
    let here = tree.dir.path().display();
    let line = format!(
        "cd {here} && if grep -q {guilty} {MAIN}; then touch down; exit 1; fi; rm -f down; {restart}"
    );
    support::restarting(tree.dir.path(), &line)
}

/// What names this program of the shim `other` in a configuration.
fn other_path(program: &[u8]) -> String {
    format!("other/{}", portolan_core::Digest::sha256(program).hex())
}

/// Killed with both of them written, of which the runtime does not take `guilty`.
fn killed_in_the_restart(tree: &Tree, assets: &Path, guilty: &str) {
    assert!(run("both", tree, assets, 0, Some("kill -9 $PPID; sleep 5")));
    assert!(tree.read(MAIN).contains(guilty), "it was killed too early");
}

/// Killed with two of them written, of which the runtime does not take one: the other is not to answer for it.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_run_of_several_was_killed_the_innocent_one_is_installed_alone() {
    let programs = [("spin", program(1, 2000)), ("other", program(2, 2000))];
    let [(_, innocent), (_, guilty)] = &programs;
    let assets = both_assets(&programs);
    // A first install; and an update of one that is there, which goes on as it was.
    for update in [false, true] {
        let tree = Tree::with("version = 2\n");
        let guilty_path = other_path(guilty);
        let node = refusing(&tree, &guilty_path);
        if update {
            ok(tree.install_by(&node, "other", &program(3, 2000)).await);
        }
        let before = tree.read(MAIN);
        killed_in_the_restart(&tree, assets.path(), &guilty_path);
        assert!(ok(tree.install_by(&node, "spin", innocent).await).restarted);
        ok(tree.verify("spin").await);
        let text = tree.read(MAIN);
        assert!(text.contains("runtimes.spin]") && !text.contains(&guilty_path), "{text}");
        assert_eq!(text.contains("runtimes.other]"), update, "{text}");
        // The one that is guilty is found, and the other stays.
        let alone = tree.install_by(&node, "other", guilty).await;
        assert_eq!(alone.report.reason, Some(Reason::RolledBack), "{}", alone.report.message);
        ok(tree.verify("spin").await);
        ok(support::uninstall(&node, "spin").await);
        assert_eq!(tree.read(MAIN), before);
        ok(support::uninstall(&node, "other").await);
        assert_eq!(tree.read(MAIN), "version = 2\n");
        assert!(!tree.path("opt").exists(), "nothing is left over");
    }
}

/// Nor is it where the other goes: it goes at the first try, and the runtime is started again once.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_run_of_several_was_killed_the_innocent_one_is_uninstalled_alone() {
    let programs = [("spin", program(1, 2000)), ("other", program(2, 2000))];
    let assets = both_assets(&programs);
    let tree = Tree::with("version = 2\n");
    let guilty_path = other_path(&programs[1].1);
    let node = refusing(&tree, &guilty_path);
    for known in [false, true] {
        if known {
            ok(tree.install_by(&node, "spin", &program(3, 2000)).await);
        }
        killed_in_the_restart(&tree, assets.path(), &guilty_path);
        let restarts = || std::fs::read_to_string(tree.path("restarts")).unwrap_or_default();
        let before = restarts().lines().count();
        assert!(ok(support::uninstall(&node, "spin").await).restarted);
        assert_eq!(restarts().lines().count(), before + 1);
        assert_eq!(tree.read(MAIN), "version = 2\n");
        // It took away what was written for the other, too, but not what was placed.
        ok(support::uninstall(&node, "other").await);
        assert!(!tree.path("opt").exists(), "nothing is left over");
    }
}

/// A block of upstream's that a killed run replaced is there again when another goes on alone: what worked before is not
/// lost where its successor is then refused.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_killed_takeover_of_several_upstreams_handler_works_until_its_successor_does() {
    let programs = [("spin", program(1, 2000)), ("other", program(2, 2000))];
    let [(_, innocent), (_, guilty)] = &programs;
    let assets = both_assets(&programs);
    let dropins = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    for config in ["version = 2\n", "version = 2", dropins] {
        let tree = upstreams_on(config);
        let upstreams_other = upstreams_block("other");
        assert!(run("both", &tree, assets.path(), 0, Some("kill -9 $PPID; sleep 5")));
        assert!(!tree.read(MAIN).contains(&upstreams_other), "{}", tree.read(MAIN));
        ok(tree.install("spin", innocent).await);
        let text = tree.read(MAIN);
        assert!(text.contains(&upstreams_other), "{text}");
        assert!(!text.contains("portolan: begin other"), "{text}");
        assert!(!tree.path("etc/containerd/conf.d/portolan-other.toml").exists());
        assert!(tree.path("opt/rcm/bin/containerd-shim-other").exists());
        // Its successor is refused: back to what worked.
        let failing = support::restarting(tree.dir.path(), "exit 1");
        let refused = tree.install_by(&failing, "other", guilty).await;
        assert_eq!(refused.report.reason, Some(Reason::RolledBack), "{}", refused.report.message);
        assert_eq!(tree.read(MAIN), text);
        ok(tree.verify("spin").await);
        // And then it is taken.
        ok(tree.install("other", guilty).await);
        for name in ["spin", "other"] {
            ok(tree.verify(name).await);
            ok(tree.uninstall(name).await);
        }
        assert_eq!(tree.read(MAIN).trim_end(), config.trim_end());
        // The directory is upstream's.
        let left = std::fs::read_dir(tree.path("opt/rcm")).unwrap().count();
        assert_eq!(left, 0, "nothing is left over");
    }
}
