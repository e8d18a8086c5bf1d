//! A runtime that is started again, or is not: what it says then counts, and what was before comes back.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::fs;
use std::time::Duration;

use portolan_core::Digest;
use portolan_shim::node::NodeError;
use portolan_shim::node::install::{Node, Restart};
use portolan_shim::report::Reason;
use support::{MAIN, Tree, ok, program, runtime};

fn restarting(tree: &Tree, command: &str) -> Node {
    let command = Some(command.to_owned());
    Node {
        restart: Restart { off: false, command, patience: Duration::from_millis(1500) },
        ..tree.node()
    }
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

/// N3 in another place: a runtime that runs and cannot be reached is not a tree of files.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_cannot_be_reached_is_not_passed_over() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    fs::remove_dir_all(tree.path("proc")).unwrap();
    let before = tree.read(MAIN);
    let node = Node { restart: Restart::default(), ..tree.node() };
    let outcome = tree.install_by(&node, "spin", &program(1, 1000)).await;
    assert!(matches!(outcome.error, Some(NodeError::NoRestart(_))), "{}", outcome.report.message);
    assert!(outcome.report.message.contains("hostPID"), "{}", outcome.report.message);
    assert_eq!(tree.read(MAIN), before);
    assert!(!tree.path("opt").exists());
    ok(tree.install("spin", &program(1, 1000)).await);
}
