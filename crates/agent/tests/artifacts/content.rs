//! Images that are not what they say. Nothing of them is kept, and nothing is asked for twice.

use portolan_agent::reason::Reason;
use portolan_core::{Descriptor, Digest, Index, Manifest, media_type};

use crate::harness::{Twist, Yard, chain, image_of, image_with, layer_of, resolved, small, tar};
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

const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";

fn zstd(tar: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(tar, 3).unwrap()
}

/// A tar, what packs it and the media type of that.
type Codec = (fn(&[u8]) -> Vec<u8>, &'static str);
const CODECS: [Codec; 2] = [(gzip, crate::support::image::LAYER), (zstd, ZSTD)];

#[tokio::test]
async fn layers_that_cannot_be_unpacked_fail_the_build() {
    let plain = layer_tar(24);
    for (pack, media_type) in CODECS {
        let whole = pack(&plain);
        let mut corrupt = whole.clone();
        corrupt[600] ^= 0x40;
        let truncated = whole[..whole.len() - 900].to_vec();
        for layer in [truncated, corrupt] {
            let twist = Twist { layer_type: Some(media_type), ..Twist::default() };
            let image = image_with(std::slice::from_ref(&plain), vec![layer], &twist);
            let server = FaultServer::holding(&image);
            let berth = Yard::new().open();
            let wanted = resolved(&server, &image);
            // A bit in data that zstd only stores changes what comes out, and nothing else.
            let error = berth.try_acquire("x", &wanted).await.unwrap_err();
            let reasons = [Reason::RootfsBuildFailed, Reason::ImagePullFailed];
            assert!(reasons.contains(&error.reason()), "{}", chain(&error));
            berth.refused(&wanted, error.reason(), &["layer 0"]).await;
            let layer = layer_of(&image);
            let asked = server.count("GET", &format!("/blobs/{layer}"));
            assert!(asked <= 2, "each of the two starts asks once at most: {asked}");
        }
    }
}

/// Truncated, both are what they are: no layers.
#[tokio::test]
async fn layers_that_end_too_early_are_no_layers() {
    let plain = layer_tar(25);
    for (pack, media_type) in CODECS {
        let whole = pack(&plain);
        for keep in [0, 1, 10, whole.len() / 2, whole.len() - 1] {
            let twist = Twist { layer_type: Some(media_type), ..Twist::default() };
            let layer = whole[..keep].to_vec();
            let image = image_with(std::slice::from_ref(&plain), vec![layer], &twist);
            let server = FaultServer::holding(&image);
            let berth = Yard::new().open();
            let error = berth.try_acquire("x", &resolved(&server, &image)).await.unwrap_err();
            let text = chain(&error);
            // By a byte or none nobody can tell what it should be: it is taken as it is, and that
            // is not what the config says.
            let reason = if keep < 2 { Reason::ImagePullFailed } else { Reason::RootfsBuildFailed };
            assert_eq!(error.reason(), reason, "{media_type} {keep}: {text}");
        }
    }
}

#[tokio::test]
async fn a_zstd_layer_makes_the_disk_that_its_gzip_makes() {
    let plain = layer_tar(26);
    let mut sums = Vec::new();
    for (pack, media_type) in CODECS {
        let twist = Twist { layer_type: Some(media_type), ..Twist::default() };
        let image = image_with(std::slice::from_ref(&plain), vec![pack(&plain)], &twist);
        let server = FaultServer::holding(&image);
        let berth = Yard::new().open();
        let made = berth.acquire("x", &resolved(&server, &image)).await;
        sums.push((made.metadata.files, made.metadata.inodes, made.metadata.size_bytes));
    }
    assert_eq!(sums[0], sums[1]);
}

/// Documents that somebody made up: each is refused in words, at once, and costs the cache nothing.
#[tokio::test]
async fn documents_that_are_made_up_are_refused_in_words() {
    use serde_json::{Value, json};
    let good = small(34);
    let manifest: Value = serde_json::from_slice(&good.manifests[&good.top.digest].1).unwrap();
    let with = |path: &str, value: Value| {
        let mut changed = manifest.clone();
        *changed.pointer_mut(path).unwrap() = value;
        changed.to_string().into_bytes()
    };
    let layer = manifest["layers"][0].clone();
    let deep = [b"[".repeat(100_000), b"]".repeat(100_000)].concat();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("negative size", with("/layers/0/size", json!(-1))),
        ("size beyond 64 bits", with("/layers/0/size", json!(1e300))),
        ("size as text", with("/layers/0/size", json!("12"))),
        ("another size", with("/layers/0/size", json!(7))),
        (
            "a digest that leads elsewhere",
            with("/layers/0/digest", json!("sha256:../../etc/passwd")),
        ),
        ("an empty digest", with("/config/digest", json!(""))),
        ("layers as text", with("/layers", json!("all of them"))),
        ("no config", with("/config", Value::Null)),
        ("more layers than the config has", with("/layers", json!(vec![layer; 12_000]))),
        ("deep nesting", deep),
        ("not JSON", b"\xff\xfe{".to_vec()),
        ("nothing", b"{}".to_vec()),
    ];
    for (what, bytes) in cases {
        let mut image = Image::of_manifest(media_type::OCI_MANIFEST, &bytes);
        image.absorb(&good);
        let server = FaultServer::holding(&image);
        let berth = Yard::new().open();
        let error = berth.try_acquire("x", &resolved(&server, &image)).await.unwrap_err();
        eprintln!("{what}: {}", chain(&error));
        let reasons = [Reason::ImagePullFailed, Reason::RootfsBuildFailed];
        assert!(reasons.contains(&error.reason()), "{what}: {}", chain(&error));
        berth.settled().await;
        assert!(berth.artifacts.cache().rootdisks.is_empty(), "{what}");
    }
}

/// Manifest and config agree, and everything in them is true; there is only too much of it.
#[tokio::test]
async fn an_image_of_thousands_of_layers_is_refused_before_one_is_fetched() {
    let plain = layer_tar(36);
    let layer = gzip(&plain);
    let (many, blob) = (2000, Digest::sha256(&layer));
    let tars = vec![plain; many];
    let image = image_with(&tars, vec![layer; many], &Twist::default());
    let server = FaultServer::holding(&image);
    let berth = Yard::new().open();
    let parts = ["2000 layers", "at most 1024"];
    berth.refused(&resolved(&server, &image), Reason::RootfsBuildFailed, &parts).await;
    assert_eq!(server.count("GET", &format!("/blobs/{blob}")), 0);
}

#[tokio::test]
async fn a_config_of_wrong_types_is_refused_in_words() {
    use serde_json::{Value, json};
    let plain = layer_tar(35);
    let layer = gzip(&plain);
    let true_config = json!({
        "os": "linux", "architecture": "amd64",
        "config": {"Entrypoint": ["/hello"], "Env": ["A=1"]},
        "rootfs": {"type": "layers", "diff_ids": [Digest::sha256(&plain).to_string()]},
    });
    for (path, value) in [
        ("/os", json!(7)),
        ("/architecture", Value::Null),
        ("/rootfs", json!([])),
        ("/rootfs/diff_ids", json!({})),
        ("/rootfs/diff_ids", json!([])),
        ("/rootfs/diff_ids/0", json!("sha256:00")),
        ("/config/Env", json!("A=1")),
        ("/config/Entrypoint", json!([1, 2])),
    ] {
        let mut config = true_config.clone();
        *config.pointer_mut(path).unwrap() = value.clone();
        let config = config.to_string().into_bytes();
        let manifest = Manifest::new(
            Descriptor::of(media_type::OCI_CONFIG, &config),
            vec![Descriptor::of(crate::support::image::LAYER, &layer)],
        );
        let mut image = Image::of_manifest(media_type::OCI_MANIFEST, &manifest.to_vec());
        for blob in [config, layer.clone()] {
            image.blobs.insert(Digest::sha256(&blob), blob);
        }
        let server = FaultServer::holding(&image);
        let berth = Yard::new().open();
        let error = berth.try_acquire("x", &resolved(&server, &image)).await.unwrap_err();
        eprintln!("{path} {value}: {}", chain(&error));
        let reasons = [Reason::ImagePullFailed, Reason::PlatformMismatch];
        assert!(reasons.contains(&error.reason()), "{path} {value}: {}", chain(&error));
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
