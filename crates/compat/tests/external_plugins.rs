//! External plugins from a spec to an answer: policy, providers, protocol. Every plugin is a real
//! process, every server a real one on loopback.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod external;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use futures_util::future::BoxFuture;
use portolan_compat::artifact::PluginLayer;
use portolan_compat::check::{Options, check};
use portolan_compat::document::{Mode, read};
use portolan_compat::evaluate::Answer;
use portolan_compat::external::{self as plugins, Fetch, FetchError, Origin, Settings, policy};
use portolan_compat::plugins::{External as _, Manner, builtin};
use portolan_compat::{Spec, Verdict};
use portolan_core::{Descriptor, Digest};
use portolan_host::facts::Facts;
use portolan_registry::client::{Client, CredentialStore};
use portolan_registry::images::Place;
use portolan_registry::layout::Layout;
use serde_json::{Value, json};
use url::Url;

use crate::external::{runner, skip};

/// A fetch that has what it is given, and notes what it is asked.
#[derive(Default)]
struct Shelf {
    has: Vec<(String, Vec<u8>)>,
    asked: Mutex<Vec<String>>,
}

impl Fetch for Shelf {
    fn fetch<'a>(&'a self, url: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        self.asked.lock().unwrap().push(url.to_string());
        let found = self.has.iter().find(|(known, _)| known == url.as_str());
        let found = found.map(|(_, bytes)| bytes.clone());
        let missing = FetchError::Status { host: "shelf".to_owned(), status: 404 };
        Box::pin(async move { found.ok_or(missing) })
    }
}

/// A directory of plugins, a policy and a host.
struct Bench {
    dir: tempfile::TempDir,
    policy: Option<Value>,
    origin: Origin,
    shelf: Shelf,
    offline: bool,
    facts: Facts,
}

impl Bench {
    fn new(rules: Value) -> Self {
        let dir = tempfile::tempdir().unwrap();
        chmod(dir.path(), 0o755);
        Self {
            dir,
            policy: Some(json!({"version": 1, "rules": rules})),
            origin: Origin::default(),
            shelf: Shelf::default(),
            offline: false,
            facts: Facts::builder()
                .attribute("kernel.version", "full", "6.1.0")
                .flag("kernel.loadedmodule", "vfio")
                .cmdline("secret=hunter2 quiet")
                .build(),
        }
    }

    /// Everything installed may run.
    fn open() -> Self {
        Self::new(json!([{"providers": ["directory"], "plugins": ["*"], "timeoutSeconds": 60}]))
    }

    fn install(&self, below: &str, name: &str, program: &[u8]) -> PathBuf {
        let mut dir = self.dir.path().to_owned();
        for step in below.split('/') {
            dir.push(step);
            fs::create_dir_all(&dir).unwrap();
            chmod(&dir, 0o755);
        }
        let path = dir.join(name);
        fs::write(&path, program).unwrap();
        chmod(&path, 0o755);
        path
    }

    fn settings(&self) -> Settings {
        let policy = self.policy.as_ref();
        Settings {
            policy: policy.map(|policy| policy::parse(policy.to_string().as_bytes()).unwrap()),
            policy_path: "/etc/policy.json".into(),
            directory: self.dir.path().to_owned(),
            offline: self.offline,
            platform: here(),
            runner: runner(),
        }
    }

    /// All answers of a spec with these namespaces, by `namespace/plugin`.
    fn ask(&self, namespaces: &Value) -> Vec<(String, Answer)> {
        let spec = spec(namespaces);
        let client = Client::new(Default::default(), CredentialStore::anonymous()).unwrap();
        let settings = self.settings();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found =
            runtime.block_on(plugins::find(&spec, &self.origin, &settings, &self.shelf, &client));
        let mut externals = found.describe(Manner::default());
        externals.about(Some("/"));
        let mut answers = Vec::new();
        for (_, namespace) in spec.namespaces() {
            for plugin in namespace.plugins.iter().filter(|one| !builtin::is(&one.name)) {
                let answer = externals.ask(&namespace.name, plugin, &self.facts);
                answers.push((format!("{}/{}", namespace.name, plugin.name), answer));
            }
        }
        answers
    }

    /// What takes the place of the built-in plugin of a spec, if anything does.
    fn overridden(&self, namespaces: &Value) -> Option<Answer> {
        let spec = spec(namespaces);
        let client = Client::new(Default::default(), CredentialStore::anonymous()).unwrap();
        let settings = self.settings();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let found =
            runtime.block_on(plugins::find(&spec, &self.origin, &settings, &self.shelf, &client));
        let mut externals = found.describe(Manner::default());
        externals.about(None);
        let (_, namespace) = spec.namespaces().next().unwrap();
        let plugin = &namespace.plugins[0];
        // As a check sees it, too.
        let report = check(&spec, &self.facts, &Options::default(), &mut externals).unwrap();
        let report = serde_json::to_value(&report).unwrap();
        let provider = &report["namespaces"]["n"]["plugins"][&plugin.name]["provider"];
        let overrides = externals.overrides("n", plugin);
        assert_eq!(overrides, provider != "built-in", "{report:#}");
        overrides.then(|| externals.ask("n", plugin, &self.facts))
    }

    /// The answer of the only plugin, called `x`.
    fn ask_x(&self, plugin: &Value) -> Answer {
        self.ask(&json!({"n": {"plugins": {"x": plugin}}})).remove(0).1
    }
}

fn here() -> portolan_core::Platform {
    portolan_host::Host::here().unwrap().platform().unwrap().platform
}

fn chmod(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

fn spec(namespaces: &Value) -> Spec {
    let text = json!({"schemaVersion": "0.1.0", "namespaces": namespaces}).to_string();
    let found = read(text.as_bytes(), Mode::Lenient);
    found.spec.unwrap_or_else(|| panic!("{:?}", found.diagnostics))
}

/// The code of the first reason, with its text for when the test fails.
fn code(answer: &Answer) -> (&str, &str) {
    answer
        .reasons
        .first()
        .map_or(("", ""), |reason| (reason.code.as_ref(), reason.message.as_str()))
}

fn cage_is_missing(answer: &Answer) -> bool {
    let (code, why) = code(answer);
    if code == "E_SANDBOX" {
        skip::skip(why);
    }
    code == "E_SANDBOX"
}

#[track_caller]
fn assert_unknown(answer: &Answer, expected: &str) {
    assert_eq!(
        (answer.verdict, code(answer).0),
        (Verdict::Unknown, expected),
        "{}",
        code(answer).1
    );
}

#[test]
fn without_a_policy_nothing_runs_and_nothing_is_fetched() {
    let path = need_naughty!();
    let mut bench = Bench::open();
    bench.policy = None;
    bench.install("plugins", "x", &fs::read(path).unwrap());
    let pinned = format!("https://h.example/x#{}", Digest::sha256(b"x"));
    let answer = bench.ask_x(&json!({"source": pinned, "data": {"mode": "pass"}}));
    assert_unknown(&answer, "E_PLUGIN_POLICY");
    assert!(code(&answer).1.contains("/etc/policy.json"), "{}", code(&answer).1);
    assert!(bench.shelf.asked.lock().unwrap().is_empty());
}

#[test]
fn a_plugin_says_yes_no_or_that_it_cannot_tell() {
    let path = need_naughty!();
    let bench = Bench::open();
    bench.install("plugins", "x", &fs::read(path).unwrap());
    for (mode, expected) in
        [("pass", Verdict::Pass), ("fail", Verdict::Fail), ("unknown", Verdict::Unknown)]
    {
        let answer = bench.ask_x(&json!({"data": {"mode": mode}}));
        if cage_is_missing(&answer) {
            return;
        }
        assert_eq!(answer.verdict, expected, "{}", code(&answer).1);
        assert_eq!(code(&answer), ("SAID", "so it is"));
        assert_eq!(answer.provider, "directory");
        assert_eq!(answer.digest, Some(Digest::sha256(&fs::read(path).unwrap()).to_string()));
        assert!(answer.duration_ms.is_some());
        assert!(answer.sandbox.contains(&"seccomp".to_owned()), "{:?}", answer.sandbox);
    }
}

#[test]
fn every_malfunction_is_unknown_with_its_code() {
    let path = need_naughty!();
    // Short only where the time is what is tested: this machine may be busy.
    let short = json!([{"providers": ["directory"], "plugins": ["*"], "timeoutSeconds": 1}]);
    let (patient, impatient) = (Bench::open(), Bench::new(short));
    for bench in [&patient, &impatient] {
        bench.install("plugins", "x", &fs::read(path).unwrap());
    }
    for (mode, expected) in [
        ("hang", "E_PLUGIN_TIMEOUT"),
        ("flood", "E_PLUGIN_FLOOD"),
        ("flood-stderr-endless", "E_PLUGIN_TIMEOUT"),
        ("exit", "E_PLUGIN_EXIT"),
        ("garbage", "E_PLUGIN_ANSWER"),
        ("nothing", "E_PLUGIN_ANSWER"),
        ("disagree", "E_PLUGIN_ANSWER"),
        ("old", "E_PLUGIN_ANSWER"),
        ("twice", "E_PLUGIN_ANSWER"),
        ("deep", "E_PLUGIN_ANSWER"),
        ("deep-objects", "E_PLUGIN_ANSWER"),
        ("signal", "E_PLUGIN_SIGNAL"),
        ("describe-garbage", "E_PLUGIN_ANSWER"),
        ("describe-fails", "E_PLUGIN_EXIT"),
        ("no-such-mode", "E_PLUGIN_EXIT"),
    ] {
        let bench = if expected == "E_PLUGIN_TIMEOUT" { &impatient } else { &patient };
        let answer = bench.ask_x(&json!({"data": {"mode": mode}}));
        if cage_is_missing(&answer) {
            return;
        }
        assert_unknown(&answer, expected);
        let text = code(&answer).1;
        assert!(!text.chars().any(char::is_control), "{mode}: {text:?}");
    }
}

#[test]
fn what_a_plugin_says_steers_no_terminal() {
    let path = need_naughty!();
    let bench = Bench::open();
    bench.install("plugins", "x", &fs::read(path).unwrap());
    let answer = bench.ask_x(&json!({"data": {"mode": "escape"}}));
    if !cage_is_missing(&answer) {
        let text = code(&answer).1;
        assert_eq!(text, "\\u{1b}[31mred\\u{7} \\u{202e}desrever");
    }
}

#[test]
fn a_plugin_sees_the_facts_it_declared_and_no_others() {
    let path = need_naughty!();
    let bench = Bench::open();
    bench.install("plugins", "x", &fs::read(path).unwrap());
    let answer = bench.ask_x(&json!({"data": {"mode": "echo", "wants": "kernel.loadedmodule"}}));
    if cage_is_missing(&answer) {
        return;
    }
    let given = code(&answer).1;
    assert!(given.contains("vfio"), "{given}");
    assert!(!given.contains("6.1.0") && !given.contains("hunter2"), "{given}");
    // Its rule says nothing of files, so it is told of no root.
    assert!(given.contains("\"root\":null"), "{given}");
    let answer = bench.ask_x(&json!({"data": {"mode": "echo", "wants": "kernel.cmdline"}}));
    assert_unknown(&answer, "E_PLUGIN_ANSWER");
}

#[test]
fn facts_that_one_plugin_returns_are_given_to_those_that_come_after_it() {
    let path = need_naughty!();
    let bench = Bench::open();
    for name in ["early", "late"] {
        bench.install("plugins", name, &fs::read(path).unwrap());
    }
    // By name "a" would come first; it waits for the other all the same.
    let answers = bench.ask(&json!({
        "a": {"plugins": {"late": {"data": {"mode": "echo", "wants": "plugin/early"}}}},
        "b": {"plugins": {"early": {"data": {"mode": "facts"}}}},
    }));
    if cage_is_missing(&answers[0].1) {
        return;
    }
    let given = code(&answers[0].1).1;
    assert!(given.contains(r#""plugin/early/b/own":{"elements":{"answer":"42"}}"#), "{given}");
    assert_eq!(answers[1].1.verdict, Verdict::Pass);

    let answers = bench.ask(&json!({
        "a": {"plugins": {"late": {"data": {"mode": "pass", "wants": "plugin/early"}}}},
        "b": {"plugins": {"early": {"data": {"mode": "pass", "wants": "plugin/late"}}}},
    }));
    for (name, answer) in &answers {
        assert_eq!(code(answer).0, "E_PLUGIN_CYCLE", "{name}");
        assert!(
            code(answer).1.contains("early -> late -> early")
                || code(answer).1.contains("late -> early -> late")
        );
    }
}

#[test]
fn the_artifacts_layer_comes_before_directories_and_those_before_the_source() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    // Programs that differ in nothing but their digest.
    let variant = |mark: &str| [program.as_slice(), mark.as_bytes()].concat();
    let (layer, own, generic, http) =
        (variant("layer"), variant("own"), variant("generic"), variant("http"));
    let mut bench = Bench::new(json!([
        {"providers": ["layer", "directory", "http"], "plugins": ["x"], "timeoutSeconds": 60},
    ]));
    let artifact = Digest::sha256(b"artifact");
    let store = tempfile::tempdir().unwrap();
    let layout = Layout::create(store.path()).unwrap();
    let named = Descriptor::of("application/vnd.oci.image-compatibility.plugin.v1", &layer);
    let blobs = store.path().join("blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    fs::write(blobs.join(named.digest.hex()), &layer).unwrap();
    bench.origin = Origin {
        repository: Some("r.example/team/app".to_owned()),
        artifact: Some(artifact),
        plugins: vec![PluginLayer {
            name: "x".to_owned(),
            platform: Some(here()),
            wasm: false,
            layer: named,
        }],
        place: Some(Place::Layout(layout)),
    };
    let own_path = bench.install(&format!("sha256-{}/plugins", artifact.hex()), "x", &own);
    let generic_path = bench.install("plugins", "x", &generic);
    let url = "https://h.example/x";
    bench.shelf.has.push((url.to_owned(), http.clone()));
    let asked = json!({
        "data": {"mode": "pass"}, "source": format!("{url}#{}", Digest::sha256(&http)),
    });
    let expect = |bench: &Bench, provider: &str, program: &[u8]| -> bool {
        let answer = bench.ask_x(&asked);
        if cage_is_missing(&answer) {
            return false;
        }
        assert_eq!(answer.verdict, Verdict::Pass, "{}", code(&answer).1);
        assert_eq!(answer.provider, provider);
        assert_eq!(answer.digest, Some(Digest::sha256(program).to_string()), "{provider}");
        true
    };
    if !expect(&bench, "layer", &layer) {
        return;
    }
    bench.origin.plugins.clear();
    expect(&bench, "directory", &own);
    fs::remove_file(own_path).unwrap();
    expect(&bench, "directory", &generic);
    fs::remove_file(generic_path).unwrap();
    expect(&bench, "http", &http);
    assert_eq!(*bench.shelf.asked.lock().unwrap(), [url], "only when it was its turn");
    // Kept by digest: not fetched a second time, and not in a directory that users install to.
    bench.offline = true;
    expect(&bench, "http", &http);
    assert_eq!(bench.shelf.asked.lock().unwrap().len(), 1);
    fs::remove_dir_all(bench.dir.path().join("blobs")).unwrap();
    assert_unknown(&bench.ask_x(&asked), "E_PLUGIN_FETCH");
}

#[test]
fn nobody_provides_it_or_the_policy_forbids_it() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let answer = Bench::open().ask_x(&json!({}));
    assert_unknown(&answer, "E_PLUGIN_NOT_FOUND");

    let bench = Bench::new(json!([{"providers": ["directory"], "plugins": ["y"]}]));
    bench.install("plugins", "x", &program);
    assert_unknown(&bench.ask_x(&json!({"data": {"mode": "pass"}})), "E_PLUGIN_POLICY");

    let other = Digest::sha256(b"another").to_string();
    let bench = Bench::new(json!([{"providers": ["directory"], "digests": [other]}]));
    bench.install("plugins", "x", &program);
    assert_unknown(&bench.ask_x(&json!({"data": {"mode": "pass"}})), "E_PLUGIN_POLICY");
}

#[test]
fn a_spec_cannot_widen_the_policy() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let mut bench = Bench::new(json!([{"providers": ["directory"], "plugins": ["x"]}]));
    let url = "https://h.example/x";
    bench.shelf.has.push((url.to_owned(), program.clone()));
    let source = format!("{url}#{}", Digest::sha256(&program));
    let answer = bench.ask_x(&json!({"source": source, "data": {"mode": "pass"}}));
    assert_unknown(&answer, "E_PLUGIN_POLICY");
    assert!(bench.shelf.asked.lock().unwrap().is_empty(), "not even asked for");
}

#[test]
fn what_is_not_the_pinned_digest_does_not_run() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let pinned = Digest::sha256(b"another").to_string();
    let bench = Bench::open();
    bench.install("plugins", "x", &program);
    let answer = bench.ask_x(&json!({"digest": pinned, "data": {"mode": "pass"}}));
    assert_unknown(&answer, "E_PLUGIN_DIGEST");

    let mut bench = Bench::new(json!([{"providers": ["http"], "plugins": ["x"]}]));
    let url = "https://h.example/x";
    bench.shelf.has.push((url.to_owned(), program));
    let answer =
        bench.ask_x(&json!({"source": format!("{url}#{pinned}"), "data": {"mode": "pass"}}));
    assert_unknown(&answer, "E_PLUGIN_DIGEST");
    assert!(!bench.dir.path().join("blobs").exists(), "and is not kept");
    let elsewhere = json!({"source": url, "digest": {"plan9/386": pinned}});
    assert_unknown(&bench.ask_x(&elsewhere), "E_PLUGIN_SOURCE");
}

#[test]
fn a_plugin_that_is_replaced_after_its_digest_was_checked_is_not_what_runs() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let bench = Bench::open();
    let installed = bench.install("plugins", "x", &program);
    let spec = spec(&json!({"n": {"plugins": {"x": {"data": {"mode": "pass"}}}}}));
    let client = Client::new(Default::default(), CredentialStore::anonymous()).unwrap();
    let settings = bench.settings();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let found =
        runtime.block_on(plugins::find(&spec, &bench.origin, &settings, &bench.shelf, &client));
    // In place and by name; neither reaches what was hashed.
    fs::write(&installed, b"#!/bin/sh\nexit 1\n").unwrap();
    fs::remove_file(&installed).unwrap();
    fs::write(&installed, b"#!/bin/sh\nexit 1\n").unwrap();
    let mut externals = found.describe(Manner::default());
    let (_, namespace) = spec.namespaces().next().unwrap();
    let answer = externals.ask("n", &namespace.plugins[0], &bench.facts);
    if cage_is_missing(&answer) {
        return;
    }
    assert_eq!(answer.verdict, Verdict::Pass, "{}", code(&answer).1);
    assert_eq!(answer.digest, Some(Digest::sha256(&program).to_string()));
}

#[test]
fn what_is_no_program_for_this_machine_is_not_started() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let bench = Bench::open();
    // The processor family in the header: one that nothing here runs.
    let mut foreign = program.clone();
    let other: [u8; 2] = if foreign[18] == 22 { [62, 0] } else { [22, 0] };
    foreign[18..20].copy_from_slice(&other);
    for (bytes, expected) in [
        (b"#!/bin/sh\nexit 0\n".to_vec(), "a script"),
        (b"\0asm\x01\0\0\0".to_vec(), "WebAssembly"),
        (Vec::new(), "an empty file"),
        (program[..10].to_vec(), "something else"),
        (foreign, "this machine runs"),
    ] {
        bench.install("plugins", "x", &bytes);
        let answer = bench.ask_x(&json!({"data": {"mode": "pass"}}));
        assert_unknown(&answer, "E_PLUGIN_PROGRAM");
        assert!(code(&answer).1.contains(expected), "{}", code(&answer).1);
    }
}

#[test]
fn a_linked_plugin_and_a_directory_open_to_all_are_not_used() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let bench = Bench::open();
    let installed = bench.install("plugins", "real", &program);
    std::os::unix::fs::symlink(&installed, installed.with_file_name("x")).unwrap();
    let asked = json!({"data": {"mode": "pass"}});
    assert_unknown(&bench.ask_x(&asked), "E_PLUGIN_UNTRUSTED");
    fs::remove_file(installed.with_file_name("x")).unwrap();
    let installed = bench.install("plugins", "x", &program);
    chmod(installed.parent().unwrap(), 0o777);
    assert_unknown(&bench.ask_x(&asked), "E_PLUGIN_UNTRUSTED");
}

/// Numbers that no machine holds are read over like any other field that means nothing.
#[test]
fn numbers_without_end_are_no_answer_and_no_harm() {
    let path = need_naughty!();
    let bench = Bench::open();
    bench.install("plugins", "x", &fs::read(path).unwrap());
    for mode in ["number", "digits"] {
        let answer = bench.ask_x(&json!({"data": {"mode": mode}}));
        if cage_is_missing(&answer) {
            return;
        }
        assert_unknown(&answer, "E_PLUGIN_ANSWER");
    }
}

/// B15: a source beside the name of a built-in plugin counts where a rule says `overrides`.
#[test]
fn a_built_in_plugin_is_replaced_only_where_the_policy_says_so() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let url = "https://h.example/kernelVersion";
    let asked = json!({"n": {"plugins": {"kernelVersion": {
        "source": format!("{url}#{}", Digest::sha256(&program)),
        "data": {"range": "[5.0,)", "mode": "fail"},
    }}}});
    let plain = json!({"n": {"plugins": {"kernelVersion": {"data": {"range": "[5.0,)"}}}}});
    let bench = |rule: Value| {
        let mut bench = Bench::new(json!([rule]));
        bench.shelf.has.push((url.to_owned(), program.clone()));
        bench
    };
    let open = bench(json!({"providers": ["http"], "plugins": ["*"]}));
    assert_eq!(open.overridden(&asked), None, "no rule says so");
    assert!(open.shelf.asked.lock().unwrap().is_empty());
    let other =
        bench(json!({"providers": ["http"], "plugins": ["kernelVersion"], "overrides": true,
        "digests": [Digest::sha256(b"another").to_string()]}));
    assert_eq!(other.overridden(&asked), None, "another program may");
    let rule = json!({"providers": ["http"], "plugins": ["kernelVersion"], "overrides": true, "timeoutSeconds": 60});
    let allowed = bench(rule.clone());
    assert_eq!(allowed.overridden(&plain), None, "the spec names no source");
    let answer = allowed.overridden(&asked).expect("it takes the built-in's place");
    if cage_is_missing(&answer) {
        return;
    }
    assert_eq!((answer.verdict, answer.provider.as_str()), (Verdict::Fail, "http"));
    // What may take its place and cannot be had leaves the answer open.
    let mut gone = bench(rule);
    gone.shelf.has.clear();
    assert_unknown(&gone.overridden(&asked).expect("it was to"), "E_PLUGIN_FETCH");
}

#[test]
fn programs_that_would_fill_the_memory_are_not_kept() {
    let path = need_naughty!();
    let program = fs::read(path).unwrap();
    let bench = Bench::open();
    // Nothing but zeros behind the program: a file with holes, and as much memory as any.
    for n in 0..5 {
        let installed = bench.install("plugins", &format!("x{n}"), &program);
        let file = fs::OpenOptions::new().write(true).open(&installed).unwrap();
        file.set_len(plugins::MAX_PROGRAM).unwrap();
    }
    let plugin = json!({"data": {"mode": "pass"}});
    let all: serde_json::Map<String, Value> =
        (0..5).map(|n| (format!("x{n}"), plugin.clone())).collect();
    let answers = bench.ask(&json!({"n": {"plugins": all}}));
    if cage_is_missing(&answers[0].1) {
        return;
    }
    for (name, answer) in &answers[..4] {
        assert_eq!(answer.verdict, Verdict::Pass, "{name}: {}", code(answer).1);
    }
    assert_unknown(&answers[4].1, "E_PLUGIN_LIMIT");
}

/// A fetch that never ends.
struct Never;

impl Fetch for Never {
    fn fetch<'a>(&'a self, _: &'a Url) -> BoxFuture<'a, Result<Vec<u8>, FetchError>> {
        Box::pin(std::future::pending())
    }
}

/// A hundred sources that each take their time have no more of it together than one check has.
#[test]
fn looking_for_plugins_has_an_end() {
    let bench = Bench::new(json!([{"providers": ["http"], "plugins": ["*"]}]));
    let plugins: serde_json::Map<String, Value> = (0..100)
        .map(|n| {
            let source = format!("https://h.example/{n}#{}", Digest::sha256(b"x"));
            (format!("x{n:02}"), json!({"source": source}))
        })
        .collect();
    let spec = spec(&json!({"n": {"plugins": plugins}}));
    let client = Client::new(Default::default(), CredentialStore::anonymous()).unwrap();
    let settings = bench.settings();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        // Time passes as soon as everybody waits.
        .start_paused(true)
        .build()
        .unwrap();
    let found = runtime.block_on(plugins::find(&spec, &bench.origin, &settings, &Never, &client));
    let mut externals = found.describe(Manner::default());
    let (_, namespace) = spec.namespaces().next().unwrap();
    for plugin in &namespace.plugins {
        assert_unknown(&externals.ask("n", plugin, &bench.facts), "E_PLUGIN_TIMEOUT");
    }
}

/// Ten thousand plugins cost no more than a hundred.
#[test]
fn too_many_questions_are_not_asked() {
    let bench = Bench::open();
    let many: serde_json::Map<String, Value> =
        (0..10).map(|n| (format!("x{n}"), json!({"data": {"mode": "pass"}}))).collect();
    let namespaces: serde_json::Map<String, Value> =
        (0..1000).map(|n| (format!("n{n:03}"), json!({"plugins": many}))).collect();
    let answers = bench.ask(&Value::Object(namespaces));
    assert_eq!(answers.len(), 10_000);
    for (n, (name, answer)) in answers.iter().enumerate() {
        let expected =
            if n < plugins::MAX_QUESTIONS { "E_PLUGIN_NOT_FOUND" } else { "E_PLUGIN_LIMIT" };
        assert_eq!(code(answer).0, expected, "{name}");
    }
}
