//! Starting, ending, starting again.

use std::time::Duration;

use portolan_agent::api::{GcRequest, PrefetchRequest, VerifyOutcome};
use portolan_agent::client::CallError;
use serde_json::json;

use crate::harness::{Home, Registry, from};

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_fetches_once_remembers_and_ends_in_order() {
    let registry = Registry::start(None).await;
    let home = Home::new();
    let agent = home.start("").await;
    let request: PrefetchRequest = from(json!({ "images": [registry.image()] }));
    let first = agent.client.prefetch(&request).await.unwrap().images.remove(0);
    assert_eq!((first.cached, first.reason), (Some(false), None), "{first:?}");
    let again = agent.client.prefetch(&request).await.unwrap().images.remove(0);
    assert_eq!((again.cached, &again.rootdisk_key), (Some(true), &first.rootdisk_key));
    assert!(agent.stop().await.success());
    assert!(!home.path("a.sock").exists(), "the socket goes with it");
    drop(registry);

    // Another process, no registry: what is there is still there and is what was built.
    let agent = home.start("").await;
    let cache = agent.client.cache().await.unwrap();
    assert_eq!(cache.rootdisks.len(), 1);
    let key = first.rootdisk_key.unwrap();
    assert_eq!(cache.rootdisks[0].key, key);
    assert_eq!(agent.client.verify(&key).await.unwrap().outcome, VerifyOutcome::Ok);
    let gc = GcRequest { target_bytes: Some(0), dry_run: false };
    assert_eq!(agent.client.gc(&gc).await.unwrap().rootdisks.entries, 1);
    assert!(agent.client.cache().await.unwrap().rootdisks.is_empty());
    let status = agent.client.status().await.unwrap();
    assert!(status.ready && status.degraded.is_empty(), "{status:?}");
    assert!(status.pools.contains_key("cache") && status.pools.contains_key("volumes"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_that_cannot_start_says_why_and_goes_with_everything_it_had() {
    let registry = Registry::start(None).await;
    let home = Home::new();
    // No such program: the image is fetched, the disk is built, the machine does not start.
    let agent = home.start("[vmm]\nbinary = \"/nonexistent/vmm\"").await;
    let id = "web-1".parse().unwrap();
    let spec = from(json!({ "image": registry.image() }));
    agent.client.put(&id, &spec).await.unwrap();
    let failed = loop {
        let now = agent.client.get(&id).await.unwrap();
        if now.reason.is_some() {
            break now;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    };
    assert_eq!(failed.reason.unwrap().as_str(), "start_failed", "{failed:?}");
    assert_eq!(agent.client.instances().await.unwrap().len(), 1);
    agent.client.delete(&id).await.unwrap();
    let error = agent.client.get(&id).await.unwrap_err();
    assert!(matches!(error, CallError::Refused { status, .. } if status == 404), "{error:?}");
    assert!(!home.path("root/instances/web-1").exists());
    let log = agent.log();
    assert!(log.contains("instance_id=web-1") && log.contains("resolved_digest=sha256:"), "{log}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_agent_on_the_same_root_or_socket_refuses() {
    let home = Home::new();
    let agent = home.start("").await;
    let second = home.command("").output().await.unwrap();
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains("running agent"), "{text}");
    let other = Home::new();
    let mut command = other.command("");
    let second = command.arg("--socket").arg(home.path("a.sock")).output().await.unwrap();
    // The flag was given twice, which is refused before anything else.
    assert!(!second.status.success());
    let config = format!("socket = {:?}", home.path("a.sock"));
    std::fs::write(other.path("agent.toml"), config).unwrap();
    let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_portolan-agent"));
    command.arg("--root").arg(other.path("root")).arg("--config").arg(other.path("agent.toml"));
    let second = command.output().await.unwrap();
    assert!(!second.status.success());
    let text = String::from_utf8_lossy(&second.stderr);
    assert!(text.contains("already listens"), "{text}");
    assert!(agent.client.status().await.is_ok(), "the first one does not mind");
}

#[tokio::test]
async fn a_configuration_that_cannot_work_is_told_with_its_line() {
    let home = Home::new();
    for (config, word) in [
        ("[cache]\ntarget_byts = 1", "line 2"),
        ("[api]\nlisten = \"127.0.0.1:0\"", "api.client_ca"),
        ("[report]\nurl = \"http://control.example/\"", "https"),
        (
            "[report.node]\nserver = \"https://127.0.0.1:1\"\n[report]\nname = \"No Node\"",
            "report.name",
        ),
    ] {
        let said = home.command(config).output().await.unwrap();
        let text = String::from_utf8_lossy(&said.stderr);
        assert_eq!(said.status.code(), Some(1), "{text}");
        assert!(text.contains(word), "{text}");
    }
}
