//! What strategies made, pushed: layouts, tarballs, what they pushed themselves, and what is wrong.

use std::collections::BTreeMap;
use std::path::PathBuf;

use portolan_build::steps::StepError;
use portolan_build::steps::image::{Made, Push, PushedImage, Timestamp, push};
use portolan_core::causes;
use portolan_core::manifest::Document;
use portolan_registry::layout::Layout;
use serde_json::json;

use crate::{Yard, for_platform, gzip, image, index, names, tar};

impl Yard {
    fn request(&self, dir: Option<PathBuf>) -> Push {
        self.request_of(dir.map_or(Made::AsTagged, Made::InDirectory))
    }

    fn request_of(&self, made: Made) -> Push {
        Push {
            image: self.reference("1"),
            made,
            platform: None,
            annotations: BTreeMap::new(),
            labels: BTreeMap::new(),
            timestamp: Timestamp::Untouched,
        }
    }

    fn image_push(&self, request: &Push) -> Result<PushedImage, StepError> {
        self.block(push(request, &self.client(), &self.folder("temp")))
    }
}

fn pairs(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn a_layout_is_pushed_as_it_is_and_not_twice() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("out")).unwrap();
    let made = image(&layout, "linux/arm64", "x");
    let mut request = yard.request(Some(yard.path("out")));
    request.platform = Some("linux/arm64".parse().unwrap());
    let first = yard.image_push(&request).unwrap();
    assert_eq!((first.digest, first.written), (made.digest, true));
    assert!(first.size.unwrap() > 100);
    let second = yard.image_push(&request).unwrap();
    assert_eq!((second.digest, second.written), (made.digest, false));
    assert!(names(&yard.path("temp")).is_empty(), "nothing stays behind");
}

#[test]
fn indexes_of_one_entry_are_unwrapped() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("out")).unwrap();
    let made = image(&layout, "linux/amd64", "x");
    let inner = index(&layout, vec![for_platform("linux/amd64", made.clone())]);
    let outer = index(&layout, vec![inner]);
    // A tool's layout lists the outermost alone.
    let text = json!({ "schemaVersion": 2, "manifests": [outer] });
    std::fs::write(yard.path("out/index.json"), text.to_string()).unwrap();
    assert_eq!(yard.image_push(&yard.request(Some(yard.path("out")))).unwrap().digest, made.digest);
}

#[test]
fn labels_annotations_and_times_are_put_into_every_image_of_an_index() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("out")).unwrap();
    let entries = ["linux/amd64", "linux/arm64"]
        .map(|platform| for_platform(platform, image(&layout, platform, platform)));
    let top = index(&layout, entries.to_vec());
    let text = json!({ "schemaVersion": 2, "manifests": [top] });
    std::fs::write(yard.path("out/index.json"), text.to_string()).unwrap();
    let mut request = yard.request(Some(yard.path("out")));
    (request.annotations, request.labels) = (pairs("a", "1"), pairs("team", "blue"));
    // Beyond what 32 bits can count.
    request.timestamp = Timestamp::At(4_102_444_800);
    let pushed = yard.image_push(&request).unwrap();
    assert_eq!(pushed.size, None);
    let Document::Index(found) = yard.document("1") else { panic!() };
    assert_eq!(found.annotations["a"], "1");
    let (place, _) = yard.place("1");
    for entry in &found.manifests {
        let target = portolan_core::Target::Digest(entry.digest);
        let child = yard.block(place.manifest(&target)).unwrap();
        let Document::Manifest(manifest) = &child.document else { panic!() };
        assert_eq!(manifest.annotations["a"], "1");
        let config = yard.block(place.read_blob(&manifest.config, 1 << 20)).unwrap();
        let config: serde_json::Value = serde_json::from_slice(&config).unwrap();
        assert_eq!(config["config"]["Labels"], json!({ "old": "kept", "team": "blue" }));
        assert_eq!(config["created"], "2100-01-01T00:00:00Z");
        assert_eq!(config["history"][0]["created"], "2100-01-01T00:00:00Z");
    }
    // The same again is the same.
    let again = yard.image_push(&request).unwrap();
    assert_eq!((again.digest, again.written), (pushed.digest, false));
}

#[test]
fn what_a_strategy_pushed_itself_is_checked_changed_in_place_and_told() {
    let yard = Yard::new();
    let digest = yard.push("1", "linux/amd64");
    let mut request = yard.request(None);
    request.platform = Some("linux/amd64".parse().unwrap());
    let told = yard.image_push(&request).unwrap();
    assert_eq!((told.digest, told.written), (digest, false));
    request.labels = pairs("team", "blue");
    let file = yard.path("timestamp");
    std::fs::write(&file, "1700000000").unwrap();
    request.timestamp = Timestamp::InFile(file);
    let changed = yard.image_push(&request).unwrap();
    assert!(changed.written && changed.digest != digest);
    assert_eq!(yard.digest("1"), Some(changed.digest));
    assert_eq!(yard.config("1")["created"], "2023-11-14T22:13:20Z");
    let again = yard.image_push(&request).unwrap();
    assert_eq!((again.digest, again.written), (changed.digest, false));
}

/// The tag is there already, from the run before or from one at the same time: neither is this run's image.
#[test]
fn a_tag_of_another_run_is_never_taken_for_this_ones_image() {
    let yard = Yard::new();
    let before = yard.push("1", "linux/amd64");
    let file = yard.path("digest");
    let told = yard.request_of(Made::ByDigest(file.clone()));
    let named = yard.request_of(Made::Under(yard.reference("1-run-this")));
    // A strategy that pushes nothing.
    for request in [&told, &named] {
        let error = yard.image_push(request).unwrap_err();
        assert_eq!(error.reason, "ImagePushFailed", "{error}");
        assert!(
            error.to_string().contains("left no digest")
                || error.to_string().contains("pushed nothing")
        );
    }
    for (text, said) in
        [("", "left no digest"), ("sha256:12", "no digest"), ("latest", "no digest")]
    {
        std::fs::write(&file, text).unwrap();
        let error = yard.image_push(&told).unwrap_err();
        assert!(error.to_string().contains(said), "{text}: {error}");
    }
    std::fs::write(&file, format!("sha256:{:064}", 7)).unwrap();
    let error = yard.image_push(&told).unwrap_err();
    assert!(error.to_string().contains("pushed nothing"), "{error}");
    assert_eq!(yard.digest("1"), Some(before));

    // One that pushes, and another run moves the tag before this one looks.
    let ours = yard.push("1", "linux/arm64");
    std::fs::write(&file, format!("{ours}\n")).unwrap();
    let theirs = yard.push("1", "linux/s390x");
    assert_ne!(ours, theirs);
    let pushed = yard.image_push(&told).unwrap();
    assert_eq!((pushed.digest, yard.digest("1")), (ours, Some(ours)));

    // Under a name of the run, also the very same content as before gets the tag.
    let again = yard.push("1-run-this", "linux/amd64");
    assert_eq!(again, before);
    let pushed = yard.image_push(&named).unwrap();
    assert_eq!((pushed.digest, pushed.written, yard.digest("1")), (before, true, Some(before)));
    let pushed = yard.image_push(&named).unwrap();
    assert_eq!((pushed.digest, pushed.written), (before, false));
    let elsewhere = format!("{}/other/app:1-run-this", yard.address).parse().unwrap();
    assert_eq!(yard.image_push(&yard.request_of(Made::Under(elsewhere))).unwrap_err().exit, 2);
}

/// What buildkit pushes: the tag keeps the attestations, the run's image is the one for its platform.
#[test]
fn an_index_with_attestations_gets_the_tag_as_it_is() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("kit")).unwrap();
    let made = image(&layout, "linux/arm64", "x");
    let attestation = for_platform("unknown/unknown", image(&layout, "linux/amd64", "y"));
    let top = index(&layout, vec![for_platform("linux/arm64", made.clone()), attestation]);
    yard.push_from(&layout, &top, "1-run-this");
    let mut request = yard.request_of(Made::Under(yard.reference("1-run-this")));
    request.platform = Some("linux/arm64".parse().unwrap());
    assert_eq!(yard.image_push(&request).unwrap().digest, made.digest);
    assert_eq!(yard.digest("1"), Some(top.digest));
}

#[test]
fn the_wrong_platform_is_not_pushed() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("out")).unwrap();
    image(&layout, "linux/amd64", "x");
    let mut request = yard.request(Some(yard.path("out")));
    request.platform = Some("linux/arm64".parse().unwrap());
    let error = yard.image_push(&request).unwrap_err();
    assert_eq!((error.reason, error.exit), ("PlatformMismatch", 1));
    assert!(causes::chain(&error).contains("linux/amd64 came out where linux/arm64"), "{error}");
    assert_eq!(yard.digest("1"), None);
    // One that a strategy pushed is told just the same.
    yard.push("1", "linux/amd64");
    request.made = Made::AsTagged;
    assert_eq!(yard.image_push(&request).unwrap_err().reason, "PlatformMismatch");
}

#[test]
fn a_strategy_that_made_or_pushed_nothing_is_told() {
    let yard = Yard::new();
    let error = yard.image_push(&yard.request(None)).unwrap_err();
    assert_eq!((error.reason, error.exit), ("ImagePushFailed", 4));
    assert!(error.to_string().contains("pushed nothing"), "{error}");
    let error = yard.image_push(&yard.request(Some(yard.folder("empty")))).unwrap_err();
    assert!(error.to_string().contains("left nothing"), "{error}");
    let two = yard.folder("two");
    std::fs::write(two.join("a.tar"), "").unwrap();
    std::fs::write(two.join("b.tar"), "").unwrap();
    let error = yard.image_push(&yard.request(Some(two))).unwrap_err();
    assert!(error.to_string().contains("several files"), "{error}");
    let missing = yard.image_push(&yard.request(Some(yard.path("none")))).unwrap_err();
    assert_eq!(missing.exit, 5);
    let mut request = yard.request(None);
    request.image = request.image.with_digest(portolan_core::Digest::sha256(b""));
    assert_eq!(yard.image_push(&request).unwrap_err().exit, 2);
}

#[test]
fn an_image_that_lacks_a_blob_is_not_pushed_in_part() {
    let yard = Yard::new();
    let layout = Layout::create(&yard.folder("out")).unwrap();
    let made = image(&layout, "linux/amd64", "x");
    let (_, bytes) = layout.manifest(&portolan_core::Target::Digest(made.digest)).unwrap();
    let Ok(Document::Manifest(manifest)) = Document::parse(&bytes, None) else { panic!() };
    layout.delete_blob(&manifest.layers[0].digest).unwrap();
    for labels in [BTreeMap::new(), pairs("a", "b")] {
        let request = Push { labels, ..yard.request(Some(yard.path("out"))) };
        let error = yard.image_push(&request).unwrap_err();
        assert_eq!(error.reason, "ImagePushFailed");
        assert_eq!(yard.digest("1"), None);
    }
}

/// As `docker save` and kaniko write it.
fn saved(platform: &str, layer: &[u8], name: &str) -> Vec<u8> {
    saved_with_links(platform, layer, name, &[])
}

fn saved_with_links(platform: &str, layer: &[u8], name: &str, links: &[(&str, &str)]) -> Vec<u8> {
    let diff_id = portolan_core::Digest::sha256(&tar(&[("file", "content")]));
    let config = json!({
        "os": "linux", "architecture": platform, "config": {},
        "rootfs": { "type": "layers", "diff_ids": [diff_id] },
    });
    let manifest = json!([{ "Config": "config.json", "RepoTags": [], "Layers": [name] }]);
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in [
        ("manifest.json", manifest.to_string().into_bytes()),
        ("config.json", config.to_string().into_bytes()),
        ("layer.tar.gz", layer.to_vec()),
    ] {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        builder.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    for (path, target) in links {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_size(0);
        header.set_mode(0o777);
        builder.append_link(&mut header, path, target).unwrap();
    }
    builder.into_inner().unwrap()
}

#[test]
fn a_layer_that_is_a_link_is_followed_inside_of_the_tarball_and_nowhere_else() {
    let yard = Yard::new();
    let layer = gzip(&tar(&[("file", "content")]));
    std::fs::write(yard.path("secret"), "token").unwrap();
    let up = [("a/b/c/d", "../../.."), ("twice/layer.tar", "../layer.tar.gz")];
    let far = format!("a/b/c/d{}{}", "/..".repeat(3), yard.path("secret").display());
    let near = "a/b/c/d/../../secret".to_owned();
    let rooted = yard.path("secret").display().to_string();
    for (name, out) in [("far", far), ("near", near), ("rooted", rooted)] {
        let links = [&up[..], &[("out.tar", out.as_str())]].concat();
        let dir = yard.folder(name);
        let bytes = saved_with_links("amd64", &layer, "out.tar", &links);
        std::fs::write(dir.join("image.tar"), bytes).unwrap();
        let error = yard.image_push(&yard.request(Some(dir))).unwrap_err();
        let said = portolan_core::causes::chain(&error);
        assert!(said.contains("out.tar") && said.contains("outside"), "{name}: {said}");
        assert_eq!((error.exit, yard.digest("1")), (2, None), "{name}");
    }
    let dir = yard.folder("good");
    let bytes = saved_with_links("amd64", &layer, "twice/layer.tar", &up);
    std::fs::write(dir.join("image.tar"), bytes).unwrap();
    yard.image_push(&yard.request(Some(dir))).unwrap();
    let Document::Manifest(manifest) = yard.document("1") else { panic!() };
    assert_eq!(manifest.layers[0].digest, portolan_core::Digest::sha256(&layer));
}

#[test]
fn one_tarball_of_docker_is_an_image_too() {
    let yard = Yard::new();
    let out = yard.folder("out");
    let layer = gzip(&tar(&[("file", "content")]));
    std::fs::write(out.join("image.tar"), saved("arm64", &layer, "layer.tar.gz")).unwrap();
    let mut request = yard.request(Some(out));
    request.platform = Some("linux/arm64".parse().unwrap());
    let pushed = yard.image_push(&request).unwrap();
    assert_eq!(yard.digest("1"), Some(pushed.digest));
    let Document::Manifest(manifest) = yard.document("1") else { panic!() };
    assert_eq!(manifest.layers[0].digest, portolan_core::Digest::sha256(&layer));
    assert!(manifest.layers[0].media_type.ends_with("tar+gzip"));
}

#[test]
fn tarballs_that_are_no_image_or_lead_elsewhere_are_refused() {
    let yard = Yard::new();
    let layer = gzip(&tar(&[("file", "content")]));
    for (name, bytes) in [
        ("climbs", saved("arm64", &layer, "../../etc/passwd")),
        ("rooted", saved("arm64", &layer, "/etc/passwd")),
        ("lacks", saved("arm64", &layer, "other.tar")),
        ("nothing", tar(&[("readme", "x")])),
        ("garbage", vec![1; 4096]),
        ("escapes", tar(&[("../escaped", "x")])),
        ("broken", tar(&[("manifest.json", "[{}]")])),
    ] {
        let out = yard.folder(name);
        std::fs::write(out.join("image.tar"), bytes).unwrap();
        let error = yard.image_push(&yard.request(Some(out))).unwrap_err();
        assert_eq!(error.reason, "ImagePushFailed", "{name}: {error}");
        assert_eq!(yard.digest("1"), None, "{name}");
    }
    assert!(!yard.path("escaped").exists());
}

/// A layer of a gigabyte of zeros in a megabyte, inside of a tarball: nothing unpacks it here.
#[test]
fn a_bomb_in_a_tarball_stays_packed() {
    let yard = Yard::new();
    let out = yard.folder("out");
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    for _ in 0..256 {
        std::io::Write::write_all(&mut encoder, &vec![0; 1 << 20]).unwrap();
    }
    let bomb = encoder.finish().unwrap();
    std::fs::write(out.join("image.tar"), saved("amd64", &bomb, "layer.tar.gz")).unwrap();
    let pushed = yard.image_push(&yard.request(Some(out))).unwrap();
    assert!(pushed.size.unwrap() < 4 << 20, "{pushed:?}");
    // A tarball that is one itself is refused by its ratio when it is read.
    let packed = yard.folder("packed");
    std::fs::write(packed.join("image.tar.gz"), &bomb).unwrap();
    assert!(yard.image_push(&yard.request(Some(packed))).is_err());
}
