//! What cannot be had is an error, and never "not signed"; what is endless has an end.

use portolan_core::{Descriptor, Digest, Index, media_type};
use portolan_registry::ErrorClass;
use portolan_verify::collect::CollectError;
use portolan_verify::cosign;
use portolan_verify::decision::Verdict;
use portolan_verify::policy::IndexPolicy;
use portolan_verify::sign::Form;
use portolan_verify::sigstore::BUNDLE;
use portolan_verify::subjects::FindSubjectsError;
use portolan_verify::verify::VerifyError;

use crate::bench::{Bench, chain, for_platform, index_of, is, of};
use crate::support::fault::{Answer, Fault, within};
use crate::support::image::{Image, to_json};

const AMD: [&str; 1] = ["linux/amd64"];

/// Every request that verifying makes, refused: each is an error that names what could not be had.
#[tokio::test]
async fn whatever_cannot_be_had_is_an_error_and_never_unsigned() {
    let bench = Bench::new(&AMD);
    bench.sign(&bench.top()).await;
    let child = bench.entry(0);
    let artifact = bench.sign_in(&child, Form::Bundle).await;
    is(&bench.verify("linux/amd64").await, Verdict::Verified);
    let manifest: portolan_core::Manifest = {
        let registry = bench.server.registry();
        serde_json::from_slice(&registry.repositories["team/app"].manifests[&artifact].1).unwrap()
    };
    let paths = [
        "/manifests/v1".to_owned(),
        format!("/referrers/{}", child.digest),
        format!("/manifests/{}", cosign::tag(&child.digest, "sig")),
        format!("/manifests/{}", cosign::tag(&child.digest, "att")),
        format!("/manifests/{artifact}"),
        format!("/blobs/{}", manifest.layers[0].digest),
    ];
    for path in paths {
        for (fault, class) in
            [(Fault::status(403), ErrorClass::Denied), (Fault::status(503), ErrorClass::Transport)]
        {
            // As often as the client tries, and once more is the truth again.
            let times = if class == ErrorClass::Denied { 1 } else { 3 };
            bench.server.script("GET", path.clone(), vec![fault; times]);
            let error = within(30, bench.trouble("linux/amd64")).await;
            assert_eq!(error.class(), class, "{path}: {}", chain(&error));
        }
        is(&bench.verify("linux/amd64").await, Verdict::Verified);
    }
    // A gateway's page says nothing of what is attached, with whatever success.
    let page = Answer::new(200, "<html>").header("content-type", "text/html");
    let path = format!("/referrers/{}", child.digest);
    bench.server.script("GET", path, vec![Fault::Answer(page)]);
    let error = bench.trouble("linux/amd64").await;
    assert!(matches!(error, VerifyError::Collect(CollectError::List { .. })), "{error}");
    assert!(chain(&error).contains("text/html"), "{}", chain(&error));
    is(&bench.verify("linux/amd64").await, Verdict::Verified);
}

/// A blob that is gone although its manifest is there: the registry lost it.
#[tokio::test]
async fn a_signature_whose_blob_is_gone_is_an_error() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let removed: Vec<Digest> = {
        let mut registry = bench.server.registry();
        let blobs = &mut registry.repositories.get_mut("team/app").unwrap().blobs;
        let known: Vec<_> = bench.image.blobs.keys().copied().collect();
        let gone = blobs.keys().filter(|one| !known.contains(one)).copied().collect();
        blobs.retain(|digest, _| known.contains(digest));
        gone
    };
    assert!(!removed.is_empty());
    let error = bench.trouble("linux/amd64").await;
    assert_eq!(error.class(), ErrorClass::Transport, "{}", chain(&error));
    assert!(matches!(error, VerifyError::Collect(CollectError::Read { .. })), "{error}");
}

/// Case 16.
#[tokio::test]
async fn an_index_that_is_not_what_its_digest_says_is_an_error() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let digest = bench.top().digest;
    let pinned = bench.server.reference(&format!("@{digest}"));
    bench.server.always("GET", format!("/manifests/{digest}"), Fault::FlipByte(20));
    bench.server.always("GET", "/manifests/v1", Fault::FlipByte(20));
    let rule = bench.rule(IndexPolicy::Both);
    for reference in [pinned, bench.reference()] {
        let error = bench.ask(&reference, "linux/amd64", &rule).await.expect_err("tampered");
        assert!(matches!(error, VerifyError::Subjects(FindSubjectsError::Read(_))), "{error}");
        assert!(chain(&error).contains("sha256:"), "{}", chain(&error));
    }
}

/// The same for a signature: what comes is not what was signed, so nothing is known.
#[tokio::test]
async fn a_signature_that_is_not_what_its_digest_says_is_an_error() {
    let bench = Bench::new(&AMD);
    bench.sign(&bench.top()).await;
    let artifact = bench.sign_in(&bench.entry(0), Form::Bundle).await;
    bench.server.always("GET", format!("/manifests/{artifact}"), Fault::FlipByte(20));
    let error = bench.trouble("linux/amd64").await;
    assert!(matches!(error, VerifyError::Collect(CollectError::Read { .. })), "{error}");
}

#[tokio::test]
async fn an_image_that_is_not_there_is_not_found() {
    let bench = Bench::new(&AMD);
    let rule = bench.rule(IndexPolicy::Both);
    let reference = bench.server.reference(":v2");
    let error = bench.ask(&reference, "linux/amd64", &rule).await.expect_err("nothing");
    assert_eq!(error.class(), ErrorClass::NotFound);
}

/// Case 17.
#[tokio::test]
async fn an_index_without_end_has_one() {
    let amd = Image::single("linux/amd64", &[100], 1);
    // Ten thousand images for one machine.
    let entry = |n: u32| {
        let own = Descriptor::of(media_type::OCI_MANIFEST, &n.to_be_bytes());
        for_platform("linux/amd64", &own)
    };
    let many = |n: u32| Bench::holding(index_of((0..n).map(entry).collect(), &[&amd]));
    let error = within(20, many(10_000).trouble("linux/amd64")).await;
    let VerifyError::Subjects(FindSubjectsError::TooManyEntries { found: 10_000, .. }) = error
    else {
        panic!("{error}")
    };
    // Not too many to look at, and too many to verify.
    let error = within(20, many(1000).trouble("linux/amd64")).await;
    assert!(
        matches!(error, VerifyError::Subjects(FindSubjectsError::TooMany { found: 1000, .. })),
        "{error}"
    );
    // Indexes inside each other.
    let deep = (0..8).fold(Image::multi(&AMD, 1), |inner, _| Image::index(&[inner]));
    let error = within(20, Bench::holding(deep).trouble("linux/amd64")).await;
    assert!(matches!(error, VerifyError::Subjects(FindSubjectsError::Unopened { .. })), "{error}");
    // More bytes than any registry takes.
    let mut huge = Index::new(vec![amd.top.clone()]);
    huge.annotations.insert("x".to_owned(), "y".repeat(5 * 1024 * 1024));
    let bench = Bench::holding(Image::of_manifest(media_type::OCI_INDEX, &to_json(&huge)));
    let error = within(20, bench.trouble("linux/amd64")).await;
    assert_eq!(error.class(), ErrorClass::BadInput, "{}", chain(&error));
}

#[tokio::test]
async fn artifacts_without_end_have_one() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let entry = |n: u32| Descriptor::of(media_type::OCI_MANIFEST, &n.to_be_bytes());
    let body = to_json(&Index::new((0..65).map(entry).collect()));
    let lie = Answer::new(200, body).header("content-type", media_type::OCI_INDEX);
    let path = format!("/referrers/{}", bench.entry(0).digest);
    bench.server.always("GET", path, Fault::Answer(lie));
    let error = bench.trouble("linux/amd64").await;
    let VerifyError::Collect(CollectError::TooMuch { found: 65, limit: 64, .. }) = error else {
        panic!("{error}")
    };
}

/// A registry without the referrers API keeps lists under a tag; cosign 2 uses tags anyway.
#[tokio::test]
async fn registries_without_the_referrers_api_do_as_well() {
    for form in [Form::Bundle, Form::Simple] {
        let bench = Bench::new(&AMD);
        bench.server.registry().referrers_api = false;
        is(&bench.verify("linux/amd64").await, Verdict::Refused);
        bench.sign_in(&bench.top(), form).await;
        bench.sign_in(&bench.entry(0), form).await;
        let answer = bench.verify("linux/amd64").await;
        is(&answer, Verdict::Verified);
        assert_eq!(answer.subjects[0].signatures[0].tag.is_some(), form == Form::Simple);
    }
}

/// Some write the list under a tag although there is an API, and registries then do not list it: a
/// signature that is on one of the two lists is there, and a list that cannot be had is no list.
#[tokio::test]
async fn a_list_under_a_tag_counts_beside_the_api() {
    let bench = Bench::new(&AMD);
    bench.sign(&bench.top()).await;
    let child = bench.entry(0);
    let bundle = bench.sign_in(&child, Form::Bundle).await;
    let api = format!("/referrers/{}", child.digest);
    let empty = to_json(&Index::new(Vec::new()));
    let empty = Answer::new(200, empty).header("content-type", media_type::OCI_INDEX);
    bench.server.always("GET", api, Fault::Answer(empty));
    is(&bench.verify("linux/amd64").await, Verdict::Refused);
    let entry = Descriptor::new(media_type::OCI_MANIFEST, bundle, 1000);
    // Twice on it is once there, and what lies on it adds nothing.
    let other = bench.sign_in(&bench.top(), Form::Simple).await;
    let lie = Descriptor::new(media_type::OCI_MANIFEST, other, 1000);
    let list = Index::new(vec![entry.clone(), entry, lie]);
    let list = Image::of_manifest(media_type::OCI_INDEX, &to_json(&list));
    let tag = child.digest.referrers_tag();
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&list, &tag);
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    assert_eq!(of(&answer, &child).signatures.len(), 1);
    assert_eq!(of(&answer, &child).passed_over.len(), 1);
    bench.server.script("GET", format!("/manifests/{tag}"), vec![Fault::status(403)]);
    let error = bench.trouble("linux/amd64").await;
    assert_eq!(error.class(), ErrorClass::Denied, "{}", chain(&error));
}

/// Layers that are passed over are counted too.
#[tokio::test]
async fn what_is_passed_over_has_an_end_as_well() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let child = bench.entry(0);
    let small = Image::referrer(&child, BUNDLE, b"x");
    let mut manifest = small.manifest(&small.top.digest);
    let huge = Descriptor::new(BUNDLE, Digest::sha256(b"huge"), 5 * 1024 * 1024);
    manifest.layers = vec![huge; 129];
    let many = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&many, "many");
    let error = bench.trouble("linux/amd64").await;
    let VerifyError::Collect(CollectError::TooMuch { what: "pieces of evidence", .. }) = error
    else {
        panic!("{error}")
    };
}

/// What is announced as too large is not even asked for, and does not hide what counts.
#[tokio::test]
async fn a_layer_that_is_too_large_is_passed_over_unread() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let child = bench.entry(0);
    let small = Image::referrer(&child, BUNDLE, b"x");
    let mut manifest = small.manifest(&small.top.digest);
    manifest.layers[0] = Descriptor::new(BUNDLE, Digest::sha256(b"huge"), 5 * 1024 * 1024);
    let huge = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&huge, "huge");
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    let passed_over = &of(&answer, &child).passed_over;
    let told = passed_over.iter().find(|one| one.artifact == huge.top.digest).unwrap();
    assert!(told.why.contains("5242880 bytes"), "{told:?}");
    let path = format!("/blobs/{}", manifest.layers[0].digest);
    assert_eq!(bench.server.count("GET", &path), 0);
}

/// Each is small enough, and together they are too much.
#[tokio::test]
async fn many_large_layers_together_are_an_error() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let small = Image::referrer(&bench.entry(0), BUNDLE, b"x");
    let mut manifest = small.manifest(&small.top.digest);
    let layer = |n: u8| Descriptor::new(BUNDLE, Digest::sha256(&[n]), 4 * 1024 * 1024);
    manifest.layers = (0..9).map(layer).collect();
    let many = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&many, "many");
    let error = bench.trouble("linux/amd64").await;
    let VerifyError::Collect(CollectError::TooMuch { what: "bytes", .. }) = error else {
        panic!("{error}")
    };
}
