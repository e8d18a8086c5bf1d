//! `portolan ship` from a directory to a program that runs in a microVM, with nothing faked: our
//! init, QEMU and Debian's kernel, without an agent and with one.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use portolan_e2e::{
    Agent, architecture, hello_source, json, machine_config, ok, portolan, run, wait_for,
};
use serde_json::Value;

fn ship(root: &Path, more: &[&str]) -> Command {
    let mut command = portolan();
    command.arg("ship").arg(hello_source()).arg("--root").arg(root).args(["-o", "json"]).args(more);
    command
}

/// With software emulation, which every machine has.
fn config(dir: &Path) -> PathBuf {
    let file = dir.join("boot.toml");
    std::fs::write(&file, machine_config("tcg")).unwrap();
    file
}

/// Everything that works in this directory: machines and their shims do.
fn processes(of: &Path) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = all.filter_map(|entry| {
        let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
        cwd.starts_with(of).then(|| entry.path().display().to_string())
    });
    lines.collect()
}

fn first_line(report: &Value) -> String {
    report["boot"]["firstLine"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_shipped_image_boots_in_a_microvm_and_tells_the_time_to_its_first_line() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let config = config(dir.path()).display().to_string();
    let boot = ["--agent-config", &config, "--boot"];
    let output = run(&mut ship(&root, &boot)).unwrap();
    assert_eq!(output.code, Some(0), "{output}");
    let report = json(&output.stdout);
    assert_eq!(first_line(&report), format!("hello from linux/{}", architecture()));
    let seconds = report["boot"]["secondsToFirstLine"].as_f64().unwrap();
    assert!(seconds > 0.0 && seconds < 200.0, "{report:#}");
    assert_eq!(report["boot"]["end"], "exited with status 0", "{report:#}");
    assert!(output.stderr.contains("| hello from linux/"), "the console is shown: {output}");
    assert_eq!(processes(&root), Vec::<String>::new());

    // An agent that is started later finds the disk, valid and held by nobody.
    let agent = Agent::start(&root, "").unwrap();
    let cache = agent.get("/v1/cache").unwrap();
    let disk = &cache["rootdisks"][0];
    assert_eq!(disk["key"], report["rootdiskKey"], "{cache:#}");
    assert_eq!(disk["resolved_digest"], report["resolvedDigest"], "{cache:#}");
    let key = disk["key"].as_str().unwrap();
    let verified = agent.request("POST", &format!("/v1/cache/{key}/verify"), None).unwrap();
    assert_eq!(verified.json().unwrap()["outcome"], "ok", "{verified:?}");
}

#[test]
fn an_agent_that_runs_fetches_and_boots_what_is_shipped() {
    let dir = tempfile::tempdir().unwrap();
    let config = std::fs::read_to_string(config(dir.path())).unwrap();
    let agent = Agent::start(&dir.path().join("agent"), &config).unwrap();
    let socket = agent.socket().display().to_string();
    let report = ok(&mut ship(&dir.path().join("root"), &["--socket", &socket, "--boot"]));
    let report = json(&report);
    assert_eq!(first_line(&report), format!("hello from linux/{}", architecture()), "{report:#}");
    let cache = agent.get("/v1/cache").unwrap();
    assert_eq!(cache["rootdisks"][0]["key"], report["rootdiskKey"], "{cache:#}");
    let instances = agent.get("/v1/instances").unwrap();
    assert_eq!(instances["instances"].as_array().unwrap().len(), 0, "{instances:#}");
}

#[test]
fn interrupted_while_its_machine_boots_no_process_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    let config = config(dir.path()).display().to_string();
    let boot = ["--agent-config", &config, "--boot"];
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let running = root.join("ship/machine/running.json");
        let _ = std::fs::remove_file(&running);
        let mut child = ship(&root, &boot).spawn().unwrap();
        wait_for("the machine", Duration::from_secs(60), || {
            anyhow::ensure!(running.exists(), "no machine yet");
            Ok(())
        })
        .unwrap();
        let pid = rustix::process::Pid::from_raw(child.id().cast_signed()).unwrap();
        rustix::process::kill_process(pid, signal).unwrap();
        let ended = child.wait().unwrap();
        if signal == rustix::process::Signal::INT {
            assert_eq!(ended.code(), Some(130));
            assert_eq!(processes(&root), Vec::<String>::new());
        }
    }
    // What a killed one left is ended by the next, which boots its own.
    let report = json(&ok(&mut ship(&root, &boot)));
    assert_eq!(report["boot"]["end"], "exited with status 0", "{report:#}");
    assert_eq!(processes(&root), Vec::<String>::new());
}
