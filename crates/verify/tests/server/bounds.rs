//! Whoever reaches a port: so much memory, so many places, and always room for the next.

use std::time::{Duration, Instant};

use futures_util::StreamExt as _;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;

use crate::harness::{ADMISSION, Bench, LONG, MUTATE, SHORT, V1, V2, client, until};

/// The beginning of a body, and no more of it.
fn unfinished(bytes: usize) -> reqwest::Body {
    let begun = futures_util::stream::iter([Ok::<_, std::io::Error>(vec![b' '; bytes])]);
    reqwest::Body::wrap_stream(begun.chain(futures_util::stream::pending()))
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_all_requests_have_one_bound_and_who_finds_no_room_is_told_to_come_back() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let limits = "\n[limits]\nbody_bytes = 30000\nbodies_bytes = 40000\n\
                  [timeouts]\nverify = \"2s\"\nmutate = \"500ms\"\nadmission = \"2s\"\n";
    let verifier = bench.start_with("", &format!("{LONG}{limits}")).await;
    let pinned = bench.image(&format!("@{}", bench.image.top.digest));
    for path in [V2, ADMISSION] {
        let hold = async {
            tokio::join!(
                verifier.post(path, unfinished(20000)),
                verifier.post(path, unfinished(19990))
            )
        };
        let ask = async {
            until(async || verifier.metric("portolan_verifier_in_flight").await == 2.0).await;
            // They are read by now.
            tokio::time::sleep(Duration::from_millis(200)).await;
            verifier.ask(MUTATE, &[&pinned]).await
        };
        let ((one, two), told) = tokio::join!(hold, ask);
        assert_eq!((one.status, two.status), (408, 408), "{path}");
        assert!(told.system_error().contains("limits.bodies_bytes"), "{}", told.body);
    }
    // Room comes back.
    let told = verifier.ask(MUTATE, &[&pinned]).await;
    assert_eq!(told.value(), &serde_json::json!(pinned));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_is_announced_too_long_is_refused_before_it_comes() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    let announced = |path: &str| {
        let url = format!("https://localhost:{}{path}", verifier.running.provider.port());
        let request = verifier.client.post(url).header("content-length", 3 * 1024 * 1024 + 1);
        request.body(unfinished(10)).send()
    };
    for path in [V1, V2, ADMISSION] {
        let begun = Instant::now();
        assert_eq!(announced(path).await.unwrap().status().as_u16(), 413, "{path}");
        assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}

/// Connections that are there and ask nothing.
async fn idle(address: std::net::SocketAddr, count: usize, says: &[u8]) -> Vec<TcpStream> {
    let mut all = Vec::new();
    for _ in 0..count {
        let mut stream = TcpStream::connect(address).await.unwrap();
        // Those that came first may be gone already.
        let _ = stream.write_all(says).await;
        all.push(stream);
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn however_many_connections_idle_health_and_questions_are_answered() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let limits = format!("{LONG}\n[limits]\nconnections = 8\n");
    let verifier = bench.start_with("", &limits).await;
    let settings = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    let at_health = verifier.running.health.unwrap();
    let ask = async |client: &reqwest::Client| {
        let url = format!("https://localhost:{}{V1}", verifier.running.provider.port());
        let keys = serde_json::json!({"request": {"keys": [bench.key_for("amd64")]}});
        let asked = client.post(url).body(keys.to_string()).send();
        let answered = tokio::time::timeout(Duration::from_secs(3), asked).await;
        answered.expect("it is answered").unwrap().status().as_u16()
    };
    for says in [b"".as_slice(), b"GET /healthz HT", settings] {
        let _held = idle(at_health, 100, says).await;
        let begun = Instant::now();
        assert_eq!(verifier.health("/healthz").await.0, 200);
        assert!(begun.elapsed() < Duration::from_secs(3), "{:?}", begun.elapsed());
        // The same in front of a handshake that never comes.
        let _held = idle(verifier.running.provider, 100, says).await;
        let new = client(&bench.authority.pem(), Some(&bench.identity()));
        assert_eq!(ask(&new).await, 200);
    }
    // And those that were let in.
    let mut kept = Vec::new();
    for _ in 0..12 {
        kept.push(client(&bench.authority.pem(), Some(&bench.identity())));
        assert_eq!(ask(&kept[kept.len() - 1]).await, 200);
    }
}

/// Over all questions, and given back by each.
#[tokio::test(flavor = "multi_thread")]
async fn what_registries_send_has_one_bound() {
    let bench = Bench::new();
    bench.sign_amd64().await;
    let held = |bytes: usize| format!("{SHORT}\n[limits]\nheld_bytes = {bytes}\n");
    let key = bench.key_for("amd64");
    let verifier = bench.start_with("", &held(16 * 1024)).await;
    for _ in 0..20 {
        let said = verifier.ask(V1, &[&key]).await;
        assert_eq!(said.value()["isSuccess"], true, "{}", said.body);
    }
    let verifier = bench.start_with("", &held(100)).await;
    let said = verifier.ask(V1, &[&key]).await;
    assert_eq!(said.status, 503, "{}", said.body);
    said.system_error();
}
