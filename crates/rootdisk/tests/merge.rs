//! Layers merged, rule by rule, and against a model that knows nothing but paths.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use portolan_rootdisk::layer::{Entry, EntryKind, EntryPath, LayerIndex};
use portolan_rootdisk::limits::{Budget, Limits};
use portolan_rootdisk::merge::{MergeError, Merged, Merger};
use portolan_rootdisk::tree::{Attributes, FileData, Kind, Run, Tree};
use proptest::prelude::*;
use support::model::Model;

/// A layer of lines: `d path [uid]`, `f path number`, `l path target`, `h path target`,
/// `p path` (FIFO), `w path`, `o path`; `.` is the root.
fn layer(lines: &str) -> LayerIndex {
    let path = |text: &str| EntryPath(if text == "." { [].into() } else { text.as_bytes().into() });
    let entry = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let number = words.get(2).and_then(|n| n.parse::<u32>().ok()).unwrap_or(0);
        let kind = match words[0] {
            "d" => EntryKind::Directory,
            "f" => EntryKind::File(FileData {
                size: number.into(),
                runs: [Run { logical: 0, physical: number, blocks: 1 }].into(),
            }),
            "l" => EntryKind::Symlink(words[2].as_bytes().into()),
            "h" => EntryKind::Hardlink(path(words[2])),
            "p" => EntryKind::Fifo,
            "w" => EntryKind::Whiteout,
            "o" => EntryKind::Opaque,
            other => panic!("{other}"),
        };
        let attributes = Attributes { mode: 0o700, uid: number, ..Attributes::default() };
        Entry { path: path(words[1]), attributes, kind }
    };
    LayerIndex { entries: lines.lines().filter(|l| !l.trim().is_empty()).map(entry).collect() }
}

fn budget() -> Arc<Budget> {
    Arc::new(Budget::new(Limits::default()))
}

fn merge(layers: &[&str]) -> Result<Merged, MergeError> {
    let mut merger = Merger::new(budget());
    for lines in layers {
        merger.apply(layer(lines))?;
    }
    merger.finish()
}

/// The tree as lines: `path/ mode uid`, `path number xNAMES`, `path -> target`, `path |`.
fn listing(tree: &Tree) -> Vec<String> {
    let mut names = vec![0; tree.nodes.len()];
    let mut found = Vec::new();
    let mut open = vec![(String::new(), Tree::ROOT)];
    while let Some((path, id)) = open.pop() {
        names[id.0 as usize] += 1;
        if let Kind::Directory(children) = &tree.node(id).kind {
            for (name, child) in children {
                let name = String::from_utf8_lossy(name);
                let slash = if path.is_empty() { "" } else { "/" };
                open.push((format!("{path}{slash}{name}"), *child));
            }
        }
        found.push((path, id));
    }
    found.sort();
    let line = |(path, id): &(String, _)| {
        let node = tree.node(*id);
        match &node.kind {
            Kind::Directory(_) => {
                format!("{path}/ {:o} {}", node.attributes.mode, node.attributes.uid)
            }
            Kind::File(data) => format!("{path} {} x{}", data.size, names[id.0 as usize]),
            Kind::Symlink(target) => format!("{path} -> {}", String::from_utf8_lossy(target)),
            _ => format!("{path} |"),
        }
    };
    found.iter().map(line).collect()
}

/// Merges and compares, the root left out.
#[track_caller]
fn check(layers: &[&str], expected: &[&str]) -> Merged {
    let merged = merge(layers).expect("these layers merge");
    let lines = listing(&merged.tree);
    assert_eq!(lines[1..], *expected);
    assert_eq!(merged.survivors, {
        let reachable: std::collections::BTreeSet<_> = reachable(&merged.tree);
        reachable.len() as u64
    });
    merged
}

fn reachable(tree: &Tree) -> std::collections::BTreeSet<u32> {
    let mut seen = std::collections::BTreeSet::new();
    let mut open = vec![Tree::ROOT];
    while let Some(id) = open.pop() {
        if seen.insert(id.0)
            && let Kind::Directory(children) = &tree.node(id).kind
        {
            open.extend(children.values());
        }
    }
    seen
}

#[test]
fn whiteouts_take_from_lower_layers_only() {
    check(&["d a\nf a/x 1\nf a/y 2", "w a/x"], &["a/ 700 0", "a/y 2 x1"]);
    check(&["d a\nf a/x 1", "w a"], &[]);
    check(&["f x 1", "w x\nf x 2"], &["x 2 x1"]);
    check(&["f x 1", "f x 2\nw x"], &["x 2 x1"]);
    check(&["d a\nf a/x 1", "d a 5\nf a/new 2\nw a"], &["a/ 700 5", "a/new 2 x1"]);
    check(&["d a\nf a/x 1", "f a/new 2\nw a"], &["a/ 755 0", "a/new 2 x1"]);
    check(&["w nothing\nw no/where", "f x 1\nw x/below"], &["x 1 x1"]);
    check(&["f x 1", "w ../x"], &[]);
}

#[test]
fn opaque_directories_lose_what_lower_layers_had() {
    let lower = "d a 3\nf a/x 1\nd a/b\nf a/b/y 2";
    check(&[lower, "o a"], &["a/ 700 3"]);
    check(&[lower, "d a 4\nf a/new 3\no a"], &["a/ 700 4", "a/new 3 x1"]);
    check(&[lower, "o a\nd a/b\nf a/b/z 4"], &["a/ 700 3", "a/b/ 700 0", "a/b/z 4 x1"]);
    check(&[lower, "o .\nf new 5"], &["new 5 x1"]);
    check(&[lower, "o missing", "o a/x"], &["a/ 700 3", "a/b/ 700 0", "a/b/y 2 x1", "a/x 1 x1"]);
}

#[test]
fn types_change() {
    let lower = "d a\nf a/x 1";
    check(&[lower, "d a 9"], &["a/ 700 9", "a/x 1 x1"]);
    check(&[lower, "f a 2"], &["a 2 x1"]);
    check(&[lower, "l a /else"], &["a -> /else"]);
    check(&[lower, "p a", "d a 3"], &["a/ 700 3"]);
    check(&["f a 1", "d a\nf a/x 2"], &["a/ 700 0", "a/x 2 x1"]);
    check(
        &["d b\nf b/x 1\nl a b", "d a 7\nf a/y 2"],
        &["a/ 700 7", "a/y 2 x1", "b/ 700 0", "b/x 1 x1"],
    );
    check(&["l a b", "f a 1"], &["a 1 x1"]);
}

#[test]
fn parents_are_made_or_found_behind_links() {
    check(&["f a/b/c 1"], &["a/ 755 0", "a/b/ 755 0", "a/b/c 1 x1"]);
    check(
        &["d usr/lib 1\nl lib usr/lib", "f lib/x 2"],
        &["lib -> usr/lib", "usr/ 755 0", "usr/lib/ 700 1", "usr/lib/x 2 x1"],
    );
    check(&["l a /b\nl b c\nd c 1", "f a/x 2"], &["a -> /b", "b -> c", "c/ 700 1", "c/x 2 x1"]);
    check(
        &["l a ../../../b/./c//d", "f a/x 1"],
        &["a -> ../../../b/./c//d", "b/ 755 0", "b/c/ 755 0", "b/c/d/ 755 0", "b/c/d/x 1 x1"],
    );
    check(&["d d\nl d/up ..\nf d/up/x 1"], &["d/ 700 0", "d/up -> ..", "x 1 x1"]);
    check(
        &["d d/e\nl l d/e\nl m l/..", "f m/x 1"],
        &["d/ 755 0", "d/e/ 700 0", "d/x 1 x1", "l -> d/e", "m -> l/.."],
    );
    check(&["l a gone/../b\nf a/x 1"], &["a -> gone/../b", "b/ 755 0", "b/x 1 x1"]);
    check(&["l a /\nf a/x 1"], &["a -> /", "x 1 x1"]);
}

/// The way through a name that is not there changes when the name comes to be.
#[test]
fn a_path_is_looked_up_again_when_it_may_lead_elsewhere() {
    let lower = "l a c/..\nl b a";
    check(&[lower, "f b/x 1"], &["a -> c/..", "b -> a", "x 1 x1"]);
    let circle = merge(&[lower, "l b/c a\nf b/x 1"]);
    assert!(matches!(circle, Err(MergeError::LinkLoop { layer: 1, .. })), "{circle:?}");
    check(
        &[lower, "l b/c d/e\nf b/x 1"],
        &["a -> c/..", "b -> a", "c -> d/e", "d/ 755 0", "d/x 1 x1"],
    );
    check(
        &["d d\nf d/x 1\nl d/x y\nf d/x/z 2"],
        &["d/ 700 0", "d/x -> y", "d/y/ 755 0", "d/y/z 2 x1"],
    );
}

#[test]
fn whiteouts_behind_links() {
    let lower = "d real\nf real/x 1\nf real/y 2\nl a real";
    check(&[lower, "w a/x"], &["a -> real", "real/ 700 0", "real/y 2 x1"]);
    check(&[lower, "o a"], &["a -> real", "real/ 700 0"]);
    let untouched = &["a/ 700 0", "real/ 700 0", "real/x 1 x1", "real/y 2 x1"];
    check(&[lower, "d a\nw a/x"], untouched);
    check(&[lower, "o a\nd a"], untouched);
    check(&[lower, "w a"], &["real/ 700 0", "real/x 1 x1", "real/y 2 x1"]);
    // The second link of one path counts like the first.
    check(&["l b ..", "w b/b/b\nd b/b 1"], &["b/ 700 1"]);
}

#[test]
fn names_cannot_leave_the_root() {
    check(&["f ../../etc/passwd 1"], &["etc/ 755 0", "etc/passwd 1 x1"]);
    check(&["f a/../../b 1"], &["b 1 x1"]);
    check(
        &["l out ../../..\nf out/x 1\nl abs /etc\nf abs/y 2"],
        &["abs -> /etc", "etc/ 755 0", "etc/y 2 x1", "out -> ../../..", "x 1 x1"],
    );
    check(&["f x 1\nh y ../../x"], &["x 1 x2", "y 1 x2"]);
}

#[test]
fn hard_links_bind_to_what_is_there() {
    check(&["f a 1\nh b a\nh c b"], &["a 1 x3", "b 1 x3", "c 1 x3"]);
    check(&["d d\nf d/a 1", "h b d/a"], &["b 1 x2", "d/ 700 0", "d/a 1 x2"]);
    check(&["f a 1\nh b a\nf a 2"], &["a 2 x1", "b 1 x1"]);
    check(&["f a 1\nh b a", "f a 2"], &["a 2 x1", "b 1 x1"]);
    check(&["f a 1\nh b a", "w a"], &["b 1 x1"]);
    check(&["f a 1\nh a a"], &["a 1 x1"]);
    check(&["l s t\nh b s"], &["b -> t", "s -> t"]);
    check(&["d d\nf d/f 1\nl s d\nh b s/f"], &["b 1 x2", "d/ 700 0", "d/f 1 x2", "s -> d"]);
    check(&["d d\nf d/f 1\nh d d/f"], &["d 1 x1"]);
    let merged = merge(&["f a 1\nh b a 7"]).expect("merges");
    let Kind::Directory(names) = &merged.tree.node(Tree::ROOT).kind else { panic!() };
    assert_eq!(merged.tree.node(names[&b"b"[..]]).attributes.uid, 1, "of the file, not the link");
}

#[test]
fn the_last_of_a_name_wins() {
    check(&["f a 1\nf a 2"], &["a 2 x1"]);
    check(&["d a 1\nf a/x 1\nd a 2"], &["a/ 700 2", "a/x 1 x1"]);
    check(&["f a 1\nd a\nf a/x 2\nf a 3"], &["a 3 x1"]);
}

#[test]
fn the_root_has_attributes_and_stays_a_directory() {
    let merged = merge(&["d . 5\nf x 1"]).expect("merges");
    assert_eq!(listing(&merged.tree)[0], "/ 700 5");
    assert_eq!(listing(&merge(&[]).expect("merges").tree), ["/ 755 0"]);
    for bad in ["f . 1", "l . x", "f a/.. 1", "h . x", "w ."] {
        assert!(matches!(merge(&["f x 1", bad]), Err(MergeError::Root { layer: 1 })), "{bad}");
    }
}

#[test]
fn what_cannot_be_is_an_error_with_its_names() {
    let says = |layers: &[&str]| merge(layers).expect_err("an error").to_string();
    assert_eq!(says(&["", "h a b/c"]), "layer 1 links \"/a\" to \"/b/c\", which does not exist");
    assert_eq!(says(&["d d\nh a d"]), "layer 0 links \"/a\" to \"/d\", which is a directory");
    assert!(says(&["h a ."]).contains("is a directory"));
    assert!(says(&["f f 1\nf f/x 2"]).contains("\"/f/x\" below something that is no directory"));
    assert!(says(&["l a b\nl b a\nf a/x 1"]).contains("255 symbolic links"));
    assert!(says(&["l a a\nw a/x", "w a/x"]).contains("255 symbolic links"));
    assert!(says(&["f f 1\nh a f/x"]).contains("does not exist"));
}

#[test]
fn chains_of_links_are_followed_to_a_bound() {
    let chain = |links: usize| {
        let lines: Vec<String> = (0..links).map(|i| format!("l l{i} l{}", i + 1)).collect();
        format!("{}\nd l{links}\nf l0/x 1", lines.join("\n"))
    };
    assert!(merge(&[&chain(255)]).is_ok());
    assert!(matches!(merge(&[&chain(256)]), Err(MergeError::LinkLoop { .. })));
}

#[test]
fn blocks_of_losers_are_told_in_order() {
    let merged = check(
        &["f a 9\nd d\nf d/x 3\nf keep 4", "f a 5\nw d\nf b 7\nf b 1", "f d 6"],
        &["a 5 x1", "b 1 x1", "d 6 x1", "keep 4 x1"],
    );
    let physical: Vec<u32> = merged.losers.iter().map(|run| run.physical).collect();
    assert_eq!(physical, [3, 7, 9]);
}

#[test]
fn layers_may_come_in_any_order() {
    let layers = ["f a 1\nf b 1", "w a\nf b 2", "f a 3"];
    let expected = merge(&layers).expect("merges");
    for order in [[0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0, 1]] {
        let mut merger = Merger::new(budget());
        for number in order {
            merger.submit(number, layer(layers[number])).expect("merges");
        }
        assert_eq!(merger.finish().expect("all are there"), expected);
    }
    let mut merger = Merger::new(budget());
    merger.submit(1, layer("")).expect("waits");
    assert!(matches!(merger.submit(1, layer("")), Err(MergeError::Twice { layer: 1 })));
    let mut merger = Merger::new(budget());
    merger.submit(1, layer("")).expect("waits");
    assert!(matches!(merger.finish(), Err(MergeError::Missing { layer: 0 })));
}

fn limited(limits: Limits, layers: &[LayerIndex]) -> &'static str {
    let mut merger = Merger::new(Arc::new(Budget::new(limits)));
    match layers.iter().cloned().try_for_each(|layer| merger.apply(layer)) {
        Err(MergeError::Limit { source, .. }) => source.setting,
        other => panic!("{other:?}"),
    }
}

#[test]
fn greedy_layers_are_refused_and_the_limit_named() {
    let default = Limits::default;
    // Each entry goes through a link into the last directory, so paths stay short.
    let deep = layer(&format!("{}\nl a b\n{}", "d b", "f a/c/c/c/c/c 1"));
    assert_eq!(limited(Limits { max_depth: 4, ..default() }, &[deep]), "max_depth");
    let long = layer(&format!("l a {}\nf a/x 1", "y".repeat(300)));
    assert_eq!(limited(default(), &[long]), "max_component_bytes");
    let many: String = (0..100).map(|i| format!("f d{i}/x/y/z 1\n")).collect();
    assert_eq!(
        limited(Limits { max_index_bytes: 20_000, ..default() }, &[layer(&many)]),
        "max_index_bytes"
    );
    // A link to a thousand steps, taken a hundred times, each time for another directory.
    let steps = "a/../".repeat(500);
    let many: String = (0..100).map(|i| format!("w l/{i}/x\n")).collect();
    let layers = [layer(&format!("d a\nl l {steps}")), layer(&many)];
    assert_eq!(limited(Limits { max_link_steps: 50_000, ..default() }, &layers), "max_link_steps");
}

/// Two hundred thousand names at ten paths: what was quadratic would not end.
#[test]
fn hostile_layers_take_no_time() {
    let wide: String = (0..30_000).map(|i| format!("f d/{i} 1\n")).collect();
    let gone: String = (0..30_000).map(|i| format!("w d/{i}\n")).collect();
    let opaque = "o d\n".repeat(30_000);
    let whiteouts = "w d\n".repeat(30_000);
    let swap = "f s 1\nd s\nf s/x 1\n".repeat(30_000);
    let links: String = (0..30_000).map(|i| format!("h h/{i} d/0\n")).collect();
    let layers = [&wide, &links, &gone, &wide, &opaque, &wide, &whiteouts, &swap];
    let mut merger = Merger::new(budget());
    for lines in layers {
        merger.apply(layer(lines)).expect("merges");
    }
    let merged = merger.finish().expect("merges");
    assert_eq!(merged.survivors, 5, "root, h, the one file of h, s and s/x");
}

#[test]
fn merging_can_be_cancelled_in_the_middle_of_a_layer() {
    let asked = Arc::new(AtomicUsize::new(0));
    let counter = Arc::clone(&asked);
    let budget = Budget::with_cancel(Limits::default(), move || {
        counter.fetch_add(1, Ordering::Relaxed) >= 2
    });
    let mut merger = Merger::new(Arc::new(budget));
    let lines: String = (0..100_000).map(|i| format!("f {i} 1\n")).collect();
    assert!(matches!(merger.apply(layer(&lines)), Err(MergeError::Cancelled)));
    assert_eq!(asked.load(Ordering::Relaxed), 3);
}

fn any_path() -> impl Strategy<Value = String> {
    proptest::collection::vec(prop_oneof![8 => "[abc]", 1 => Just("..".to_owned())], 1..4)
        .prop_map(|parts| parts.join("/"))
}

fn any_target() -> impl Strategy<Value = String> {
    let part = prop_oneof![6 => "[abc]", 2 => Just("..".to_owned()), 1 => Just(".".to_owned())];
    (any::<bool>(), proptest::collection::vec(part, 1..4)).prop_map(|(absolute, parts)| {
        format!("{}{}", if absolute { "/" } else { "" }, parts.join("/"))
    })
}

fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (any_path(), 1..50u32).prop_map(|(path, n)| format!("d {path} {n}")),
        4 => (any_path(), 1..50u32).prop_map(|(path, n)| format!("f {path} {n}")),
        3 => (any_path(), any_target()).prop_map(|(path, target)| format!("l {path} {target}")),
        2 => (any_path(), any_path()).prop_map(|(path, target)| format!("h {path} {target}")),
        1 => any_path().prop_map(|path| format!("p {path}")),
        2 => any_path().prop_map(|path| format!("w {path}")),
        1 => any_path().prop_map(|path| format!("o {path}")),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    /// Entries that cannot be are left out by both, each in its own way.
    #[test]
    fn random_layers_merge_as_the_model_says(
        layers in proptest::collection::vec(proptest::collection::vec(any_line(), 0..10), 1..4)
    ) {
        let mut model = Model::default();
        let mut good: Vec<LayerIndex> = Vec::new();
        for lines in &layers {
            // A layer is taken line by line as far as it can be applied.
            let mut taken: Vec<&str> = Vec::new();
            for line in lines {
                taken.push(line);
                let ours = {
                    let mut merger = Merger::new(budget());
                    good.iter().cloned().try_for_each(|l| merger.apply(l))
                        .and_then(|()| merger.apply(layer(&taken.join("\n"))))
                };
                let theirs = model.clone().apply(&taken);
                prop_assert_eq!(ours.is_ok(), theirs.is_some(), "{:?} {:?}", taken, ours);
                if ours.is_err() {
                    taken.pop();
                }
            }
            model.apply(&taken).expect("each line was tried");
            good.push(layer(&taken.join("\n")));
        }
        let mut merger = Merger::new(budget());
        for layer in good {
            merger.apply(layer).expect("each layer was tried");
        }
        let merged = merger.finish().expect("all are there");
        prop_assert_eq!(&listing(&merged.tree)[1..], &model.listing()[..]);
    }
}
