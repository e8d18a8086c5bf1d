//! Whoever may push, or is the registry, tries to get something unsigned through.

use std::collections::BTreeMap;

use bytes::Bytes;
use portolan_core::{Descriptor, Digest, Index, Manifest, Target, media_type};
use portolan_registry::images::{EntryError, ResolveError};
use portolan_verify::authority::RefusalCode;
use portolan_verify::collect::CollectError;
use portolan_verify::cosign;
use portolan_verify::decision::{ReasonCode, Verdict};
use portolan_verify::key::PrivateKey;
use portolan_verify::sign::{Form, sign};
use portolan_verify::sigstore::BUNDLE;
use portolan_verify::subjects::FindSubjectsError;
use portolan_verify::verify::VerifyError;

use crate::bench::{Bench, digests, for_platform, index_of, is, of};
use crate::support::fault::{Answer, Fault, within};
use crate::support::image::{Image, to_json};

const AMD: [&str; 1] = ["linux/amd64"];

/// Another image in the same repository, with signatures of the same key in both forms.
async fn other_image(bench: &Bench) -> (Descriptor, Digest, Digest) {
    let other = Image::single("linux/amd64", &[77], 99);
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&other, "other");
    let bundle = bench.sign_in(&other.top, Form::Bundle).await;
    let simple = bench.sign_in(&other.top, Form::Simple).await;
    (other.top, bundle, simple)
}

/// Case 15: genuine signatures of another image, put where this image's would be.
#[tokio::test]
async fn a_signature_of_another_image_does_not_count() {
    let bench = Bench::new(&AMD);
    bench.sign(&bench.top()).await;
    let child = bench.entry(0);
    let (_, bundle, simple) = other_image(&bench).await;
    let place = bench.place();
    // The layer of cosign 2, under this image's tag.
    let fetched = place.manifest(&Target::Digest(simple)).await.unwrap();
    let tag = cosign::tag(&child.digest, "sig");
    place.push_manifest(media_type::OCI_MANIFEST, fetched.bytes, Some(&tag)).await.unwrap();
    // The bundle, in an artifact that says it speaks of this image.
    let fetched = place.manifest(&Target::Digest(bundle)).await.unwrap();
    let mut copied: Manifest = serde_json::from_slice(&fetched.bytes).unwrap();
    copied.subject = Some(Descriptor::new(&child.media_type, child.digest, child.size));
    let bytes = Bytes::from(to_json(&copied));
    place.push_manifest(media_type::OCI_MANIFEST, bytes, None).await.unwrap();

    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Refused);
    let subject = of(&answer, &child);
    assert_eq!(subject.signatures.len(), 2, "{subject:?}");
    for signature in &subject.signatures {
        assert!(!signature.accepted);
        assert_eq!(signature.code, Some(RefusalCode::OtherSubject), "{signature:?}");
    }
    assert_eq!(subject.reasons[0].code, ReasonCode::SignerMissing);
}

#[tokio::test]
async fn a_signature_of_somebody_else_does_not_count() {
    let bench = Bench::new(&AMD);
    let stranger = PrivateKey::generate().unwrap();
    for subject in [bench.top(), bench.entry(0)] {
        for form in [Form::Bundle, Form::Simple] {
            sign(&bench.place(), &subject, &stranger, form).await.unwrap();
        }
    }
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Refused);
    for subject in &answer.subjects {
        assert_eq!(subject.signatures.len(), 2);
        assert!(subject.signatures.iter().all(|one| !one.accepted && one.code.is_some()));
    }
    // Beside one that counts it does no harm, in whatever order they come.
    bench.sign_all().await;
    is(&bench.verify("linux/amd64").await, Verdict::Verified);
}

fn listing(entries: Vec<Descriptor>) -> Fault {
    let body = to_json(&Index::new(entries));
    Fault::Answer(Answer::new(200, body).header("content-type", media_type::OCI_INDEX))
}

/// A list of referrers is a registry's word. What it lists must say itself what it speaks of.
#[tokio::test]
async fn a_list_that_lies_adds_nothing() {
    let bench = Bench::new(&AMD);
    let child = bench.entry(0);
    bench.sign(&bench.top()).await;
    let (_, bundle, simple) = other_image(&bench).await;
    let entry = |digest| Descriptor::new(media_type::OCI_MANIFEST, digest, 1000);
    let gone = Digest::sha256(b"nothing is there");
    // One that speaks of another image, one that speaks of nothing, one that is not there, and an
    // index in place of an artifact.
    let listed = vec![entry(bundle), entry(simple), entry(gone), entry(bench.top().digest)];
    bench.server.always("GET", format!("/referrers/{}", child.digest), listing(listed));
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Refused);
    let subject = of(&answer, &child);
    assert!(subject.signatures.is_empty(), "{subject:?}");
    let told: BTreeMap<_, _> =
        subject.passed_over.iter().map(|one| (one.artifact, one.why.as_str())).collect();
    assert!(told[&bundle].contains("it speaks of"), "{told:?}");
    assert!(told[&simple].contains("does not say"), "{told:?}");
    assert!(told[&gone].contains("not there"), "{told:?}");
    assert!(told.contains_key(&bench.top().digest), "{told:?}");
}

/// Some registries list a bundle under the type of its empty config.
#[tokio::test]
async fn a_list_that_misnames_types_hides_nothing() {
    let bench = Bench::new(&AMD);
    bench.sign(&bench.top()).await;
    let bundle = bench.sign_in(&bench.entry(0), Form::Bundle).await;
    let listed = Descriptor {
        artifact_type: Some(media_type::OCI_EMPTY.to_owned()),
        ..Descriptor::new(media_type::OCI_MANIFEST, bundle, 1000)
    };
    let path = format!("/referrers/{}", bench.entry(0).digest);
    bench.server.always("GET", path, listing(vec![listed]));
    is(&bench.verify("linux/amd64").await, Verdict::Verified);
}

/// Junk beside a signature: told, and harmless.
#[tokio::test]
async fn what_is_no_signature_is_passed_over() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let child = bench.entry(0);
    let junk = Image::referrer(&child, "application/vnd.example.thing", b"hello");
    let broken = {
        let mut manifest = Image::referrer(&child, BUNDLE, b"not a bundle")
            .manifest(&Image::referrer(&child, BUNDLE, b"not a bundle").top.digest);
        manifest.layers[0].media_type = BUNDLE.to_owned();
        let mut image = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
        image.absorb(&Image::referrer(&child, BUNDLE, b"not a bundle"));
        image
    };
    for image in [&junk, &broken] {
        bench.server.registry().repositories.get_mut("team/app").unwrap().hold(image, "junk");
    }
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    let subject = of(&answer, &child);
    assert!(subject.passed_over.iter().any(|one| one.artifact == junk.top.digest), "{subject:?}");
    let refused: Vec<_> = subject.signatures.iter().filter(|one| !one.accepted).collect();
    assert!(refused.iter().any(|one| one.code == Some(RefusalCode::Malformed)), "{refused:?}");
}

/// The signatures of an index say which index it was: one that lists another image is another one,
/// whatever is put beside it.
#[tokio::test]
async fn a_signature_of_an_index_does_not_count_for_one_that_lists_another_image() {
    let bench = Bench::new(&AMD);
    bench.sign_all().await;
    let simple = bench.sign_in(&bench.top(), Form::Simple).await;
    let bundle = bench.sign_in(&bench.top(), Form::Bundle).await;
    is(&bench.verify("linux/amd64").await, Verdict::Verified);

    // The other image is signed too, and the tag is moved to an index that lists it.
    let other = Image::single("linux/amd64", &[77], 99);
    let swapped = index_of(vec![for_platform("linux/amd64", &other.top)], &[&other]);
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&swapped, "v1");
    bench.sign(&other.top).await;
    let place = bench.place();
    let fetched = place.manifest(&Target::Digest(simple)).await.unwrap();
    let tag = cosign::tag(&swapped.top.digest, "sig");
    place.push_manifest(media_type::OCI_MANIFEST, fetched.bytes, Some(&tag)).await.unwrap();
    let fetched = place.manifest(&Target::Digest(bundle)).await.unwrap();
    let mut copied: Manifest = serde_json::from_slice(&fetched.bytes).unwrap();
    let Descriptor { media_type: kind, digest, size, .. } = &swapped.top;
    copied.subject = Some(Descriptor::new(kind, *digest, *size));
    let bytes = Bytes::from(to_json(&copied));
    place.push_manifest(media_type::OCI_MANIFEST, bytes, None).await.unwrap();

    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Refused);
    assert!(of(&answer, &other.top).verified, "{answer:?}");
    let index = of(&answer, &swapped.top);
    assert_eq!(index.signatures.len(), 2, "{index:?}");
    for signature in &index.signatures {
        assert_eq!(signature.code, Some(RefusalCode::OtherSubject), "{signature:?}");
    }
}

/// One manifest of cosign 2 with a signature of a stranger, one of another image and a good one.
#[tokio::test]
async fn of_several_layers_the_good_one_counts_wherever_it_stands_and_the_others_never() {
    let bench = Bench::new(&AMD);
    bench.sign(&bench.top()).await;
    let child = bench.entry(0);
    let place = bench.place();
    let layers = async |artifact: Digest| {
        let fetched = place.manifest(&Target::Digest(artifact)).await.unwrap();
        serde_json::from_slice::<Manifest>(&fetched.bytes).unwrap()
    };
    let (_, _, simple) = other_image(&bench).await;
    let of_other = layers(simple).await.layers.remove(0);
    let stranger = PrivateKey::generate().unwrap();
    let foreign = sign(&place, &child, &stranger, Form::Simple).await.unwrap().artifact;
    let foreign = layers(foreign).await.layers.remove(0);
    // It keeps what is there and adds its own.
    let both = layers(bench.sign_in(&child, Form::Simple).await).await;
    let good = both.layers.last().unwrap().clone();
    assert_ne!(good, foreign);
    let tag = cosign::tag(&child.digest, "sig");
    for (order, expected) in [
        (vec![&foreign, &of_other], Verdict::Refused),
        (vec![&foreign, &of_other, &good], Verdict::Verified),
        (vec![&good, &foreign, &of_other], Verdict::Verified),
        (vec![&foreign, &good, &of_other], Verdict::Verified),
        (vec![&of_other], Verdict::Refused),
    ] {
        let manifest = Manifest { layers: order.into_iter().cloned().collect(), ..both.clone() };
        let bytes = Bytes::from(to_json(&manifest));
        place.push_manifest(media_type::OCI_MANIFEST, bytes, Some(&tag)).await.unwrap();
        let answer = bench.verify("linux/amd64").await;
        is(&answer, expected);
        let signatures = &of(&answer, &child).signatures;
        assert_eq!(signatures.len(), manifest.layers.len(), "{signatures:?}");
        let counted = signatures.iter().filter(|one| one.accepted).count();
        assert_eq!(counted, usize::from(expected == Verdict::Verified), "{signatures:?}");
    }
}

/// Which of two a runtime picks nobody knows, so both must be signed.
#[tokio::test]
async fn two_images_for_exactly_one_platform_are_both_looked_at() {
    let (one, two) =
        (Image::single("linux/amd64", &[10], 1), Image::single("linux/amd64", &[20], 2));
    let entries =
        vec![for_platform("linux/amd64", &one.top), for_platform("linux/amd64", &two.top)];
    for (signed, unsigned) in [(0, 1), (1, 0)] {
        let bench = Bench::holding(index_of(entries.clone(), &[&one, &two]));
        bench.sign(&bench.top()).await;
        bench.sign(&entries[signed]).await;
        let answer = bench.verify("linux/amd64").await;
        is(&answer, Verdict::Refused);
        assert!(of(&answer, &entries[signed]).verified, "{answer:?}");
        assert!(!of(&answer, &entries[unsigned]).verified, "{answer:?}");
        bench.sign(&entries[unsigned]).await;
        is(&bench.verify("linux/amd64").await, Verdict::Verified);
    }
}

/// A descriptor that lies about a size is not believed, whichever way it lies, and nothing is read
/// without end.
#[tokio::test]
async fn what_has_another_size_than_it_is_said_to_have_is_no_evidence() {
    for lie in [-1_i64, 1, 1_000_000] {
        let changed = |size: u64| u64::try_from(size.cast_signed() + lie).unwrap();
        // Of a signature's layer: its content is written elsewhere, so it has to be fetched.
        let bench = Bench::new(&AMD);
        bench.sign(&bench.top()).await;
        let child = bench.entry(0);
        let place = bench.place();
        let artifact = bench.sign_in(&child, Form::Bundle).await;
        let fetched = place.manifest(&Target::Digest(artifact)).await.unwrap();
        let mut manifest: Manifest = serde_json::from_slice(&fetched.bytes).unwrap();
        manifest.layers[0].size = changed(manifest.layers[0].size);
        let lying = Image::of_manifest(media_type::OCI_MANIFEST, &to_json(&manifest));
        {
            let mut registry = bench.server.registry();
            let repository = registry.repositories.get_mut("team/app").unwrap();
            repository.manifests.remove(&artifact);
            repository.hold(&lying, "lying");
        }
        let error = within(30, bench.trouble("linux/amd64")).await;
        assert!(matches!(error, VerifyError::Collect(CollectError::Read { .. })), "{lie}: {error}");
    }
}

/// What is signed is a digest, so a size that an index lies about changes nothing of what counts. Where
/// the entry has to be opened, to know what is in it or what it runs on, it is not believed; a runtime,
/// which opens each, does not believe it either.
#[tokio::test]
async fn an_index_that_lies_about_the_size_of_an_entry_is_not_believed_where_it_is_opened() {
    for lie in [-1_i64, 1, 1_000_000] {
        let lying = |entry: &Descriptor, platform: Option<&str>| {
            let size = u64::try_from(entry.size.cast_signed() + lie).unwrap();
            let platform = platform.map(|text| text.parse().unwrap());
            Descriptor { size, platform, ..entry.clone() }
        };
        let image = Image::multi(&AMD, 1);
        let child = image.as_index().manifests[0].clone();
        let named = lying(&child, Some("linux/amd64"));
        let bench = Bench::holding(index_of(vec![named], &[&image]));
        bench.sign(&bench.top()).await;
        is(&bench.verify("linux/amd64").await, Verdict::Refused);
        bench.sign(&child).await;
        let answer = within(30, bench.verify("linux/amd64")).await;
        is(&answer, Verdict::Verified);
        assert_eq!(digests(&answer), [bench.top().digest, child.digest]);

        // One without a platform is opened for its config, and one that is an index for what it lists.
        for entry in [lying(&child, None), lying(&image.top, None)] {
            let bench = Bench::holding(index_of(vec![entry.clone()], &[&image]));
            for subject in [&bench.top(), &image.top, &child] {
                bench.sign(subject).await;
            }
            let error = within(30, bench.trouble("linux/amd64")).await;
            let VerifyError::Subjects(FindSubjectsError::Read(ResolveError::Entry(error))) = error
            else {
                panic!("{error}")
            };
            assert!(matches!(error, EntryError::OtherSize { .. }), "{lie}: {error}");
        }
    }
}
