use std::time::Duration;

use portolan_core::{Digest, Target};
use portolan_registry::layout::Layout;
use portolan_registry::server::Config;
use reqwest::Method;

use crate::support::{Registry, loopback, text};

#[tokio::test]
async fn everything_is_there_after_a_restart_also_half_an_upload() {
    let root = tempfile::tempdir().unwrap();
    let before = Registry::start(root.path()).await;
    let (manifest, digest) = before.push_image("a/b", "t", "one").await;
    let session = before.session("a/b").await;
    before.ask(Method::PATCH, &session).body("half of ").send().await.unwrap();
    before.stop().await;

    let after = Registry::start(root.path()).await;
    let got = after.get("/v2/a/b/manifests/t").await;
    assert_eq!(text(&got, "docker-content-digest"), digest.to_string());
    assert_eq!(got.text().await.unwrap(), manifest);
    let state = after.get(&session).await;
    assert_eq!((state.status().as_u16(), text(&state, "range")), (204, "0-7".into()));
    let whole = Digest::sha256(b"half of it");
    let put = after.ask(Method::PUT, &format!("{session}?digest={whole}"));
    let put = put.header("content-range", "8-9").body("it").send().await.unwrap();
    assert_eq!(put.status(), 201);
    let got = after.get(&format!("/v2/a/b/blobs/{whole}")).await;
    assert_eq!(got.text().await.unwrap(), "half of it");
}

#[tokio::test]
async fn what_the_server_stores_is_a_layout_that_others_read() {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    let (manifest, digest) = registry.push_image("a", "t", "one").await;
    let layout = Layout::open(&root.path().join("a/_layout")).unwrap();
    let (descriptor, bytes) = layout.manifest(&Target::Tag("t".parse().unwrap())).unwrap();
    assert_eq!((descriptor.digest, bytes), (digest, manifest.into_bytes()));
}

#[tokio::test]
async fn requests_under_way_are_finished_before_the_server_ends() {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    let session = registry.session("a").await;
    let first = "first".repeat(256 * 1024);
    let digest = Digest::sha256(format!("{first}second").as_bytes());
    let (send, receive) = tokio::sync::mpsc::unbounded_channel::<Result<String, std::io::Error>>();
    let pieces = futures_util::stream::unfold(receive, |mut receive| async move {
        receive.recv().await.map(|piece| (piece, receive))
    });
    let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}"));
    let put = tokio::spawn(put.body(reqwest::Body::wrap_stream(pieces)).send());
    send.send(Ok(first)).unwrap();
    registry.wait_until_written(&session).await;
    let address = registry.address;
    let stopping = tokio::spawn(registry.stop());
    let mut open = true;
    for _ in 0..1000 {
        open = tokio::net::TcpStream::connect(address).await.is_ok();
        if !open {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!open, "nobody new is let in");
    send.send(Ok("second".to_owned())).unwrap();
    drop(send);
    assert_eq!(put.await.unwrap().unwrap().status(), 201);
    stopping.await.unwrap();
}

#[tokio::test]
async fn a_request_that_does_not_end_cannot_hold_the_server_up() {
    let root = tempfile::tempdir().unwrap();
    let mut config = Config::new(root.path(), loopback());
    config.limits.shutdown_timeout = Duration::from_millis(200);
    let registry = Registry::with(config).await;
    let session = registry.session("a").await;
    let never = futures_util::stream::pending::<Result<&str, std::io::Error>>();
    let patch = registry.ask(Method::PATCH, &session).body(reqwest::Body::wrap_stream(never));
    let patch = tokio::spawn(patch.send());
    tokio::time::sleep(Duration::from_millis(200)).await;
    tokio::time::timeout(Duration::from_secs(10), registry.stop()).await.unwrap();
    patch.abort();
}

#[tokio::test]
async fn abandoned_uploads_are_removed_at_start() {
    let root = tempfile::tempdir().unwrap();
    let before = Registry::start(root.path()).await;
    let session = before.session("a").await;
    before.ask(Method::PATCH, &session).body("x").send().await.unwrap();
    before.stop().await;
    let mut config = Config::new(root.path(), loopback());
    config.limits.upload_expiry = Duration::ZERO;
    tokio::time::sleep(Duration::from_millis(20)).await;
    let after = Registry::with(config).await;
    let uploads = root.path().join("a/_layout/.portolan/uploads");
    for _ in 0..100 {
        if std::fs::read_dir(&uploads).unwrap().next().is_none() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(std::fs::read_dir(&uploads).unwrap().next().is_none());
    assert_eq!(after.get(&session).await.status(), 404);
}
