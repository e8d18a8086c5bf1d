use std::sync::Arc;
use std::time::Duration;

use portolan_core::{Digest, media_type};
use portolan_registry::layout::{GarbageOptions, Layout};
use reqwest::Method;
use tokio::io::AsyncWriteExt;

use crate::support::{Registry, code, json_body, refusal, text};

#[tokio::test(flavor = "multi_thread")]
async fn many_push_one_blob_at_once() {
    let root = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::start(root.path()).await);
    let content = vec![42_u8; 3 * 1024 * 1024];
    let digest = Digest::sha256(&content);
    let pushes: Vec<_> = (0..12)
        .map(|_| {
            let (registry, content) = (Arc::clone(&registry), content.clone());
            tokio::spawn(async move {
                let session = registry.session("new/repository").await;
                let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}"));
                put.body(content).send().await.unwrap().status().as_u16()
            })
        })
        .collect();
    for push in pushes {
        assert_eq!(push.await.unwrap(), 201);
    }
    let got = registry.get(&format!("/v2/new/repository/blobs/{digest}")).await;
    assert!(got.bytes().await.unwrap() == content);
    let layout = root.path().join("new/repository/_layout");
    for left in [".portolan/tmp", ".portolan/uploads"] {
        assert_eq!(std::fs::read_dir(layout.join(left)).unwrap().count(), 0, "{left}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tag_is_lost_when_many_push_at_once() {
    let root = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::start(root.path()).await);
    let manifest = registry.push_parts("a", "one").await.to_string();
    // Another process writes to the same layout meanwhile.
    let layout = Layout::open(&root.path().join("a/_layout")).unwrap();
    let by_hand = {
        let manifest = manifest.clone();
        std::thread::spawn(move || {
            for n in 0..20 {
                let tag = format!("hand{n}").parse().unwrap();
                let kind = media_type::OCI_MANIFEST;
                layout.put_manifest(kind, manifest.as_bytes(), Some(&tag)).unwrap();
            }
        })
    };
    let pushes: Vec<_> = (0..20)
        .map(|n| {
            let (registry, manifest) = (Arc::clone(&registry), manifest.clone());
            tokio::spawn(async move {
                let pushed = registry.put_manifest("a", &format!("push{n}"), &manifest).await;
                assert_eq!(pushed.status(), 201);
            })
        })
        .collect();
    for push in pushes {
        push.await.unwrap();
    }
    by_hand.join().unwrap();
    let body: serde_json::Value = json_body(registry.get("/v2/a/tags/list").await).await;
    assert_eq!(body["tags"].as_array().unwrap().len(), 40);
}

#[tokio::test(flavor = "multi_thread")]
async fn collecting_garbage_while_others_push_breaks_no_image() {
    let root = tempfile::tempdir().unwrap();
    let registry = Arc::new(Registry::start(root.path()).await);
    registry.push_image("a", "first", "first").await;
    let layout = Layout::open(&root.path().join("a/_layout")).unwrap();
    let (stop, stopped) = std::sync::mpsc::channel::<()>();
    let collector = std::thread::spawn(move || {
        // Longer than any of these pushes, far shorter than the test.
        let options = GarbageOptions { grace: Duration::from_secs(2), ..Default::default() };
        let mut rounds = 0;
        while stopped.try_recv().is_err() {
            layout.collect_garbage(&options).unwrap();
            rounds += 1;
            std::thread::sleep(Duration::from_millis(20));
        }
        rounds
    });
    let pushes: Vec<_> = (0..4)
        .map(|worker| {
            let registry = Arc::clone(&registry);
            tokio::spawn(async move {
                for n in 0..8 {
                    let seed = format!("{worker}-{n}");
                    registry.push_image("a", &seed, &seed).await;
                }
            })
        })
        .collect();
    for push in pushes {
        push.await.unwrap();
    }
    stop.send(()).unwrap();
    assert!(collector.join().unwrap() > 0);
    for worker in 0..4 {
        for n in 0..8 {
            let layer = Digest::sha256(format!("layer of {worker}-{n}").as_bytes());
            let head = registry.head(&format!("/v2/a/blobs/{layer}")).await;
            assert_eq!(head.status(), 200, "{worker}-{n}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_requests_cannot_write_to_one_session() {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    let session = registry.session("a").await;
    let mut slow = tokio::net::TcpStream::connect(registry.address).await.unwrap();
    let content = "slow".repeat(256 * 1024);
    let length = content.len() + 1;
    let head = format!("PATCH {session} HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n");
    slow.write_all(head.as_bytes()).await.unwrap();
    slow.write_all(content.as_bytes()).await.unwrap();
    registry.wait_until_written(&session).await;
    let refused = registry.ask(Method::PATCH, &session).body("quick").send().await.unwrap();
    assert_eq!(refusal(refused).await, code(409, "BLOB_UPLOAD_INVALID"));
    // When the slow one hangs up, what it sent is kept and others may go on.
    drop(slow);
    let mut free = false;
    for _ in 0..1000 {
        free = registry.ask(Method::PATCH, &session).body("").send().await.unwrap().status() == 202;
        if free {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(free, "the session stays taken");
    let state = registry.get(&session).await;
    let range = text(&state, "range");
    let last: usize = range.strip_prefix("0-").unwrap().parse().unwrap();
    let sent = &content[..=last];
    let digest = Digest::sha256(format!("{sent}quick").as_bytes());
    let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}")).body("quick");
    assert_eq!(put.send().await.unwrap().status(), 201);
}
