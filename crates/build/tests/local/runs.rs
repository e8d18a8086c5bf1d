//! Whole runs: many platforms, one index, or none.

use portolan_api::build::PlatformState;
use portolan_api::condition::Status;
use portolan_build::engine::Origin;
use portolan_core::Target;
use portolan_core::manifest::Document;
use portolan_registry::ErrorClass;
use portolan_registry::layout::Layout;
use std::num::NonZeroUsize;

use crate::support::image::Image;
use crate::{Bench, HELLO, set_mode};

const PLATFORMS: [&str; 3] = ["linux/amd64", "linux/aarch64", "linux/ppcle64"];

fn app() -> Bench {
    Bench::new("FROM scratch\nARG TARGETARCH\nCOPY bin/app-$TARGETARCH /app\nCOPY shared /share\nENTRYPOINT [\"/app\"]\n")
        .write("bin/app-amd64", "for amd64")
        .write("bin/app-arm64", "for arm64")
        .write("bin/app-ppc64le", "for ppc64le")
        .write("shared/data", "for all")
}

#[test]
fn every_platform_gets_its_image_and_the_index_lists_them_in_order() {
    let bench = app();
    let mut request = bench.request(&PLATFORMS);
    request.origin = Origin::StoredDirectory(bench.source());
    request.annotations.insert("org.example".to_owned(), "index".to_owned());
    request.labels.insert("team".to_owned(), "blue".to_owned());
    let outcome = bench.run(&request).unwrap();
    assert!(outcome.succeeded, "{:#?}", outcome.status);
    let (descriptor, bytes) = bench.layout().manifest(&Target::Tag("1".parse().unwrap())).unwrap();
    let Ok(Document::Index(index)) = Document::parse(&bytes, None) else { panic!() };
    let listed: Vec<String> =
        index.manifests.iter().map(|entry| entry.platform.as_ref().unwrap().to_string()).collect();
    assert_eq!(listed, ["linux/amd64", "linux/arm64", "linux/ppc64le"]);
    assert_eq!(index.annotations["org.example"], "index");
    let output = outcome.status.output.unwrap();
    assert_eq!(output.digest.unwrap(), descriptor.digest.to_string());
    for (row, arch) in output.platforms.iter().zip(["amd64", "arm64", "ppc64le"]) {
        assert_eq!(row.state, PlatformState::Succeeded);
        assert!(row.image.ends_with(&format!(":1-linux-{arch}")), "{}", row.image);
        let image = bench.image(&format!("1-linux-{arch}"));
        assert_eq!(image.config["architecture"], arch);
        assert_eq!(image.name("app").content, format!("for {arch}"));
        assert_eq!(image.config["config"]["Labels"]["team"], "blue");
    }
    // What is the same for all is one blob.
    let shared = |arch: &str| {
        bench.image(&format!("1-linux-{arch}")).config["rootfs"]["diff_ids"][1].clone()
    };
    assert_eq!(shared("amd64"), shared("arm64"));
    let source = outcome.status.source.unwrap().oci_artifact.unwrap().digest;
    let (stored, _) = bench.layout().manifest(&Target::Tag("1-src".parse().unwrap())).unwrap();
    assert_eq!(source, stored.digest.to_string());
    assert_eq!(outcome.status.conditions[0].status, Status::True);
}

/// The digest that this directory has on every machine. A change of it is a change for everybody
/// who compares digests: say so in the changelog.
const INDEX: &str = "sha256:fee6a38574795d8b7e076d646ce14c6022866c95823c13b856b45d2986074d23";

#[test]
fn the_same_directory_gives_the_same_digest_on_every_machine() {
    let digest = |bench: &Bench, jobs: usize| {
        let mut request = bench.request(&PLATFORMS);
        request.jobs = NonZeroUsize::new(jobs).unwrap();
        bench.run(&request).unwrap().status.output.unwrap().digest.unwrap()
    };
    let first = digest(&app(), 1);
    // Another checkout: other times, another umask, written in another order.
    let other = app();
    for (name, mode) in [("shared", 0o700), ("shared/data", 0o600), ("bin/app-arm64", 0o664)] {
        set_mode(&other.source().join(name), mode);
    }
    assert_eq!(digest(&other, 3), first);
    assert_eq!(first, INDEX);
}

#[test]
fn source_date_epoch_is_the_only_time() {
    let bench = app();
    let mut request = bench.request(&["linux/amd64"]);
    request.recipe.epoch = 1_700_000_000;
    assert!(bench.run(&request).unwrap().succeeded);
    let image = bench.image("1-linux-amd64");
    assert_eq!(image.config["created"], "2023-11-14T22:13:20Z");
    assert!(image.layers.iter().flatten().all(|name| name.mtime == 1_700_000_000));
}

#[test]
fn one_platform_that_fails_publishes_no_index_and_is_named() {
    let bench = app();
    let request = bench.request(&["linux/amd64", "linux/s390x"]);
    let outcome = bench.run(&request).unwrap();
    assert!(!outcome.succeeded);
    assert_eq!(outcome.class, Some(ErrorClass::NotFound));
    let condition = &outcome.status.conditions[0];
    assert_eq!((condition.status, condition.reason.as_str()), (Status::False, "Failed"));
    assert!(condition.message.contains("linux/s390x"), "{}", condition.message);
    assert!(!condition.message.contains("linux/amd64:"), "{}", condition.message);
    let rows = outcome.status.output.unwrap().platforms;
    assert_eq!(rows[0].state, PlatformState::Succeeded);
    assert_eq!(rows[1].failure.as_ref().unwrap().reason.as_deref(), Some("AssemblyFailed"));
    let tags: Vec<String> =
        bench.layout().tags().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["1-linux-amd64"], "what was built stays, and no index");
}

#[test]
fn a_base_without_the_platform_is_the_answer_no() {
    let bench = Bench::new(&format!("FROM {HELLO}\n"));
    let outcome = bench.run(&bench.request(&["linux/s390x"])).unwrap();
    assert_eq!((outcome.succeeded, outcome.class), (false, None));
    let said = &outcome.status.conditions[0].message;
    assert!(said.contains("linux/s390x") && said.contains("linux/riscv64"), "{said}");
}

/// A stranger's image is no trouble of this machine, which somebody would look for there.
#[test]
fn layers_that_make_no_file_system_are_the_fault_of_the_image() {
    let layer = |put: &dyn Fn(&mut tar::Builder<Vec<u8>>)| {
        let mut layer = tar::Builder::new(Vec::new());
        put(&mut layer);
        layer.into_inner().unwrap()
    };
    let header = |kind| {
        let mut header = tar::Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(0o644);
        header.set_size(0);
        header
    };
    let deep = layer(&|layer| {
        let path = "a/".repeat(1024) + "a";
        layer.append_data(&mut header(tar::EntryType::Regular), path, &b""[..]).unwrap();
    });
    let itself = layer(&|layer| {
        layer.append_link(&mut header(tar::EntryType::Link), "a", "a").unwrap();
    });
    for (layer, what) in
        [(deep, "max_depth"), (itself, "links \"/a\" to \"/a\""), (b"none".to_vec(), "")]
    {
        let bench = Bench::new("").write("file", "");
        let dir = bench.dir.path().join("base");
        let layout = Layout::create(&dir).unwrap();
        let base = Image::with_layers("linux/amd64", vec![layer]);
        for blob in base.blobs.values() {
            layout.put_blob(blob).unwrap();
        }
        let (kind, manifest) = &base.manifests[&base.top.digest];
        layout.put_manifest(kind, manifest, Some(&"1".parse().unwrap())).unwrap();
        let text = format!("FROM oci:{}:1\nCOPY file /\n", dir.display());
        let bench = bench.write("Containerfile", &text);
        let outcome = bench.run(&bench.request(&["linux/amd64"])).unwrap();
        let said = &outcome.status.conditions[0].message;
        assert_eq!(outcome.class, Some(ErrorClass::BadInput), "{said}");
        assert!(said.contains(what), "{said}");
    }
}

#[test]
fn an_image_for_another_platform_than_asked_for_is_refused() {
    let bench = Bench::new(&format!("FROM --platform=linux/arm64 {HELLO}\nLABEL a=b\n"));
    let outcome = bench.run(&bench.request(&["linux/amd64", "linux/arm64"])).unwrap();
    assert_eq!((outcome.succeeded, outcome.class), (false, None));
    let rows = outcome.status.output.unwrap().platforms;
    let failure = rows[0].failure.as_ref().unwrap();
    assert_eq!(failure.reason.as_deref(), Some("PlatformMismatch"));
    let said = failure.message.as_deref().unwrap();
    assert!(said.contains("linux/arm64 came out where linux/amd64 was asked for"), "{said}");
    assert_eq!(rows[1].state, PlatformState::Succeeded);
    let tags: Vec<String> =
        bench.layout().tags().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["1-linux-arm64"]);
}

#[test]
fn a_stored_source_builds_to_the_same_index() {
    let bench = app();
    let mut request = bench.request(&PLATFORMS);
    request.origin = Origin::StoredDirectory(bench.source());
    let first = bench.run(&request).unwrap().status;
    let stored = first.source.unwrap().oci_artifact.unwrap().digest;
    std::fs::remove_dir_all(bench.source()).unwrap();
    request.origin = Origin::Artifact(Box::new(request.outputs.source()));
    request.recipe.dir = std::path::PathBuf::new();
    let second = bench.run(&request).unwrap().status;
    assert_eq!(second.output.unwrap().digest, first.output.unwrap().digest);
    assert_eq!(second.source.unwrap().oci_artifact.unwrap().digest, stored);
    // An image of a platform is no source.
    request.origin = Origin::Artifact(Box::new(request.outputs.index().clone()));
    let error = bench.run(&request).unwrap_err();
    assert!(portolan_core::causes::chain(&error).contains("it is an index"), "{error}");
}

#[test]
fn nothing_stays_behind() {
    let bench = app();
    bench.run(&bench.request(&PLATFORMS)).unwrap();
    let left: Vec<_> = std::fs::read_dir(bench.dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    assert_eq!(left.len(), 2, "{left:?}");
}
