use std::time::{Duration, Instant};

use axum::Router;
use axum::routing::get;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::{Limits, Listener, run};

async fn connect(limits: Limits) -> TcpStream {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let router = Router::new().route("/", get(|| async { "here" }));
    tokio::spawn(async move {
        run(Listener::Tcp(listener, None), router, &limits, std::future::pending()).await;
    });
    TcpStream::connect(address).await.unwrap()
}

/// What comes until nothing more does within the time; true with the end of the connection.
async fn comes(stream: &mut TcpStream, within: Duration) -> (Vec<u8>, bool) {
    let (until, mut all) = (Instant::now() + within, Vec::new());
    loop {
        let left = until.saturating_duration_since(Instant::now());
        match tokio::time::timeout(left, stream.read_buf(&mut all)).await {
            Ok(Ok(0) | Err(_)) => return (all, true),
            Ok(Ok(_)) => {}
            Err(_) => return (all, false),
        }
    }
}

#[tokio::test]
async fn a_kept_connection_may_idle_but_not_begin_a_head_and_stop() {
    let head_timeout = Duration::from_millis(300);
    let mut stream = connect(Limits { head_timeout, ..Limits::default() }).await;
    for _ in 0..2 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let (answer, ended) = comes(&mut stream, Duration::from_secs(1)).await;
        assert!(answer.ends_with(b"here") && !ended, "it may idle");
    }
    stream.write_all(b"GET / HTTP/1.1\r\nHo").await.unwrap();
    assert!(comes(&mut stream, Duration::from_secs(5)).await.1, "it may not stop in a head");
}

#[tokio::test]
async fn a_connection_of_http2_that_idles_is_told_to_go_and_let_go() {
    let header_timeout = Duration::from_millis(300);
    let mut stream = connect(Limits { header_timeout, ..Limits::default() }).await;
    stream.write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0").await.unwrap();
    let begun = Instant::now();
    let (said, mut ended) = comes(&mut stream, Duration::from_millis(1500)).await;
    // Every frame: three bytes of length, one of its kind, five more, and what is in it.
    let (mut rest, mut kinds) = (&said[..], Vec::new());
    while let [a, b, c, kind, ..] = *rest {
        kinds.push(kind);
        rest = &rest[(9 + u32::from_be_bytes([0, a, b, c]) as usize).min(rest.len())..];
    }
    assert!(kinds.contains(&7), "no GOAWAY: {kinds:?}");
    // It answers to nothing, and is let go all the same.
    while !ended && begun.elapsed() < Duration::from_secs(9) {
        ended = comes(&mut stream, Duration::from_millis(500)).await.1;
    }
    assert!(ended);
}
