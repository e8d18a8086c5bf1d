//! The program among others who do not mean well, or do not look.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use portolan_agent::api::PrefetchRequest;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::harness::{Home, ROOM, Registry, from};

fn bits(path: &Path) -> u32 {
    std::fs::symlink_metadata(path).unwrap().permissions().mode() & 0o777
}

#[tokio::test(flavor = "multi_thread")]
async fn nobody_else_can_look_into_what_the_agent_keeps() {
    let registry = Registry::start(None).await;
    let home = Home::new();
    let agent = home.start("").await;
    let request: PrefetchRequest = from(json!({ "images": [registry.image()] }));
    agent.client.prefetch(&request).await.unwrap();
    let root = home.path("root");
    assert_eq!((bits(&root), bits(&home.path("a.sock"))), (0o700, 0o600));
    let mut open = vec![root];
    let mut seen = 0;
    while let Some(path) = open.pop() {
        assert_eq!(bits(&path) & 0o077, 0, "{}", path.display());
        seen += 1;
        if path.is_dir() {
            open.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(seen > 10, "{seen}");
    assert!(agent.stop().await.success());

    // Who opens the socket to its group lets the group through the root, and no further.
    let config = format!("[api]\nsocket_mode = \"0660\"\n{ROOM}");
    std::fs::write(home.path("agent.toml"), config).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan-agent"));
    command.arg("--root").arg(home.path("root")).arg("--config").arg(home.path("agent.toml"));
    let mut agent = command.kill_on_drop(true).spawn().unwrap();
    let socket = home.path("root/agent.sock");
    let client = portolan_agent::client::Client::new(&socket);
    while client.status().await.is_err() {
        assert!(agent.try_wait().unwrap().is_none(), "it ended");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    assert_eq!((bits(&home.path("root")), bits(&socket)), (0o710, 0o660));
    assert_eq!(bits(&home.path("root/instances")), 0o700);
    agent.kill().await.unwrap();
}

/// It cannot be asked, so it must not begin anything.
#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_socket_is_taken_starts_no_instance() {
    let (first, second) = (Home::new(), Home::new());
    let _agent = first.start("").await;
    let folder = second.path("root/instances/web-1");
    std::fs::create_dir_all(&folder).unwrap();
    let image = json!({ "repository": "127.0.0.1:1/x", "os": "linux", "arch": "amd64",
        "resolved_digest": format!("sha256:{}", "ab".repeat(32)) });
    std::fs::write(folder.join("spec.json"), json!({ "image": image }).to_string()).unwrap();
    std::fs::write(second.path("agent.toml"), ROOM).unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_portolan-agent"));
    command.arg("--root").arg(second.path("root")).arg("--config").arg(second.path("agent.toml"));
    let said = command.arg("--socket").arg(first.path("a.sock")).output().await.unwrap();
    let text = String::from_utf8_lossy(&said.stderr);
    assert!(!said.status.success() && text.contains("already listens"), "{text}");
    assert!(!folder.join("state.json").exists(), "nothing was done for it: {text}");
}

/// Whatever a stranger writes into a path or a range, he gets what a digest names, or nothing.
#[tokio::test(flavor = "multi_thread")]
async fn the_mirror_gives_out_what_a_digest_names_and_nothing_else() {
    let registry = Registry::start(None).await;
    let home = Home::new();
    let agent = home.start("[mirror]\nlisten = \"127.0.0.1:0\"").await;
    let request: PrefetchRequest = from(json!({ "images": [registry.image()] }));
    agent.client.prefetch(&request).await.unwrap();
    let mirror = agent.listens("the mirror");
    let digest = request.images[0].resolved_digest.clone().unwrap();
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let get = |path: &str| http.get(format!("http://{mirror}{path}")).send();
    // As containerd asks a mirror.
    let manifest = get(&format!("/v2/hello/manifests/{digest}?ns=registry.example")).await.unwrap();
    assert_eq!(manifest.status(), 200);
    let document: Value = serde_json::from_slice(&manifest.bytes().await.unwrap()).unwrap();
    let layer = &document["layers"][0];
    let (name, size) = (layer["digest"].as_str().unwrap(), layer["size"].as_u64().unwrap());
    let blob = format!("/v2/x/blobs/{name}");

    // A path is sent as it is written here; a client would tidy it up.
    let raw = async |request: String| {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = tokio::net::TcpStream::connect(mirror).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    };
    let hex = name.strip_prefix("sha256:").unwrap();
    for path in [
        "/v2/../../../../etc/passwd".to_owned(),
        "/v2/x/blobs/sha256:../../../agent.redb".to_owned(),
        "/v2/x/blobs/sha256:..%2f..%2f..%2fagent.redb".to_owned(),
        format!("/v2/x/blobs/sha256:{}", hex.to_uppercase()),
        format!("/v2/x/blobs/sha512:{hex}{hex}"),
        format!("/v2/x/blobs/sha256:{hex}/"),
        format!("/v2/x/manifests/{name}"),
        "/v2/x/manifests/latest".to_owned(),
        "/v2/_catalog".to_owned(),
        "/v2/x/tags/list".to_owned(),
        format!("/v2/x/referrers/{digest}"),
        "/v1/status".to_owned(),
        "/metrics".to_owned(),
    ] {
        let head = format!("GET {path} HTTP/1.1\r\nhost: m\r\nconnection: close\r\n\r\n");
        let answer = raw(head).await;
        let refused = answer.starts_with("HTTP/1.1 404") || answer.starts_with("HTTP/1.1 400");
        assert!(refused, "{path}: {answer}");
        assert!(!answer.contains("root:") && !answer.contains("redb"), "{path}: {answer}");
    }
    for method in ["POST", "PUT", "PATCH", "DELETE"] {
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let answer = http.request(method.clone(), format!("http://{mirror}{blob}"));
        assert_eq!(answer.send().await.unwrap().status(), 405, "{method}");
    }
    for (range, status, bytes) in [
        ("bytes=0-0", 206, 1),
        ("bytes=-1", 206, 1),
        (&format!("bytes={}-", size - 1), 206, 1),
        (&format!("bytes={size}-"), 416, 0),
        ("bytes=9-2", 200, size),
        ("bytes=18446744073709551615-", 416, 0),
        ("lines=1-2", 200, size),
    ] {
        let answer = http.get(format!("http://{mirror}{blob}")).header("range", range);
        let answer = answer.send().await.unwrap();
        let got = answer.status().as_u16();
        let length = answer.bytes().await.unwrap().len() as u64;
        // What cannot be understood may be ignored or refused; it never gives more than there is.
        let fine = got == status && (got == 416 || length == bytes);
        assert!(fine || (status == 200 && got == 416), "{range}: {got}, {length} bytes");
    }
    // What is being fetched is under another name until it was verified; what rotted is not given.
    let tmp = home.path("root/tmp");
    std::fs::write(tmp.join(hex), "half").unwrap();
    let path = home.path("root/oci/manifests/sha256").join(digest.strip_prefix("sha256:").unwrap());
    std::fs::write(&path, "{}").unwrap();
    let rotten = get(&format!("/v2/hello/manifests/{digest}")).await.unwrap();
    assert_eq!(rotten.status(), 404);
}
