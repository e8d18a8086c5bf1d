//! Images that are not what they say. Nothing of them is kept, and nothing is asked for twice.

use portolan_agent::reason::Reason;
use portolan_core::{Digest, Index, media_type};

use crate::harness::{Twist, Yard, image_of, image_with, layer_of, resolved, small, tar};
use crate::support::fault::{Fault, FaultServer};
use crate::support::image::{Image, bytes, gzip};

fn layer_tar(seed: u64) -> Vec<u8> {
    tar(&[("f", &bytes(3000, seed))])
}

#[tokio::test]
async fn a_manifest_that_is_not_the_digest_is_refused_at_once() {
    let (image, other) = (small(20), small(21));
    let server = FaultServer::holding(&image);
    {
        let mut registry = server.registry();
        let repository = registry.repositories.values_mut().next().unwrap();
        let (media_type, bytes) = &other.manifests[&other.top.digest];
        let forged = (media_type.clone(), std::sync::Arc::new(bytes.clone()));
        repository.manifests.insert(image.top.digest, forged);
    }
    let berth = Yard::new().open();
    let wanted = resolved(&server, &image);
    berth.refused(&wanted, Reason::ImagePullFailed, &["digest", "not sha256:"]).await;
    assert_eq!(server.count("GET", &format!("/manifests/{}", image.top.digest)), 1, "no retry");
    let counted = "portolan_agent_image_pull_errors_total{reason=\"digest_mismatch\"}";
    assert_eq!(berth.metric(counted), 1.0);
}

#[tokio::test]
async fn a_layer_that_is_not_its_digest_is_refused_at_once() {
    let image = small(22);
    let server = FaultServer::holding(&image);
    let layer = layer_of(&image);
    server.always("GET", format!("/blobs/{layer}"), Fault::FlipByte(4000));
    let berth = Yard::new().open();
    berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &["digest"]).await;
    assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 1, "no retry");
    assert!(!berth.blob_exists(&layer), "what is damaged is not kept");
    let counted = "portolan_agent_image_pull_errors_total{reason=\"digest_mismatch\"}";
    assert_eq!(berth.metric(counted), 1.0);
}

#[tokio::test]
async fn a_layer_of_another_length_is_refused() {
    for fault in [Fault::Short(100), Fault::Long(100)] {
        let image = small(23);
        let server = FaultServer::holding(&image);
        let layer = layer_of(&image);
        server.always("GET", format!("/blobs/{layer}"), fault);
        let berth = Yard::new().open();
        berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &["bytes"]).await;
        assert!(!berth.blob_exists(&layer));
    }
}

#[tokio::test]
async fn layers_that_cannot_be_unpacked_fail_the_build() {
    let plain = layer_tar(24);
    let whole = gzip(&plain);
    let mut corrupt = whole.clone();
    corrupt[600] ^= 0x40;
    let truncated = whole[..whole.len() - 900].to_vec();
    for (layer, word) in [(truncated, "layer 0"), (corrupt, "layer 0")] {
        let image = image_with(std::slice::from_ref(&plain), vec![layer], &Twist::default());
        let server = FaultServer::holding(&image);
        let berth = Yard::new().open();
        let wanted = resolved(&server, &image);
        berth.refused(&wanted, Reason::RootfsBuildFailed, &[word]).await;
        let layer = layer_of(&image);
        assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 1, "no retry");
        let counted = "portolan_agent_rootdisk_build_errors_total{reason=\"rootfs_build_failed\"}";
        assert_eq!(berth.metric(counted), 1.0);
    }
}

#[tokio::test]
async fn a_tar_that_is_none_fails_the_build() {
    let junk = bytes(4096, 25);
    let image = image_of(&[junk], &Twist::default());
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    berth.refused(&resolved(&server, &image), Reason::RootfsBuildFailed, &["layer 0"]).await;
}

#[tokio::test]
async fn a_layer_that_unpacks_to_something_else_is_a_failed_pull() {
    let twist = Twist { diff_id: Some(Digest::sha256(b"other")), ..Twist::default() };
    let image = image_of(&[layer_tar(26)], &twist);
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    let parts = ["unpacks to", "the image's config says"];
    berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &parts).await;
}

#[tokio::test]
async fn a_layer_type_that_nobody_knows_fails_the_build() {
    let twist = Twist { layer_type: Some("application/x-squashfs"), ..Twist::default() };
    let image = image_of(&[layer_tar(27)], &twist);
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    let parts = ["application/x-squashfs"];
    berth.refused(&resolved(&server, &image), Reason::RootfsBuildFailed, &parts).await;
}

#[tokio::test]
async fn an_image_beyond_the_limits_fails_the_build() {
    let image = small(28);
    let server = FaultServer::holding(&image);
    let mut yard = Yard::new();
    yard.config.rootdisk.limits.max_entries = 1;
    let berth = yard.open();
    let wanted = resolved(&server, &image);
    berth.refused(&wanted, Reason::RootfsBuildFailed, &["max_entries"]).await;
}

#[tokio::test]
async fn an_image_for_other_machines_is_refused_before_a_layer_is_asked_for() {
    for platform in ["linux/arm64", "windows/amd64", "linux/amd64/v4"] {
        let twist = Twist { platform: Some(platform), ..Twist::default() };
        let image = image_of(&[layer_tar(29)], &twist);
        let server = FaultServer::holding(&image);
        let berth = Yard::new().open();
        berth.refused(&resolved(&server, &image), Reason::PlatformMismatch, &[]).await;
        let layer = layer_of(&image);
        assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 0);
    }
}

/// The host would run it, but the spec says something else; and a cached disk skips no gate.
#[tokio::test]
async fn an_image_for_another_platform_than_the_spec_is_refused_cached_or_not() {
    let image = small(30);
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    let wanted = resolved(&server, &image);
    let mut other = wanted.clone();
    other.platform.architecture = "arm64".to_owned();
    berth.refused(&other, Reason::PlatformMismatch, &["the spec says"]).await;
    berth.acquire("a", &wanted).await;
    let error = berth.try_acquire("b", &other).await.unwrap_err();
    assert_eq!(error.reason(), Reason::PlatformMismatch);
}

#[tokio::test]
async fn an_index_or_an_artifact_is_no_image_that_runs() {
    let image = small(31);
    let index = Index::new(vec![image.top.clone()]);
    let mut index = Image::of_manifest(media_type::OCI_INDEX, &index.to_vec());
    index.absorb(&image);
    let artifact = Image::referrer(&image.top, "application/x-thing", b"payload");
    for (image, word) in [(index, "index"), (artifact, "no image")] {
        let server = FaultServer::holding(&image);
        let berth = Yard::new().open();
        berth.refused(&resolved(&server, &image), Reason::ImagePullFailed, &[word]).await;
    }
}

/// A blob that rotted in the cache is found while it is read, and fetched again.
#[tokio::test]
async fn a_damaged_blob_in_the_cache_is_fetched_again() {
    let image = small(32);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let wanted = resolved(&server, &image);
    let layer = layer_of(&image);
    {
        let berth = yard.open();
        berth.acquire("a", &wanted).await;
        // The disk goes, the layers stay; then one of them rots.
        std::fs::remove_file(berth.acquire("a", &wanted).await.disk).unwrap();
    }
    let blob = yard.root().join("oci/blobs/sha256").join(layer.hex());
    let mut rotten = std::fs::read(&blob).unwrap();
    rotten[2000] ^= 1;
    std::fs::write(&blob, &rotten).unwrap();
    let berth = yard.open();
    assert!(!berth.acquire("a", &wanted).await.cached);
    assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 2);
    berth.settled().await;
    crate::harness::check(yard.root());
}

#[tokio::test]
async fn layers_in_the_cache_are_not_fetched_again() {
    let image = small(33);
    let server = FaultServer::holding(&image);
    let yard = Yard::new();
    let wanted = resolved(&server, &image);
    let berth = yard.open();
    let disk = berth.acquire("a", &wanted).await.disk;
    let asked = server.seen().len();
    std::fs::remove_file(&disk).unwrap();
    assert!(!berth.acquire("a", &wanted).await.cached, "a disk that somebody took away is rebuilt");
    assert_eq!(server.seen().len(), asked, "from what is here");
}
