use std::time::{Duration, Instant};

use portolan_core::Digest;
use portolan_registry::server::Config;
use reqwest::Method;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::{Registry, code, loopback, refusal, text};

async fn with(change: impl FnOnce(&mut Config)) -> (tempfile::TempDir, Registry) {
    let root = tempfile::tempdir().unwrap();
    let mut config = Config::new(root.path(), loopback());
    change(&mut config);
    let registry = Registry::with(config).await;
    (root, registry)
}

#[tokio::test]
async fn blobs_beyond_the_limit_are_refused_announced_or_not() {
    let (_root, registry) = with(|config| config.limits.max_blob_bytes = 10).await;
    let content = "01234567890";
    let digest = Digest::sha256(content.as_bytes());
    let post = format!("/v2/a/blobs/uploads/?digest={digest}");
    let refused = registry.ask(Method::POST, &post).body(content).send().await.unwrap();
    assert_eq!(refusal(refused).await, code(413, "SIZE_INVALID"));
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>(content)]);
    let body = reqwest::Body::wrap_stream(pieces);
    let refused = registry.ask(Method::POST, &post).body(body).send().await.unwrap();
    assert_eq!(refusal(refused).await, code(413, "SIZE_INVALID"));

    let session = registry.session("a").await;
    registry.ask(Method::PATCH, &session).body("01234567").send().await.unwrap();
    let refused = registry.ask(Method::PATCH, &session).body("89A").send().await.unwrap();
    assert_eq!(refusal(refused).await, code(413, "SIZE_INVALID"));
    // What was taken before is still there, and what fits is taken.
    let fits = registry.ask(Method::PATCH, &session).body("89").send().await.unwrap();
    assert_eq!((fits.status().as_u16(), text(&fits, "range")), (202, "0-9".into()));
}

#[tokio::test]
async fn sessions_and_uploads_at_once_are_bounded() {
    let (_root, registry) = with(|config| config.limits.max_sessions = 1).await;
    let session = registry.session("a").await;
    let refused = registry.ask(Method::POST, "/v2/a/blobs/uploads/").send().await.unwrap();
    assert_eq!(refusal(refused).await, code(429, "TOOMANYREQUESTS"));
    registry.delete(&session).await;
    registry.session("a").await;

    let (_root, registry) = with(|config| config.limits.max_uploads = 0).await;
    let session = registry.session("a").await;
    let refused = registry.ask(Method::PATCH, &session).body("x").send().await.unwrap();
    assert_eq!(text(&refused, "retry-after"), "1");
    assert_eq!(refusal(refused).await, code(429, "TOOMANYREQUESTS"));
}

#[tokio::test]
async fn a_client_that_stops_sending_is_let_go_and_can_go_on() {
    let (_root, registry) = with(|c| c.limits.idle_timeout = Duration::from_millis(200)).await;
    let session = registry.session("a").await;
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    let head = format!("PATCH {session} HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n0123");
    stream.write_all(head.as_bytes()).await.unwrap();
    let started = Instant::now();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer).await;
    assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
    assert!(started.elapsed() < Duration::from_secs(10));
    let state = registry.get(&session).await;
    assert_eq!(text(&state, "range"), "0-3");
    let digest = Digest::sha256(b"0123rest");
    let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}"));
    let put = put.header("content-range", "4-7").body("rest").send().await.unwrap();
    assert_eq!(put.status(), 201);
}

#[tokio::test]
async fn a_client_that_never_finishes_its_head_is_let_go() {
    let (_root, registry) = with(|c| c.limits.header_timeout = Duration::from_millis(200)).await;
    let whole = "GET /v2/ HTTP/1.1\r\nHost: x\r\n\r\n";
    // In the middle of the head, before it, in a preface of HTTP/2, after a first request.
    for beginning in ["GET /v2/ HTTP/1.1\r\nHost:", "", "PRI * HTTP", whole] {
        let mut stream = TcpStream::connect(registry.address).await.unwrap();
        stream.write_all(beginning.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read_to_end(&mut answer));
        assert!(read.await.is_ok(), "the connection stays open after {beginning:?}");
    }
    assert_eq!(registry.get("/v2/").await.status(), 200);
}

#[tokio::test]
async fn a_client_that_never_reads_is_let_go() {
    let (_root, registry) = with(|c| c.limits.idle_timeout = Duration::from_millis(300)).await;
    // More than the buffers of both ends of a connection take.
    let digest = registry.push_blob("a", &vec![7; 32 * 1024 * 1024]).await;
    let mut stream = TcpStream::connect(registry.address).await.unwrap();
    let head = format!("GET /v2/a/blobs/{digest} HTTP/1.1\r\nHost: x\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    assert!(received.len() < 32 * 1024 * 1024, "the rest was not kept waiting");
}

#[tokio::test]
async fn connections_beyond_the_bound_wait_while_all_are_busy() {
    let (_root, registry) = with(|c| c.limits.max_connections = 2).await;
    let session = registry.session("a").await;
    let mut uploads = Vec::new();
    for _ in 0..2 {
        let mut stream = TcpStream::connect(registry.address).await.unwrap();
        let head = format!("PATCH {session} HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\nab");
        stream.write_all(head.as_bytes()).await.unwrap();
        uploads.push(stream);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let mut second = TcpStream::connect(registry.address).await.unwrap();
    second.write_all(b"GET /v2/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let wait = tokio::time::timeout(Duration::from_millis(300), second.read_to_string(&mut answer));
    assert!(wait.await.is_err(), "nobody answers while the place is taken");
    drop(uploads);
    second.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
}

#[tokio::test]
async fn who_idles_for_the_longest_makes_room_for_who_comes() {
    let (_root, registry) = with(|c| c.limits.max_connections = 2).await;
    let mut idle = Vec::new();
    for _ in 0..5 {
        idle.push(TcpStream::connect(registry.address).await.unwrap());
    }
    let mut late = TcpStream::connect(registry.address).await.unwrap();
    late.write_all(b"GET /v2/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    let mut answer = String::new();
    let read = tokio::time::timeout(Duration::from_secs(5), late.read_to_string(&mut answer));
    read.await.unwrap().unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    // The first that came is gone.
    let end =
        tokio::time::timeout(Duration::from_secs(5), idle[0].read(&mut [0; 8])).await.unwrap();
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
}
