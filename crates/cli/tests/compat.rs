//! `portolan compat lint | show | check --spec`: what is in files, on the proposal's example and others.

mod support;

use std::path::{Path, PathBuf};

use support::{Said, run};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compat").join(name)
}

fn compat(command: &str, file: &Path, more: &[&str]) -> Said {
    let home = tempfile::tempdir().expect("a folder");
    let file = file.to_str().expect("a path in UTF-8");
    let args: Vec<&str> =
        ["compat", command, file].into_iter().chain(more.iter().copied()).collect();
    run(home.path(), &args)
}

/// A document in a file of its own.
fn written(text: &str) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("a folder");
    let file = dir.path().join("spec.json");
    std::fs::write(&file, text).expect("it can be written");
    (dir, file)
}

#[test]
fn lint_says_what_is_wrong_and_where() {
    let example = fixture("example.json");
    let said = compat("lint", &example, &[]);
    let text = said.ok();
    for part in [
        "example.json:2:3: warning W_SCHEMA_ALIAS:",
        "(did you mean schemaVersion?)",
        "example.json:12:9: warning W_MISPLACED_REFS:",
        "example.json:7:11: warning W_SOURCE_IGNORED:",
        "valid, with 3 warnings; 8 namespaces, beginning at kernelMainlineV5",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let strict = compat("lint", &example, &["--strict"]);
    assert_eq!(strict.code, 2);
    assert!(strict.out.contains("error W_MISPLACED_REFS"), "{}", strict.out);
    assert_eq!(compat("lint", &fixture("corrected.json"), &["--strict"]).code, 0);
}

#[test]
fn lint_is_for_programs_too() {
    let json = compat("lint", &fixture("example.json"), &["-o", "json"]).json();
    assert_eq!((&json["valid"], &json["roots"][0]), (&true.into(), &"kernelMainlineV5".into()));
    let first = &json["diagnostics"][0];
    assert_eq!(first["code"], "W_SCHEMA_ALIAS");
    assert_eq!((&first["line"], &first["column"]), (&2.into(), &3.into()));
    assert_eq!((&first["severity"], &first["path"]), (&"warning".into(), &"/schema".into()));
    assert_eq!(first["suggestion"], "schemaVersion");
}

#[test]
fn lint_refuses_what_means_nothing() {
    for (text, code) in [
        ("{", "E_JSON"),
        (r#"{"schemaVersion": "0.1.0", "namespaces": {"a": {"refs": {"all": ["a"]}}}}"#, "E_CYCLE"),
        (
            r#"{"schemaVersion": "0.1.0", "namespaces": {"a": {"refs": {"all": ["b"]}}}}"#,
            "E_DANGLING",
        ),
        (
            r#"{"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": {"kernelVersion": {"data": {"range": "[6,5]"}}}}}}"#,
            "E_DATA",
        ),
    ] {
        let (_dir, file) = written(text);
        let said = compat("lint", &file, &[]);
        assert_eq!(said.code, 2, "{text}");
        assert!(said.out.contains(code), "{text}: {}", said.out);
    }
    let missing = compat("lint", Path::new("no-such-file.json"), &[]);
    assert_eq!(missing.code, 4);
}

#[test]
fn a_hostile_document_does_not_play_with_the_terminal() {
    let (_dir, file) =
        written("{\"schemaVersion\": \"0.1.0\", \"namespaces\": {\"a\\u001b[2J\\u202e\": {}}}");
    for command in ["lint", "show"] {
        let said = compat(command, &file, &[]);
        assert_eq!(said.code, 2);
        let text = said.out + &said.err;
        assert!(!text.contains(['\u{1b}', '\u{202e}']), "{text:?}");
    }
}

#[test]
fn rules_are_read_before_they_are_shown_and_do_not_play_with_the_terminal() {
    let rules = "version: v1alpha1\ncompatibilities:\n- {description: \"x\u{202e}\", \
        rules: [{name: a, matchFeatures: [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]}]}\n";
    let (_dir, file) = written(rules);
    let text = compat("show", &file, &[]).ok();
    assert!(!text.contains('\u{202e}'), "{text:?}");
    assert!(text.contains("\\u{202e}"), "{text:?}");
    for wrong in [rules.replace("Exists", "Nonsense"), rules.replace('x', "\u{1b}]0;x\u{7}")] {
        let (_dir, file) = written(&wrong);
        let said = compat("show", &file, &[]);
        assert_eq!((said.code, said.out.as_str()), (2, ""), "{}", said.err);
    }
}

#[test]
fn no_data_plays_with_the_terminal_in_any_format() {
    const HOSTILE: [char; 4] = ['\u{7f}', '\u{9b}', '\u{202e}', '\u{1b}'];
    let (_dir, file) =
        written("{\"schemaVersion\": \"0.1.0\", \"namespaces\": {\"a\u{7f}\u{9b}\u{202e}\": {}}}");
    let said = compat("lint", &file, &["-o", "json"]);
    assert!(!said.out.contains(HOSTILE), "{:?}", said.out);
    let host = machine(&[("etc/os-release", "ID=a\u{7f}\u{9b}1m\u{202e}\u{1b}\n".as_bytes())]);
    let home = tempfile::tempdir().expect("a folder");
    let root = host.path().to_str().expect("UTF-8");
    for format in ["json", "yaml"] {
        let text = run(home.path(), &["host", "facts", "--host", root, "-o", format]).ok();
        assert!(!text.contains(HOSTILE), "{format}: {text:?}");
        // It is the same value for whoever reads it.
        let data: serde_json::Value = serde_yaml_ng::from_str(&text).expect("JSON is YAML");
        let read = data.to_string();
        assert!(read.contains("a\u{7f}\u{9b}1m\u{202e}"), "{format}: {read:?}");
    }
}

#[test]
fn rules_are_linted_too_and_must_hold_a_set() {
    let rules = "version: v1alpha1\ncompatibilities:\n- {rules: [{name: a, matchFeatures: \
        [{feature: cpu.cpuid, matchExpressions: {AVX: {op: Exists}}}]}]}\n";
    let (_dir, file) = written(rules);
    let said = compat("lint", &file, &[]);
    assert_eq!(said.code, 0, "{}{}", said.out, said.err);
    assert!(said.out.contains("rules of NFD"), "{}", said.out);
    assert_eq!(compat("lint", &file, &["-o", "json"]).json()["valid"], true);
    let (_dir, file) = written(&rules.replace("Exists", "Nonsense"));
    let said = compat("lint", &file, &[]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("Nonsense"), "{}", said.err);
    let (_dir, file) = written("version: v1alpha1\ncompatibilities: []\n");
    for command in ["lint", "show"] {
        let said = compat(command, &file, &[]);
        assert_eq!(said.code, 2);
        assert!(said.err.contains("one set of rules"), "{}", said.err);
    }
}

#[test]
fn a_file_that_is_not_there_is_no_image() {
    for name in ["nothere.json", "nothere.yaml", "./nothere"] {
        let said = compat("show", Path::new(name), &[]);
        assert_eq!(said.code, 4, "{}", said.err);
        assert!(said.err.contains(&format!("there is no file {name}")), "{}", said.err);
    }
}

#[test]
fn show_draws_what_is_asked_for() {
    let corrected = fixture("corrected.json");
    let tree = compat("show", &corrected, &[]).ok();
    assert!(tree.contains("├─ kernelVersion {\"range\":\"[5.0.0,5.15.0)\"}"), "{tree}");
    assert!(tree.contains("one of: gpuNVIDIA"), "{tree}");
    let dot = compat("show", &corrected, &["--graph", "dot"]).ok();
    assert!(dot.contains("\"gpu\" -> \"gpuIntel\" [style=dashed"), "{dot}");
    let svg = compat("show", &corrected, &["--graph", "svg"]).ok();
    assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"), "{svg}");
    assert_eq!(svg.matches("class=\"oneOf\"").count(), 4 + 1, "four arrows and the key");
}

/// A machine with these files.
fn machine(files: &[(&str, &[u8])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("a folder");
    for (path, bytes) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a folder");
        std::fs::write(path, bytes).expect("it can be written");
    }
    root
}

fn check(spec: &Path, host: &Path, more: &[&str]) -> Said {
    let home = tempfile::tempdir().expect("a folder");
    let (spec, host) = (spec.to_str().expect("UTF-8"), host.to_str().expect("UTF-8"));
    let args = ["compat", "check", "--spec", spec, "--host", host];
    run(home.path(), &[&args[..], more].concat())
}

#[test]
fn a_file_is_checked_strictly_where_that_is_asked_for() {
    let host = machine(&[
        ("proc/sys/kernel/osrelease", b"6.1.0\n"),
        ("boot/config-6.1.0", b"CONFIG_VFIO=y\n"),
    ]);
    let (_dir, needs) = written(
        r#"{"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": {"kernelConfiguration": {"data": {"VFIO": "m"}}}}}}"#,
    );
    let json = |said: &Said| serde_json::from_str::<serde_json::Value>(&said.out).expect("JSON");
    let lenient = check(&needs, host.path(), &["-o", "json"]);
    assert_eq!((lenient.code, &json(&lenient)["verdict"]), (0, &"compatible".into()));
    let strict = check(&needs, host.path(), &["-o", "json", "--strict"]);
    assert_eq!((strict.code, &json(&strict)["verdict"]), (1, &"incompatible".into()));
    // A spec with mistakes is no answer.
    let said = check(&fixture("example.json"), host.path(), &["--strict"]);
    assert_eq!(said.code, 2, "{}", said.out);
    assert!(said.err.contains("W_MISPLACED_REFS") && said.err.contains("12:9"), "{}", said.err);
    assert_eq!(check(&fixture("corrected.json"), host.path(), &["--strict"]).code, 1);
}

#[test]
fn what_is_shown_raw_is_what_was_written() {
    let text = "{\r\n\t\"schemaVersion\": \"0.1.0\",\r\n\t\"namespaces\": {\"\u{202e}\": {}}}\r\n";
    let (_dir, file) = written(text);
    assert_eq!(compat("show", &file, &["--raw"]).ok(), text);
}

/// Each file is something that no machine has in its place.
#[test]
fn a_hostile_tree_ends_in_an_answer() {
    let garbage: Vec<u8> = (0..=255).cycle().take(100_000).collect();
    let host = machine(&[
        ("proc/sys/kernel/ostype", b"Linux\n"),
        ("proc/sys/kernel/arch", b"x86_64\n"),
        ("proc/sys/kernel/osrelease", b"\x1b]0;owned\x07\xff\n"),
        ("proc/modules", &garbage),
        ("proc/config.gz", b"\x1f\x8b\x08\x00garbage"),
        ("proc/swaps", &garbage),
        ("sys/module/vfio", b"no directory"),
        ("etc/os-release", &garbage),
        ("sys/bus/usb/devices", b"no directory"),
    ]);
    let root = host.path();
    for directory in ["proc/cmdline", "proc/meminfo", "sys/fs/selinux/enforce"] {
        std::fs::create_dir_all(root.join(directory)).expect("a folder");
    }
    std::os::unix::fs::symlink("loop", root.join("sys/block")).expect("a link");
    std::os::unix::fs::symlink("block", root.join("sys/loop")).expect("a link");
    std::os::unix::fs::symlink("/proc", root.join("sys/class")).expect("a link");
    let _socket =
        std::os::unix::net::UnixListener::bind(root.join("proc/cpuinfo")).expect("a socket");
    let huge = std::fs::File::create(root.join("proc/version")).expect("a file");
    huge.set_len(1 << 40).expect("a file full of holes");
    let home = tempfile::tempdir().expect("a folder");
    for format in ["table", "json", "yaml"] {
        let args = ["host", "facts", "--host", root.to_str().expect("UTF-8"), "-o", format];
        let said = run(home.path(), &args);
        let text = said.ok();
        assert!(!text.contains(['\u{1b}', '\u{7}']), "{format}: {text:?}");
    }
    for spec in ["avx2-vfio.json", "example.json", "corrected.json"] {
        for format in ["table", "json", "dot"] {
            let said = check(&fixture(spec), root, &["-o", format]);
            assert!(matches!(said.code, 1 | 3), "{spec}: {} {}", said.code, said.err);
            assert!(!said.out.contains(['\u{1b}', '\u{7}']), "{spec}: {:?}", said.out);
        }
    }
}

/// The host of the guide lacks a module, and has the wrong maker for one of two alternatives.
#[test]
fn a_matrix_says_what_decided_on_the_guides_example() {
    let home = tempfile::tempdir().expect("a folder");
    let record = |host: &str| {
        let root = fixture("../hosts").join(host);
        let root = root.to_str().expect("UTF-8");
        let args = ["host", "facts", "--host", root, "-o", "json", "--include-cmdline"];
        let file = home.path().join(format!("{host}'s.json"));
        std::fs::write(&file, run(home.path(), &args).ok()).expect("it can be written");
        file.to_str().expect("UTF-8").to_owned()
    };
    let (poor, fits) = (record("x86-v4"), record("x86-v3"));
    let spec = fixture("avx2-vfio.json");
    let spec = spec.to_str().expect("UTF-8");
    let args = ["compat", "check", "--spec", spec];
    let hosts = ["--facts", &poor, "--facts", &fits, "--facts", &poor];
    let said = run(home.path(), &[&args[..], &hosts].concat());
    assert_eq!(said.code, 1, "{}", said.err);
    let rows: Vec<_> = said.out.lines().skip(1).take(3).collect();
    for (row, host, verdict) in [
        (rows[0], &poor, "incompatible"),
        (rows[1], &fits, "compatible"),
        (rows[2], &poor, "incompatible"),
    ] {
        let words: Vec<_> = row.split_whitespace().collect();
        assert_eq!(words, [host.as_str(), verdict], "{}", said.out);
    }
    let why = format!("{poor}, {spec}: module vfio-pci is on disk and not loaded");
    assert_eq!(said.out.lines().filter(|line| **line == why).count(), 2, "{}", said.out);
    assert!(!said.out.contains("maker"), "{}", said.out);
}
