//! What a program can and cannot do in its cage: each test is a real process.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod external;

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use portolan_compat::external::policy::Grant;
use portolan_compat::external::sandbox::{Layer, Limits, Strictness};
use portolan_compat::external::{Finished, Malfunction, Program, Runner};
use serde_json::{Value, json};

use crate::external::{runner, skip};

const GRANT: Grant = Grant { files: false, libraries: false, timeout_seconds: 60 };

fn program(path: &Path) -> Program {
    Program::read(File::open(path).expect("it was built")).expect("it is for this machine")
}

fn run_with(path: &Path, data: &Value, grant: &Grant) -> Result<Finished, Malfunction> {
    let program = program(path);
    runner().run(&program, "naughty", "check", json!({"data": data}).to_string().as_bytes(), grant)
}

/// Where this kernel cannot build the cage, there is nothing to test.
fn cage_is_missing(outcome: &Result<Finished, Malfunction>) -> bool {
    if let Err(Malfunction::Sandbox { why, .. }) = outcome {
        skip::skip(why);
        return true;
    }
    false
}

/// The result and the message of what it tried.
fn said(finished: &Finished) -> (String, String) {
    let text = String::from_utf8_lossy(&finished.stdout);
    let answer: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    (text(&answer["result"]), text(&answer["reasons"][0]["message"]))
}

/// Each of these tries something, and passes if it was refused.
fn all_pass(modes: &[Value], grant: &Grant) {
    let path = need_naughty!();
    for data in modes {
        let outcome = run_with(path, data, grant);
        if cage_is_missing(&outcome) {
            return;
        }
        let finished = outcome.unwrap_or_else(|error| panic!("{data}: {}", error.describe()));
        let (result, message) = said(&finished);
        assert_eq!((result.as_str(), finished.code), ("pass", 0), "{data}: {message}");
    }
}

#[test]
fn a_plugin_answers_and_every_needed_layer_holds_it() {
    let path = need_naughty!();
    let outcome = run_with(path, &json!({"mode": "fail"}), &GRANT);
    if cage_is_missing(&outcome) {
        return;
    }
    let finished = outcome.unwrap();
    assert_eq!(finished.code, 1);
    assert_eq!(said(&finished).1, "so it is");
    for layer in Layer::NEEDED {
        assert!(finished.layers.contains(&layer), "{layer} of {:?}", finished.layers);
    }
}

/// Else the tests below would prove nothing.
#[test]
fn outside_the_cage_the_same_things_work() {
    use std::io::Write as _;
    let path = need_naughty!();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("new");
    for data in [
        json!({"mode": "unix"}),
        json!({"mode": "fork"}),
        json!({"mode": "calls"}),
        json!({"mode": "memory"}),
        json!({"mode": "shared-memory"}),
        json!({"mode": "memory-file"}),
        json!({"mode": "orphan"}),
        json!({"mode": "others"}),
        json!({"mode": "environment"}),
        json!({"mode": "read", "path": "/etc/passwd"}),
        json!({"mode": "list", "path": "/"}),
        json!({"mode": "write", "path": file}),
        json!({"mode": "chmod", "path": file}),
        json!({"mode": "unlink", "path": file}),
    ] {
        let mut child = std::process::Command::new(path)
            .arg("check")
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(data.to_string().as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{data}: {output:?}");
    }
}

#[test]
fn no_socket_of_any_family() {
    all_pass(&[json!({"mode": "socket"}), json!({"mode": "unix"})], &GRANT);
}

#[test]
fn no_system_call_that_an_answer_does_not_need() {
    all_pass(&[json!({"mode": "calls"}), json!({"mode": "terminal"})], &GRANT);
}

#[test]
fn no_second_process_but_threads() {
    all_pass(
        &[json!({"mode": "fork"}), json!({"mode": "few-threads"}), json!({"mode": "many-threads"})],
        &GRANT,
    );
}

#[test]
fn neither_root_nor_capabilities() {
    all_pass(&[json!({"mode": "privileges"})], &GRANT);
}

#[test]
fn no_signal_to_anybody_else() {
    all_pass(&[json!({"mode": "kill-parent"}), json!({"mode": "kill-all"})], &GRANT);
}

#[test]
fn no_limit_or_priority_of_anybody_else_and_no_outliving_the_caller() {
    all_pass(&[json!({"mode": "others"}), json!({"mode": "orphan"})], &GRANT);
}

#[test]
fn no_more_memory_than_allowed_however_it_is_asked_for() {
    let modes = ["memory", "shared-memory", "memory-file", "stack", "many-files", "reserve"];
    all_pass(&modes.map(|mode| json!({"mode": mode})), &GRANT);
}

#[test]
fn a_cleared_environment_and_no_open_file() {
    // An open file that every child inherits, as a careless caller leaves it.
    let leaked = File::open("/etc/passwd").unwrap();
    rustix::io::fcntl_setfd(&leaked, rustix::io::FdFlags::empty()).unwrap();
    all_pass(&[json!({"mode": "environment"}), json!({"mode": "descriptors"})], &GRANT);
}

#[test]
fn no_file_is_written_read_listed_changed_or_run() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "secret").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o666)).unwrap();
    let new = dir.path().join("new");
    let path = |mode: &str, path: &Path| json!({"mode": mode, "path": path});
    all_pass(
        &[
            path("read", &file),
            path("read", Path::new("/etc/shadow")),
            path("read", Path::new("/etc/passwd")),
            path("read", Path::new("/proc/cmdline")),
            path("read", Path::new("/proc/self/environ")),
            path("read", Path::new("/sys/kernel/uevent_seqnum")),
            path("list", dir.path()),
            path("list", Path::new("/")),
            path("write", &file),
            path("write", &new),
            path("unlink", &file),
            path("chmod", &file),
            path("exec", Path::new("/bin/true")),
            json!({"mode": "own-program"}),
        ],
        &GRANT,
    );
    assert!(!new.exists());
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "secret");
}

#[test]
fn with_files_a_list_of_the_hosts_own_and_no_other() {
    let path = need_naughty!();
    let grant = Grant { files: true, ..GRANT };
    let path_of = |mode: &str, path: &str| json!({"mode": mode, "path": path});
    for readable in ["/proc/cpuinfo", "/proc/meminfo", "/sys/devices/system/cpu/online"] {
        if !Path::new(readable).exists() {
            continue;
        }
        let outcome = run_with(path, &path_of("read", readable), &grant);
        if cage_is_missing(&outcome) {
            return;
        }
        assert_eq!(said(&outcome.unwrap()).1, format!("{readable}: it worked"));
    }
    all_pass(
        &[
            path_of("read", "/etc/shadow"),
            path_of("read", "/proc/cmdline"),
            path_of("read", "/proc/1/environ"),
            path_of("list", "/proc"),
            path_of("write", "/sys/kernel/uevent_helper"),
        ],
        &grant,
    );
}

#[test]
fn a_call_by_its_x32_number_ends_it() {
    let path = need_naughty!();
    let outcome = run_with(path, &json!({"mode": "x32"}), &GRANT);
    if !cage_is_missing(&outcome) {
        assert!(matches!(outcome, Err(Malfunction::Signal { .. })), "{outcome:?}");
    }
}

#[test]
fn a_plugin_that_never_ends_is_ended() {
    let path = need_naughty!();
    for mode in ["hang", "hang-silent", "flood-stderr-endless"] {
        let started = Instant::now();
        let grant = Grant { timeout_seconds: 1, ..GRANT };
        let outcome = run_with(path, &json!({"mode": mode}), &grant);
        if cage_is_missing(&outcome) {
            return;
        }
        assert!(matches!(outcome, Err(Malfunction::Timeout { .. })), "{mode}: {outcome:?}");
        assert!(started.elapsed() < Duration::from_secs(60), "{mode}");
    }
}

#[test]
fn a_plugin_that_computes_for_ever_is_ended_by_the_kernel() {
    let path = need_naughty!();
    let program = program(path);
    let runner = Runner { limits: Limits { cpu_seconds: 1, ..Limits::default() }, ..runner() };
    let input = json!({"mode": "spin"}).to_string();
    let grant = Grant { timeout_seconds: 60, ..GRANT };
    let outcome = runner.run(&program, "naughty", "check", input.as_bytes(), &grant);
    if !cage_is_missing(&outcome) {
        assert!(matches!(outcome, Err(Malfunction::Signal { .. })), "{outcome:?}");
    }
}

#[test]
fn what_is_printed_is_bounded() {
    let path = need_naughty!();
    let outcome = run_with(path, &json!({"mode": "flood"}), &GRANT);
    if cage_is_missing(&outcome) {
        return;
    }
    assert!(matches!(outcome, Err(Malfunction::Flood { .. })), "{outcome:?}");
    let finished = run_with(path, &json!({"mode": "flood-stderr"}), &GRANT).unwrap();
    assert_eq!(said(&finished).0, "pass", "a long log is cut and spoils no answer");
    assert_eq!(finished.stderr.len(), portolan_compat::external::MAX_STDERR);
}

#[test]
fn a_plugin_that_dies_has_said_nothing() {
    let path = need_naughty!();
    for (mode, expected) in [("signal", 6), ("crash", 11)] {
        let outcome = run_with(path, &json!({"mode": mode}), &GRANT);
        if cage_is_missing(&outcome) {
            return;
        }
        match outcome {
            Err(Malfunction::Signal { signal }) => assert_eq!(signal, expected, "{mode}"),
            other => panic!("{mode}: {other:?}"),
        }
    }
}

#[test]
fn nothing_of_a_plugin_is_left_when_it_was_ended() {
    let path = need_naughty!();
    let mark = format!("naughty-{}", std::process::id());
    let program = program(path);
    let grant = Grant { timeout_seconds: 1, ..GRANT };
    let outcome = runner().run(&program, &mark, "check", br#"{"mode":"hang"}"#, &grant);
    if cage_is_missing(&outcome) {
        return;
    }
    assert_eq!(processes_called(&mark), Vec::<String>::new());
}

#[test]
fn a_helper_that_is_none_is_said_to_be_none() {
    let path = need_naughty!();
    let program = program(path);
    for (helper, expected) in [("/bin/true", "said nothing"), ("/nonexistent", "does not start")] {
        let runner = Runner { helper: helper.into(), ..runner() };
        let error = runner.run(&program, "x", "check", b"{}", &GRANT).unwrap_err();
        assert_eq!(error.code(), "E_PLUGIN_START");
        let text = error.describe();
        // A helper that has already ended may also be noticed when it is written to.
        assert!(text.contains(expected) || text.contains("socket"), "{helper}: {text}");
    }
}

/// A directory with our helper in it, and a program that becomes it on a kernel that lacks
/// something.
fn old_kernel(lacking: &str) -> Option<(tempfile::TempDir, PathBuf)> {
    let naughty = external::naughty()?;
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755))
        .expect("it is ours");
    std::os::unix::fs::symlink(runner().helper, dir.path().join("helper")).expect("a link");
    let path = dir.path().join(format!("without-{lacking}"));
    // Another process writes it: what this one has open for writing, whoever is started meanwhile by
    // another test has open too, and nothing is executed that somebody may still write.
    let copied = Command::new("cp").arg(naughty).arg(&path).status().expect("cp starts");
    assert!(copied.success(), "cp");
    Some((dir, path))
}

/// What happens where a kernel has no Landlock, no filters of system calls, or keeps namespaces
/// from those who ask: what is needed and missing is named and nothing runs, or the report says
/// what held the plugin.
#[test]
fn a_kernel_that_lacks_a_layer_runs_nothing_or_says_so() {
    let path = need_naughty!();
    if cage_is_missing(&run_with(path, &json!({"mode": "pass"}), &GRANT)) {
        return;
    }
    for (lacking, missing) in [
        ("landlock", Some(Layer::Landlock)),
        ("seccomp", Some(Layer::Seccomp)),
        ("namespaces", None),
    ] {
        let (_dir, helper) = old_kernel(lacking).expect("it was built a moment ago");
        let strict = Runner { helper, ..runner() };
        let lenient = Runner { strictness: Strictness::BestEffort, ..strict.clone() };
        let run = |runner: &Runner| {
            let input = json!({"mode": "pass"}).to_string();
            runner.run(&program(path), "naughty", "check", input.as_bytes(), &GRANT)
        };
        match (run(&strict), missing) {
            (Err(Malfunction::Sandbox { layer, why }), Some(_)) => {
                assert_eq!(layer, missing, "{lacking}: {why}");
                assert!(why.contains(lacking), "{why}");
            }
            (Ok(finished), None) => {
                assert!(!finished.layers.contains(&Layer::UserNamespace), "{:?}", finished.layers);
                assert!(
                    !finished.layers.contains(&Layer::NetworkNamespace),
                    "{:?}",
                    finished.layers
                );
            }
            (other, _) => panic!("{lacking}: {other:?}"),
        }
        let finished = run(&lenient).unwrap_or_else(|e| panic!("{lacking}: {}", e.describe()));
        assert_eq!(said(&finished).0, "pass");
        for layer in Layer::NEEDED {
            assert_eq!(finished.layers.contains(&layer), missing != Some(layer), "{layer}");
        }
    }
}

/// Without the filter of system calls a plugin can have children. One that keeps the output open
/// delays nobody, and what is in its group ends with it.
#[test]
fn a_child_that_keeps_the_output_open_delays_nobody() {
    let path = need_naughty!();
    let Some((_dir, helper)) = old_kernel("seccomp") else { return };
    let runner = Runner { helper, strictness: Strictness::BestEffort, ..runner() };
    let mark = format!("naughty-child-{}", std::process::id());
    let started = Instant::now();
    let outcome = runner.run(&program(path), &mark, "check", br#"{"mode":"child"}"#, &GRANT);
    let finished = outcome.unwrap_or_else(|error| panic!("{}", error.describe()));
    assert_eq!(said(&finished).1, "and somebody stays");
    assert!(started.elapsed() < Duration::from_secs(GRANT.timeout_seconds));
    assert_eq!(processes_called(&mark), Vec::<String>::new());
    // With it, there is no child to begin with.
    let caged =
        external::runner().run(&program(path), &mark, "check", br#"{"mode":"daemon"}"#, &GRANT);
    if !cage_is_missing(&caged) {
        assert_eq!(processes_called(&mark), Vec::<String>::new());
    }
}

/// The command lines of processes whose name begins like this. One that was killed may still be
/// about to go: those are looked at again.
fn processes_called(mark: &str) -> Vec<String> {
    let look = || -> Vec<String> {
        let lines = std::fs::read_dir("/proc").expect("it is mounted").flatten();
        let lines =
            lines.filter_map(|one| std::fs::read_to_string(one.path().join("cmdline")).ok());
        lines.filter(|line| line.starts_with(mark)).collect()
    };
    let patience = Instant::now() + Duration::from_secs(10);
    loop {
        let left = look();
        if left.is_empty() || Instant::now() > patience {
            return left;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Everything above once more as a user without any rights: there the cage is built otherwise.
#[test]
fn all_of_it_holds_without_root() {
    use std::os::unix::process::CommandExt as _;
    if !rustix::process::geteuid().is_root() {
        // Then it was that user who ran everything above.
        return;
    }
    let this = std::env::current_exe().unwrap();
    let ran = std::process::Command::new(&this)
        .args(["--skip", "all_of_it_holds_without_root"])
        .uid(12_345)
        .gid(12_345)
        .current_dir("/")
        .output();
    match ran {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        }
        Err(error) => skip::skip(&format!("another user may not run {}: {error}", this.display())),
    }
}
