use portolan_core::{Algorithm, Digest, media_type};
use reqwest::Method;
use serde_json::json;

use crate::support::{Registry, code, descriptor, image, refusal, text};

async fn start() -> (tempfile::TempDir, Registry) {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    (root, registry)
}

async fn assert_stored(registry: &Registry, name: &str, content: &[u8], digest: &Digest) {
    let got = registry.get(&format!("/v2/{name}/blobs/{digest}")).await;
    assert_eq!(got.status(), 200);
    assert_eq!(text(&got, "docker-content-digest"), digest.to_string());
    assert_eq!(text(&got, "content-length"), content.len().to_string());
    assert!(got.bytes().await.unwrap() == content);
}

#[tokio::test]
async fn one_post_stores_a_blob_under_either_algorithm() {
    let (_root, registry) = start().await;
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        for content in [&b"some content"[..], b"", b"{}"] {
            let digest = Digest::of(algorithm, content);
            let path = format!("/v2/a/blobs/uploads/?digest={digest}");
            let pushed = registry.ask(Method::POST, &path).body(content).send().await.unwrap();
            assert_eq!(pushed.status(), 201);
            assert_eq!(text(&pushed, "docker-content-digest"), digest.to_string());
            assert_eq!(text(&pushed, "location"), format!("/v2/a/blobs/{digest}"));
            assert_stored(&registry, "a", content, &digest).await;
        }
    }
}

#[tokio::test]
async fn post_then_put_stores_a_blob() {
    let (_root, registry) = start().await;
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let digest = Digest::of(algorithm, b"monolith");
        let session = registry.session("a").await;
        let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}"));
        let put = put.body("monolith").send().await.unwrap();
        assert_eq!(put.status(), 201);
        assert_eq!(text(&put, "location"), format!("/v2/a/blobs/{digest}"));
        assert_stored(&registry, "a", b"monolith", &digest).await;
        // The session is over.
        let gone = registry.get(&session).await;
        assert_eq!(refusal(gone).await, code(404, "BLOB_UPLOAD_UNKNOWN"));
    }
}

#[tokio::test]
async fn a_stream_without_ranges_is_appended() {
    let (_root, registry) = start().await;
    let session = registry.session("a").await;
    for (piece, range) in [("first ", "0-5"), ("second", "0-11")] {
        let patched = registry.ask(Method::PATCH, &session).body(piece).send().await.unwrap();
        assert_eq!(patched.status(), 202);
        assert_eq!(text(&patched, "range"), range);
        assert_eq!(text(&patched, "location"), session);
    }
    let digest = Digest::of(Algorithm::Sha512, b"first second");
    let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}")).send().await;
    assert_eq!(put.unwrap().status(), 201);
    assert_stored(&registry, "a", b"first second", &digest).await;
}

#[tokio::test]
async fn chunks_in_order_with_and_without_a_last_one_in_the_put() {
    let (_root, registry) = start().await;
    for last_in_put in [false, true] {
        let session = registry.session("a").await;
        let chunk = |method, path: &str, range: &str, body: &'static str| {
            registry
                .ask(method, path)
                .header("content-range", range)
                .header("content-type", "application/octet-stream")
                .body(body)
                .send()
        };
        let first = chunk(Method::PATCH, &session, "0-3", "0123").await.unwrap();
        assert_eq!((first.status().as_u16(), text(&first, "range")), (202, "0-3".to_owned()));
        let digest = Digest::sha256(b"01234567");
        let end = format!("{session}?digest={digest}");
        let put = if last_in_put {
            chunk(Method::PUT, &end, "4-7", "4567").await.unwrap()
        } else {
            chunk(Method::PATCH, &session, "bytes 4-7/8", "4567").await.unwrap();
            registry.ask(Method::PUT, &end).send().await.unwrap()
        };
        assert_eq!(put.status(), 201, "{last_in_put}");
        assert_stored(&registry, "a", b"01234567", &digest).await;
    }
}

#[tokio::test]
async fn chunks_out_of_order_are_refused_and_the_upload_goes_on() {
    let (_root, registry) = start().await;
    let session = registry.session("a").await;
    let digest = Digest::sha256(b"01234567");
    let end = format!("{session}?digest={digest}");
    let send = |method: Method, path: String, range: &'static str, body: &'static str| {
        registry.ask(method, &path).header("content-range", range).body(body).send()
    };
    // Before the first byte, then after it: too far ahead, and again from the beginning.
    let ahead = send(Method::PATCH, session.clone(), "4-7", "4567").await.unwrap();
    assert_eq!(ahead.status(), 416);
    assert_eq!(text(&ahead, "location"), session);
    assert_eq!(text(&ahead, "range"), "0-0");
    assert_eq!(refusal(ahead).await, code(416, "BLOB_UPLOAD_INVALID"));
    send(Method::PATCH, session.clone(), "0-3", "0123").await.unwrap();
    for (method, path) in [(Method::PATCH, session.clone()), (Method::PUT, end.clone())] {
        let again = send(method, path, "0-3", "0123").await.unwrap();
        assert_eq!((again.status().as_u16(), text(&again, "range")), (416, "0-3".to_owned()));
        let state = registry.get(&session).await;
        assert_eq!(state.status(), 204);
        assert_eq!(text(&state, "range"), "0-3");
        assert_eq!(text(&state, "location"), session);
    }
    assert_eq!(send(Method::PUT, end, "4-7", "4567").await.unwrap().status(), 201);
    assert_stored(&registry, "a", b"01234567", &digest).await;
}

#[tokio::test]
async fn ranges_that_lie_are_refused_and_change_nothing() {
    let (_root, registry) = start().await;
    let session = registry.session("a").await;
    for range in ["nonsense", "3-0", "0-", "-4", "0-99999999999999999999999"] {
        let sent = registry.ask(Method::PATCH, &session).header("content-range", range);
        let refused = sent.body("0123").send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "BLOB_UPLOAD_INVALID"), "{range}");
    }
    for range in ["0-1", "0-99"] {
        let sent = registry.ask(Method::PATCH, &session).header("content-range", range);
        let refused = sent.body("0123").send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "SIZE_INVALID"), "{range}");
    }
    // The same without a Content-Length to give the lie away beforehand.
    for range in ["0-1", "0-99"] {
        let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>("0123")]);
        let sent = registry.ask(Method::PATCH, &session).header("content-range", range);
        let refused = sent.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "SIZE_INVALID"), "{range}");
    }
    let state = registry.get(&session).await;
    assert_eq!((state.status().as_u16(), text(&state, "range")), (204, "0-0".to_owned()));
    let digest = Digest::sha256(b"right");
    let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}")).body("right");
    assert_eq!(put.send().await.unwrap().status(), 201);
}

#[tokio::test]
async fn a_wrong_digest_is_refused_in_every_way_of_pushing() {
    let (_root, registry) = start().await;
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let digest = Digest::of(algorithm, b"expected");
        let post = format!("/v2/a/blobs/uploads/?digest={digest}");
        let refused = registry.ask(Method::POST, &post).body("other").send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "DIGEST_INVALID"));

        let session = registry.session("a").await;
        let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}"));
        let refused = put.body("other").send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "DIGEST_INVALID"));

        let session = registry.session("a").await;
        registry.ask(Method::PATCH, &session).body("other").send().await.unwrap();
        let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}"));
        assert_eq!(refusal(put.send().await.unwrap()).await, code(400, "DIGEST_INVALID"));

        let unknown = registry.head(&format!("/v2/a/blobs/{digest}")).await;
        assert_eq!(unknown.status(), 404);
    }
}

#[tokio::test]
async fn digests_that_are_none_are_refused() {
    let (_root, registry) = start().await;
    let session = registry.session("a").await;
    for bad in ["", "md5:d41d8cd98f00b204e9800998ecf8427e", "sha256:baddigeststring", "x"] {
        let put = registry.ask(Method::PUT, &format!("{session}?digest={bad}"));
        let refused = put.body("x").send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "DIGEST_INVALID"), "{bad}");
        let post = registry.ask(Method::POST, &format!("/v2/a/blobs/uploads/?digest={bad}"));
        let refused = post.body("x").send().await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "DIGEST_INVALID"), "{bad}");
    }
    let missing = registry.ask(Method::PUT, &session).body("x").send().await.unwrap();
    assert_eq!(refusal(missing).await, code(400, "DIGEST_INVALID"));
    let strange = "/v2/a/blobs/uploads/?digest-algorithm=blake3";
    let strange = registry.ask(Method::POST, strange).send().await.unwrap();
    assert_eq!(refusal(strange).await, code(400, "DIGEST_INVALID"));
    let known = "/v2/a/blobs/uploads/?digest-algorithm=sha512";
    assert_eq!(registry.ask(Method::POST, known).send().await.unwrap().status(), 202);
}

#[tokio::test]
async fn an_upload_can_be_cancelled() {
    let (_root, registry) = start().await;
    let session = registry.session("a").await;
    registry.ask(Method::PATCH, &session).body("bytes").send().await.unwrap();
    assert_eq!(registry.delete(&session).await.status(), 204);
    for method in [Method::GET, Method::DELETE, Method::PATCH] {
        let gone = registry.ask(method, &session).send().await.unwrap();
        assert_eq!(refusal(gone).await, code(404, "BLOB_UPLOAD_UNKNOWN"));
    }
    let digest = Digest::sha256(b"x");
    let put = registry.ask(Method::PUT, &format!("{session}?digest={digest}")).body("x");
    assert_eq!(refusal(put.send().await.unwrap()).await, code(404, "BLOB_UPLOAD_UNKNOWN"));
    // A session of one repository is none of another's.
    let other = registry.session("b").await.replace("/v2/b/", "/v2/a/");
    assert_eq!(refusal(registry.get(&other).await).await, code(404, "BLOB_UPLOAD_UNKNOWN"));
}

#[tokio::test]
async fn blobs_are_mounted_from_a_named_repository_or_from_any() {
    let (root, registry) = start().await;
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let content = format!("shared {algorithm}");
        let digest = Digest::of(algorithm, content.as_bytes());
        registry.push_blob_as("source/of", content.as_bytes(), &digest).await;
        for (target, from) in [("named", "&from=source/of"), ("any", "")] {
            let path = format!("/v2/{target}/blobs/uploads/?mount={digest}{from}");
            let mounted = registry.ask(Method::POST, &path).send().await.unwrap();
            assert_eq!(mounted.status(), 201);
            assert_eq!(text(&mounted, "location"), format!("/v2/{target}/blobs/{digest}"));
            assert_stored(&registry, target, content.as_bytes(), &digest).await;
            let file = |name: &str| {
                let blobs = root.path().join(name).join("_layout/blobs");
                blobs.join(algorithm.as_str()).join(digest.hex())
            };
            use std::os::unix::fs::MetadataExt;
            let inode = |name: &str| std::fs::metadata(file(name)).unwrap().ino();
            assert_eq!(inode(target), inode("source/of"), "a mount is a link, not a copy");
        }
        // Deleting in one place leaves the other.
        assert_eq!(registry.delete(&format!("/v2/source/of/blobs/{digest}")).await.status(), 202);
        assert_stored(&registry, "named", content.as_bytes(), &digest).await;
    }
}

#[tokio::test]
async fn a_mount_that_cannot_be_becomes_an_upload() {
    let (_root, registry) = start().await;
    let digest = Digest::sha256(b"nowhere");
    registry.push_blob("b", b"something else").await;
    for from in ["&from=b", "&from=unknown", "&from=../b", ""] {
        let path = format!("/v2/a/blobs/uploads/?mount={digest}{from}");
        let begun = registry.ask(Method::POST, &path).send().await.unwrap();
        assert_eq!(begun.status(), 202, "{from}");
        let put = format!("{}?digest={digest}", text(&begun, "location"));
        let put = registry.ask(Method::PUT, &put).body("nowhere").send().await.unwrap();
        assert_eq!(put.status(), 201);
        registry.delete(&format!("/v2/a/blobs/{digest}")).await;
    }
    let bad = registry.ask(Method::POST, "/v2/a/blobs/uploads/?mount=sha256:x").send().await;
    assert_eq!(refusal(bad.unwrap()).await, code(400, "DIGEST_INVALID"));
}

#[tokio::test]
async fn a_manifest_is_stored_byte_for_byte_by_tag_and_by_digest() {
    let (_root, registry) = start().await;
    let manifest = format!("{:#}\n", registry.push_parts("a", "one").await);
    let digest = Digest::sha256(manifest.as_bytes());
    for reference in ["v1".to_owned(), digest.to_string()] {
        let pushed = registry.put_manifest("a", &reference, &manifest).await;
        assert_eq!(pushed.status(), 201);
        assert_eq!(text(&pushed, "docker-content-digest"), digest.to_string());
        assert_eq!(text(&pushed, "location"), format!("/v2/a/manifests/{digest}"));
        assert_eq!(text(&pushed, "oci-subject"), "");
        let got = registry.get(&text(&pushed, "location")).await;
        assert_eq!(text(&got, "content-type"), media_type::OCI_MANIFEST);
        assert_eq!(got.text().await.unwrap(), manifest);
    }
}

#[tokio::test]
async fn a_manifest_can_be_pushed_by_its_sha512() {
    let (_root, registry) = start().await;
    let sha512 = |content: &[u8]| Digest::of(Algorithm::Sha512, content);
    registry.push_blob_as("a", b"{}", &sha512(b"{}")).await;
    registry.push_blob_as("a", b"layer", &sha512(b"layer")).await;
    let manifest = image(Algorithm::Sha512, b"{}", b"layer").to_string();
    let digest = sha512(manifest.as_bytes());
    let reference = format!("{digest}?tag=one&tag=two");
    let pushed = registry.put_manifest("a", &reference, &manifest).await;
    assert_eq!(pushed.status(), 201);
    assert_eq!(text(&pushed, "docker-content-digest"), digest.to_string());
    let tags: Vec<_> = pushed.headers().get_all("oci-tag").iter().collect();
    assert_eq!(tags, ["one", "two"]);
    for reference in [digest.to_string(), "one".into(), "two".into()] {
        let head = registry.head(&format!("/v2/a/manifests/{reference}")).await;
        assert_eq!(head.status(), 200);
        assert_eq!(text(&head, "docker-content-digest"), digest.to_string());
    }
    let index = json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": [
        descriptor(Algorithm::Sha512, media_type::OCI_MANIFEST, manifest.as_bytes())]});
    let index = index.to_string();
    let reference = sha512(index.as_bytes()).to_string();
    assert_eq!(registry.put_manifest("a", &reference, &index).await.status(), 201);
}

#[tokio::test]
async fn a_manifest_under_a_wrong_or_bad_digest_is_refused() {
    let (_root, registry) = start().await;
    let manifest = registry.push_parts("a", "one").await.to_string();
    let spaced = format!("{manifest}  ");
    let digest = Digest::sha256(manifest.as_bytes()).to_string();
    for reference in [&digest, "sha256:baddigeststring", "sha256:totallywrong"] {
        let refused = registry.put_manifest("a", reference, &spaced).await;
        assert_eq!(refusal(refused).await, code(400, "DIGEST_INVALID"), "{reference}");
    }
    assert_eq!(registry.head(&format!("/v2/a/manifests/{digest}")).await.status(), 404);
}

#[tokio::test]
async fn indexes_are_taken_full_nested_empty_and_sparse() {
    let (_root, registry) = start().await;
    let (manifest, _) = registry.push_image("a", "child", "one").await;
    let child = descriptor(Algorithm::Sha256, media_type::OCI_MANIFEST, manifest.as_bytes());
    let absent = descriptor(Algorithm::Sha256, media_type::OCI_MANIFEST, b"absent");
    let index = |manifests| json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": manifests});
    let full = index(json!([child])).to_string();
    let inner = descriptor(Algorithm::Sha256, media_type::OCI_INDEX, full.as_bytes());
    for (tag, document) in [
        ("full", full.clone()),
        ("nested", index(json!([inner])).to_string()),
        ("empty", index(json!([])).to_string()),
        ("sparse", index(json!([absent])).to_string()),
    ] {
        let pushed = registry.put_manifest("a", tag, &document).await;
        assert_eq!(pushed.status(), 201, "{tag}");
        let got = registry.get(&format!("/v2/a/manifests/{tag}")).await;
        assert_eq!(text(&got, "content-type"), media_type::OCI_INDEX);
        assert_eq!(got.text().await.unwrap(), document);
    }
    let missing = registry.get(&format!("/v2/a/manifests/{}", absent.digest)).await;
    assert_eq!(refusal(missing).await, code(404, "MANIFEST_UNKNOWN"));
}

#[tokio::test]
async fn an_image_whose_blobs_are_missing_is_refused_unless_they_are_elsewhere() {
    let (_root, registry) = start().await;
    let mut manifest = registry.push_parts("a", "one").await;
    let layer = descriptor(Algorithm::Sha256, "application/vnd.oci.image.layer.v1.tar", b"absent");
    manifest["layers"][0] = json!(layer);
    let refused = registry.put_manifest("a", "t", &manifest.to_string()).await;
    assert_eq!(refusal(refused).await, code(404, "MANIFEST_BLOB_UNKNOWN"));
    assert_eq!(registry.head("/v2/a/manifests/t").await.status(), 404);

    manifest["layers"][0]["urls"] = json!(["https://example.com/layer"]);
    assert_eq!(registry.put_manifest("a", "urls", &manifest.to_string()).await.status(), 201);
    manifest["layers"][0].as_object_mut().unwrap().remove("urls");
    let kind = "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip";
    manifest["layers"][0]["mediaType"] = json!(kind);
    assert_eq!(registry.put_manifest("a", "kind", &manifest.to_string()).await.status(), 201);

    let mut wrong_size = registry.push_parts("a", "one").await;
    wrong_size["layers"][0]["size"] = json!(3);
    let refused = registry.put_manifest("a", "t", &wrong_size.to_string()).await;
    assert_eq!(refusal(refused).await, code(400, "MANIFEST_INVALID"));
}

#[tokio::test]
async fn artifacts_custom_fields_data_and_no_layers_are_taken() {
    let (_root, registry) = start().await;
    let base = registry.push_parts("a", "one").await;
    let mut artifact = base.clone();
    artifact["artifactType"] = json!("application/vnd.example.v1");
    let mut custom = base.clone();
    custom["org.example.CUSTOM"] = json!("value");
    let mut data = base.clone();
    data["layers"][0]["data"] = json!("bGF5ZXIgb2Ygb25l");
    let mut bare = base.clone();
    bare["layers"] = json!([]);
    for (tag, manifest) in
        [("artifact", artifact), ("custom", custom), ("data", data), ("bare", bare)]
    {
        let manifest = manifest.to_string();
        let pushed = registry.put_manifest("a", tag, &manifest).await;
        assert_eq!(pushed.status(), 201, "{tag}");
        let got = registry.get(&format!("/v2/a/manifests/{tag}")).await;
        assert_eq!(got.text().await.unwrap(), manifest);
    }
}

#[tokio::test]
async fn docker_manifests_keep_their_media_type() {
    let (_root, registry) = start().await;
    let mut manifest = registry.push_parts("a", "one").await;
    manifest["mediaType"] = json!(media_type::DOCKER_MANIFEST);
    let pushed = registry.put_manifest("a", "t", &manifest.to_string()).await;
    assert_eq!(pushed.status(), 201);
    let got = registry.get("/v2/a/manifests/t").await;
    assert_eq!(text(&got, "content-type"), media_type::DOCKER_MANIFEST);
}

#[tokio::test]
async fn what_is_no_manifest_is_refused() {
    let (_root, registry) = start().await;
    let good = registry.push_parts("a", "one").await;
    let put = |kind: &'static str, body: String| {
        let request = registry.ask(Method::PUT, "/v2/a/manifests/t");
        request.header("content-type", kind).body(body).send()
    };
    let twice = good.to_string().replacen('{', "{\"schemaVersion\":2,", 1);
    for (kind, body) in [
        (media_type::OCI_MANIFEST, "not json".to_owned()),
        (media_type::OCI_MANIFEST, "[]".to_owned()),
        (media_type::OCI_MANIFEST, "{}".to_owned()),
        (media_type::OCI_MANIFEST, twice),
        (media_type::OCI_INDEX, good.to_string()),
        ("application/vnd.example.unknown+json", good.to_string()),
        ("application/vnd.docker.distribution.manifest.v1+prettyjws", good.to_string()),
    ] {
        let refused = put(kind, body.clone()).await.unwrap();
        assert_eq!(refusal(refused).await, code(400, "MANIFEST_INVALID"), "{kind} {body}");
    }
    let with_parameter = "application/vnd.oci.image.manifest.v1+json; charset=utf-8";
    assert_eq!(put(with_parameter, good.to_string()).await.unwrap().status(), 201);
    for tag in [".dot", "-dash", &"x".repeat(129)] {
        let refused = registry.put_manifest("a", tag, &good.to_string()).await;
        assert_eq!(refusal(refused).await, code(400, "MANIFEST_INVALID"), "{tag}");
    }
}

#[tokio::test]
async fn manifests_up_to_four_mebibytes_are_taken_and_no_more() {
    let (_root, registry) = start().await;
    let mut manifest = registry.push_parts("a", "one").await;
    for n in 0..390 {
        manifest["annotations"][format!("large-{n}")] = json!("A".repeat(10_000));
    }
    let large = manifest.to_string();
    assert_eq!(registry.put_manifest("a", "large", &large).await.status(), 201);
    assert_eq!(registry.get("/v2/a/manifests/large").await.text().await.unwrap(), large);

    manifest["annotations"]["more"] = json!("A".repeat(400_000));
    let refused = registry.put_manifest("a", "more", &manifest.to_string()).await;
    assert_eq!(refusal(refused).await, code(413, "SIZE_INVALID"));
    // The same when the length is not announced.
    let pieces = futures_util::stream::iter([Ok::<_, std::io::Error>(manifest.to_string())]);
    let request = registry.ask(Method::PUT, "/v2/a/manifests/more");
    let refused = request.body(reqwest::Body::wrap_stream(pieces)).send().await.unwrap();
    assert_eq!(refusal(refused).await, code(413, "SIZE_INVALID"));
}

#[tokio::test]
async fn a_tag_moves_and_the_old_manifest_stays() {
    let (_root, registry) = start().await;
    let (_, first) = registry.push_image("a", "t", "one").await;
    let (_, second) = registry.push_image("a", "t", "two").await;
    let tag = registry.head("/v2/a/manifests/t").await;
    assert_eq!(text(&tag, "docker-content-digest"), second.to_string());
    assert_eq!(registry.head(&format!("/v2/a/manifests/{first}")).await.status(), 200);
}

#[tokio::test]
async fn conditional_pushes_do_not_overwrite_what_they_did_not_see() {
    let (_root, registry) = start().await;
    let (manifest, first) = registry.push_image("a", "t", "one").await;
    let other = registry.push_parts("a", "two").await.to_string();
    let put = |name: &'static str, value: String, body: &str| {
        registry
            .ask(Method::PUT, "/v2/a/manifests/t")
            .header("content-type", media_type::OCI_MANIFEST)
            .header(name, value)
            .body(body.to_owned())
            .send()
    };
    let create_only = put("if-none-match", "*".into(), &other).await.unwrap();
    assert_eq!(create_only.status(), 412);
    let stale = put("if-match", format!("\"{}\"", Digest::sha256(b"old")), &other).await.unwrap();
    assert_eq!(stale.status(), 412);
    let current = put("if-match", format!("\"{first}\""), &other).await.unwrap();
    assert_eq!(current.status(), 201);
    let late = put("if-match", format!("\"{first}\""), &manifest).await.unwrap();
    assert_eq!(late.status(), 412);
}
