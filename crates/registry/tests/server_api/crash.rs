//! The server killed in the middle of its work, and the server without room to work. The test
//! binary starts itself again as the process this happens to.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use portolan_core::Digest;
use portolan_registry::server::{Config, Server};
use reqwest::Method;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::support::{Registry, code, loopback, refusal, text};

/// The root of the child's server; set only there.
const CHILD_ROOT: &str = "PORTOLAN_TEST_SERVER_ROOT";

fn child_root() -> Option<PathBuf> {
    std::env::var_os(CHILD_ROOT).map(PathBuf::from)
}

/// What the child does: serve until it is killed.
#[tokio::test]
async fn server_that_is_killed() {
    let Some(root) = child_root() else { return };
    let server = Server::bind(Config::new(root, loopback())).await.unwrap();
    println!("listening on {}", server.local_addr());
    server.serve(std::future::pending()).await.unwrap();
}

fn spawn(root: &Path) -> (Child, SocketAddr) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "crash::server_that_is_killed", "--nocapture"])
        .env(CHILD_ROOT, root)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let address = lines
        .map_while(Result::ok)
        .find_map(|line| line.split_once("listening on ").map(|(_, address)| address.to_owned()));
    (child, address.unwrap().parse().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_in_the_middle_of_an_upload_goes_on_where_it_was() {
    let root = tempfile::tempdir().unwrap();
    let (mut child, address) = spawn(root.path());
    let before = Registry::at(address);
    let (_, digest) = before.push_image("a", "t", "one").await;
    let session = before.session("a").await;
    let content: Vec<u8> = (0..=250).cycle().take(3_000_000).collect();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = format!("PATCH {session} HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(&content[..2_000_000]).await.unwrap();
    // Until some of it has reached the disk.
    for _ in 0..100 {
        if text(&before.get(&session).await, "range") != "0-0" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    child.kill().unwrap();
    child.wait().unwrap();

    let (mut child, address) = spawn(root.path());
    let after = Registry::at(address);
    assert_eq!(after.head(&format!("/v2/a/manifests/{digest}")).await.status(), 200);
    let whole = Digest::sha256(&content);
    assert_eq!(after.head(&format!("/v2/a/blobs/{whole}")).await.status(), 404);
    let state = after.get(&session).await;
    assert_eq!(state.status(), 204);
    let range = text(&state, "range");
    let there: usize = range.strip_prefix("0-").unwrap().parse::<usize>().unwrap() + 1;
    assert!((2..=2_000_000).contains(&there), "{there}");
    let rest = content[there..].to_vec();
    let put = after
        .ask(Method::PUT, &format!("{session}?digest={whole}"))
        .header("content-range", format!("{there}-{}", content.len() - 1))
        .body(rest)
        .send()
        .await
        .unwrap();
    assert_eq!(put.status(), 201, "{}", put.text().await.unwrap());
    let got = after.get(&format!("/v2/a/blobs/{whole}")).await;
    assert!(got.bytes().await.unwrap() == content);
    child.kill().unwrap();
    child.wait().unwrap();
}

#[tokio::test]
async fn a_full_disk_is_reported_and_the_room_is_given_back() {
    const NAME: &str = "crash::a_full_disk_is_reported_and_the_room_is_given_back";
    if let Some(root) = child_root() {
        let registry = Registry::start(&root).await;
        registry.push_image("a", "t", "one").await;
        let content = vec![7; 4 * 1024 * 1024];
        let path = format!("/v2/a/blobs/uploads/?digest={}", Digest::sha256(&content));
        for _ in 0..3 {
            let push = registry.ask(Method::POST, &path).body(content.clone());
            let refused = push.send().await.unwrap();
            assert_eq!(refusal(refused).await, code(507, "UNSUPPORTED"));
        }
        registry.push_blob("a", &[1; 200_000]).await;
        assert_eq!(registry.get("/v2/a/manifests/t").await.status(), 200);
        return;
    }
    let namespace = ["--user", "--map-root-user", "--mount"];
    let probe = Command::new("unshare").args(namespace).arg("true").output();
    if !probe.is_ok_and(|probe| probe.status.success()) {
        return crate::skip::skip("no mount namespaces here for a full disk");
    }
    let root = tempfile::tempdir().unwrap();
    let script = format!(
        "mount -t tmpfs -o size=1m tmpfs \"${CHILD_ROOT}\" && exec \"$0\" --exact {NAME} --nocapture"
    );
    let status = Command::new("unshare")
        .args(namespace)
        .args(["sh", "-c", &script])
        .arg(std::env::current_exe().unwrap())
        .env(CHILD_ROOT, root.path())
        // Its closing line is not ours; why it failed comes on the other stream.
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(status.success(), "the child process failed; its output is above");
}
