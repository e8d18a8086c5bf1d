use portolan_core::{Algorithm, Digest};
use reqwest::Method;

use crate::support::{Registry, code, refusal, text};

async fn with_blob(content: &[u8]) -> (tempfile::TempDir, Registry, String) {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    let digest = registry.push_blob("a", content).await;
    (root, registry, format!("/v2/a/blobs/{digest}"))
}

#[tokio::test]
async fn the_base_says_that_this_is_a_registry() {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    for path in ["/v2/", "/v2"] {
        let base = registry.get(path).await;
        assert_eq!(base.status(), 200);
        assert_eq!(text(&base, "docker-distribution-api-version"), "registry/2.0");
    }
    assert_eq!(registry.head("/v2/").await.status(), 200);
}

#[tokio::test]
async fn ranges_of_a_blob() {
    let content: Vec<u8> = (0..2048_u32).map(|n| (n % 251) as u8).collect();
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let root = tempfile::tempdir().unwrap();
        let registry = Registry::start(root.path()).await;
        let digest = Digest::of(algorithm, &content);
        registry.push_blob_as("a", &content, &digest).await;
        let path = format!("/v2/a/blobs/{digest}");
        for (range, from, to) in [
            ("bytes=500-1499", 500, 1500),
            ("bytes=500-", 500, 2048),
            ("bytes=-500", 1548, 2048),
            ("bytes=2000-5000", 2000, 2048),
            ("bytes=0-0", 0, 1),
            ("bytes=-5000", 0, 2048),
        ] {
            let got = registry.ask(Method::GET, &path).header("range", range).send().await.unwrap();
            assert_eq!(got.status(), 206, "{range}");
            assert_eq!(text(&got, "content-range"), format!("bytes {from}-{}/2048", to - 1));
            assert_eq!(text(&got, "content-length"), (to - from).to_string());
            assert!(got.bytes().await.unwrap() == content[from..to], "{range}");
        }
        for range in ["bytes=500-0", "bytes=5000-10000", "bytes=2048-", "bytes=-0"] {
            let got = registry.ask(Method::GET, &path).header("range", range).send().await.unwrap();
            assert_eq!(text(&got, "content-range"), "bytes */2048", "{range}");
            assert_eq!(refusal(got).await.0, 416, "{range}");
        }
        for range in ["bytes=0-1,4-5", "pages=1-2"] {
            let got = registry.ask(Method::GET, &path).header("range", range).send().await.unwrap();
            assert_eq!(got.status(), 200, "{range}");
            assert!(got.bytes().await.unwrap() == content, "{range}");
        }
    }
}

#[tokio::test]
async fn a_cut_download_resumes_only_if_nothing_changed() {
    let (_root, registry, path) = with_blob(b"0123456789").await;
    let etag = text(&registry.head(&path).await, "etag");
    let ask = |etag: String| {
        let request = registry.ask(Method::GET, &path).header("range", "bytes=4-");
        request.header("if-range", etag).send()
    };
    let resumed = ask(etag).await.unwrap();
    assert_eq!((resumed.status().as_u16(), resumed.text().await.unwrap()), (206, "456789".into()));
    let other = ask("\"other\"".into()).await.unwrap();
    assert_eq!(other.status(), 200);
}

#[tokio::test]
async fn head_says_what_get_would_send() {
    let (_root, registry, path) = with_blob(b"0123456789").await;
    let head = registry.head(&path).await;
    assert_eq!(head.status(), 200);
    assert_eq!(text(&head, "content-length"), "10");
    assert_eq!(text(&head, "accept-ranges"), "bytes");
    assert!(path.ends_with(&text(&head, "docker-content-digest")));
    assert!(head.bytes().await.unwrap().is_empty());

    let (manifest, digest) = registry.push_image("a", "t", "one").await;
    let head = registry.head("/v2/a/manifests/t").await;
    assert_eq!(text(&head, "content-length"), manifest.len().to_string());
    assert_eq!(text(&head, "docker-content-digest"), digest.to_string());
    assert!(head.bytes().await.unwrap().is_empty());
}

#[tokio::test]
async fn what_the_client_has_is_not_sent_again() {
    let (_root, registry, blob) = with_blob(b"0123456789").await;
    registry.push_image("a", "t", "one").await;
    for path in [blob.as_str(), "/v2/a/manifests/t"] {
        let etag = text(&registry.get(path).await, "etag");
        let again = registry.ask(Method::GET, path).header("if-none-match", &etag).send().await;
        let again = again.unwrap();
        assert_eq!(again.status(), 304, "{path}");
        assert_eq!(text(&again, "etag"), etag);
        let other = registry.ask(Method::GET, path).header("if-none-match", "\"x\"").send().await;
        assert_eq!(other.unwrap().status(), 200, "{path}");
    }
}

#[tokio::test]
async fn a_manifest_is_sent_as_pushed_whatever_is_accepted() {
    let (_root, registry, _) = with_blob(b"x").await;
    registry.push_image("a", "t", "one").await;
    for accept in ["*/*", "application/json", "application/vnd.oci.image.manifest.v1+json"] {
        let got = registry.ask(Method::GET, "/v2/a/manifests/t").header("accept", accept);
        assert_eq!(got.send().await.unwrap().status(), 200, "{accept}");
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_not_to_be() {
    let (_root, registry, _) = with_blob(b"x").await;
    let absent = Digest::sha256(b"absent");
    for (path, word) in [
        (format!("/v2/a/blobs/{absent}"), "BLOB_UNKNOWN"),
        (format!("/v2/a/manifests/{absent}"), "MANIFEST_UNKNOWN"),
        ("/v2/a/manifests/absent".to_owned(), "MANIFEST_UNKNOWN"),
        ("/v2/a/manifests/.INVALID_MANIFEST_NAME".to_owned(), "MANIFEST_UNKNOWN"),
        (format!("/v2/b/blobs/{absent}"), "NAME_UNKNOWN"),
        ("/v2/b/manifests/absent".to_owned(), "NAME_UNKNOWN"),
        ("/v2/b/tags/list".to_owned(), "NAME_UNKNOWN"),
        ("/nothing".to_owned(), "UNSUPPORTED"),
    ] {
        assert_eq!(registry.head(&path).await.status().as_u16() / 100, 4, "{path}");
        assert_eq!(refusal(registry.get(&path).await).await, code(404, word), "{path}");
    }
    for path in ["/v2/a/manifests/sha256:baddigeststring", "/v2/a/blobs/sha256:x"] {
        assert_eq!(refusal(registry.get(path).await).await, code(400, "DIGEST_INVALID"), "{path}");
    }
}

#[tokio::test]
async fn a_blob_is_not_a_manifest_even_if_it_looks_like_one() {
    let (_root, registry, _) = with_blob(b"x").await;
    let (manifest, _) = registry.push_image("b", "t", "one").await;
    let digest = registry.push_blob("a", manifest.as_bytes()).await;
    let got = registry.get(&format!("/v2/a/manifests/{digest}")).await;
    assert_eq!(refusal(got).await, code(404, "MANIFEST_UNKNOWN"));
}

#[tokio::test]
async fn methods_that_make_no_sense_are_refused() {
    let (_root, registry, blob) = with_blob(b"x").await;
    for (method, path, allow) in [
        (Method::POST, "/v2/", "GET, HEAD"),
        (Method::PUT, blob.as_str(), "GET, HEAD, DELETE"),
        (Method::POST, "/v2/a/manifests/t", "GET, HEAD, PUT, DELETE"),
        (Method::DELETE, "/v2/a/tags/list", "GET"),
        (Method::GET, "/v2/a/blobs/uploads/", "POST"),
        (Method::PUT, "/v2/_catalog", "GET"),
    ] {
        let refused = registry.ask(method, path).send().await.unwrap();
        assert_eq!(text(&refused, "allow"), allow, "{path}");
        assert_eq!(refusal(refused).await, code(405, "UNSUPPORTED"), "{path}");
    }
}

#[tokio::test]
async fn a_large_blob_arrives_whole() {
    let content: Vec<u8> = (0..5 * 1024 * 1024 + 3_u32).map(|n| (n / 7 % 253) as u8).collect();
    let (_root, registry, path) = with_blob(&content).await;
    let got = registry.get(&path).await;
    assert!(got.bytes().await.unwrap() == content);
    let tail = registry.ask(Method::GET, &path).header("range", "bytes=1000001-").send().await;
    assert!(tail.unwrap().bytes().await.unwrap() == content[1_000_001..]);
}
