use std::time::Duration;

use portolan_core::{Algorithm, Digest, media_type};
use portolan_registry::layout::{GarbageOptions, Layout};
use portolan_registry::server::collect_garbage;
use serde_json::json;

use crate::support::{Registry, code, descriptor, refusal};

async fn start() -> (tempfile::TempDir, Registry) {
    let root = tempfile::tempdir().unwrap();
    let registry = Registry::start(root.path()).await;
    (root, registry)
}

#[tokio::test]
async fn deleting_a_tag_leaves_the_manifest() {
    let (_root, registry) = start().await;
    let (_, digest) = registry.push_image("a", "t", "one").await;
    assert_eq!(registry.delete("/v2/a/manifests/t").await.status(), 202);
    let gone = registry.get("/v2/a/manifests/t").await;
    assert_eq!(refusal(gone).await, code(404, "MANIFEST_UNKNOWN"));
    assert_eq!(registry.head(&format!("/v2/a/manifests/{digest}")).await.status(), 200);
    let again = registry.delete("/v2/a/manifests/t").await;
    assert_eq!(refusal(again).await, code(404, "MANIFEST_UNKNOWN"));
}

#[tokio::test]
async fn deleting_a_manifest_takes_its_tags_along() {
    let (_root, registry) = start().await;
    let (manifest, digest) = registry.push_image("a", "one", "one").await;
    registry.put_manifest("a", "two", &manifest).await;
    registry.push_image("a", "other", "two").await;
    let path = format!("/v2/a/manifests/{digest}");
    assert_eq!(registry.delete(&path).await.status(), 202);
    for reference in ["one", "two", &digest.to_string()] {
        let head = registry.head(&format!("/v2/a/manifests/{reference}")).await;
        assert_eq!(head.status(), 404, "{reference}");
    }
    assert_eq!(registry.head("/v2/a/manifests/other").await.status(), 200);
    assert_eq!(refusal(registry.delete(&path).await).await, code(404, "MANIFEST_UNKNOWN"));
    // What it referred to is still there, and it can be pushed again.
    assert_eq!(registry.put_manifest("a", "one", &manifest).await.status(), 201);
    assert_eq!(registry.head(&path).await.status(), 200);
}

#[tokio::test]
async fn an_index_and_its_parts_are_deleted_each_for_itself() {
    let (_root, registry) = start().await;
    let (manifest, child) = registry.push_image("a", "child", "one").await;
    let child_descriptor =
        descriptor(Algorithm::Sha256, media_type::OCI_MANIFEST, manifest.as_bytes());
    let index = json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX,
        "manifests": [child_descriptor]})
    .to_string();
    registry.put_manifest("a", "index", &index).await;
    let index = Digest::sha256(index.as_bytes());
    assert_eq!(registry.delete(&format!("/v2/a/manifests/{child}")).await.status(), 202);
    assert_eq!(registry.head(&format!("/v2/a/manifests/{child}")).await.status(), 404);
    assert_eq!(registry.head("/v2/a/manifests/index").await.status(), 200);
    assert_eq!(registry.delete(&format!("/v2/a/manifests/{index}")).await.status(), 202);
    assert_eq!(registry.head("/v2/a/manifests/index").await.status(), 404);
}

#[tokio::test]
async fn deleting_blobs() {
    let (_root, registry) = start().await;
    let digest = registry.push_blob("a", b"x").await;
    let path = format!("/v2/a/blobs/{digest}");
    assert_eq!(registry.delete(&path).await.status(), 202);
    assert_eq!(refusal(registry.get(&path).await).await, code(404, "BLOB_UNKNOWN"));
    assert_eq!(refusal(registry.delete(&path).await).await, code(404, "BLOB_UNKNOWN"));
}

#[tokio::test]
async fn nothing_can_be_deleted_where_nothing_is() {
    let (_root, registry) = start().await;
    let digest = Digest::sha256(b"x");
    for path in ["manifests/t".to_owned(), format!("manifests/{digest}"), format!("blobs/{digest}")]
    {
        let refused = registry.delete(&format!("/v2/a/{path}")).await;
        assert_eq!(refusal(refused).await, code(404, "NAME_UNKNOWN"), "{path}");
    }
}

fn at_once() -> GarbageOptions {
    GarbageOptions { grace: Duration::ZERO, ..GarbageOptions::default() }
}

#[tokio::test]
async fn garbage_is_what_nothing_refers_to() {
    let (root, registry) = start().await;
    let (manifest, digest) = registry.push_image("a", "t", "one").await;
    let orphan = registry.push_blob("a", b"orphan").await;
    let other = registry.push_blob("b/c", b"orphan").await;

    let young = collect_garbage(root.path(), &GarbageOptions::default()).unwrap();
    assert!(young.iter().all(|r| r.outcome.as_ref().unwrap().removed.is_empty()));

    let dry = GarbageOptions { dry_run: true, ..at_once() };
    let found = collect_garbage(root.path(), &dry).unwrap();
    assert_eq!(found.iter().map(|r| r.outcome.as_ref().unwrap().removed.len()).sum::<usize>(), 2);
    assert_eq!(registry.head(&format!("/v2/a/blobs/{orphan}")).await.status(), 200);

    let done = collect_garbage(root.path(), &at_once()).unwrap();
    let a = done.iter().find(|r| r.repository.as_str() == "a").unwrap().outcome.as_ref().unwrap();
    assert_eq!((a.removed.len(), a.removed[0].digest, a.bytes(), a.live), (1, orphan, 6, 3));
    for path in [format!("/v2/a/blobs/{orphan}"), format!("/v2/b/c/blobs/{other}")] {
        assert_eq!(registry.head(&path).await.status(), 404, "{path}");
    }
    let layer = Digest::sha256(b"layer of one");
    assert_eq!(registry.head(&format!("/v2/a/blobs/{layer}")).await.status(), 200);
    assert_eq!(registry.get("/v2/a/manifests/t").await.text().await.unwrap(), manifest);

    // Deleted manifests leave their blobs behind as garbage.
    registry.delete(&format!("/v2/a/manifests/{digest}")).await;
    let done = collect_garbage(root.path(), &at_once()).unwrap();
    assert_eq!(done[0].outcome.as_ref().unwrap().removed.len(), 2);
    assert_eq!(registry.head(&format!("/v2/a/blobs/{layer}")).await.status(), 404);
}

#[tokio::test]
async fn the_server_sees_what_others_do_to_its_layouts() {
    let (root, registry) = start().await;
    let (manifest, digest) = registry.push_image("a", "t", "one").await;
    let layout = Layout::open(&root.path().join("a/_layout")).unwrap();
    let tag = "by-hand".parse().unwrap();
    layout.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), Some(&tag)).unwrap();
    assert_eq!(registry.head("/v2/a/manifests/by-hand").await.status(), 200);
    layout.delete_manifest(&digest).unwrap();
    assert_eq!(registry.head("/v2/a/manifests/t").await.status(), 404);
}
