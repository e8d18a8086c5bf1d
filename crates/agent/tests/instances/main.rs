//! Instances from a spec to the end of their machines, with a fake of Firecracker's API that
//! enforces the published description, and agents that are killed.

#![expect(clippy::unwrap_used, clippy::exit, reason = "a test fails by panicking, a fake ends")]

mod attack;
mod crash;
mod firecracker;
mod support;

#[path = "../../../registry/tests/common/skip.rs"]
mod skip;

use std::time::Duration;

use portolan_agent::api::Phase;
use portolan_agent::config::Span;
use portolan_agent::reason::Reason;
use serde_json::{Value, json};
use support::{Host, id, names, spec, spec_of, wait, wait_phase, wait_quiet};

/// Started with this variable, the test's program is a fake Firecracker and never returns; else the
/// fake itself is tested.
#[test]
fn fake_firecracker_takes_what_is_published() {
    if let Ok(arguments) = std::env::var("FAKE_FIRECRACKER") {
        firecracker::serve(&arguments);
    }
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f");
    std::fs::write(&file, "").unwrap();
    let boot = json!({"kernel_image_path": file, "initrd_path": file, "boot_args": "quiet"});
    let drive = json!({"drive_id": "a", "is_root_device": false, "is_read_only": true, "path_on_host": file});
    let start = json!({"action_type": "InstanceStart"});
    let mut api = firecracker::Api::new();
    let with = |mut value: Value, name: &str, to: Value| {
        value[name] = to;
        value
    };
    for (method, path, body) in [
        ("PUT", "/no-such-path", json!({})),
        ("DELETE", "/boot-source", boot.clone()),
        ("PUT", "/boot-source", json!({"boot_args": "no kernel"})),
        ("PUT", "/boot-source", with(boot.clone(), "misspelt", json!(1))),
        ("PUT", "/drives/b", drive.clone()),
        ("PUT", "/drives/a", with(drive.clone(), "is_read_only", json!("yes"))),
        ("PUT", "/drives/a", with(drive.clone(), "io_engine", json!("Fast"))),
        ("PUT", "/machine-config", json!({"vcpu_count": 33, "mem_size_mib": 128})),
        ("PUT", "/actions", json!({"action_type": "Start"})),
        ("PUT", "/actions", start.clone()),
        ("PUT", "/actions", json!({"action_type": "SendCtrlAltDel"})),
    ] {
        assert!(api.take(method, path, &body).is_err(), "{method} {path} {body}");
    }
    api.take("PUT", "/boot-source", &boot).unwrap();
    api.take("PUT", "/drives/a", &drive).unwrap();
    api.take("PUT", "/actions", &start).unwrap();
    assert_eq!(api.take("GET", "/", &Value::Null).unwrap()["state"], "Running");
    assert!(api.take("PUT", "/drives/a", &drive).is_err(), "configured after the start");
    assert!(api.take("PUT", "/actions", &start).is_err(), "started twice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_machine_is_started_by_the_published_api_and_its_end_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    let (status, new) = instances.put(id("web.1"), spec(&["exit", "0"], "running")).await.unwrap();
    assert!(new && status.cached.is_none());
    let ended = wait_phase(&instances, "web.1", Phase::Stopped).await;
    assert_eq!(ended.exit.unwrap().code, Some(0));
    assert!(ended.started_at.is_some() && ended.ended_at.is_some());
    assert_eq!(ended.cached, Some(true));

    let vm: Value =
        serde_json::from_slice(&std::fs::read(host.dir("web.1").join("vm.json")).unwrap()).unwrap();
    assert_eq!(vm["drives"][0]["is_read_only"], true);
    assert_eq!(vm["drives"][0]["path_on_host"], json!(host.root.join("root.ext4")));
    assert_eq!(vm["drives"][1]["is_read_only"], false);
    assert_eq!(vm["machine-config"], json!({"vcpu_count": 1, "mem_size_mib": 256, "smt": false}));
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &std::fs::metadata(host.dir("web.1")).unwrap().permissions(),
    );
    assert_eq!(mode & 0o777, 0o700, "a workload's environment is nobody else's business");
    let [_, console] = instances.console(&id("web.1"));
    let console = std::fs::read_to_string(console).unwrap();
    assert!(console.contains("workload exited with status 0"), "{console}");

    // The same spec again is nothing new, and what has run is not run again.
    let (_, new) = instances.put(id("web.1"), spec(&["exit", "0"], "running")).await.unwrap();
    assert!(!new);
    instances.put(id("bad"), spec(&["exit", "7"], "running")).await.unwrap();
    let bad = wait_phase(&instances, "bad", Phase::Failed).await;
    assert_eq!((bad.exit.unwrap().code, bad.reason), (Some(7), Some(Reason::StartFailed)));
    assert_eq!(wait_phase(&instances, "web.1", Phase::Stopped).await.ended_at, ended.ended_at);
    host.wait_unpinned().await;
    assert_eq!(firecracker::violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_is_asked_to_end_and_one_that_does_not_is_ended() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|config| config.stop_timeout = Span(Duration::from_millis(300)));
    for (name, argv) in [("polite", "serve"), ("rude", "stubborn")] {
        instances.put(id(name), spec(&[argv], "running")).await.unwrap();
        wait_phase(&instances, name, Phase::Running).await;
        assert!(host.pins().contains(name));
        instances.put(id(name), spec(&[argv], "stopped")).await.unwrap();
        let stopped = wait_phase(&instances, name, Phase::Stopped).await;
        // On a slow machine even the polite one may be ended before it has; then it tells nothing.
        if name == "rude" {
            assert_eq!(stopped.exit, None);
        }
        assert!(stopped.reason.is_none(), "{stopped:?}");
    }
    wait_quiet(&host).await;
    host.wait_unpinned().await;
    assert_eq!(firecracker::violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_start_sees_a_fresh_scratch_disk() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    for _ in 0..2 {
        instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap();
        // The fake exits with 99 where it finds what it wrote before.
        let ended = wait(&instances, "a", |status| status.exit.is_some()).await;
        assert_eq!(ended.exit.unwrap().code, Some(0));
        instances.put(id("a"), spec(&["exit", "0"], "stopped")).await.unwrap();
        wait(&instances, "a", |status| status.spec.desired_state != Default::default()).await;
        let scratch = std::fs::read(host.dir("a").join("scratch.ext4")).unwrap();
        assert!(scratch.ends_with(b"WRITTEN!"), "writes land in the scratch disk");
        let root = std::fs::read(host.root.join("root.ext4")).unwrap();
        assert!(!root.ends_with(b"WRITTEN!"));
        // Settled as stopped: only then is it started again.
        let settled = || async { names(&host.dir("a")).contains("running.json") };
        while settled().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        wait(&instances, "a", |status| status.phase == Phase::Stopped).await;
        state_settled(&host, "a").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stopped_and_running_again_is_a_second_start_however_quick() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    let mut ends = std::collections::BTreeSet::new();
    for _ in 0..5 {
        // Nobody waits until it was seen to be wanted stopped.
        instances.put(id("a"), spec(&["exit", "0"], "stopped")).await.unwrap();
        let put = instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap().0;
        let over = matches!(put.phase, Phase::Stopped | Phase::Failed) || put.exit.is_some();
        assert!(!over, "the end of the last run is not that of this one: {put:?}");
        let ended = wait(&instances, "a", |status| status.exit.is_some()).await;
        assert_eq!(ended.phase, Phase::Stopped);
        assert!(ends.insert(ended.ended_at.unwrap()), "each time it really ran");
    }
}

/// Waits until the instance's state on disk knows of no spec that has run its course.
async fn state_settled(host: &Host, name: &str) {
    loop {
        let text = std::fs::read(host.dir(name).join("state.json")).unwrap();
        let state: Value = serde_json::from_slice(&text).unwrap();
        if state.get("settled").is_none() && state["phase"] == "stopped" {
            return;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_does_not_come_up_fails_with_a_reason_and_leaves_no_process() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|config| {
        config.boot_timeout = Span(Duration::from_millis(400));
        config.boot_retries = 1;
    });
    for (name, argv, says) in [
        ("hang", "hang", "vmm.boot_timeout"),
        ("die", "die", "exited with status 1"),
        ("give-up", "give-up", "could not mount /dev/vda"),
    ] {
        instances.put(id(name), spec(&[argv], "running")).await.unwrap();
        let failed = wait_phase(&instances, name, Phase::Failed).await;
        let message = failed.message.unwrap();
        assert_eq!(failed.reason, Some(Reason::StartFailed));
        // On a machine that is slow enough everything is late.
        assert!(message.contains(says) || message.contains("vmm.boot_timeout"), "{message}");
    }
    instances.put(id("refused"), spec_of("refused", &["serve"], "running")).await.unwrap();
    let refused = wait_phase(&instances, "refused", Phase::Failed).await;
    assert_eq!(refused.reason, Some(Reason::ImagePullFailed));
    assert_eq!(refused.message.as_deref(), Some("no such manifest"));
    wait_quiet(&host).await;
    host.wait_unpinned().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_vmm_kernel_or_init_is_told_by_its_setting() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|config| config.binary = Some("no-such-firecracker".into()));
    instances.put(id("a"), spec(&["serve"], "running")).await.unwrap();
    let message = wait_phase(&instances, "a", Phase::Failed).await.message.unwrap();
    assert!(message.contains("vmm.binary"), "{message}");
    std::fs::remove_file(host.root.join("vmlinux")).unwrap();
    let instances = host.open(|_| {});
    instances.put(id("b"), spec(&["serve"], "running")).await.unwrap();
    let message = wait_phase(&instances, "b", Phase::Failed).await.message.unwrap();
    assert!(message.contains("guest.kernel"), "{message}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_on_the_console_is_bounded() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    instances.put(id("a"), spec(&["flood"], "running")).await.unwrap();
    wait_phase(&instances, "a", Phase::Running).await;
    instances.put(id("a"), spec(&["flood"], "stopped")).await.unwrap();
    // Ten megabytes came before the word of its end, which is still found.
    let stopped = wait_phase(&instances, "a", Phase::Stopped).await;
    assert_eq!(stopped.exit.unwrap().code, Some(0));
    let size = |name: &str| std::fs::metadata(host.dir("a").join(name)).unwrap().len();
    assert!(size("console.log") + size("console.log.1") <= 64 << 10);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_deleted_while_its_disk_is_built_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    instances.put(id("a"), spec_of("never", &["serve"], "running")).await.unwrap();
    let fetching = wait_phase(&instances, "a", Phase::Fetching).await;
    assert_eq!(fetching.progress.unwrap().bytes_total, 9, "how far it is");
    assert!(instances.delete(&id("a")).await.unwrap());
    assert!(instances.get(&id("a")).is_none());
    assert!(!instances.delete(&id("a")).await.unwrap());
    assert_eq!((names(&host.root.join("instances")).len(), host.pins().len()), (0, 0));

    instances.put(id("b"), spec(&["serve"], "running")).await.unwrap();
    let running = wait_phase(&instances, "b", Phase::Running).await;
    assert_eq!(running.progress, None, "it is there");
    assert!(instances.delete(&id("b")).await.unwrap());
    wait_quiet(&host).await;
    assert_eq!((names(&host.root.join("instances")).len(), host.pins().len()), (0, 0));
    assert_eq!(firecracker::violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_changed_spec_replaces_the_machine() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let instances = host.open(|_| {});
    instances.put(id("a"), spec(&["serve", "1"], "running")).await.unwrap();
    wait_phase(&instances, "a", Phase::Running).await;
    let first = host.vmm("a");
    let mut released = spec(&["serve", "1"], "running");
    released.release = Some("r2".to_owned());
    instances.put(id("a"), released).await.unwrap();
    instances.put(id("a"), spec(&["exit", "0"], "running")).await.unwrap();
    wait(&instances, "a", |status| status.exit.is_some_and(|exit| exit.code == Some(0))).await;
    wait_phase(&instances, "a", Phase::Stopped).await;
    assert!(!host.processes().contains(&first));
    assert_eq!(firecracker::violations(&host.root), "");
}

#[tokio::test(flavor = "multi_thread")]
async fn rubbish_in_an_instances_folder_stops_neither_the_agent_nor_its_deletion() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let folder = |name: &str| {
        let path = host.dir(name);
        std::fs::create_dir_all(&path).unwrap();
        path
    };
    std::fs::write(folder("text").join("spec.json"), "{").unwrap();
    folder("empty");
    std::fs::create_dir_all(folder("dirs").join("spec.json/x")).unwrap();
    for name in
        ["state.json", "machine.lock", "machine.json", "running.json", "ended.json", "console.log"]
    {
        std::fs::create_dir_all(folder("dirs").join(name).join("x")).unwrap();
    }
    std::fs::write(host.dir("file"), "not a folder").unwrap();
    std::fs::create_dir_all(host.root.join("instances/No Instance")).unwrap();

    let instances = host.open(|_| {});
    assert_eq!(instances.count(), 3);
    for name in ["text", "empty", "dirs"] {
        let status = wait_phase(&instances, name, Phase::Failed).await;
        assert_eq!(status.reason, Some(Reason::InvalidSpec), "{status:?}");
        assert!(status.message.unwrap().contains("put it again, or delete it"));
    }
    // Put again, it runs; deleted, it is gone.
    for name in ["dirs", "file"] {
        instances.put(id(name), spec(&["exit", "0"], "running")).await.unwrap();
        wait_phase(&instances, name, Phase::Stopped).await;
    }
    for name in ["text", "empty", "dirs", "file"] {
        assert!(instances.delete(&id(name)).await.unwrap(), "{name}");
    }
    assert_eq!(names(&host.root.join("instances")), ["No Instance".to_owned()].into());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_instances_are_listed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::new(dir.path());
    let text = serde_json::to_vec(&spec(&["serve"], "stopped")).unwrap();
    for n in 0..10_000 {
        let folder = host.dir(&format!("i{n:05}"));
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("spec.json"), &text).unwrap();
    }
    let instances = host.open(|_| {});
    assert_eq!(instances.count(), 10_000);
    let mut times: Vec<Duration> = (0..101)
        .map(|n| {
            let start = std::time::Instant::now();
            assert_eq!(instances.summaries(Some(&id(&format!("i{:05}", n * 90))), 100).len(), 100);
            assert!(instances.get(&id("i07777")).is_some());
            start.elapsed()
        })
        .collect();
    times.sort();
    assert!(times[50] < Duration::from_millis(10), "{:?}", times[50]);
}
