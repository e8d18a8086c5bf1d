//! The layout store: what it writes, what it reads of others, what it refuses.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "common/part.rs"]
mod part;
#[path = "common/skip.rs"]
mod skip;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use portolan_core::{Algorithm, Descriptor, Digest, Target, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::layout::{GarbageOptions, Layout, LayoutError};
use serde_json::{Value, json};

const LAYER: &str = "application/vnd.oci.image.layer.v1.tar";

fn new() -> (tempfile::TempDir, Layout) {
    let dir = tempfile::tempdir().unwrap();
    let layout = Layout::create(&dir.path().join("layout")).unwrap();
    (dir, layout)
}

fn tag(text: &str) -> portolan_core::Tag {
    text.parse().unwrap()
}

/// Stores an image with one layer and returns its manifest's descriptor.
fn put_image(layout: &Layout, name: Option<&str>, seed: &str) -> Descriptor {
    let manifest = image(layout, seed, None).to_string();
    let name = name.map(tag);
    layout.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), name.as_ref()).unwrap()
}

fn image(layout: &Layout, seed: &str, subject: Option<&Descriptor>) -> Value {
    layout.put_blob(b"{}").unwrap();
    layout.put_blob(seed.as_bytes()).unwrap();
    let mut manifest = json!({
        "schemaVersion": 2, "mediaType": media_type::OCI_MANIFEST,
        "config": Descriptor::of(media_type::OCI_CONFIG, b"{}"),
        "layers": [Descriptor::of(LAYER, seed.as_bytes())],
    });
    if let Some(subject) = subject {
        manifest["subject"] = json!(subject);
        manifest["artifactType"] = json!(format!("application/vnd.example.{seed}"));
        manifest["annotations"] = json!({"seed": seed});
    }
    manifest
}

fn files(dir: &Path) -> usize {
    std::fs::read_dir(dir).map(Iterator::count).unwrap_or_default()
}

#[test]
fn a_new_layout_is_one_by_the_specification() {
    let (_dir, layout) = new();
    let read = |name: &str| -> Value {
        serde_json::from_slice(&std::fs::read(layout.dir().join(name)).unwrap()).unwrap()
    };
    assert_eq!(read("oci-layout"), json!({"imageLayoutVersion": "1.0.0"}));
    let index = json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX, "manifests": []});
    assert_eq!(read("index.json"), index);
    assert!(layout.dir().join("blobs/sha256").is_dir());
    // Opening again changes nothing.
    put_image(&layout, Some("t"), "one");
    Layout::create(layout.dir()).unwrap();
    assert_eq!(Layout::open(layout.dir()).unwrap().tags().unwrap(), [tag("t")]);
}

#[test]
fn what_is_no_layout_is_not_opened() {
    let dir = tempfile::tempdir().unwrap();
    let error = Layout::open(dir.path()).unwrap_err();
    assert!(matches!(error, LayoutError::NotALayout { .. }));
    assert_eq!(error.class(), ErrorClass::NotFound);
    std::fs::write(dir.path().join("oci-layout"), r#"{"imageLayoutVersion":"9.0.0"}"#).unwrap();
    assert!(matches!(Layout::open(dir.path()), Err(LayoutError::Version { .. })));
    std::fs::write(dir.path().join("oci-layout"), "x".repeat(10_000)).unwrap();
    assert!(matches!(Layout::open(dir.path()), Err(LayoutError::TooLarge { .. })));
    std::fs::write(dir.path().join("oci-layout"), "{").unwrap();
    assert!(matches!(Layout::open(dir.path()), Err(LayoutError::Malformed { .. })));
}

#[test]
fn a_blob_exists_when_it_is_whole_and_not_before() {
    let (_dir, layout) = new();
    for algorithm in [Algorithm::Sha256, Algorithm::Sha512] {
        let digest = Digest::of(algorithm, b"0123456789");
        let mut writer = layout.blob_writer(digest, Some(10)).unwrap();
        writer.write(b"01234").unwrap();
        assert_eq!((writer.written(), layout.blob_size(&digest).unwrap()), (5, None));
        writer.write(b"56789").unwrap();
        assert_eq!(layout.blob_size(&digest).unwrap(), None);
        writer.commit().unwrap();
        assert_eq!(layout.blob_size(&digest).unwrap(), Some(10));
        let (mut file, size) = layout.open_blob(&digest).unwrap();
        let mut content = String::new();
        std::io::Read::read_to_string(&mut file, &mut content).unwrap();
        assert_eq!((content.as_str(), size), ("0123456789", 10));
    }
    assert_eq!(files(&layout.dir().join(".portolan/tmp")), 0);
}

#[test]
fn content_that_is_being_made_gets_its_name_at_the_end() {
    use std::io::Write as _;
    let (_dir, layout) = new();
    let digest = Digest::sha256(b"0123456789");
    for again in [false, true] {
        let mut blob = layout.new_blob().unwrap();
        blob.write_all(b"01234").unwrap();
        blob.write_all(b"56789").unwrap();
        assert_eq!(layout.blob_size(&digest).unwrap().is_some(), again, "not before it is kept");
        assert_eq!(blob.keep().unwrap(), (digest, 10));
        assert_eq!(layout.blob_size(&digest).unwrap(), Some(10));
    }
    let mut left = layout.new_blob().unwrap();
    left.write_all(b"half").unwrap();
    drop(left);
    assert_eq!(layout.blob_size(&Digest::sha256(b"half")).unwrap(), None);
    assert_eq!(files(&layout.dir().join(".portolan/tmp")), 0);
}

/// A collection takes the same content away again and again while it is made anew.
#[test]
fn content_that_goes_while_it_is_made_again_is_there_at_the_end() {
    use std::io::Write as _;
    use std::sync::atomic::{AtomicBool, Ordering};
    let (dir, layout) = new();
    let digest = layout.put_blob(b"0123456789").unwrap();
    let (name, other) =
        (layout.dir().join("blobs/sha256").join(digest.hex()), dir.path().join("other"));
    std::fs::rename(&name, &other).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                let _ = std::fs::hard_link(&other, &name);
                let _ = std::fs::remove_file(&name);
            }
        });
        let kept: Vec<_> = (0..1000)
            .map(|_| {
                let mut blob = layout.new_blob().unwrap();
                blob.write_all(b"0123456789").unwrap();
                blob.keep()
            })
            .collect();
        done.store(true, Ordering::Relaxed);
        for one in kept {
            assert_eq!(one.unwrap(), (digest, 10));
        }
    });
}

#[test]
fn wrong_short_and_long_content_leaves_nothing() {
    let (_dir, layout) = new();
    let digest = Digest::sha256(b"0123456789");
    let mut wrong = layout.blob_writer(digest, None).unwrap();
    wrong.write(b"other").unwrap();
    let error = wrong.commit().unwrap_err();
    assert!(matches!(error, LayoutError::DigestMismatch { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::BadInput);

    let mut short = layout.blob_writer(digest, Some(10)).unwrap();
    short.write(b"01234").unwrap();
    assert!(matches!(short.commit(), Err(LayoutError::TooShort { written: 5, .. })));

    let mut long = layout.blob_writer(digest, Some(10)).unwrap();
    assert!(matches!(long.write(b"0123456789A"), Err(LayoutError::TooLong { size: 10, .. })));
    drop(long);

    assert!(layout.put_blob_as(digest, b"other").is_err());
    assert_eq!(layout.blob_size(&digest).unwrap(), None);
    assert_eq!(files(&layout.dir().join(".portolan/tmp")), 0);
    assert!(matches!(layout.open_blob(&digest), Err(LayoutError::BlobNotFound { .. })));
}

#[test]
fn manifests_are_checked_when_they_are_read() {
    let (_dir, layout) = new();
    let manifest = put_image(&layout, Some("t"), "one");
    let by_tag = Target::Tag(tag("t"));
    assert_eq!(layout.manifest(&by_tag).unwrap().0.digest, manifest.digest);
    let path = layout.dir().join("blobs/sha256").join(manifest.digest.hex());
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[5] ^= 1;
    std::fs::write(&path, &bytes).unwrap();
    assert!(matches!(layout.manifest(&by_tag), Err(LayoutError::DigestMismatch { .. })));
    std::fs::write(&path, &bytes[1..]).unwrap();
    assert!(matches!(layout.manifest(&by_tag), Err(LayoutError::TooShort { .. })));
    std::fs::write(&path, vec![b' '; 5 * 1024 * 1024]).unwrap();
    assert!(matches!(layout.manifest(&by_tag), Err(LayoutError::TooLarge { .. })));
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(layout.manifest(&by_tag), Err(LayoutError::ManifestNotFound { .. })));
    let large = vec![b' '; 5 * 1024 * 1024];
    let refused = layout.put_manifest(media_type::OCI_MANIFEST, &large, None);
    assert!(matches!(refused, Err(LayoutError::TooLarge { .. })));
}

#[test]
fn without_a_name_the_only_image_is_meant() {
    let (_dir, layout) = new();
    assert!(matches!(layout.resolve(None), Err(LayoutError::Empty { .. })));
    let one = put_image(&layout, Some("one"), "one");
    assert_eq!(layout.resolve(None).unwrap(), one);
    // A referrer and a part of an index are not rivals.
    let referrer = image(&layout, "sig", Some(&one)).to_string();
    layout.put_manifest(media_type::OCI_MANIFEST, referrer.as_bytes(), None).unwrap();
    assert_eq!(layout.resolve(None).unwrap(), one);
    put_image(&layout, Some("two"), "two");
    let error = layout.resolve(None).unwrap_err();
    assert_eq!(error.class(), ErrorClass::BadInput);
    assert!(error.to_string().ends_with("name one: one, two"), "{error}");
    let error = layout.resolve(Some(&Target::Tag(tag("three")))).unwrap_err();
    assert!(error.to_string().contains("it has one, two"), "{error}");
    assert_eq!(error.class(), ErrorClass::NotFound);
}

#[test]
fn manifests_that_only_an_index_leads_to_are_found() {
    let (_dir, layout) = new();
    let child = image(&layout, "one", None).to_string();
    let child_digest = layout.put_blob(child.as_bytes()).unwrap();
    let index = json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX,
        "manifests": [Descriptor::of(media_type::OCI_MANIFEST, child.as_bytes())]});
    let index = index.to_string();
    layout.put_manifest(media_type::OCI_INDEX, index.as_bytes(), Some(&tag("t"))).unwrap();
    let (found, bytes) = layout.manifest(&Target::Digest(child_digest)).unwrap();
    assert_eq!((found.media_type.as_str(), bytes), (media_type::OCI_MANIFEST, child.into_bytes()));
    assert_eq!(layout.manifests().unwrap().len(), 1);
    assert_eq!(layout.resolve(None).unwrap().media_type, media_type::OCI_INDEX);
}

#[test]
fn referrers_are_found_and_filtered() {
    let (_dir, layout) = new();
    let subject = put_image(&layout, Some("t"), "one");
    for seed in ["a", "b"] {
        let referrer = image(&layout, seed, Some(&subject)).to_string();
        layout.put_manifest(media_type::OCI_MANIFEST, referrer.as_bytes(), None).unwrap();
    }
    let all = layout.referrers(&subject.digest, None).unwrap();
    let kinds: Vec<_> = all.iter().filter_map(|d| d.artifact_type.as_deref()).collect();
    assert_eq!(kinds, ["application/vnd.example.a", "application/vnd.example.b"]);
    let some = layout.referrers(&subject.digest, Some("application/vnd.example.b")).unwrap();
    assert_eq!(some.len(), 1);
    assert_eq!(some[0].annotations["seed"], "b");
    layout.delete_manifest(&some[0].digest).unwrap();
    assert_eq!(layout.referrers(&subject.digest, None).unwrap().len(), 1);
}

#[test]
fn referrers_known_only_through_the_fallback_tag_are_found() {
    let (_dir, layout) = new();
    let subject = put_image(&layout, Some("t"), "one");
    let referrer = image(&layout, "sig", Some(&subject)).to_string();
    layout.put_blob(referrer.as_bytes()).unwrap();
    let list = json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX,
        "manifests": [Descriptor::of(media_type::OCI_MANIFEST, referrer.as_bytes())]});
    let fallback = tag(&subject.digest.referrers_tag());
    let list = list.to_string();
    layout.put_manifest(media_type::OCI_INDEX, list.as_bytes(), Some(&fallback)).unwrap();
    let found = layout.referrers(&subject.digest, None).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].digest, Digest::sha256(referrer.as_bytes()));
    assert_eq!(found[0].artifact_type.as_deref(), Some("application/vnd.example.sig"));
}

#[test]
fn deleting_a_tag_keeps_the_manifest_and_deleting_the_manifest_takes_the_tags() {
    let (_dir, layout) = new();
    let one = put_image(&layout, Some("a"), "one");
    put_image(&layout, Some("b"), "one");
    assert!(layout.delete_tag(&tag("a")).unwrap());
    assert!(!layout.delete_tag(&tag("a")).unwrap());
    assert_eq!(layout.tags().unwrap(), [tag("b")]);
    assert!(layout.manifest(&Target::Digest(one.digest)).is_ok());
    assert!(layout.delete_manifest(&one.digest).unwrap());
    assert!(!layout.delete_manifest(&one.digest).unwrap());
    assert_eq!(layout.tags().unwrap(), []);
    assert_eq!(layout.blob_size(&one.digest).unwrap(), None);
}

fn at_once() -> GarbageOptions {
    GarbageOptions { grace: Duration::ZERO, ..GarbageOptions::default() }
}

#[test]
fn collection_keeps_what_is_listed_and_all_below_it() {
    let (_dir, layout) = new();
    let child = image(&layout, "child", None).to_string();
    layout.put_blob(child.as_bytes()).unwrap();
    let index = json!({"schemaVersion": 2, "mediaType": media_type::OCI_INDEX,
        "manifests": [Descriptor::of(media_type::OCI_MANIFEST, child.as_bytes())]});
    let index = index.to_string();
    layout.put_manifest(media_type::OCI_INDEX, index.as_bytes(), Some(&tag("t"))).unwrap();
    let sha512 = Digest::of(Algorithm::Sha512, b"orphan");
    layout.put_blob_as(sha512, b"orphan").unwrap();
    let collected = layout.collect_garbage(&at_once()).unwrap();
    // Index, child, config and layer stay.
    assert_eq!((collected.live, collected.removed.len()), (4, 1));
    assert_eq!(collected.removed[0].digest, sha512);
    assert!(layout.manifest(&Target::Digest(Digest::sha256(child.as_bytes()))).is_ok());
    assert_eq!(layout.collect_garbage(&at_once()).unwrap().removed, []);
}

#[test]
fn untagged_manifests_go_only_when_asked_and_referrers_of_the_living_stay() {
    let (_dir, layout) = new();
    let kept = put_image(&layout, Some("t"), "kept");
    let loose = put_image(&layout, None, "loose");
    let signature = image(&layout, "sig", Some(&kept)).to_string();
    let signature =
        layout.put_manifest(media_type::OCI_MANIFEST, signature.as_bytes(), None).unwrap();
    assert_eq!(layout.collect_garbage(&at_once()).unwrap().removed, []);

    let dry = GarbageOptions { untagged: true, dry_run: true, ..at_once() };
    let would = layout.collect_garbage(&dry).unwrap();
    assert_eq!(would.removed.len(), 2);
    assert!(layout.manifest(&Target::Digest(loose.digest)).is_ok());
    let done = layout.collect_garbage(&GarbageOptions { dry_run: false, ..dry }).unwrap();
    assert_eq!(done.removed, would.removed);
    assert!(done.removed.iter().any(|g| g.manifest && g.digest == loose.digest));
    assert!(layout.manifest(&Target::Digest(loose.digest)).is_err());
    assert!(layout.manifest(&Target::Digest(signature.digest)).is_ok());
    assert_eq!(layout.referrers(&kept.digest, None).unwrap().len(), 1);
}

#[test]
fn a_manifest_that_cannot_be_read_stops_the_collection() {
    let (_dir, layout) = new();
    let manifest = put_image(&layout, Some("t"), "one");
    let path = layout.dir().join("blobs/sha256").join(manifest.digest.hex());
    std::fs::write(&path, "damaged").unwrap();
    let orphan = layout.put_blob(b"orphan").unwrap();
    assert!(matches!(layout.collect_garbage(&at_once()), Err(LayoutError::NotAManifest { .. })));
    assert!(layout.blob_size(&orphan).unwrap().is_some());
}

#[test]
fn mounting_links_and_counts_as_use() {
    let (dir, source) = new();
    let target = Layout::create(&dir.path().join("target")).unwrap();
    let digest = source.put_blob(b"shared").unwrap();
    assert!(target.mount_blob(&digest, &source).unwrap());
    assert!(target.mount_blob(&digest, &source).unwrap());
    assert!(source.delete_blob(&digest).unwrap());
    assert_eq!(target.blob_size(&digest).unwrap(), Some(6));
    assert!(!target.mount_blob(&Digest::sha256(b"absent"), &source).unwrap());
}

/// A blob that was damaged is of another size than the good one elsewhere, and does not keep it out.
#[test]
fn what_was_damaged_is_taken_over_anew_and_takes_nothing_over() {
    let (dir, good) = new();
    let damaged = Layout::create(&dir.path().join("damaged")).unwrap();
    let digest = good.put_blob(b"content").unwrap();
    assert!(damaged.mount_blob(&digest, &good).unwrap());
    let file = damaged.dir().join("blobs/sha256").join(digest.hex());
    let damage = || {
        // Both share one file otherwise.
        std::fs::remove_file(&file).unwrap();
        std::fs::write(&file, b"cont").unwrap();
    };
    damage();
    assert!(good.mount_blob(&digest, &damaged).unwrap());
    assert_eq!(good.blob_size(&digest).unwrap(), Some(7));
    assert!(damaged.mount_blob(&digest, &good).unwrap());
    assert_eq!(std::fs::read(&file).unwrap(), b"content");
}

/// What need not last is checked like the rest, and another layout may keep it.
#[test]
fn what_passes_is_whole_and_may_be_kept_elsewhere() {
    let dir = tempfile::tempdir().unwrap();
    let passing = Layout::create_passing(&dir.path().join("passing")).unwrap();
    let digest = passing.put_blob(b"shared").unwrap();
    let mut wrong = passing.blob_writer(Digest::sha256(b"right"), None).unwrap();
    wrong.write(b"wrong").unwrap();
    assert!(matches!(wrong.commit(), Err(LayoutError::DigestMismatch { .. })));
    let mut made = passing.new_blob().unwrap();
    std::io::Write::write_all(&mut made, b"made").unwrap();
    let (made, size) = made.keep().unwrap();
    assert_eq!((made, size), (Digest::sha256(b"made"), 4));
    assert!(fs_names(&passing.dir().join(".portolan/tmp")).is_empty());
    let kept = Layout::create(&dir.path().join("kept")).unwrap();
    for digest in [digest, made] {
        assert!(kept.mount_blob(&digest, &passing).unwrap());
    }
    std::fs::remove_dir_all(passing.dir()).unwrap();
    assert_eq!(kept.blob_size(&digest).unwrap(), Some(6));
    assert_eq!(kept.blob_size(&made).unwrap(), Some(4));
}

fn fs_names(dir: &Path) -> Vec<std::ffi::OsString> {
    std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name()).collect()
}

#[test]
fn no_change_is_lost_between_threads() {
    let (_dir, layout) = new();
    let manifest = put_image(&layout, None, "one");
    let (_, bytes) = layout.manifest(&Target::Digest(manifest.digest)).unwrap();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            // Each opens the layout for itself, as another process would.
            let layout = Layout::open(layout.dir()).unwrap();
            let bytes = &bytes;
            scope.spawn(move || {
                for n in 0..10 {
                    let name = tag(&format!("t{worker}-{n}"));
                    layout.put_manifest(media_type::OCI_MANIFEST, bytes, Some(&name)).unwrap();
                }
            });
        }
    });
    assert_eq!(layout.tags().unwrap().len(), 40);
}

#[test]
fn skopeo_reads_what_we_write_and_we_read_what_it_writes() {
    let Some(skopeo) = part::part("skopeo") else { return };
    let (dir, layout) = new();
    let config = json!({"architecture": "amd64", "os": "linux",
        "rootfs": {"type": "layers", "diff_ids": [Digest::sha256(b"layer")]}});
    let config = config.to_string();
    layout.put_blob(config.as_bytes()).unwrap();
    layout.put_blob(b"layer").unwrap();
    let manifest = json!({"schemaVersion": 2, "mediaType": media_type::OCI_MANIFEST,
        "config": Descriptor::of(media_type::OCI_CONFIG, config.as_bytes()),
        "layers": [Descriptor::of(LAYER, b"layer")]});
    let manifest = manifest.to_string();
    let put = layout.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), Some(&tag("v1")));
    let digest = put.unwrap().digest;

    let theirs = dir.path().join("theirs");
    for name in ["v2", "example.com/some/image:v3"] {
        let copied = Command::new(&skopeo)
            .args(["--insecure-policy", "copy", "--preserve-digests"])
            .arg(format!("oci:{}:v1", layout.dir().display()))
            .arg(format!("oci:{}:{name}", theirs.display()))
            .output()
            .unwrap();
        assert!(copied.status.success(), "{}", String::from_utf8_lossy(&copied.stderr));
    }
    let theirs = Layout::open(&theirs).unwrap();
    assert_eq!(theirs.tags().unwrap(), [tag("v2"), tag("v3")]);
    for name in ["v2", "v3"] {
        let (found, bytes) = theirs.manifest(&Target::Tag(tag(name))).unwrap();
        assert_eq!((found.digest, bytes), (digest, manifest.clone().into_bytes()));
    }
    // And they still read it after we changed it.
    theirs.put_manifest(media_type::OCI_MANIFEST, manifest.as_bytes(), Some(&tag("v4"))).unwrap();
    for name in ["v2", "v4", "example.com/some/image:v3"] {
        let inspected = Command::new(&skopeo)
            .args(["--insecure-policy", "inspect", "--raw"])
            .arg(format!("oci:{}:{name}", theirs.dir().display()))
            .output()
            .unwrap();
        assert!(inspected.status.success(), "{}", String::from_utf8_lossy(&inspected.stderr));
        assert_eq!(inspected.stdout, manifest.as_bytes());
    }
}
