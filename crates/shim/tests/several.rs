//! Several shims on a node as one change: each refused alone, all taken together, or none.
#![allow(clippy::unwrap_used, clippy::cast_possible_truncation, reason = "a test may panic")]

mod support;

use std::fs;

use portolan_shim::node::Quiet;
use portolan_shim::node::install::{
    Node, Outcome, Source, fetch_stage, install_all, leave_refusal,
};
use portolan_shim::node::request::{Options, Wanted};
use portolan_shim::report::{Part, Phase, Reason, Report};
use support::{MAIN, Tree, ok, program, runtime, wanted};

/// Shims, each with what the fetching stage left of it.
struct Asked {
    dirs: Vec<tempfile::TempDir>,
    all: Vec<(Wanted, Source)>,
}

impl Asked {
    fn new(names: &[&str]) -> Self {
        let mut asked = Self { dirs: Vec::new(), all: Vec::new() };
        names.iter().for_each(|name| asked.add(wanted(name), &program(name.as_bytes()[0], 1000)));
        asked
    }

    fn add(&mut self, wanted: Wanted, program: &[u8]) {
        let dir = Tree::assets(wanted.name.as_str(), program);
        self.all.push((wanted, Source::Assets(dir.path().to_owned())));
        self.dirs.push(dir);
    }

    async fn install(&self, node: &Node) -> Outcome {
        install_all(node, self.all.iter().cloned().map(Into::into).collect(), &Quiet).await
    }
}

fn restarts(tree: &Tree) -> usize {
    fs::read_to_string(tree.path("restarts")).unwrap_or_default().lines().count()
}

/// How each fared, by its name.
fn fared(report: &Report) -> Vec<(&str, Option<Reason>, bool)> {
    report.parts.iter().map(|part| (&*part.name, part.reason, part.together)).collect()
}

/// Every way in which a node keeps its configuration.
fn trees() -> Vec<Tree> {
    let dropins = Tree::with("version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    let bare = Tree::empty();
    bare.write("usr/bin/containerd", "");
    let template = Tree::empty();
    template.write("var/lib/rancher/k3s/agent/etc/containerd/config.toml", "version = 2\n");
    let merged = Tree::empty();
    merged.write("etc/k0s/containerd.toml", "# k0s_managed=true\nversion = 2\n");
    vec![Tree::with("version = 2"), Tree::with(""), dropins, bare, template, merged]
}

#[tokio::test]
async fn several_shims_come_as_one_change_and_go_one_by_one_without_a_trace() {
    for tree in trees() {
        let before = tree.snapshot();
        let asked = Asked::new(&["a", "b", "c"]);
        let report = ok(asked.install(&tree.node()).await);
        assert!(report.changed);
        let well = |name| (name, None, false);
        assert_eq!(fared(&report), [well("a"), well("b"), well("c")]);
        for name in ["a", "b", "c"] {
            ok(tree.verify(name).await);
        }
        // As if they had come one by one.
        let installed = tree.snapshot();
        for name in ["a", "b", "c"] {
            assert!(!ok(tree.install(name, &program(name.as_bytes()[0], 1000)).await).changed);
        }
        assert!(!ok(asked.install(&tree.node()).await).changed);
        assert_eq!(tree.snapshot(), installed);
        for name in ["b", "a", "c"] {
            ok(tree.uninstall(name).await);
        }
        assert_eq!(tree.snapshot(), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_runtime_is_started_again_once_for_all_of_them() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    let node = support::restarting(tree.dir.path(), &runtime::restart(&tree));
    let report = ok(Asked::new(&["a", "b", "c"]).install(&node).await);
    assert!(report.restarted && report.phase == Phase::Done);
    assert_eq!(restarts(&tree), 1);
    // An update of one, a new one, and one that is there already.
    let mut next = Asked::new(&["b", "d"]);
    next.add(wanted("a"), &program(99, 1000));
    ok(next.install(&node).await);
    assert_eq!(restarts(&tree), 2);
    for name in ["a", "b", "c", "d"] {
        ok(tree.verify(name).await);
    }
    assert!(!ok(next.install(&node).await).restarted);
    assert_eq!(restarts(&tree), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_refused_before_the_node_is_touched_is_refused_alone() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    let node = support::restarting(tree.dir.path(), &runtime::restart(&tree));
    let mut asked = Asked::new(&["good", "missing", "handler", "well"]);
    let mut foreign = program(1, 1000);
    foreign[18] = if foreign[18] == 62 { 183 } else { 62 };
    asked.add(wanted("foreign"), &foreign);
    // What the first asks for already.
    asked.all[2].0 = Wanted::new("handler", Some("good"), None, Options::default()).unwrap();
    fs::remove_file(asked.dirs[1].path().join("containerd-shim-missing")).unwrap();
    let outcome = asked.install(&node).await;
    let report = outcome.report;
    assert_eq!(
        fared(&report),
        [
            ("good", None, false),
            ("missing", Some(Reason::BinaryNotFound), false),
            ("handler", Some(Reason::ConfigRefused), false),
            ("well", None, false),
            ("foreign", Some(Reason::WrongArchitecture), false),
        ]
    );
    let of = |name: &str| report.parts.iter().find(|part| part.name == name).unwrap();
    assert!(of("handler").message.contains("that of the shim good"), "{}", of("handler").message);
    assert_eq!(report.reason, Some(Reason::BinaryNotFound), "of the first of them");
    assert!(report.message.starts_with("3 of 5 shims could not"), "{}", report.message);
    assert!(report.changed && report.restarted && restarts(&tree) == 1);
    for name in ["good", "well"] {
        ok(tree.verify(name).await);
        ok(tree.uninstall(name).await);
    }
    assert_eq!(tree.read(MAIN), "version = 2\n");
    assert!(!tree.path("opt").exists(), "nothing was there of the others");
}

/// However the node keeps its configuration: one handler twice is a table twice, or one that silently wins.
#[tokio::test]
async fn of_two_shims_with_one_handler_the_second_is_refused_in_every_layout() {
    for tree in trees() {
        let before = tree.snapshot();
        let mut asked = Asked::new(&["a", "handler", "b"]);
        let second = Wanted::new("handler", Some("a"), None, Options::default()).unwrap();
        asked.all[1].0 = second.clone();
        let report = asked.install(&tree.node()).await.report;
        let refused = ("handler", Some(Reason::ConfigRefused), false);
        assert_eq!(fared(&report), [("a", None, false), refused, ("b", None, false)]);
        assert!(report.parts[1].message.contains("that of the shim a"), "{report:?}");
        // Nor does it come alone, or with another, after the first.
        asked.all.swap(0, 1);
        let report = asked.install(&tree.node()).await.report;
        assert_eq!(fared(&report), [refused, ("a", None, false), ("b", None, false)]);
        for name in ["a", "b"] {
            ok(tree.verify(name).await);
        }
        // It is free again when the first is gone.
        ok(tree.uninstall("a").await);
        let source = asked.all[0].1.clone();
        ok(portolan_shim::node::install::install(&tree.node(), &second, &source, &Quiet).await);
        for name in ["handler", "b"] {
            ok(tree.verify(name).await);
            ok(tree.uninstall(name).await);
        }
        assert_eq!(tree.snapshot(), before);
    }
}

#[tokio::test]
async fn what_makes_no_sense_for_one_is_no_trouble_of_the_others() {
    let tree = Tree::with("version = 2\n");
    let named = |name: &str| portolan_shim::node::install::Asked {
        name: name.to_owned(),
        shim: Wanted::new("x", Some("no handler"), None, Options::default())
            .map(|_| unreachable!())
            .map_err(Into::into),
    };
    let long = "\u{1}".repeat(300);
    let good = Asked::new(&["good"]);
    let all = vec![named("bad"), good.all[0].clone().into(), named(&long)];
    let report = install_all(&tree.node(), all, &Quiet).await.report;
    let cut = "?".repeat(63);
    let bad = Some(Reason::BadRequest);
    assert_eq!(fared(&report), [("bad", bad, false), ("good", None, false), (&*cut, bad, false)]);
    assert_eq!(report.reason, bad);
    assert!(report.message.starts_with("2 of 3 shims could not be installed; bad is the first"));
    assert!(report.parts[0].message.contains("the handler"), "{report:?}");
    ok(tree.verify("good").await);
}

#[tokio::test]
async fn where_all_are_refused_the_node_is_not_touched() {
    for (config, reason) in
        [("version = 2\n", Reason::BinaryNotFound), ("[broken", Reason::ConfigRefused)]
    {
        let tree = Tree::with(config);
        let before = tree.snapshot();
        let asked = Asked::new(&["a", "b"]);
        if reason == Reason::BinaryNotFound {
            asked.dirs.iter().for_each(|dir| fs::remove_dir_all(dir.path()).unwrap());
        }
        let outcome = asked.install(&tree.node()).await;
        assert_eq!(
            fared(&outcome.report),
            [("a", Some(reason), false), ("b", Some(reason), false)]
        );
        assert!(!outcome.report.restarted && outcome.error.is_some());
        assert_eq!(tree.snapshot(), before);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_runtime_does_not_take_is_undone_for_all_and_each_can_be_tried_alone() {
    let tree = Tree::with("version = 2\n");
    runtime::start(&tree);
    // It ends itself where it reads of the handler `bad`: the bare word may be part of a digest.
    let line = format!(
        "cd {} && if grep -q runtimes.bad {MAIN}; then touch down; exit 1; fi; rm -f down; {}",
        tree.dir.path().display(),
        runtime::restart(&tree)
    );
    let node = support::restarting(tree.dir.path(), &line);
    ok(tree.install_by(&node, "old", &program(7, 1000)).await);
    let before = (tree.read(MAIN), fs::read_dir(tree.path("opt/rcm")).unwrap().count());
    let mut asked = Asked::new(&["bad", "good"]);
    asked.add(wanted("old"), &program(8, 1000));
    fs::remove_file(asked.dirs[1].path().join("containerd-shim-good")).unwrap();
    let outcome = asked.install(&node).await;
    assert_eq!(
        fared(&outcome.report),
        [
            ("bad", Some(Reason::RolledBack), true),
            ("good", Some(Reason::BinaryNotFound), false),
            ("old", Some(Reason::RolledBack), true),
        ]
    );
    assert_eq!(outcome.report.reason, Some(Reason::RolledBack));
    assert!(!outcome.report.changed);
    let after = (tree.read(MAIN), fs::read_dir(tree.path("opt/rcm")).unwrap().count());
    assert_eq!(after, before, "nothing of it stays");
    ok(tree.verify("old").await);
    // The one that is guilty is found.
    assert!(ok(tree.install_by(&node, "old", &program(8, 1000)).await).restarted);
    let alone = tree.install_by(&node, "bad", &program(b'b', 1000)).await;
    assert_eq!(alone.report.reason, Some(Reason::RolledBack));
}

#[tokio::test]
async fn one_shim_twice_or_more_than_can_be_told_of_are_refused() {
    let tree = Tree::with("version = 2\n");
    let nine: Vec<String> = (0..9).map(|at| format!("s{at}")).collect();
    let nine: Vec<&str> = nine.iter().map(String::as_str).collect();
    for names in [&["a", "a"][..], &nine] {
        let outcome = Asked::new(names).install(&tree.node()).await;
        assert_eq!(outcome.report.reason, Some(Reason::BadRequest));
    }
    assert!(!tree.path("opt").exists());
    ok(Asked::new(&nine[..8]).install(&tree.node()).await);
}

/// A stage that fails leaves word of it; one that comes after it forgets that.
#[tokio::test]
async fn what_the_fetching_stage_refused_is_told_by_who_installs() {
    let tree = Tree::with("version = 2\n");
    let asked = Asked::new(&["a", "b"]);
    let bytes = support::archive("containerd-shim-b", &program(b'b', 1000));
    let server = support::server::Server::file(bytes);
    let dir = asked.dirs[1].path();
    let fetch = |digest: Option<&str>| {
        let digest = digest.map(|text| portolan_shim::node::request::sha256(text).unwrap());
        let Source::Location(location, transport) = support::from(&server.url, digest) else {
            panic!()
        };
        async move { fetch_stage(&wanted("b"), &location, &transport, dir).await }
    };
    let refused = fetch(Some(&"0".repeat(64))).await.report;
    assert_eq!(refused.reason, Some(Reason::DigestMismatch));
    leave_refusal(dir, &refused).unwrap();
    let report = asked.install(&tree.node()).await.report;
    let [a, b] = &report.parts[..] else { panic!("{report:?}") };
    assert_eq!((a.reason, b.reason), (None, Some(Reason::DigestMismatch)));
    assert_eq!(b, &Part { message: refused.message, binary_sha256: None, ..b.clone() });
    ok(fetch(None).await);
    ok(asked.install(&tree.node()).await);
    ok(tree.verify("b").await);
    // A word that cannot be read is no word that all is well.
    fs::write(dir.join(".portolan-refused.json"), "{").unwrap();
    assert!(asked.install(&tree.node()).await.error.is_some());
}
