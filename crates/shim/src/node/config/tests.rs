use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::node::request::{Options, Wanted};
use crate::node::root::HostRoot;

const PROGRAM: &str = "/opt/rcm/x/00/containerd-shim-x";

fn fixtures() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/containerd")
}

fn options(pairs: &[(&str, &str)]) -> Options {
    let mut options = Options::default();
    for (key, value) in pairs {
        options.set(key, value).unwrap();
    }
    options
}

fn wanted(name: &str) -> Wanted {
    Wanted::new(name, None, None, Options::default()).unwrap()
}

struct Tree(tempfile::TempDir);

const MAIN: &str = "/etc/containerd/config.toml";

impl Tree {
    fn of(files: &[(&str, &str)]) -> Self {
        let tree = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            tree.write(path, text);
        }
        tree
    }

    fn write(&self, path: &str, text: &str) {
        let here = self.0.path().join(path.trim_start_matches('/'));
        fs::create_dir_all(here.parent().unwrap()).unwrap();
        fs::write(here, text).unwrap();
    }

    fn plan(
        &self,
        layout: Layout,
        main: &str,
        major: Option<u64>,
        name: &str,
    ) -> Result<Vec<Change>, ConfigError> {
        let root = HostRoot::open(self.0.path()).unwrap();
        let loaded = load(&root, main)?;
        let look = Look { root: &root, main, layout, major, loaded: &loaded, known: &[] };
        install(&look, &wanted(name), PROGRAM)
    }

    fn apply(&self, changes: &[Change]) {
        for change in changes {
            match &change.after {
                Some(text) => self.write(&change.path, text),
                None => fs::remove_file(self.0.path().join(&change.path[1..])).unwrap(),
            }
        }
    }

    fn removed(&self, layout: Layout, main: &str, name: &str) -> Vec<Change> {
        let root = HostRoot::open(self.0.path()).unwrap();
        let loaded = load(&root, main).unwrap();
        let look = Look { root: &root, main, layout, major: None, loaded: &loaded, known: &[] };
        uninstall(&look, name, name).unwrap()
    }
}

/// One change, in which file, and the text after it.
fn only(changes: Vec<Change>) -> (String, String) {
    assert_eq!(changes.len(), 1, "{changes:?}");
    let change = changes.into_iter().next().unwrap();
    (change.path, change.after.unwrap())
}

fn says(text: &str, version: Version, handler: &str) -> bool {
    let document = parse("x", text).unwrap();
    let table = handler_table(&document, version, handler);
    table.and_then(|t| t.get("runtime_type")).and_then(|t| t.as_str()) == Some(PROGRAM)
}

/// N8: the version was found by looking for the letters `version = 3`.
#[test]
fn n8_the_version_is_what_the_file_says() {
    for (text, version) in [
        ("version=3\n", Version::V3),
        ("version  =  3", Version::V3),
        ("version = 4\n", Version::V4),
        ("# version = 3\nversion = 2\n", Version::V2),
        ("version = 2\n[x]\nversion = 3\n", Version::V2),
        ("xversion = 30\n", Version::V1),
        ("\u{feff}version = 2\r\n", Version::V2),
        ("'version' = 2", Version::V2),
    ] {
        let tree = Tree::of(&[(MAIN, text)]);
        let (path, after) = only(tree.plan(Layout::File, MAIN, None, "spin").unwrap());
        assert_eq!(path, MAIN);
        assert!(after.starts_with(text), "{after}");
        assert!(says(&after, version, "spin"), "{after}");
    }
    for text in ["version = 5\n", "version = \"2\"\n", "version = 2.0\n", "version = -1\n"] {
        let tree = Tree::of(&[(MAIN, text)]);
        let error = tree.plan(Layout::File, MAIN, None, "spin").unwrap_err();
        assert!(matches!(error, ConfigError::Version { .. }), "{error}");
    }
}

/// N9: containerd 1 reads a file without a version as version 1, where full names of plugins are not seen.
#[test]
fn n9_a_file_without_a_version_gets_the_table_of_version_1() {
    for text in ["", "[plugins]\n  [plugins.\"io.containerd.gc.v1.scheduler\"]\n"] {
        let tree = Tree::of(&[(MAIN, text)]);
        let (_, after) = only(tree.plan(Layout::File, MAIN, None, "spin").unwrap());
        assert!(after.contains("[plugins.cri.containerd.runtimes.spin]"), "{after}");
    }
}

/// N7: a name was found anywhere in the text, so `spin` was not added beside `spin-v2`.
#[test]
fn n7_only_the_very_table_counts() {
    let text = "version = 2\n# spin\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.spin-v2]\nruntime_type = \"spin\"\n";
    let tree = Tree::of(&[(MAIN, text)]);
    let (_, after) = only(tree.plan(Layout::File, MAIN, None, "spin").unwrap());
    assert!(says(&after, Version::V2, "spin"), "{after}");
    let taken = tree.plan(Layout::File, MAIN, None, "spin-v2").unwrap_err();
    assert!(matches!(taken, ConfigError::Taken { .. }), "{taken}");
}

#[test]
fn somebody_elses_table_is_left_alone_however_it_is_written() {
    for text in [
        "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd]\nruntimes.spin.runtime_type = \"x\"\n",
        "version = 2\nplugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.spin = { runtime_type = 'x' }\n",
    ] {
        let tree = Tree::of(&[(MAIN, text)]);
        let error = tree.plan(Layout::File, MAIN, None, "spin").unwrap_err();
        assert!(matches!(error, ConfigError::Taken { .. }), "{error}");
    }
    let inline =
        "version = 2\n[plugins]\n\"io.containerd.grpc.v1.cri\" = { sandbox_image = 'x' }\n";
    let error = Tree::of(&[(MAIN, inline)]).plan(Layout::File, MAIN, None, "spin").unwrap_err();
    assert!(matches!(error, ConfigError::CannotExtend { .. }), "{error}");
    let broken = Tree::of(&[(MAIN, "version = 2\n[plugins\n")]);
    let error = broken.plan(Layout::File, MAIN, None, "spin").unwrap_err();
    assert!(matches!(error, ConfigError::NotToml { .. }), "{error}");
}

/// containerd 1 forgets `runc` once a file names a runtime, and a node without it runs no pod at all.
#[test]
fn containerd_1_keeps_its_own_runtime() {
    let tree = Tree::of(&[(MAIN, "version = 2")]);
    let (_, after) = only(tree.plan(Layout::File, MAIN, Some(1), "spin").unwrap());
    assert!(after.contains("runtimes.runc]"), "{after}");
    // A second shim shares it, and it goes with the last of them.
    tree.write(MAIN, &after);
    let (_, both) = only(tree.plan(Layout::File, MAIN, Some(1), "other").unwrap());
    assert_eq!(both.matches("runtimes.runc]").count(), 1, "{both}");
    let one = remove(MAIN, &both, "spin").unwrap();
    assert!(one.contains("runtimes.runc]") && !one.contains("spin"), "{one}");
    assert_eq!(remove(MAIN, &one, "other").unwrap(), "version = 2");
    // containerd 2 keeps it, and where a file names one it is the file's business.
    let (_, two) = only(tree_of("version = 3").plan(Layout::File, MAIN, Some(2), "spin").unwrap());
    assert!(!two.contains("runc"), "{two}");
    let own = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n";
    let (_, own) = only(tree_of(own).plan(Layout::File, MAIN, Some(1), "spin").unwrap());
    assert_eq!(own.matches("runtimes.runc]").count(), 1, "{own}");
}

fn tree_of(text: &str) -> Tree {
    Tree::of(&[(MAIN, text)])
}

/// A drop-in is read only where the main file imports it, and merged only since containerd 2.
#[test]
fn a_dropin_is_used_where_it_is_imported_and_merged() {
    let text = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let (path, after) = only(tree_of(text).plan(Layout::File, MAIN, None, "spin").unwrap());
    assert_eq!(path, "/etc/containerd/conf.d/portolan-spin.toml");
    assert!(after.contains("version = 3\n") && says(&after, Version::V3, "spin"), "{after}");
    for (text, major) in [
        ("version = 3\n", None),
        ("version = 3\nimports = [\"/etc/containerd/conf.d/other.toml\"]\n", Some(2)),
        ("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", Some(1)),
        ("version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n", None),
    ] {
        let (path, _) = only(tree_of(text).plan(Layout::File, MAIN, major, "spin").unwrap());
        assert_eq!(path, MAIN, "{text}");
    }
    let relative = "version = 2\nimports = [\"./conf.d/*.toml\"]\n";
    let (path, after) = only(tree_of(relative).plan(Layout::File, MAIN, Some(2), "spin").unwrap());
    assert_eq!(path, "/etc/containerd/conf.d/portolan-spin.toml");
    assert!(says(&after, Version::V2, "spin"));
}

/// What is written by one name of a file would be taken for what is left over by the other, and taken away.
#[test]
fn a_directory_that_is_spelled_oddly_is_one_directory() {
    let text = "version = 3\nimports = [\"/etc/containerd//./conf.d/*.toml\"]\n";
    let tree = tree_of(text);
    let changes = tree.plan(Layout::File, MAIN, None, "spin").unwrap();
    tree.apply(&changes);
    assert_eq!(tree.plan(Layout::File, MAIN, None, "spin").unwrap(), []);
    let root = HostRoot::open(tree.0.path()).unwrap();
    let mut ahead = root.clone();
    let (path, after) = only(changes);
    assert_eq!(path, "/etc/containerd/conf.d/portolan-spin.toml");
    ahead.expect("/etc/containerd//conf.d/portolan-other.toml", Some(&after));
    let paths = |root| load(root, MAIN).unwrap().len();
    assert_eq!((paths(&root), paths(&ahead)), (2, 3), "also what is going to be there");
}

/// What a run that was killed removed for a shim comes back for that shim, and for no other.
#[test]
fn a_file_that_was_removed_for_a_shim_is_as_it_was() {
    let tree = tree_of("version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n");
    let (path, text) = only(tree.plan(Layout::File, MAIN, None, "spin").unwrap());
    let back = |model: Option<&str>, name| one_as_in(&path, None, model, name, name).unwrap();
    assert_eq!(back(Some(&text), "spin"), Some(text.clone()));
    assert_eq!(back(Some(&text), "other"), None);
    assert_eq!(back(None, "spin"), None);
    assert_eq!(back(Some("version = 3\n# a person's\n"), "spin"), None, "that was not us");
}

/// With containerd 1 an imported file replaces the plugin's whole table: a block elsewhere would be lost.
#[test]
fn containerd_1_is_told_in_the_file_whose_table_counts() {
    let imported = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"x\"\n";
    let tree = Tree::of(&[
        (MAIN, "version = 2\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"),
        ("/etc/containerd/conf.d/a.toml", imported),
    ]);
    let (path, after) = only(tree.plan(Layout::File, MAIN, Some(1), "spin").unwrap());
    assert_eq!(path, "/etc/containerd/conf.d/a.toml");
    assert!(says(&after, Version::V2, "spin"));
    let taken = Tree::of(&[
        (MAIN, "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n"),
        (
            "/etc/containerd/conf.d/z.toml",
            "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.spin]\n",
        ),
    ]);
    assert!(matches!(taken.plan(Layout::File, MAIN, None, "spin"), Err(ConfigError::Taken { .. })));
}

/// N10: the rendered file was copied to the template, which then never changed again.
#[test]
fn n10_rendered_configurations_are_extended_and_never_frozen() {
    let dir = "/var/lib/rancher/k3s/agent/etc/containerd";
    let main = &format!("{dir}/config.toml");
    for (rendered, template) in
        [("version = 2\n", "config.toml.tmpl"), ("version = 3\n", "config-v3.toml.tmpl")]
    {
        let tree = Tree::of(&[(main, rendered)]);
        let changes = tree.plan(Layout::Rendered, main, None, "spin").unwrap();
        let (path, after) = only(changes.clone());
        assert_eq!(path, format!("{dir}/{template}"));
        assert!(
            after.contains("{{ template \"base\" . }}") && !after.contains("version ="),
            "{after}"
        );
        tree.apply(&changes);
        let gone = tree.removed(Layout::Rendered, main, "spin");
        assert_eq!(gone, [Change { path, before: Some(after), after: None }]);
        // Somebody's own template is kept, and given back as it was.
        let own = "version = 2\n{{ range .x }}\n[a]\n{{ end }}";
        tree.write(&format!("{dir}/{template}"), own);
        let (_, after) = only(tree.plan(Layout::Rendered, main, None, "spin").unwrap());
        assert!(after.starts_with(own));
        assert_eq!(remove("x", &after, "spin").unwrap(), own);
    }
    let imports = format!("version = 3\nimports = [\"{dir}/config-v3.toml.d/*.toml\"]\n");
    let tree = Tree::of(&[(main, &imports)]);
    let (path, _) = only(tree.plan(Layout::Rendered, main, None, "spin").unwrap());
    assert_eq!(path, format!("{dir}/config-v3.toml.d/portolan-spin.toml"));
}

#[test]
fn a_file_that_is_not_ours_is_not_replaced() {
    let text = "version = 3\nimports = [\"/etc/containerd/conf.d/*.toml\"]\n";
    let tree =
        Tree::of(&[(MAIN, text), ("/etc/containerd/conf.d/portolan-spin.toml", "version = 3\n")]);
    assert!(matches!(
        tree.plan(Layout::File, MAIN, None, "spin"),
        Err(ConfigError::NotOurs { .. })
    ));
}

#[test]
fn two_shims_cannot_have_one_handler() {
    let tree = tree_of("version = 2\n");
    let changes = tree.plan(Layout::File, MAIN, None, "one").unwrap();
    tree.apply(&changes);
    let root = HostRoot::open(tree.0.path()).unwrap();
    let loaded = load(&root, MAIN).unwrap();
    let look = Look {
        root: &root,
        main: MAIN,
        layout: Layout::File,
        major: None,
        loaded: &loaded,
        known: &[],
    };
    let other = Wanted::new("two", Some("one"), None, Options::default()).unwrap();
    let error = install(&look, &other, PROGRAM).unwrap_err();
    assert!(
        matches!(&error, ConfigError::OthersHandler { other, .. } if other == "one"),
        "{error}"
    );
}

#[test]
fn options_and_odd_names_are_written_so_that_they_read_back() {
    let options = options(&[("SystemdCgroup", "true"), ("BinaryName", "\"/usr/bin/\\\"x\\\"\"")]);
    let entry = Entry { handler: "a.b", program: PROGRAM, options: &options };
    let text = add("x", "version = 2\r\n", "n", Version::V2, &entry, false).unwrap();
    let document = parse("x", &text).unwrap();
    let table = handler_table(&document, Version::V2, "a.b").unwrap();
    assert_eq!(table["options"]["SystemdCgroup"].as_bool(), Some(true));
    assert_eq!(table["options"]["BinaryName"].as_str(), Some("/usr/bin/\"x\""));
    assert_eq!(
        text.matches('\n').count(),
        text.matches("\r\n").count(),
        "as the file has its lines"
    );
}

/// Found by the fuzzer: with a line end of ours behind it, it was taken for half of one and went with the blocks.
#[test]
fn a_lone_carriage_return_at_the_end_stays() {
    let entry = Entry { handler: "x", program: PROGRAM, options: &Options::default() };
    for text in ["\r", "version = 2\r", "a\n\r", "a\r\nb\r"] {
        let one = add("f", text, "x", Version::V2, &entry, true).unwrap();
        let two = add("f", &one, "y", Version::V2, &entry, true).unwrap();
        let one = remove("f", &two, "x").unwrap();
        assert_eq!(remove("f", &one, "y").unwrap(), text, "{text:?}");
    }
}

#[test]
fn a_torn_block_is_told_and_left() {
    let entry = Entry { handler: "x", program: PROGRAM, options: &Options::default() };
    let text = add("f", "version = 2\n", "x", Version::V2, &entry, false).unwrap();
    let torn = text.replace("# portolan: end x\n", "");
    assert!(matches!(remove("f", &torn, "x"), Err(ConfigError::Torn { .. })));
}

/// What the checked-in configurations become, and that they become themselves again.
#[test]
fn every_fixture_is_given_back_as_it_was() {
    let mut seen = 0;
    for entry in fs::read_dir(fixtures().join("configs")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        let tree = tree_of(&text);
        let changes = tree.plan(Layout::File, MAIN, None, "spin-v1").unwrap();
        tree.apply(&changes);
        assert!(tree.plan(Layout::File, MAIN, None, "spin-v1").unwrap().is_empty(), "{path:?}");
        let back = tree.removed(Layout::File, MAIN, "spin-v1");
        for change in &back {
            let before = changes.iter().find(|c| c.path == change.path).unwrap();
            assert_eq!(change.after, before.before, "{path:?}");
        }
        assert_eq!(back.len(), changes.len(), "{path:?}");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
}

fn any_toml() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        Just("version = 2".to_owned()),
        Just("# a comment: portolan: begin".to_owned()),
        Just(String::new()),
        Just("[plugins.\"io.containerd.grpc.v1.cri\"]".to_owned()),
        Just("  sandbox_image = \"x\"".to_owned()),
        "[a-z]{1,6} = [0-9]{1,3}",
        Just("[other]".to_owned()),
    ];
    let end = prop_oneof![Just("\n"), Just("\r\n")];
    (proptest::collection::vec(line, 0..8), end, any::<bool>(), any::<bool>()).prop_map(
        |(lines, end, ended, bom)| {
            let text = lines.join(end) + if ended && !lines.is_empty() { end } else { "" };
            if bom { format!("\u{feff}{text}") } else { text }
        },
    )
}

/// A file without a version, with the tables of version 2: containerd 2 would keep one of two tables, drawn
/// anew at every start.
#[test]
fn a_file_without_a_version_keeps_one_name_for_a_plugin() {
    let full = "[plugins.\"io.containerd.grpc.v1.cri\"]\nx = 1\n";
    let tree = Tree::of(&[(MAIN, full)]);
    let changes = tree.plan(Layout::File, MAIN, Some(2), "spin").unwrap();
    let after = changes[0].after.clone().unwrap();
    assert!(after.contains("[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.spin]"));
    assert!(!after.contains("plugins.cri"), "{after}");
    for major in [None, Some(1)] {
        let refused = tree.plan(Layout::File, MAIN, major, "spin").unwrap_err();
        assert!(matches!(refused, ConfigError::Unversioned { .. }), "{refused}");
    }
    let both = Tree::of(&[(MAIN, &format!("{full}[plugins.cri]\nx = 1\n"))]);
    assert!(both.plan(Layout::File, MAIN, Some(2), "spin").is_err());
    // Somebody else's table is seen under either name.
    let theirs = format!(
        "[plugins.cri]\n{full}[plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.spin]\nruntime_type = \"x\"\n"
    );
    let theirs = Tree::of(&[(MAIN, &theirs)]);
    let refused = theirs.plan(Layout::File, MAIN, Some(2), "spin").unwrap_err();
    assert!(matches!(refused, ConfigError::Taken { .. }), "{refused}");
}

#[test]
fn the_runtimes_own_handlers_are_left_alone() {
    let plugin =
        "[plugins.\"io.containerd.grpc.v1.cri\".containerd]\ndefault_runtime_name = \"nvidia\"\n";
    let tree = Tree::of(&[(MAIN, &format!("version = 2\n{plugin}"))]);
    for name in ["runc", "nvidia"] {
        let refused = tree.plan(Layout::File, MAIN, None, name).unwrap_err();
        assert!(matches!(refused, ConfigError::BuiltIn { .. }), "{refused}");
    }
    // A shim of ours that somebody made the default can be brought up to date.
    let tree = Tree::of(&[(MAIN, "version = 2\n")]);
    tree.apply(&tree.plan(Layout::File, MAIN, None, "spin").unwrap());
    let text = fs::read_to_string(tree.0.path().join(&MAIN[1..])).unwrap();
    tree.write(MAIN, &format!("{text}{}", plugin.replace("nvidia", "spin")));
    assert!(tree.plan(Layout::File, MAIN, None, "spin").is_ok());
}

/// N13 in another place: on k3s and RKE2 the file is a template, and a program of its language.
#[test]
fn n13_options_cannot_inject_a_template() {
    let main = "/var/lib/rancher/k3s/agent/etc/containerd/config.toml";
    let tree = Tree::of(&[(main, "version = 2\n")]);
    let root = HostRoot::open(tree.0.path()).unwrap();
    let loaded = load(&root, main).unwrap();
    let layout = Layout::Rendered;
    let look = Look { root: &root, main, layout, major: None, loaded: &loaded, known: &[] };
    for (value, program, good) in [
        ("\"{{ range $x }}\"", PROGRAM, false),
        ("\"x\"", "/opt/{{.}}/x", false),
        ("{ a = { b = 1 }}", PROGRAM, true),
    ] {
        let wanted = Wanted::new("spin", None, None, options(&[("k", value)])).unwrap();
        let planned = install(&look, &wanted, program);
        assert_eq!(planned.is_ok(), good, "{value} {planned:?}");
    }
    // A file that is no template takes it as text.
    let tree = Tree::of(&[(MAIN, "version = 2\n")]);
    let root = HostRoot::open(tree.0.path()).unwrap();
    let loaded = load(&root, MAIN).unwrap();
    let (main, layout) = (MAIN, Layout::File);
    let look = Look { root: &root, main, layout, major: None, loaded: &loaded, known: &[] };
    let wanted = Wanted::new("spin", None, None, options(&[("k", "\"{{\"")])).unwrap();
    assert!(install(&look, &wanted, PROGRAM).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Adding and taking away in any order gives every byte back.
    #[test]
    fn removing_what_was_added_gives_the_file_back(
        text in any_toml(),
        default in any::<bool>(),
        order in Just(vec!["a", "b", "c"]).prop_shuffle(),
    ) {
        let options = options(&[("k", "true")]);
        let mut now = text.clone();
        for name in ["a", "b", "c"] {
            let entry = Entry { handler: name, program: PROGRAM, options: &options };
            now = add("f", &now, name, Version::V2, &entry, default).unwrap();
            // Again changes nothing.
            prop_assert_eq!(&add("f", &now, name, Version::V2, &entry, default).unwrap(), &now);
            prop_assert!(now.starts_with(&text));
        }
        for name in order {
            now = remove("f", &now, name).unwrap();
        }
        prop_assert_eq!(now, text);
    }

    /// Whatever a file says, what is planned for it parses, has the runtime, and keeps every foreign byte.
    #[test]
    fn a_plan_keeps_foreign_bytes_and_parses(text in any_toml()) {
        let tree = tree_of(&text);
        if let Ok(changes) = tree.plan(Layout::File, MAIN, None, "spin") {
            let (_, after) = only(changes);
            prop_assert!(after.starts_with(&text));
            let document = parse("x", &after).unwrap();
            let version = Version::of("x", &document).unwrap();
            prop_assert!(handler_table(&document, version, "spin").is_some());
        }
    }
}
