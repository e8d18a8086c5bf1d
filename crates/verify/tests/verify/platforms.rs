//! What has to be signed of an image, and for whom.

use portolan_core::{Descriptor, Index, Manifest, media_type};
use portolan_verify::decision::{ReasonCode, Verdict};
use portolan_verify::policy::IndexPolicy;
use portolan_verify::sign::Form;
use portolan_verify::subject::Kind;
use portolan_verify::subjects::Missing;

use crate::bench::{Bench, digests, for_platform, index_of, is, of};
use crate::support::image::{Image, to_json};

const TWO: [&str; 2] = ["linux/amd64", "linux/arm64"];

/// Case 1.
#[tokio::test]
async fn a_signed_index_and_a_signed_image_pass_and_both_are_told() {
    let bench = Bench::new(&TWO);
    bench.sign(&bench.top()).await;
    bench.sign(&bench.entry(0)).await;
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    assert_eq!(digests(&answer), [bench.top().digest, bench.entry(0).digest]);
    assert_eq!(answer.digest, Some(bench.top().digest));
    let kinds: Vec<_> = answer.subjects.iter().map(|one| one.kind).collect();
    assert_eq!(kinds, [Kind::Index, Kind::Manifest]);
    assert_eq!(answer.subjects[1].platform.as_ref().unwrap().to_string(), "linux/amd64");
    let signature = &answer.subjects[0].signatures[0];
    assert!(signature.accepted && signature.signer == "release", "{signature:?}");
    assert!(
        answer.warnings.iter().any(|w| w.to_string().contains("linux/arm64")),
        "{:?}",
        answer.warnings
    );
    let json = serde_json::to_value(&answer).unwrap();
    assert_eq!(json["verdict"], "verified");
    assert_eq!(json["subjects"][0]["kind"], "index");
    assert_eq!(json["subjects"][1]["platform"], "linux/amd64");
    assert_eq!(json["subjects"][1]["verified"], true);
}

/// Cases 2 and 3, and neither signed.
#[tokio::test]
async fn the_index_policy_says_what_must_be_signed() {
    use IndexPolicy::{Any, Both, Index, Platform};
    for (index, image, passing) in [
        (true, true, &[Both, Any, Index, Platform][..]),
        (true, false, &[Any, Index]),
        (false, true, &[Any, Platform]),
        (false, false, &[]),
    ] {
        let bench = Bench::new(&TWO);
        if index {
            bench.sign(&bench.top()).await;
        }
        if image {
            bench.sign_in(&bench.entry(0), Form::Simple).await;
        }
        for policy in [Both, Any, Index, Platform] {
            let answer = bench.verify_as("linux/amd64", policy).await;
            let expected = match passing.contains(&policy) {
                true => Verdict::Verified,
                false => Verdict::Refused,
            };
            is(&answer, expected);
        }
    }
}

/// Case 4.
#[tokio::test]
async fn an_unsigned_image_of_another_platform_is_refused_by_name() {
    let bench = Bench::new(&TWO);
    bench.sign(&bench.top()).await;
    bench.sign(&bench.entry(0)).await;
    let answer = bench.verify("linux/arm64").await;
    is(&answer, Verdict::Refused);
    let arm = bench.entry(1);
    assert_eq!(answer.reasons[0].code, ReasonCode::PlatformRefused);
    assert!(answer.reasons[0].message.contains(&arm.digest.to_string()), "{:?}", answer.reasons);
    assert!(answer.reasons[0].message.contains("linux/arm64"));
    assert_eq!(of(&answer, &arm).reasons[0].code, ReasonCode::NotSigned);
    assert!(of(&answer, &bench.top()).verified);
    // And so is a question for both machines.
    is(&bench.verify("linux/amd64,linux/arm64").await, Verdict::Refused);
}

/// Case 5.
#[tokio::test]
async fn a_platform_that_is_not_there_is_refused_with_what_is() {
    let bench = Bench::new(&TWO);
    bench.sign_all().await;
    for wanted in ["linux/s390x", "windows", "linux/amd64,linux/s390x"] {
        let answer = bench.verify(wanted).await;
        is(&answer, Verdict::Refused);
        let [reason] = answer.reasons.as_slice() else { panic!("{:?}", answer.reasons) };
        assert_eq!(reason.code, ReasonCode::PlatformNotFound);
        assert!(reason.message.contains("linux/amd64, linux/arm64"), "{}", reason.message);
        // A way out is named where it is one: of one machine alone nothing can be left out.
        let several = wanted.contains(',');
        assert_eq!(reason.message.contains("missingPlatform"), several, "{}", reason.message);
        assert!(answer.subjects.is_empty());
    }
    // Left out where a policy says so, but never all of them.
    let mut rule = bench.rule(IndexPolicy::Both);
    rule.missing = Missing::Ignore;
    let reference = bench.reference();
    let some = bench.ask(&reference, "linux/amd64,linux/s390x", &rule).await.unwrap();
    is(&some, Verdict::Verified);
    is(&bench.ask(&reference, "linux/s390x", &rule).await.unwrap(), Verdict::Refused);
}

/// Case 7.
#[tokio::test]
async fn a_single_manifest_is_its_own_only_subject() {
    let bench = Bench::holding(Image::single("linux/arm64", &[100], 1));
    is(&bench.verify("linux/amd64").await, Verdict::Refused);
    bench.sign(&bench.top()).await;
    for policy in [IndexPolicy::Both, IndexPolicy::Any, IndexPolicy::Index, IndexPolicy::Platform] {
        let answer = bench.verify_as("linux/amd64", policy).await;
        is(&answer, Verdict::Verified);
        assert_eq!(digests(&answer), [bench.top().digest]);
        assert_eq!(answer.subjects[0].kind, Kind::Manifest);
        assert_eq!(answer.subjects[0].platform.as_ref().unwrap().to_string(), "linux/arm64");
    }
}

/// Case 8.
#[tokio::test]
async fn a_docker_manifest_list_is_an_index() {
    let single = Image::single("linux/amd64", &[100], 1);
    let manifest = single.manifest(&single.top.digest);
    let docker = Manifest {
        media_type: Some(media_type::DOCKER_MANIFEST.to_owned()),
        config: Descriptor {
            media_type: media_type::DOCKER_CONFIG.to_owned(),
            ..manifest.config.clone()
        },
        ..manifest
    };
    let child = Image::of_manifest(media_type::DOCKER_MANIFEST, &to_json(&docker));
    let entry = for_platform("linux/amd64", &child.top);
    let list = Index {
        media_type: Some(media_type::DOCKER_LIST.to_owned()),
        ..Index::new(vec![entry.clone()])
    };
    let mut image = Image::of_manifest(media_type::DOCKER_LIST, &to_json(&list));
    image.absorb(&child);
    image.absorb(&single);
    let bench = Bench::holding(image);
    bench.sign(&bench.top()).await;
    is(&bench.verify("linux/amd64").await, Verdict::Refused);
    bench.sign(&entry).await;
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    assert_eq!(digests(&answer), [bench.top().digest, entry.digest]);
    assert_eq!(answer.subjects[0].media_type, media_type::DOCKER_LIST);
}

/// Case 9.
#[tokio::test]
async fn indexes_inside_indexes_are_opened() {
    let inner = Image::multi(&["linux/arm64"], 2);
    let outer = Image::index(&[Image::single("linux/amd64", &[100], 3), inner.clone()]);
    let bench = Bench::holding(outer);
    let arm = inner.as_index().manifests[0].clone();
    bench.sign(&bench.top()).await;
    let answer = bench.verify("linux/arm64").await;
    is(&answer, Verdict::Refused);
    assert_eq!(digests(&answer), [bench.top().digest, arm.digest]);
    bench.sign(&arm).await;
    is(&bench.verify("linux/arm64").await, Verdict::Verified);
}

/// Cases 10 and 11.
#[tokio::test]
async fn attestations_are_passed_over_and_a_missing_platform_is_read_from_the_config() {
    let (amd, arm) =
        (Image::single("linux/amd64", &[100], 1), Image::single("linux/arm64", &[100], 2));
    let note = Image::single("unknown/unknown", &[50], 3);
    let bare = Descriptor { platform: None, ..arm.top.clone() };
    let entries = vec![amd.top.clone(), note.top.clone(), bare.clone()];
    let bench = Bench::holding(index_of(entries, &[&amd, &arm, &note]));
    bench.sign(&bench.top()).await;
    bench.sign(&amd.top).await;
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    assert_eq!(digests(&answer), [bench.top().digest, amd.top.digest]);
    is(&bench.verify("linux/arm64").await, Verdict::Refused);
    bench.sign(&bare).await;
    let all = bench.verify("*").await;
    is(&all, Verdict::Verified);
    assert_eq!(digests(&all), [bench.top().digest, amd.top.digest, bare.digest]);
    assert_eq!(all.subjects[2].platform.as_ref().unwrap().to_string(), "linux/arm64");
}

/// Cases 12, 13 and 14: every entry that a machine might take.
#[tokio::test]
async fn all_variants_that_a_machine_might_take_must_be_signed() {
    let platforms = [
        "linux/amd64",
        "linux/amd64/v2",
        "linux/amd64/v3",
        "linux/arm64/v8",
        "linux/arm/v6",
        "linux/arm/v7",
        "linux/386",
        "windows(10.0.17763.1)/amd64",
        "windows(10.0.20348.1)/amd64",
        // To some runtimes these are the one before.
        "windows(10.0.203480.9999)/amd64",
        "windows(10.0.85884.9999)/amd64",
    ];
    let images: Vec<_> =
        (0..platforms.len()).map(|n| Image::single("linux/amd64", &[100], n as u64 + 1)).collect();
    let entries: Vec<_> =
        platforms.iter().zip(&images).map(|(text, image)| for_platform(text, &image.top)).collect();
    let parts: Vec<_> = images.iter().collect();
    let bench = Bench::holding(index_of(entries.clone(), &parts));
    bench.sign(&bench.top()).await;
    for (wanted, expected) in [
        ("linux/amd64", &[0, 1, 2, 6][..]),
        ("linux/amd64/v3", &[0, 1, 2, 6]),
        ("linux/arm64", &[3, 4, 5]),
        ("linux/arm/v7", &[4, 5]),
        ("arm64", &[3, 4, 5]),
        ("windows", &[7, 8, 9, 10]),
        ("windows/amd64", &[7, 8, 9, 10]),
        ("windows(10.0.20348.5)/amd64", &[8, 9, 10]),
        ("*/amd64", &[0, 1, 2, 6, 7, 8, 9, 10]),
        ("linux", &[0, 1, 2, 3, 4, 5, 6]),
        ("*", &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
    ] {
        let answer = bench.verify(wanted).await;
        is(&answer, Verdict::Refused);
        let expected: Vec<_> = expected.iter().map(|n: &usize| entries[*n].digest).collect();
        assert_eq!(digests(&answer)[1..], expected, "{wanted}");
    }
    for entry in entries.iter().skip(1) {
        bench.sign(entry).await;
    }
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Refused);
    assert_eq!(answer.reasons.len(), 1, "only one is not signed: {:?}", answer.reasons);
    bench.sign(&entries[0]).await;
    is(&bench.verify("linux/amd64").await, Verdict::Verified);
}

/// Case 18.
#[tokio::test]
async fn a_digest_that_is_listed_twice_is_verified_once() {
    let amd = Image::single("linux/amd64", &[100], 1);
    let entries = vec![amd.top.clone(), for_platform("linux/amd64/v2", &amd.top), amd.top.clone()];
    let bench = Bench::holding(index_of(entries, &[&amd]));
    bench.sign(&bench.top()).await;
    bench.sign(&amd.top).await;
    let before = bench.server.count("GET", &format!("/referrers/{}", amd.top.digest));
    let answer = bench.verify("linux/amd64,*").await;
    is(&answer, Verdict::Verified);
    assert_eq!(digests(&answer), [bench.top().digest, amd.top.digest]);
    let asked = bench.server.count("GET", &format!("/referrers/{}", amd.top.digest));
    assert_eq!(asked - before, 1);
}

/// Case 23: whatever the tag becomes, what was resolved is what is verified.
#[tokio::test]
async fn a_tag_is_asked_for_once() {
    let bench = Bench::new(&TWO);
    bench.sign_all().await;
    let before =
        bench.server.count("GET", "/manifests/v1") + bench.server.count("HEAD", "/manifests/v1");
    let answer = bench.verify("linux/amd64").await;
    is(&answer, Verdict::Verified);
    let after =
        bench.server.count("GET", "/manifests/v1") + bench.server.count("HEAD", "/manifests/v1");
    assert_eq!(after - before, 1);
    assert!(
        answer.warnings.iter().any(|w| w.to_string().contains("may move")),
        "{:?}",
        answer.warnings
    );
    // Asked again, the moved tag is another image.
    let other = Image::multi(&TWO, 7);
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&other, "v1");
    let moved = bench.verify("linux/amd64").await;
    is(&moved, Verdict::Refused);
    assert_eq!(moved.digest, Some(other.top.digest));
    let pinned = bench.server.reference(&format!("@{}", bench.top().digest));
    let rule = bench.rule(IndexPolicy::Both);
    let answer = bench.ask(&pinned, "linux/amd64", &rule).await.unwrap();
    is(&answer, Verdict::Verified);
    assert!(
        !answer.warnings.iter().any(|w| w.to_string().contains("may move")),
        "{:?}",
        answer.warnings
    );
}

/// What is kept and answered about an index stays small, whatever a stranger puts into it.
#[tokio::test]
async fn an_index_beyond_all_bounds_is_refused() {
    let image = Image::single("linux/amd64", &[100], 1);
    let entries = |n: usize| vec![for_platform("linux/amd64", &image.top); n];
    let bench = Bench::holding(index_of(entries(1000), &[&image]));
    assert_eq!(bench.verify("linux/amd64").await.verdict, Verdict::Refused);
    let bench = Bench::holding(index_of(entries(1001), &[&image]));
    let text = bench.trouble("linux/amd64").await.to_string();
    assert!(text.contains("1001 entries"), "{text}");

    let inner = index_of(entries(600), &[&image]);
    let outer = [entries(600), vec![inner.top.clone()]].concat();
    let bench = Bench::holding(index_of(outer, &[&image, &inner]));
    let text = bench.trouble("linux/amd64").await.to_string();
    assert!(text.contains("1200 entries"), "{text}");

    let long = |n: usize| {
        let mut entry = for_platform("linux/arm64", &image.top);
        entry.platform.as_mut().unwrap().variant = Some("v".repeat(n));
        Bench::holding(index_of(vec![for_platform("linux/amd64", &image.top), entry], &[&image]))
    };
    assert_eq!(long(64).verify("linux/amd64").await.verdict, Verdict::Refused);
    let text = long(65).trouble("linux/amd64").await.to_string();
    assert!(text.contains("longer than 64 bytes"), "{text}");
    let mut entry = for_platform("linux/amd64", &image.top);
    entry.platform.as_mut().unwrap().os_features = vec!["x".to_owned(); 65];
    let text = Bench::holding(index_of(vec![entry], &[&image])).trouble("linux/amd64").await;
    assert!(text.to_string().contains("features"), "{text}");
}
