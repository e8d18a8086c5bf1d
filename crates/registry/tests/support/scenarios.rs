//! What every registry must do with our copies, whoever wrote it.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

use portolan_core::{Descriptor, Digest, Platform, Reference, Target};
use portolan_registry::client::{Client, CredentialStore, Settings};
use portolan_registry::copy::{CopyOptions, CopyReport, Narrowed, copy};
use portolan_registry::images::{Place, target};
use portolan_registry::progress::{BlobOutcome, Progress, Silent};

use super::fault::{FaultServer, REPOSITORY};
use super::image::{self, Image};
use super::layouts;
use super::setup::{chain, in_layout};

/// A client as a user has it.
pub fn client() -> Client {
    Client::new(Settings::default(), CredentialStore::anonymous()).unwrap()
}

/// Three platforms, one layer shared by two of them, a nested index, an attestation entry.
pub fn rich_image(seed: u64) -> Image {
    let shared = image::bytes(70_000, seed * 31 + 1);
    let amd = Image::with_layers("linux/amd64", vec![shared.clone(), image::bytes(9_000, seed)]);
    let arm = Image::with_layers("linux/arm64", vec![shared, image::bytes(8_000, seed + 500)]);
    let s390x = Image::single("linux/s390x", &[40_000, 0], seed + 900);
    let mut attestation = Image::single("unknown/unknown", &[300], seed + 901);
    attestation
        .top
        .annotations
        .insert("vnd.docker.reference.digest".to_owned(), amd.top.digest.to_string());
    attestation
        .top
        .annotations
        .insert("vnd.docker.reference.type".to_owned(), "attestation-manifest".to_owned());
    Image::index(&[amd, arm, Image::index(&[s390x]), attestation])
}

pub fn reference(host: &str, rest: &str) -> Reference {
    format!("{host}/{rest}").parse().unwrap()
}

pub async fn copied(from: &Reference, to: &Reference, options: &CopyOptions) -> CopyReport {
    let result = copy(from, to, &client(), options, Arc::new(Silent)).await;
    result.unwrap_or_else(|error| panic!("{from} to {to}: {}", chain(&error)))
}

pub fn everything() -> CopyOptions {
    CopyOptions::default()
}

pub fn with_referrers() -> CopyOptions {
    CopyOptions { referrers: true, ..CopyOptions::default() }
}

/// Puts an image into a registry under `rest`.
pub async fn seed(image: &Image, host: &str, rest: &str) {
    let source = FaultServer::holding(image);
    copied(&source.reference(":v1"), &reference(host, rest), &everything()).await;
}

/// Reads the whole image from a place and compares every byte.
pub async fn assert_serves(place: &Reference, image: &Image) {
    let opened = Place::open(place, &client()).unwrap();
    let top = opened.resolve(target(place).as_ref()).await.unwrap();
    assert_eq!(top.digest, image.top.digest, "{place}");
    for (digest, (media_type, bytes)) in &image.manifests {
        let fetched = opened.manifest(&Target::Digest(*digest)).await.unwrap();
        assert_eq!(&fetched.bytes, bytes);
        assert_eq!(&fetched.descriptor.media_type, media_type);
    }
    for (digest, bytes) in &image.blobs {
        let descriptor = Descriptor::new("any", *digest, bytes.len() as u64);
        let read = opened.read_blob(&descriptor, 1 << 20).await.unwrap();
        assert_eq!(&read, bytes, "{digest}");
    }
}

/// Registry to layout to registry: every digest and every byte stays.
pub async fn round_trip_keeps_digests(host: &str) {
    let image = rich_image(1);
    seed(&image, host, "trip/a:v1").await;
    let dir = tempfile::tempdir().unwrap();
    let layout = in_layout(&dir.path().join("layout"), "v1");
    let first = copied(&reference(host, "trip/a:v1"), &layout, &everything()).await;
    assert_eq!(first.narrowed, Narrowed::Whole);
    assert_eq!(first.copied.digest, image.top.digest);
    assert_eq!(first.manifests, image.manifests.len());
    assert_eq!(first.blobs[&BlobOutcome::Copied], image.blobs.len());
    layouts::assert_holds(&dir.path().join("layout"), &image);

    copied(&layout, &reference(host, "trip/b:v2"), &everything()).await;
    assert_serves(&reference(host, "trip/b:v2"), &image).await;
    let by_digest = reference(host, &format!("trip/b@{}", image.top.digest));
    assert_serves(&by_digest, &image).await;
}

/// Between two repositories of one registry no layer moves.
pub async fn blobs_are_mounted(host: &str) {
    let image = rich_image(2);
    seed(&image, host, "mount/a:v1").await;
    let to = reference(host, "mount/b:v1");
    let report = copied(&reference(host, "mount/a:v1"), &to, &everything()).await;
    assert_eq!(report.blobs.get(&BlobOutcome::Mounted), Some(&image.blobs.len()));
    assert_eq!(report.bytes, 0);
    assert_serves(&to, &image).await;
}

/// What is there is not moved again; a new tag on the same image is only a tag.
pub async fn what_is_present_is_skipped(host: &str) {
    let image = rich_image(3);
    seed(&image, host, "skip/a:v1").await;
    let dir = tempfile::tempdir().unwrap();
    let layout = in_layout(dir.path(), "v1");
    copied(&reference(host, "skip/a:v1"), &layout, &everything()).await;
    for (from, to) in [
        (reference(host, "skip/a:v1"), layout.clone()),
        (layout, reference(host, "skip/a:v1")),
        (reference(host, "skip/a:v1"), reference(host, "skip/a:v2")),
    ] {
        let report = copied(&from, &to, &everything()).await;
        assert_eq!(report.blobs.get(&BlobOutcome::Present), Some(&image.blobs.len()), "{to}");
        assert_eq!(report.bytes, 0);
    }
    assert_serves(&reference(host, "skip/a:v2"), &image).await;
}

fn platforms(names: &[&str]) -> CopyOptions {
    let platforms: Vec<Platform> = names.iter().map(|name| name.parse().unwrap()).collect();
    CopyOptions { platforms, ..CopyOptions::default() }
}

/// One platform gives its manifest, several a new index; both are said.
pub async fn an_image_can_be_narrowed(host: &str) {
    let image = rich_image(4);
    let index = image.as_index();
    seed(&image, host, "narrow/a:v1").await;
    let from = reference(host, "narrow/a:v1");

    let one = copied(&from, &reference(host, "narrow/one:v1"), &platforms(&["linux/arm64"])).await;
    assert_eq!(one.narrowed, Narrowed::Manifest);
    assert_eq!(one.source.digest, image.top.digest);
    assert_eq!(one.copied.digest, index.manifests[1].digest);
    let place = Place::open(&reference(host, "narrow/one:v1"), &client()).unwrap();
    let there = place.resolve(Some(&Target::Tag("v1".parse().unwrap()))).await.unwrap();
    assert_eq!(there.digest, index.manifests[1].digest);

    let to = reference(host, "narrow/two:v1");
    let two = copied(&from, &to, &platforms(&["linux/amd64", "linux/s390x"])).await;
    assert_eq!(two.narrowed, Narrowed::NewIndex);
    assert_ne!(two.copied.digest, image.top.digest);
    let place = Place::open(&to, &client()).unwrap();
    let there = place.manifest(&Target::Tag("v1".parse().unwrap())).await.unwrap();
    let names: Vec<String> = there
        .document
        .children()
        .iter()
        .map(|entry| entry.platform.as_ref().map_or_else(String::new, ToString::to_string))
        .collect();
    // The attestation of the amd64 image stays with it; s390x came out of its nested index.
    assert_eq!(names, ["linux/amd64", "unknown/unknown", "linux/s390x"]);
    assert_eq!(there.descriptor.digest, two.copied.digest);
}

/// An image, a signature of its index, an attestation of one platform, a signature of that.
pub fn signed(seed: u64) -> (Image, [Image; 3]) {
    let image = rich_image(seed);
    let child = image.as_index().manifests[0].clone();
    let signature = Image::referrer(&image.top, "application/vnd.example.signature", b"signed");
    let attested = Image::referrer(&child, "application/vnd.example.attestation", b"attested");
    let deep = Image::referrer(&attested.top, "application/vnd.example.signature", b"deep");
    (image, [signature, attested, deep])
}

async fn referrers(place: &Reference, subject: &Digest) -> BTreeSet<Digest> {
    let place = Place::open(place, &client()).unwrap();
    let list = place.referrers(subject, None).await.unwrap();
    list.iter().map(|entry| entry.digest).collect()
}

/// Referrers, and referrers of referrers, come along when asked for and only then.
pub async fn referrers_come_along(host: &str) {
    let (image, [signature, attested, deep]) = signed(5);
    let source = FaultServer::holding(&image);
    for (n, referrer) in [&signature, &attested, &deep].into_iter().enumerate() {
        let mut registry = source.registry();
        let repository = registry.repositories.get_mut(REPOSITORY).unwrap();
        repository.hold(referrer, &format!("tmp{n}"));
        repository.tags.remove(&format!("tmp{n}"));
    }
    let dir = tempfile::tempdir().unwrap();
    let layout = in_layout(dir.path(), "v1");
    let (a, b) = (reference(host, "referrers/a:v1"), reference(host, "referrers/b:v1"));
    for (from, to) in
        [(source.reference(":v1"), a.clone()), (a.clone(), layout.clone()), (layout, b.clone())]
    {
        let report = copied(&from, &to, &with_referrers()).await;
        assert_eq!(report.referrers, 3, "{to}");
        for (subject, referrer) in [
            (&image.top, &signature),
            (&image.as_index().manifests[0], &attested),
            (&attested.top, &deep),
        ] {
            let found = referrers(&to, &subject.digest).await;
            assert_eq!(found, BTreeSet::from([referrer.top.digest]), "{to}");
        }
    }
    assert_serves(&b, &image).await;
    let bare = reference(host, "referrers/c:v1");
    copied(&a, &bare, &everything()).await;
    assert!(referrers(&bare, &image.top.digest).await.is_empty());
}

/// Several writers attach to one subject at the same time; none is lost.
pub async fn concurrent_referrers_are_all_listed(host: &str) {
    let image = Image::single("linux/amd64", &[1_000], 6);
    seed(&image, host, "race/a:v1").await;
    let place = Place::open(&reference(host, "race/a:v1"), &client()).unwrap();
    let mut expected = BTreeSet::new();
    let mut writers = Vec::new();
    for n in 0..3_u8 {
        let referrer = Image::referrer(&image.top, "application/vnd.example.note", &[n]);
        expected.insert(referrer.top.digest);
        let place = place.clone();
        writers.push(tokio::spawn(async move {
            for bytes in referrer.blobs.values() {
                place.push_blob("application/octet-stream", bytes.clone().into()).await.unwrap();
            }
            let (media_type, bytes) = referrer.manifests[&referrer.top.digest].clone();
            place.push_manifest(&media_type, bytes.into(), None).await.unwrap();
        }));
    }
    for writer in writers {
        writer.await.unwrap();
    }
    assert_eq!(referrers(&reference(host, "race/a:v1"), &image.top.digest).await, expected);
}

/// Everything a copy says, in order.
#[derive(Default)]
pub struct Diary(pub Mutex<Vec<(String, Digest, u64)>>);

impl Diary {
    fn note(&self, event: &str, digest: Digest, number: u64) {
        self.0.lock().unwrap().push((event.to_owned(), digest, number));
    }
}

impl Progress for Diary {
    fn planned(&self, blobs: &[Descriptor]) {
        for blob in blobs {
            self.note("planned", blob.digest, blob.size);
        }
    }

    fn started(&self, blob: &Descriptor) {
        self.note("started", blob.digest, 0);
    }

    fn advanced(&self, blob: &Descriptor, position: u64) {
        self.note("advanced", blob.digest, position);
    }

    fn finished(&self, blob: &Descriptor, _: BlobOutcome) {
        self.note("finished", blob.digest, 0);
    }

    fn stored(&self, manifest: &Descriptor) {
        self.note("stored", manifest.digest, 0);
    }
}

/// Every blob is planned, started and finished once; positions reach the size; the top is the
/// last thing stored.
pub async fn progress_is_told(host: &str) {
    let image = rich_image(7);
    seed(&image, host, "progress/a:v1").await;
    let dir = tempfile::tempdir().unwrap();
    let layout = in_layout(dir.path(), "v1");
    for (from, to) in [
        (reference(host, "progress/a:v1"), layout.clone()),
        (layout, reference(host, "progress/b:v1")),
    ] {
        let diary = Arc::new(Diary::default());
        copy(&from, &to, &client(), &everything(), diary.clone()).await.unwrap();
        let events = diary.0.lock().unwrap().clone();
        for (digest, bytes) in &image.blobs {
            let of = |event: &str| {
                events.iter().filter(|(e, d, _)| e == event && d == digest).collect::<Vec<_>>()
            };
            assert_eq!(of("planned").len(), 1);
            assert_eq!(of("started").len(), 1);
            assert_eq!(of("finished").len(), 1);
            let furthest = of("advanced").iter().map(|(_, _, at)| *at).max().unwrap_or(0);
            assert_eq!(furthest, bytes.len() as u64, "{to}");
        }
        let stored: Vec<_> = events.iter().filter(|(e, ..)| e == "stored").collect();
        assert_eq!(stored.len(), image.manifests.len());
        assert_eq!(stored.last().unwrap().1, image.top.digest);
        assert_eq!(events.last().unwrap().0, "stored");
    }
}

/// The tests above as tests of one registry: `$start` gives a value with a `host()`.
#[macro_export]
macro_rules! copy_scenarios {
    ($start:expr) => {
        $crate::copy_scenarios!($start;
            round_trip_keeps_digests, blobs_are_mounted, what_is_present_is_skipped,
            an_image_can_be_narrowed, referrers_come_along, concurrent_referrers_are_all_listed,
            progress_is_told);
    };
    ($start:expr; $($name:ident),*) => {
        $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $name() {
            let Some(registry) = $start else { return };
            support::scenarios::$name(&registry.host()).await;
        })*
    };
}

/// Where a layout keeps a blob.
pub fn blob_path(dir: &Path, digest: &Digest) -> std::path::PathBuf {
    dir.join("blobs").join(digest.algorithm().as_str()).join(digest.hex())
}
