//! A runtime that is started again, or is not: what it says then counts, and what was before comes back.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::fs;

use portolan_core::Digest;
use portolan_shim::node::install::{Node, Outcome, Restart, Source, install};
use portolan_shim::node::request::{Options, Wanted};
use portolan_shim::node::{NodeError, Quiet, upstream};
use portolan_shim::report::{Phase, Reason};
use support::{MAIN, Tree, ok, program, runtime};

fn restarting(tree: &Tree, command: &str) -> Node {
    support::restarting(tree.dir.path(), command)
}

fn restarts(tree: &Tree) -> usize {
    fs::read_to_string(tree.path("restarts")).unwrap_or_default().lines().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_that_fails_is_followed_by_one_with_the_former_configuration() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    // As a service manager does it: down with the new configuration, and said so; up with the old one.
    let line = format!(
        "cd {} && if grep -q spin {MAIN}; then touch down; exit 1; fi; rm -f down; {}",
        tree.dir.path().display(),
        runtime::restart(&tree)
    );
    let outcome = tree.install_by(&restarting(&tree, &line), "spin", &program(1, 1000)).await;
    assert!(
        matches!(outcome.error, Some(NodeError::NotRestarted(_))),
        "{}",
        outcome.report.message
    );
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack));
    assert_eq!(tree.read(MAIN), "version = 2\n");
    assert!(!tree.path("down").exists() && restarts(&tree) == 1, "it runs again");
    // One that comes back with neither is said to be down.
    let line = format!("touch {}/down; exit 1", tree.dir.path().display());
    let outcome = tree.install_by(&restarting(&tree, &line), "spin", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::RuntimeDown), "{}", outcome.report.message);
    assert_eq!(tree.read(MAIN), "version = 2\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_process_from_before_says_does_not_count() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    let node = restarting(&tree, &runtime::restart(&tree));
    ok(tree.install_by(&node, "spin", &program(1, 1000)).await);
    // An update: the old process knows the handler, too, and never ends.
    let idle = restarting(&tree, "true");
    let outcome = tree.install_by(&idle, "spin", &program(2, 1000)).await;
    assert!(matches!(outcome.error, Some(NodeError::RolledBack(_))), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("no new process"), "{}", outcome.report.message);
    ok(tree.verify("spin").await);
    assert!(ok(tree.install_by(&node, "spin", &program(2, 1000)).await).restarted);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_stays_while_the_runtime_goes_by_it() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    let node = restarting(&tree, &runtime::restart(&tree));
    let placed = |name: &str, program: &[u8]| {
        let sha256 = Digest::sha256(program).hex();
        tree.path(&format!("opt/rcm/{name}/{sha256}/containerd-shim-{name}")).exists()
    };
    ok(tree.install_by(&node, "spin", &program(1, 1000)).await);
    ok(tree.install("spin", &program(2, 1000)).await);
    assert!(placed("spin", &program(1, 1000)) && placed("spin", &program(2, 1000)));
    // The restart that another shim brings is one for both.
    assert!(ok(tree.install_by(&node, "other", &program(3, 1000)).await).restarted);
    assert!(!placed("spin", &program(1, 1000)) && placed("spin", &program(2, 1000)));
    ok(tree.verify("spin").await);
}

/// A new installer comes to every node again: where nothing differs, a runtime that is silent for a while is not started
/// again for it, and the next try may find it well.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_does_not_answer_is_left_alone_where_nothing_was_changed() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    let node = restarting(&tree, &runtime::restart(&tree));
    ok(tree.install_by(&node, "spin", &program(1, 1000)).await);
    let (before, times) = (tree.snapshot(), restarts(&tree));
    let silent = async || {
        tree.write("down", "");
        let outcome = tree.install_by(&node, "spin", &program(1, 1000)).await;
        fs::remove_file(tree.path("down")).unwrap();
        outcome
    };
    let outcome = silent().await;
    assert!(matches!(outcome.error, Some(NodeError::Unanswered(_))), "{:?}", outcome.report);
    assert_eq!(outcome.report.reason, Some(Reason::HostTrouble));
    assert!(outcome.report.as_before && !outcome.report.restarted, "{:?}", outcome.report);
    assert_eq!((tree.snapshot(), restarts(&tree)), (before, times));
    ok(tree.install_by(&node, "spin", &program(1, 1000)).await);
}

/// N3 in another place: a runtime that runs and cannot be reached is not a tree of files.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_be_reached_is_not_passed_over() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    fs::remove_dir_all(tree.path("proc")).unwrap();
    let before = tree.snapshot();
    let node = Node { restart: Restart::default(), ..tree.node() };
    let refused = |outcome: Outcome| {
        let message = &outcome.report.message;
        assert!(matches!(outcome.error, Some(NodeError::NoRestart(_))), "{message}");
        assert!(message.contains("hostPID"), "{message}");
        // The controller takes no node for touched that says so.
        assert!(outcome.report.phase < Phase::Place, "{:?}", outcome.report);
    };
    refused(tree.install_by(&node, "spin", &program(1, 1000)).await);
    assert_eq!(tree.snapshot(), before, "nothing was made");
    ok(tree.install("spin", &program(1, 1000)).await);
    let installed = tree.snapshot();
    refused(tree.install_by(&node, "spin", &program(2, 1000)).await);
    refused(support::uninstall(&node, "spin").await);
    assert_eq!(tree.snapshot(), installed, "nor was anything changed");
}

#[tokio::test(flavor = "multi_thread")]
async fn going_back_keeps_what_somebody_wrote_meanwhile() {
    let block = "\n# RCM runtime config for spin\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.spin]\nruntime_type = \"/opt/rcm/bin/x\"\n";
    let base = "version = 2\n";
    let tree = Tree::with(&format!("{base}{block}"));
    let main = tree.path(MAIN);
    let edit = format!("printf '[debug]\\nlevel = \"info\"\\n' >> {}; exit 1", main.display());
    // What nobody touched comes back to the byte, upstream's block with it.
    let failing = restarting(&tree, "exit 1");
    let outcome = tree.install_by(&failing, "spin", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack), "{}", outcome.report.message);
    assert_eq!(tree.read(MAIN), format!("{base}{block}"));
    // What somebody wrote stays, and so does upstream's block.
    let outcome = tree.install_by(&restarting(&tree, &edit), "spin", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack), "{}", outcome.report.message);
    let text = tree.read(MAIN);
    assert!(text.contains("[debug]\nlevel = \"info\"\n") && text.contains(block), "{text}");
    assert!(!text.contains("portolan"), "{text}");
    tree.write(MAIN, &format!("{base}{block}"));
    // What is ours is as it was.
    ok(tree.install("other", &program(2, 1000)).await);
    let before = tree.read(MAIN);
    let outcome = tree.install_by(&restarting(&tree, &edit), "third", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack), "{}", outcome.report.message);
    // Once for the restart, and once for the one after it.
    let text = tree.read(MAIN);
    assert!(text.contains("[debug]\nlevel = \"info\"\n"), "{text}");
    assert!(!text.contains("third") && text.starts_with(&before), "{text}");
}

#[tokio::test]
async fn programs_that_run_are_not_removed() {
    let tree = Tree::with("version = 2\n");
    let placed = |binary: &str, program: &[u8]| {
        format!("opt/rcm/spin/{}/{binary}", Digest::sha256(program).hex())
    };
    let old = placed("containerd-shim-spin", &program(1, 1000));
    ok(tree.install("spin", &program(1, 1000)).await);
    tree.process(9, &["x"], "host", 0);
    tree.runs(9, &old);
    // Under another name now.
    let assets = tempfile::tempdir().unwrap();
    Tree::leave(assets.path(), "other-name", &program(2, 1000));
    let wanted = Wanted::new("spin", None, Some("other-name"), Options::default()).unwrap();
    let source = Source::Assets(assets.path().to_owned());
    ok(install(&tree.node(), &wanted, &source, &Quiet).await);
    assert!(
        tree.path(&old).exists() && tree.path(&placed("other-name", &program(2, 1000))).exists()
    );
    // Back to the one that runs, in vain.
    let failing = restarting(&tree, "exit 1");
    let outcome = tree.install_by(&failing, "spin", &program(1, 1000)).await;
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack), "{}", outcome.report.message);
    assert!(tree.path(&old).exists());
    let told = ok(tree.uninstall("spin").await);
    assert!(told.warnings.iter().any(|warning| warning.contains("still run")), "{told:?}");
}

#[tokio::test]
async fn upstreams_program_stays_while_it_runs_and_a_link_is_not_followed() {
    let tree = Tree::with("version = 2\n");
    let state = upstream::State {
        shims: ["spin", "linked"]
            .map(|name| {
                let path = format!("/opt/rcm/bin/containerd-shim-{name}");
                (name.to_owned(), upstream::Shim { sha256: "ab".repeat(32), path })
            })
            .into(),
    };
    tree.write("opt/rcm/rcm-lock.json", &state.to_text());
    tree.write("opt/rcm/bin/containerd-shim-spin", "x");
    tree.write("usr/bin/precious", "x");
    let link = tree.path("opt/rcm/bin/containerd-shim-linked");
    std::os::unix::fs::symlink("/usr/bin/precious", &link).unwrap();
    ok(tree.install("linked", &program(1, 1000)).await);
    assert!(tree.path("usr/bin/precious").exists() && fs::symlink_metadata(&link).is_err());
    tree.process(9, &["x"], "host", 0);
    tree.runs(9, "opt/rcm/bin/containerd-shim-spin");
    ok(tree.install("spin", &program(1, 1000)).await);
    assert!(tree.path("opt/rcm/bin/containerd-shim-spin").exists());
    fs::remove_dir_all(tree.path("proc/9")).unwrap();
    ok(tree.install("spin", &program(1, 1000)).await);
    assert!(!tree.path("opt/rcm/bin").exists() && !tree.path("opt/rcm/rcm-lock.json").exists());
}
