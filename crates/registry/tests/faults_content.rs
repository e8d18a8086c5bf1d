//! Content that is not what it should be: wrong bytes, wrong sizes, documents that break rules.
//! Each must end in a clear error, without a second request, and leave the layout as it was.

mod support;

use std::sync::Arc;

use portolan_core::platform::HostPlatform;
use portolan_core::{Descriptor, Digest, Index, Target, media_type};
use portolan_registry::ErrorClass::{BadInput, NotFound};
use portolan_registry::copy::{CopyOptions, MAX_DEPTH, MAX_MANIFESTS, copy};
use portolan_registry::images::{Place, resolve_platform};
use portolan_registry::progress::Silent;

use support::fault::{Answer, Fault, FaultServer, REPOSITORY};
use support::image::{self, Image, LAYER, to_json};
use support::layouts;
use support::setup::{Harbour, client, in_layout, plain_copy};

fn image() -> Image {
    Image::multi(&["linux/amd64", "linux/arm64"], 1)
}

/// Bends every answer to the largest layer; the copy must be refused after one request for it.
async fn refused_layer(fault: Fault, parts: &[&str]) {
    let image = image();
    let server = FaultServer::holding(&image);
    let (layer, _) = image.largest_blob();
    let path = format!("/blobs/{layer}");
    server.always("GET", &path, fault);
    let harbour = Harbour::new().await;
    let refusal = harbour.refused(&server, 10).await;
    let digest = layer.to_string();
    refusal.expect(BadInput, &[&[digest.as_str(), server.host().as_str()], parts].concat());
    assert_eq!(server.count("GET", &path), 1, "what is wrong is not asked for again");
    assert!(!layouts::has(&harbour.dir, &layer));
}

#[tokio::test]
async fn a_layer_with_one_wrong_bit() {
    refused_layer(Fault::FlipByte(17_000), &["has digest", "nothing of it is kept"]).await;
}

#[tokio::test]
async fn a_layer_that_is_too_short() {
    refused_layer(Fault::Short(1), &["29999 bytes", "30000"]).await;
}

#[tokio::test]
async fn a_layer_that_is_too_long() {
    refused_layer(Fault::Long(1), &["30001 bytes", "30000"]).await;
}

#[tokio::test]
async fn a_content_length_that_is_too_large() {
    refused_layer(Fault::ContentLength(5), &["30005 bytes", "30000"]).await;
}

#[tokio::test]
async fn a_content_length_that_is_too_small() {
    refused_layer(Fault::ContentLength(-5), &["29995 bytes", "30000"]).await;
}

#[tokio::test]
async fn a_layer_that_never_ends() {
    refused_layer(Fault::Endless, &["30000"]).await;
}

#[tokio::test]
async fn a_layer_without_a_content_length_is_fine() {
    let image = image();
    let server = FaultServer::holding(&image);
    server.always("GET", format!("/blobs/{}", image.largest_blob().0), Fault::Chunked);
    Harbour::new().await.taken(&server, &image, 10).await;
}

#[tokio::test]
async fn a_config_with_one_wrong_bit() {
    let image = Image::single("linux/amd64", &[100], 1);
    let config = image.manifest(&image.top.digest).config.digest;
    let server = FaultServer::holding(&image);
    server.always("GET", format!("/blobs/{config}"), Fault::FlipByte(3));
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &[&config.to_string(), "has digest"]);
}

#[tokio::test]
async fn a_manifest_with_one_wrong_bit() {
    let image = image();
    let child = image.as_index().manifests[1].digest;
    let server = FaultServer::holding(&image);
    let path = format!("/manifests/{child}");
    server.always("GET", &path, Fault::FlipByte(40));
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &[&child.to_string(), "has digest"]);
    assert_eq!(server.count("GET", &path), 1);
}

#[tokio::test]
async fn a_tagged_index_that_is_not_what_its_header_says() {
    let image = image();
    let server = FaultServer::holding(&image);
    server.always("GET", "/manifests/v1", Fault::FlipByte(40));
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &["v1", REPOSITORY, &image.top.digest.to_string()]);
}

/// At this level a layer is bytes with a digest: one that was damaged before it was pushed is
/// copied faithfully, since changing or refusing it would be wrong too. What unpacks it must see
/// that the gzip stream ends early.
#[tokio::test]
async fn a_truncated_gzip_layer_is_carried_as_it_is() {
    let mut layer = image::gzip(&image::bytes(5_000, 3));
    layer.truncate(layer.len() - 100);
    let image = Image::with_layers("linux/amd64", vec![layer.clone()]);
    let server = FaultServer::holding(&image);
    let harbour = Harbour::new().await;
    harbour.taken(&server, &image, 10).await;
    let digest = Digest::sha256(&layer);
    let stored = std::fs::read(harbour.dir.join("blobs/sha256").join(digest.hex())).unwrap();
    assert_eq!(stored, layer);
}

#[tokio::test]
async fn a_gzip_layer_cut_by_the_server_is_refused() {
    let layer = image::gzip(&image::bytes(5_000, 3));
    let image = Image::with_layers("linux/amd64", vec![layer.clone()]);
    let server = FaultServer::holding(&image);
    server.always("GET", format!("/blobs/{}", Digest::sha256(&layer)), Fault::Short(100));
    Harbour::new().await.refused(&server, 10).await.expect(BadInput, &["bytes"]);
}

#[tokio::test]
async fn a_manifest_over_four_mebibytes() {
    let image = image();
    let server = FaultServer::holding(&image);
    let mut body = to_json(&image.as_index());
    body.resize(4 * 1024 * 1024 + 1, b' ');
    let answer = Answer::new(200, body).header("content-type", media_type::OCI_INDEX);
    server.always("GET", "/manifests/v1", Fault::Answer(answer));
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &["v1", "larger than 4194304 bytes"]);
    assert_eq!(server.count("GET", "/manifests/v1"), 1);
}

#[tokio::test]
async fn a_manifest_that_never_ends() {
    let server = FaultServer::holding(&image());
    server.always("GET", "/manifests/v1", Fault::Endless);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &["v1", "larger than 4194304 bytes"]);
    assert_eq!(server.count("GET", "/manifests/v1"), 1);
}

/// Ten thousand distinct entries, with real ones for two platforms among them.
fn crowded() -> (Image, Vec<Image>) {
    let real =
        vec![Image::single("linux/amd64", &[500], 1), Image::single("linux/arm64", &[500], 2)];
    let mut entries: Vec<Descriptor> = (0..9_998_u32)
        .map(|n| Descriptor {
            platform: Some(image::platform("plan9/mips")),
            ..Descriptor::of(media_type::OCI_MANIFEST, &n.to_le_bytes())
        })
        .collect();
    entries.insert(7_000, real[0].top.clone());
    entries.push(real[1].top.clone());
    let bytes = Index::new(entries).to_vec();
    let mut image = Image::of_manifest(media_type::OCI_INDEX, &bytes);
    for part in &real {
        image.absorb(part);
    }
    (image, real)
}

#[tokio::test]
async fn an_index_with_ten_thousand_entries_is_not_walked() {
    let (image, _) = crowded();
    let server = FaultServer::holding(&image);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    let bound = MAX_MANIFESTS.to_string();
    refusal.expect(BadInput, &["10001 indexes and manifests", &bound, "narrow it"]);
    assert_eq!(server.seen().len(), 1, "refused before any entry is asked for");
}

#[tokio::test]
async fn an_index_with_ten_thousand_entries_can_be_chosen_from() {
    let (image, real) = crowded();
    let server = FaultServer::holding(&image);
    let place = Place::open(&server.reference(":v1"), &client()).unwrap();
    let target = Target::Tag("v1".parse().unwrap());
    let wanted = image::platform("linux/arm64");
    let host = HostPlatform::named(&wanted);
    let resolved = resolve_platform(&place, Some(&target), &host).await.unwrap();
    assert_eq!(resolved.chosen().digest, real[1].top.digest);

    let harbour = Harbour::new().await;
    let options = CopyOptions { platforms: vec![wanted], ..CopyOptions::default() };
    let to = in_layout(&harbour.dir, "narrow");
    let from = server.reference(":v1");
    let report = copy(&from, &to, &client(), &options, Arc::new(Silent)).await.unwrap();
    assert_eq!(report.copied.digest, real[1].top.digest);
    layouts::assert_holds(&harbour.dir, &real[1]);
}

#[tokio::test]
async fn indexes_nested_too_deep() {
    let mut image = Image::single("linux/amd64", &[500], 1);
    for _ in 0..=MAX_DEPTH {
        image = Image::index(&[image]);
    }
    let server = FaultServer::holding(&image);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &[&image.top.digest.to_string(), "deep"]);
    assert!(server.seen().len() <= MAX_DEPTH + 2, "{}", server.seen().len());
}

#[tokio::test]
async fn indexes_nested_as_deep_as_allowed() {
    let mut image = Image::single("linux/amd64", &[500], 1);
    for _ in 0..MAX_DEPTH {
        image = Image::index(&[image]);
    }
    let server = FaultServer::holding(&image);
    Harbour::new().await.taken(&server, &image, 10).await;
}

/// No honest index can hold its own digest, so the server must lie: it serves an index whose
/// entry is the digest it was asked under.
#[tokio::test]
async fn an_index_nested_in_itself() {
    let inner = Image::single("linux/amd64", &[500], 1);
    let image = Image::index(&[inner]);
    let itself = image.as_index().manifests[0].digest;
    let lie = Index::new(vec![Descriptor::new(media_type::OCI_INDEX, itself, 9)]);
    let server = FaultServer::holding(&image);
    let lie = Answer::new(200, to_json(&lie)).header("content-type", media_type::OCI_INDEX);
    server.always("GET", format!("/manifests/{itself}"), Fault::Answer(lie));
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &[&itself.to_string(), "has digest"]);
    assert_eq!(server.count("GET", &format!("/manifests/{itself}")), 1);
}

#[tokio::test]
async fn an_index_and_its_entry_disagree_on_the_size() {
    let inner = Image::single("linux/amd64", &[500], 1);
    let mut listed = inner.clone();
    listed.top.size += 1;
    let mut image = Image::index(&[listed]);
    image.absorb(&inner);
    let server = FaultServer::holding(&image);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &[&inner.top.digest.to_string(), "bytes"]);
}

#[tokio::test]
async fn a_document_of_unknown_media_type() {
    let body = br#"{"schemaVersion":2,"mediaType":"application/vnd.example.thing+json"}"#;
    let image = Image::of_manifest("application/vnd.example.thing+json", body);
    let server = FaultServer::holding(&image);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    let known = media_type::OCI_INDEX;
    refusal.expect(BadInput, &["application/vnd.example.thing+json", known, REPOSITORY]);
}

#[tokio::test]
async fn an_index_entry_of_unknown_media_type() {
    let mut odd = Image::single("linux/amd64", &[500], 1);
    odd.top.media_type = "application/vnd.example.thing+json".to_owned();
    let server = FaultServer::holding(&Image::index(&[odd.clone()]));
    let refusal = Harbour::new().await.refused(&server, 10).await;
    let digest = odd.top.digest.to_string();
    refusal.expect(BadInput, &["application/vnd.example.thing+json", &digest]);
    assert_eq!(server.seen().len(), 1);
}

#[tokio::test]
async fn a_manifest_with_a_key_twice() {
    let inner = Image::single("linux/amd64", &[500], 1);
    let text = String::from_utf8(to_json(&inner.manifest(&inner.top.digest))).unwrap();
    let twice = text.replacen("\"layers\"", "\"layers\": [], \"layers\"", 1);
    let mut image = Image::of_manifest(media_type::OCI_MANIFEST, twice.as_bytes());
    image.blobs = inner.blobs;
    let server = FaultServer::holding(&image);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(BadInput, &["v1", "\"layers\" twice"]);
}

#[tokio::test]
async fn no_platform_matches() {
    let image = image();
    let server = FaultServer::holding(&image);
    let options =
        CopyOptions { platforms: vec![image::platform("linux/s390x")], ..CopyOptions::default() };
    let harbour = Harbour::new().await;
    let refusal = harbour.refused_with(&server, 10, &client(), &options).await;
    refusal.expect_answer(None, &["linux/s390x", "linux/amd64", "linux/arm64"]);
    assert_eq!(server.seen().len(), 1, "an index with platforms answers by itself");
}

/// The first request for the tag sees one image, every later one another: the copy must be the
/// first image from top to bottom, and ask for the tag once.
#[tokio::test]
async fn a_tag_that_moves() {
    let (first, second) = (image(), Image::multi(&["linux/amd64", "linux/arm64"], 2));
    let server = FaultServer::holding(&first);
    server.registry().repositories.get_mut(REPOSITORY).unwrap().hold(&second, "v1");
    let seen_once = Answer::new(200, first.manifests[&first.top.digest].1.clone())
        .header("content-type", media_type::OCI_INDEX)
        .header("docker-content-digest", first.top.digest);
    server.script("GET", "/manifests/v1", vec![Fault::Answer(seen_once)]);
    let harbour = Harbour::new().await;
    let report = harbour.taken(&server, &first, 10).await;
    assert_eq!(report.source.digest, first.top.digest);
    assert_eq!(server.count("GET", "/v1") + server.count("HEAD", "/v1"), 1);
    for digest in second.manifests.keys() {
        assert!(!layouts::has(&harbour.dir, digest), "{digest} is of the other image");
    }
}

#[tokio::test]
async fn a_blob_that_the_registry_does_not_have() {
    let image = image();
    let server = FaultServer::holding(&image);
    let (layer, _) = image.largest_blob();
    server.registry().repositories.get_mut(REPOSITORY).unwrap().blobs.remove(&layer);
    let refusal = Harbour::new().await.refused(&server, 10).await;
    refusal.expect(NotFound, &[&layer.to_string(), "404"]);
}

/// A layer that may not be distributed stays where its author put it, and the report says so.
#[tokio::test]
async fn a_foreign_layer_is_left_and_told() {
    let inner = Image::single("windows/amd64", &[500], 1);
    let mut manifest = inner.manifest(&inner.top.digest);
    manifest.layers[0].media_type = LAYER.replace(".v1.", ".nondistributable.v1.");
    manifest.layers[0].urls = vec!["https://example.com/layer".to_owned()];
    let layer = manifest.layers[0].digest;
    let mut image = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
    image.blobs = inner.blobs;
    image.blobs.remove(&layer);
    let server = FaultServer::holding(&image);
    let harbour = Harbour::new().await;
    let to = in_layout(&harbour.dir, "foreign");
    let report = plain_copy(&server.reference(":v1"), &to).await.unwrap();
    assert_eq!(report.foreign.iter().map(|d| d.digest).collect::<Vec<_>>(), [layer]);
    assert_eq!(server.count("GET", &format!("/blobs/{layer}")), 0);
}
