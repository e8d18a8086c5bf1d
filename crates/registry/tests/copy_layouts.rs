//! Copies where at least one end is a layout, and the rules about destinations.

mod support;

use std::os::unix::fs::MetadataExt as _;

use portolan_core::{Algorithm, Descriptor, Digest, Manifest, media_type};
use portolan_registry::ErrorClass::BadInput;
use portolan_registry::copy::{CopyOptions, Narrowed};
use portolan_registry::layout::Layout;
use portolan_registry::progress::BlobOutcome;

use support::fault::FaultServer;
use support::image::{Image, to_json};
use support::layouts;
use support::scenarios::{self, blob_path, copied, everything, with_referrers};
use support::setup::{chain, in_layout, plain_copy};

#[tokio::test]
async fn between_layouts_blobs_are_linked() {
    let image = scenarios::rich_image(1);
    let server = FaultServer::holding(&image);
    let root = tempfile::tempdir().unwrap();
    let (a, b) = (root.path().join("a"), root.path().join("b"));
    copied(&server.reference(":v1"), &in_layout(&a, "v1"), &everything()).await;
    let report = copied(&in_layout(&a, "v1"), &in_layout(&b, "v2"), &everything()).await;
    assert_eq!(report.blobs.get(&BlobOutcome::Linked), Some(&image.blobs.len()));
    layouts::assert_holds(&b, &image);
    let (layer, _) = image.largest_blob();
    let inode = |dir| std::fs::metadata(blob_path(dir, &layer)).unwrap().ino();
    assert_eq!(inode(&a), inode(&b));
    // Each layout stands alone: without the first the second still has everything.
    std::fs::remove_dir_all(&a).unwrap();
    layouts::assert_holds(&b, &image);
}

#[tokio::test]
async fn a_layout_destination_needs_no_tag() {
    let image = scenarios::rich_image(2);
    let server = FaultServer::holding(&image);
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("plain");
    let to = format!("oci:{}", dir.display()).parse().unwrap();
    copied(&server.reference(":v1"), &to, &everything()).await;
    let layout = Layout::open(&dir).unwrap();
    assert!(layout.tags().unwrap().is_empty());
    assert_eq!(layout.resolve(None).unwrap().digest, image.top.digest);
    // The same directory as a source needs no name either.
    let again = root.path().join("again");
    copied(&to, &in_layout(&again, "v1"), &everything()).await;
    layouts::assert_holds(&again, &image);
}

#[tokio::test]
async fn a_registry_destination_without_a_tag_is_latest() {
    let image = Image::multi(&["linux/amd64"], 3);
    let source = FaultServer::holding(&image);
    let server = FaultServer::start("127.0.0.1", None);
    copied(&source.reference(":v1"), &server.reference(""), &everything()).await;
    let registry = server.registry();
    assert_eq!(registry.repositories["team/app"].tags["latest"], image.top.digest);
}

#[tokio::test]
async fn a_destination_by_digest_must_be_the_image() {
    let image = Image::multi(&["linux/amd64"], 4);
    let source = FaultServer::holding(&image);
    let server = FaultServer::start("127.0.0.1", None);
    let other = server.reference(&format!("@{}", Digest::sha256(b"other")));
    let error = plain_copy(&source.reference(":v1"), &other).await.unwrap_err();
    assert_eq!(error.class(), Some(BadInput));
    assert!(chain(&error).contains(&image.top.digest.to_string()), "{}", chain(&error));
    assert!(server.seen().is_empty(), "nothing is sent for a promise that cannot be kept");
    let right = server.reference(&format!("@{}", image.top.digest));
    copied(&source.reference(":v1"), &right, &everything()).await;
    let registry = server.registry();
    let repository = &registry.repositories["team/app"];
    assert!(repository.tags.is_empty());
    assert!(repository.manifests.contains_key(&image.top.digest));
}

#[tokio::test]
async fn narrowing_to_all_that_is_there_changes_nothing() {
    let image = Image::multi(&["linux/amd64", "linux/arm64"], 5);
    let server = FaultServer::holding(&image);
    let dir = tempfile::tempdir().unwrap();
    let platforms = ["linux/amd64", "linux/arm64"].map(|p| p.parse().unwrap()).to_vec();
    let options = CopyOptions { platforms, ..CopyOptions::default() };
    let report = copied(&server.reference(":v1"), &in_layout(dir.path(), "v1"), &options).await;
    assert_eq!(report.narrowed, Narrowed::Whole);
    assert_eq!(report.copied.digest, image.top.digest);
}

#[tokio::test]
async fn a_single_manifest_for_the_platform_is_copied_as_it_is() {
    let image = Image::single("linux/arm64", &[100], 6);
    let server = FaultServer::holding(&image);
    let dir = tempfile::tempdir().unwrap();
    let of = |name: &str| CopyOptions {
        platforms: vec![name.parse().unwrap()],
        ..CopyOptions::default()
    };
    let to = in_layout(dir.path(), "v1");
    let report = copied(&server.reference(":v1"), &to, &of("linux/arm64")).await;
    assert_eq!(report.narrowed, Narrowed::Whole);
    let client = support::setup::client();
    let silent = std::sync::Arc::new(portolan_registry::progress::Silent);
    let options = of("linux/amd64");
    let error =
        portolan_registry::copy::copy(&server.reference(":v1"), &to, &client, &options, silent)
            .await
            .unwrap_err();
    assert_eq!(error.class(), None, "a no, not a breakdown");
    assert!(chain(&error).contains("linux/arm64"), "{}", chain(&error));
}

/// Narrowing leaves the signatures of the index behind, since the index itself is not copied,
/// and takes those of the platform along.
#[tokio::test]
async fn narrowing_takes_the_referrers_of_what_is_kept() {
    let (image, [signature, attested, deep]) = scenarios::signed(7);
    let server = FaultServer::holding(&image);
    for referrer in [&signature, &attested, &deep] {
        let mut registry = server.registry();
        registry.repositories.get_mut("team/app").unwrap().hold(referrer, "tmp");
    }
    let dir = tempfile::tempdir().unwrap();
    let options =
        CopyOptions { platforms: vec!["linux/amd64".parse().unwrap()], ..with_referrers() };
    let to = in_layout(dir.path(), "v1");
    let report = copied(&server.reference(":v1"), &to, &options).await;
    assert_eq!(report.referrers, 2);
    for (referrer, there) in [(&signature, false), (&attested, true), (&deep, true)] {
        assert_eq!(layouts::has(dir.path(), &referrer.top.digest), there);
    }
}

/// Digests by another hash function keep their names on the way through a layout.
#[tokio::test]
async fn sha512_is_kept() {
    let layer = support::image::bytes(20_000, 8);
    let config = br#"{"os":"linux","architecture":"amd64"}"#.to_vec();
    let described = |media_type: &str, bytes: &[u8]| {
        Descriptor::new(media_type, Digest::of(Algorithm::Sha512, bytes), bytes.len() as u64)
    };
    let manifest = Manifest::new(
        described(media_type::OCI_CONFIG, &config),
        vec![described(support::image::LAYER, &layer)],
    );
    let mut image = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
    for blob in [layer, config] {
        image.blobs.insert(Digest::of(Algorithm::Sha512, &blob), blob);
    }
    let source = FaultServer::holding(&image);
    let server = FaultServer::start("127.0.0.1", None);
    let dir = tempfile::tempdir().unwrap();
    let layout = in_layout(dir.path(), "v1");
    copied(&source.reference(":v1"), &layout, &everything()).await;
    layouts::assert_holds(dir.path(), &image);
    copied(&layout, &server.reference(":v1"), &everything()).await;
    let registry = server.registry();
    let there = &registry.repositories["team/app"];
    assert!(image.blobs.keys().all(|digest| there.blobs.contains_key(digest)));
}
