use portolan_core::Digest;

use crate::support::{Registry, raw, raw_get};

#[tokio::test]
async fn no_path_leads_out_of_the_store() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("secret"), "SECRET").unwrap();
    let registry = Registry::start(&root.path().join("store")).await;
    registry.push_image("a", "t", "one").await;
    let digest = Digest::sha256(b"x");
    for path in [
        "/v2/../secret",
        "/v2/../../secret/tags/list",
        "/v2/a/../../secret/tags/list",
        "/v2/%2e%2e/secret/tags/list",
        "/v2/..%2fsecret/tags/list",
        "/v2/a%2f..%2f..%2fsecret/tags/list",
        "/v2/a\\..\\secret/tags/list",
        "/v2/a%5c..%5csecret/tags/list",
        "/v2/a%00/tags/list",
        "/v2//tags/list",
        "/v2/a//tags/list",
        "/v2//a/tags/list",
        "/v2/a/./tags/list",
        "/v2/_layout/tags/list",
        "/v2/a/_layout/tags/list",
        "/v2/a/.portolan/tags/list",
        "/v2/A/tags/list",
        "/v2/a/manifests/../../../secret",
        "/v2/a/manifests/..%2f..%2f..%2fsecret",
        "/v2/a/blobs/sha256:../../../../secret",
        "/v2/a/blobs/..%2f..%2fsecret",
        "/v2/a/blobs/uploads/..%2f..%2fsecret",
        "/v2/a/blobs/uploads/../../../secret",
        "/v2/a/referrers/..",
    ] {
        let answer = raw_get(registry.address, path).await;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        assert!(status == "400" || status == "404", "{path}: {answer}");
        assert!(!answer.contains("SECRET"), "{path}");
    }
    // The same where something would be written.
    for path in
        ["/v2/../b/blobs/uploads/", "/v2/%2e%2e/b/blobs/uploads/", "/v2/a//b/blobs/uploads/"]
    {
        let request = format!(
            "POST {path}?digest={digest} HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx"
        );
        let answer = raw(registry.address, request.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 400"), "{path}: {answer}");
        assert!(answer.contains("NAME_INVALID"), "{path}: {answer}");
    }
    let mut entries: Vec<_> =
        std::fs::read_dir(root.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
    entries.sort();
    assert_eq!(entries, ["secret", "store"]);
}

#[tokio::test]
async fn names_as_long_as_allowed_and_one_longer() {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    let longest = ["a".repeat(127), "b".repeat(127)].join("/");
    registry.push_image(&longest, "t", "one").await;
    let listed = raw_get(registry.address, &format!("/v2/{longest}/tags/list")).await;
    assert!(listed.starts_with("HTTP/1.1 200"), "{listed}");
    let longer = format!("/v2/{longest}c/tags/list");
    assert!(raw_get(registry.address, &longer).await.contains("NAME_INVALID"));
    let absurd = format!("/v2/{}/tags/list", "a/".repeat(20_000));
    let answer = raw_get(registry.address, &absurd).await;
    assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
}

#[tokio::test]
async fn absurd_requests_do_not_stop_the_server() {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    let many: String = (0..500).map(|n| format!("X-{n}: y\r\n")).collect();
    let huge = format!("X: {}\r\n", "y".repeat(2 * 1024 * 1024));
    for headers in [
        many.as_str(),
        huge.as_str(),
        "Content-Length: -5\r\n",
        "Content-Length: 99999999999999999999999\r\n",
        "Range: bytes=\u{1}\r\n",
        "no colon\r\n",
    ] {
        let request = format!("GET /v2/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n{headers}\r\n");
        let answer = raw(registry.address, request.as_bytes()).await;
        let refused = answer.is_empty() || answer.starts_with("HTTP/1.1 4");
        assert!(refused, "{}: {answer}", &headers[..headers.len().min(40)]);
    }
    for garbage in [&b"\0\0\0\0\r\n\r\n"[..], b"GET", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nxxxxxxxxx"]
    {
        let mut request = garbage.to_vec();
        request.extend_from_slice(b"\r\n\r\n");
        let _ = tokio::time::timeout(
            std::time::Duration::from_secs(5),
            raw(registry.address, &request),
        )
        .await;
    }
    assert_eq!(registry.get("/v2/").await.status(), 200);
}
