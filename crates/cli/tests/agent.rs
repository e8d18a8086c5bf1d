//! `portolan agent …` against a socket that speaks the agent's protocol, and against none.
#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

use std::path::Path;

use serde_json::{Value, json};
use support::fake_agent::{Answers, Fake, run};

mod support;

const DIGEST: &str = "sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08";

fn spec() -> Value {
    json!({ "image": {
        "repository": "registry.example/team/app",
        "resolved_digest": DIGEST,
        "os": "linux",
        "arch": "amd64",
    }})
}

fn instance(phase: &str) -> Value {
    json!({
        "id": "web-1",
        "spec": spec(),
        "phase": phase,
        "resolved_digest": DIGEST,
        "created_at": "2026-01-01T00:00:00Z",
    })
}

fn workload(dir: &Path, spec: &Value) -> String {
    let path = dir.join("workload.json");
    std::fs::write(&path, spec.to_string()).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn without_an_agent_every_command_says_how_to_start_one() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("nobody.sock");
    for args in [&["status"][..], &["instances"], &["cache", "ls"], &["gc"], &["logs", "a"]] {
        let said = run(&socket, dir.path(), args);
        assert_eq!(said.code, 5, "{args:?}: {}", said.err);
        assert!(said.err.contains("portolan-agent --socket"), "{}", said.err);
        assert!(said.err.contains("nobody.sock"), "{}", said.err);
    }
}

#[test]
fn a_workload_is_put_under_its_name_and_waited_for() {
    let fake = Fake::new(Answers::from([
        ("PUT /v1/instances/web-1", (201, instance("fetching"))),
        ("GET /v1/instances/web-1", (200, instance("running"))),
    ]));
    let file = workload(fake.dir.path(), &spec());
    let ever = u64::MAX.to_string();
    let wait = ["--wait", "--timeout", &ever];
    let said =
        fake.run(&[&["run", "-f", &file, "--id", "web-1", "-o", "json"], &wait[..]].concat());
    assert_eq!(said.json()["phase"], "running");
    let (call, body) = &fake.asked()[0];
    assert_eq!(call, "PUT /v1/instances/web-1");
    assert_eq!(body["image"]["resolved_digest"], DIGEST);
}

#[test]
fn an_instance_that_failed_is_the_answer_no_with_its_reason() {
    let mut failed = instance("failed");
    failed["reason"] = json!("image_pull_failed");
    failed["message"] = json!("the registry is gone");
    let fake = Fake::new(Answers::from([("PUT /v1/instances/web-1", (200, failed))]));
    let file = workload(fake.dir.path(), &spec());
    let said = fake.run(&["run", "-f", &file, "--id", "web-1", "--wait"]);
    assert_eq!(said.code, 1);
    assert!(said.err.contains("image_pull_failed") && said.err.contains("is gone"), "{}", said.err);
}

#[test]
fn mistakes_in_a_workload_are_told_before_anybody_is_asked() {
    let fake = Fake::new(Answers::new());
    let mut missing = spec();
    missing["image"].as_object_mut().unwrap().remove("resolved_digest");
    let mut unknown = spec();
    unknown["memory"] = json!(1);
    let mut windows = spec();
    windows["image"]["os"] = json!("windows");
    for (spec, code, word) in
        [(missing, 2, "control plane"), (unknown, 2, "memory"), (windows, 1, "windows")]
    {
        let file = workload(fake.dir.path(), &spec);
        let said = fake.run(&["run", "-f", &file]);
        assert_eq!(said.code, code, "{}", said.err);
        assert!(said.err.contains(word), "{}", said.err);
    }
    assert_eq!(fake.run(&["run", "-f", "no-such-file.json"]).code, 4);
    // The reader of YAML would take a minute for it.
    let deep = fake.dir.path().join("deep.yaml");
    std::fs::write(&deep, "{\"a\":".repeat(60_000)).unwrap();
    let said = fake.run(&["run", "-f", deep.to_str().unwrap()]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("nests deeper"), "{}", said.err);
    assert!(fake.asked().is_empty());
}

#[test]
fn stopping_changes_the_desired_state_and_deleting_forgets() {
    let fake = Fake::new(Answers::from([
        ("GET /v1/instances/web-1", (200, instance("running"))),
        ("PUT /v1/instances/web-1", (200, instance("stopped"))),
        ("DELETE /v1/instances/web-1", (204, json!(""))),
    ]));
    fake.run(&["stop", "web-1"]).ok();
    let (call, body) = fake.asked().pop().unwrap();
    assert_eq!(
        (call.as_str(), &body["desired_state"]),
        ("PUT /v1/instances/web-1", &json!("stopped"))
    );
    fake.run(&["stop", "web-1", "--delete"]).ok();
    assert_eq!(fake.asked().pop().unwrap().0, "DELETE /v1/instances/web-1");
    assert_eq!(fake.run(&["stop", "web-2", "--delete"]).code, 4, "a mistyped name is told");
}

#[test]
fn a_console_is_printed_byte_for_byte() {
    let fake = Fake::new(Answers::from([(
        "GET /v1/instances/web-1/console",
        (200, json!("hello\u{1b}[1m\n")),
    )]));
    assert_eq!(fake.run(&["logs", "web-1", "--tail", "5"]).ok(), "hello\u{1b}[1m\n");
    assert_eq!(fake.asked()[0].0, "GET /v1/instances/web-1/console?follow=false&tail=5");
}

#[test]
fn lists_and_reports_are_tables_json_and_yaml() {
    let summary = json!({ "id": "web-1", "phase": "running", "resolved_digest": DIGEST });
    let pool = json!({ "used_bytes": 1, "free_bytes": 2, "size_bytes": 3, "pressure": false });
    let kind = json!({ "entries": 1, "allocated_bytes": 4096 });
    let fake = Fake::new(Answers::from([
        ("GET /v1/instances", (200, json!({ "instances": [summary] }))),
        (
            "GET /v1/cache",
            (
                200,
                json!({
                    "rootdisks": [], "blobs": kind, "temporary": kind, "allocated_bytes": 8192,
                    "disk": pool,
                }),
            ),
        ),
        (
            "POST /v1/gc",
            (
                200,
                json!({
                    "dry_run": true, "rootdisks": kind, "blobs": kind, "temporary": kind,
                    "remaining_bytes": 0, "reached": true,
                }),
            ),
        ),
        (
            "POST /v1/prefetch",
            (200, json!({ "images": [{ "resolved_digest": DIGEST, "cached": true }] })),
        ),
    ]));
    let table = fake.run(&["instances"]).ok();
    assert!(table.contains("INSTANCE") && table.contains("web-1"), "{table}");
    assert_eq!(fake.run(&["instances", "-o", "json"]).json()[0]["phase"], "running");
    assert!(fake.run(&["instances", "-o", "yaml"]).ok().contains("phase: running"));
    assert!(fake.run(&["cache", "ls"]).ok().contains("1 blobs"));
    assert!(fake.run(&["gc", "--dry-run", "--target-bytes", "0"]).ok().contains("WOULD GO"));
    let (_, body) = fake.asked().pop().unwrap();
    assert_eq!(body, json!({ "target_bytes": 0, "dry_run": true }));
    let reference = format!("registry.example/app@{DIGEST}");
    let table = fake.run(&["prefetch", &reference, "--platform", "linux/amd64"]).ok();
    assert!(table.contains("was there"), "{table}");
    let said = fake.run(&["prefetch", "registry.example/app:1", "--platform", "linux/amd64"]);
    assert_eq!(said.code, 2);
    assert!(said.err.contains("image resolve"), "{}", said.err);
}

#[test]
fn what_is_no_agent_is_said_to_be_none() {
    let fake =
        Fake::new(Answers::from([("GET /v1/status", (200, json!("hello, I am a web server")))]));
    let said = fake.run(&["status"]);
    assert_eq!(said.code, 5);
    assert!(said.err.contains("does not answer like an agent"), "{}", said.err);
}
