//! Which entry runs, which might, and why the others do not.

use portolan_core::manifest::media_type;
use portolan_core::platform::{HostPlatform, Platform, Support};
use portolan_core::select::{
    Candidates, MAX_DEPTH, MAX_ENTRIES, MAX_QUESTIONS, Outcome, Question, may_run, may_run_on,
    select,
};
use portolan_core::{Descriptor, Digest, Index};
use proptest::prelude::*;

fn platform(text: &str) -> Platform {
    text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
}

fn named(text: &str) -> HostPlatform {
    HostPlatform::named(&platform(text))
}

/// An entry for this platform, whose content is `name`.
fn entry(name: &str, runs_on: &str) -> Descriptor {
    Descriptor {
        platform: Some(platform(runs_on)),
        ..Descriptor::of(media_type::OCI_MANIFEST, name.as_bytes())
    }
}

fn bare(name: &str) -> Descriptor {
    Descriptor::of(media_type::OCI_MANIFEST, name.as_bytes())
}

fn nested(index: &Index) -> Descriptor {
    Descriptor::of(media_type::OCI_INDEX, &index.to_vec())
}

fn of(entries: &[Descriptor]) -> Candidates {
    let index = Index::new(entries.to_vec());
    Candidates::new(Digest::sha256(&index.to_vec()), &index)
}

/// The position of what `host` runs among `platforms`.
fn chosen(platforms: &[&str], host: &HostPlatform) -> Option<usize> {
    let entries: Vec<_> =
        platforms.iter().enumerate().map(|(n, p)| entry(&n.to_string(), p)).collect();
    let selection = select(&of(&entries), host).ok()?;
    entries.iter().position(|e| e.digest == selection.chosen.digest)
}

#[test]
fn the_best_level_then_the_order_of_the_index() {
    let amd64 =
        ["linux/amd64", "linux/amd64/v2", "linux/amd64/v4", "linux/amd64/v3", "linux/arm64"];
    let arm64 = ["linux/arm64", "linux/arm64/v8.2", "linux/arm64/v9", "linux/arm64/v8.5"];
    for (list, host, expected) in [
        (&amd64[..], "linux/amd64", Some(0)),
        (&amd64, "linux/amd64/v2", Some(1)),
        (&amd64, "linux/amd64/v3", Some(3)),
        (&amd64, "linux/amd64/v4", Some(2)),
        (&amd64, "linux/arm64/v9", Some(4)),
        (&amd64, "linux/riscv64", None),
        (&amd64, "windows/amd64", None),
        (&arm64, "linux/arm64", Some(0)),
        (&arm64, "linux/arm64/v8.4", Some(1)),
        (&arm64, "linux/arm64/v8.9", Some(3)),
        (&arm64, "linux/arm64/v9.2", Some(2)),
        (&["linux/amd64", "linux/amd64/v1", "linux/x86_64"], "linux/amd64", Some(0)),
        (&["linux/amd64/v2"], "linux/amd64", None),
        (&["linux/riscv64/rva20u64", "linux/riscv64"], "linux/riscv64/rva22u64", Some(0)),
        (&["linux/riscv64", "linux/riscv64/rva20u64"], "linux/riscv64/rva22u64", Some(0)),
        (&["linux/s390x", "linux/s390x/z15"], "linux/s390x/z15", Some(1)),
        (&["linux/amd64", "linux(+a)/amd64", "linux(+b)/amd64"], "linux(+a)/amd64", Some(1)),
        (
            &["windows(10.0.20348.1)/amd64", "windows(10.0.26100.1)/amd64"],
            "windows(10.0.26100)/amd64",
            Some(1),
        ),
        (
            &["windows(10.0.17763.1)/amd64", "windows(10.0.20348.1)/amd64"],
            "windows(10.0.17763)/amd64",
            Some(0),
        ),
        (&[], "linux/amd64", None),
    ] {
        assert_eq!(chosen(list, &named(host)), expected, "{host} in {list:?}");
    }
}

#[test]
fn thirty_two_bits_come_last_and_only_where_they_run() {
    let list = ["linux/386", "linux/amd64"];
    let mut host = named("linux/amd64/v3");
    host.compat32 = Support::Yes;
    assert_eq!(chosen(&list, &host), Some(1));
    assert_eq!(chosen(&list[..1], &host), Some(0));
    host.compat32 = Support::Unknown;
    assert_eq!(chosen(&list[..1], &host), None);
    let mut host = named("linux/arm64");
    host.compat32 = Support::Yes;
    assert_eq!(chosen(&["linux/arm/v6", "linux/arm/v7", "linux/arm/v5"], &host), Some(1));
}

#[test]
fn attestations_and_artifacts_are_never_chosen() {
    let mut noted = entry("noted", "linux/amd64");
    noted.annotations.insert("vnd.docker.reference.type".into(), "attestation-manifest".into());
    let mut artifact = entry("artifact", "linux/amd64");
    artifact.artifact_type = Some("application/spdx+json".into());
    let mut image = entry("image", "linux/amd64");
    image.artifact_type = Some(media_type::OCI_CONFIG.into());
    let mut other = entry("other", "linux/amd64");
    other.media_type = "application/vnd.example".into();
    let unknown = entry("unknown", "unknown/unknown");

    let candidates =
        of(&[unknown.clone(), noted.clone(), artifact.clone(), other.clone(), image.clone()]);
    let selection = select(&candidates, &named("linux/amd64")).unwrap();
    assert_eq!(selection.chosen, image);
    let outcomes: Vec<_> = selection.considered.iter().map(|c| c.to_string()).collect();
    assert_eq!(
        outcomes,
        [
            "unknown/unknown lost: holds attestations, not an image",
            "linux/amd64 lost: holds attestations, not an image",
            "linux/amd64 lost: is an artifact (application/spdx+json), not an image",
            "linux/amd64 lost: application/vnd.example is not an image",
            "linux/amd64 chosen",
        ]
    );
    // Runtimes look at neither artifact type nor media type, so verification must.
    assert_eq!(may_run(&candidates, &named("linux/amd64")), [&noted, &artifact, &other, &image]);
    let host = named("unknown/unknown");
    assert!(select(&of(&[unknown]), &host).is_err(), "not even for a host of that name");
}

/// CRI-O chooses by platform and then fetches whatever it is.
#[test]
fn a_media_type_that_nobody_knows_hides_nothing() {
    let typed = |mut descriptor: Descriptor, media_type: &str| {
        descriptor.media_type = media_type.to_owned();
        descriptor
    };
    let arm = typed(entry("arm", "linux/arm64"), "application/vnd.example");
    let amd = typed(entry("amd", "linux/amd64"), "");
    let any = typed(bare("any"), "text/plain");
    let mut half = typed(bare("half"), "text/plain");
    half.platform = Some(Platform::new("windows", ""));
    let unknown = typed(entry("unknown", "unknown/unknown"), "text/plain");
    let candidates = of(&[arm.clone(), amd.clone(), any.clone(), half.clone(), unknown]);
    assert!(select(&candidates, &named("linux/amd64")).is_err(), "we run none of them");
    for (wanted, expected) in [
        ("linux/amd64", vec![&amd, &any]),
        ("linux/arm64", vec![&arm, &any]),
        ("windows/amd64", vec![&any, &half]),
        ("*", vec![&arm, &amd, &any, &half]),
    ] {
        let found = may_run_on(&candidates, &wanted.parse().unwrap());
        let found: Vec<_> = found.into_iter().map(|(entry, _)| entry).collect();
        assert_eq!(found, expected, "{wanted}");
    }
}

#[test]
fn every_candidate_is_told_why_it_lost() {
    let entries = [
        entry("a", "linux/amd64/v4"),
        entry("b", "linux/amd64"),
        entry("c", "linux/amd64/v3"),
        entry("d", "linux/amd64/v3"),
        entry("e", "linux/386"),
    ];
    let selection = select(&of(&entries), &named("linux/amd64/v3")).unwrap();
    let lines: Vec<_> = selection.considered.iter().map(ToString::to_string).collect();
    assert_eq!(lines[0], "linux/amd64/v4 lost: needs amd64/v4, host is v3");
    assert_eq!(lines[1], "linux/amd64 lost: linux/amd64/v3 fits better");
    assert_eq!(lines[2], "linux/amd64/v3 chosen");
    let short = entries[2].digest.short();
    assert_eq!(lines[3], format!("linux/amd64/v3 lost: listed after {short}, which fits as well"));
    assert!(lines[4].starts_with("linux/386 lost: needs 32-bit 386"));
    let fits: Vec<_> = selection.considered.iter().map(|c| c.outcome.fits()).collect();
    assert_eq!(fits, [false, true, true, true, false]);
    assert_eq!(
        selection.to_string(),
        format!("linux/amd64/v3 runs linux/amd64/v3 {}", entries[2].digest)
    );
}

#[test]
fn no_match_lists_what_there_is() {
    let no_match =
        select(&of(&[entry("a", "linux/amd64"), bare("b")]), &named("linux/riscv64")).unwrap_err();
    let b = bare("b").digest.short();
    assert_eq!(
        no_match.to_string(),
        format!(
            "nothing in this image runs on linux/riscv64; it has\n  linux/amd64 lost: needs amd64, host is riscv64\n  {b} lost: names no platform, and its config was not read"
        )
    );
    let empty = select(&of(&[]), &named("linux/riscv64")).unwrap_err();
    assert_eq!(empty.to_string(), "nothing in this image runs on linux/riscv64: it has no entries");
    let many = vec![entry("a", "linux/amd64"); 10_000];
    let text = select(&of(&many), &named("linux/riscv64")).unwrap_err().to_string();
    assert!(text.ends_with("and 9980 more"), "{text}");
}

#[test]
fn the_report_is_json_with_a_sentence_for_each() {
    let entries = [entry("a", "linux/amd64/v4"), entry("b", "linux/amd64")];
    let selection = select(&of(&entries), &named("linux/amd64/v3")).unwrap();
    let json = serde_json::to_value(&selection).unwrap();
    assert_eq!(json["host"]["platform"]["variant"], "v3");
    assert_eq!(json["host"]["compat32"], "unknown");
    assert_eq!(json["chosen"]["digest"], entries[1].digest.to_string());
    assert_eq!(
        json["considered"][0],
        serde_json::json!({
            "digest": entries[0].digest.to_string(),
            "platform": {"os": "linux", "architecture": "amd64", "variant": "v4"},
            "outcome": {"result": "mismatch", "kind": "variant", "architecture": "amd64", "needs": "v4", "has": "v3"},
            "reason": "lost: needs amd64/v4, host is v3",
        })
    );
    assert_eq!(json["considered"][1]["outcome"], serde_json::json!({"result": "chosen"}));
}

#[test]
fn an_entry_without_a_platform_asks_for_its_config() {
    let mut candidates = of(&[bare("a"), bare("b"), entry("c", "linux/amd64")]);
    assert_eq!(candidates.question(), Some(Question::Platform(bare("a"))));
    candidates.answer_platform(&bare("a").digest, Some(platform("linux/amd64/v2")));
    assert_eq!(candidates.question(), Some(Question::Platform(bare("b"))));
    candidates.answer_platform(&bare("b").digest, None);
    assert_eq!(candidates.question(), None);
    let selection = select(&candidates, &named("linux/amd64/v2")).unwrap();
    assert_eq!(selection.chosen, bare("a"));
    assert_eq!(selection.platform, Some(platform("linux/amd64/v2")));
    assert_eq!(selection.considered[1].outcome, Outcome::NoPlatform);
    let might: Vec<_> = may_run(&candidates, &named("linux/amd64")).into_iter().cloned().collect();
    assert_eq!(might, [bare("a"), bare("b"), entry("c", "linux/amd64")]);
}

#[test]
fn a_half_empty_platform_is_none() {
    let mut half = bare("half");
    half.platform = Some(Platform::new("", ""));
    assert!(matches!(of(&[half]).question(), Some(Question::Platform(_))));
}

/// containerd takes an empty half for its own and does not read the config, so what the config says
/// must not hide the entry.
#[test]
fn half_a_platform_counts_by_that_half_and_by_its_config() {
    for (os, architecture, config, wanted, expected) in [
        ("", "amd64", "linux/s390x", "linux/amd64", true),
        ("", "amd64", "linux/s390x", "linux/s390x", true),
        ("", "amd64", "linux/s390x", "windows(10.0.20348)/amd64", true),
        ("", "amd64", "linux/s390x", "*", true),
        ("", "amd64", "unknown/unknown", "*", true),
        ("", "amd64", "linux/s390x", "linux/arm64", false),
        ("linux", "", "windows/amd64", "linux/arm64", true),
        ("linux", "", "windows/amd64", "linux/riscv64", true),
        ("linux", "", "linux/s390x", "windows/amd64", false),
        ("", "", "linux/s390x", "linux/arm64", true),
    ] {
        let mut half = bare("half");
        half.platform = Some(Platform::new(os, architecture));
        let mut candidates = of(std::slice::from_ref(&half));
        candidates.answer_platform(&half.digest, Some(platform(config)));
        let found = may_run_on(&candidates, &wanted.parse().unwrap());
        assert_eq!(!found.is_empty(), expected, "{os}/{architecture} {config} on {wanted}");
    }
}

#[test]
fn an_artifact_type_hides_nothing_that_names_no_platform() {
    let mut artifact = bare("artifact");
    artifact.artifact_type = Some("application/spdx+json".into());
    let mut candidates = of(std::slice::from_ref(&artifact));
    candidates.answer_platform(&artifact.digest, None);
    assert_eq!(may_run(&candidates, &named("linux/amd64")), [&artifact]);
    assert!(select(&candidates, &named("linux/amd64")).is_err());
}

#[test]
fn a_single_manifest_is_judged_like_an_entry() {
    let single = Candidates::single(bare("x"), Some(platform("linux/arm64")));
    assert_eq!(single.question(), None);
    assert_eq!(select(&single, &named("linux/arm64/v8.2")).unwrap().chosen, bare("x"));
    let refusal = select(&single, &named("linux/amd64")).unwrap_err();
    assert!(refusal.to_string().contains("needs arm64, host is amd64"));
    let blank = Candidates::single(bare("x"), None);
    let refusal = select(&blank, &named("linux/amd64")).unwrap_err();
    assert_eq!(refusal.considered[0].outcome, Outcome::NoPlatform);
}

#[test]
fn nested_indexes_take_their_place_in_the_order() {
    let inner = Index::new(vec![entry("in1", "linux/amd64"), entry("in2", "linux/arm64")]);
    let mut candidates = of(&[nested(&inner), entry("out", "linux/amd64")]);
    let refusal = select(&candidates, &named("linux/arm64")).unwrap_err();
    assert_eq!(refusal.considered[0].outcome, Outcome::IndexNotOpened);
    assert_eq!(
        may_run(&candidates, &named("linux/arm64")),
        [&nested(&inner)],
        "anything may be inside"
    );

    assert_eq!(candidates.question(), Some(Question::Index(nested(&inner))));
    candidates.answer_index(&nested(&inner).digest, &inner);
    assert_eq!(candidates.question(), None);
    let on = |host| select(&candidates, &named(host)).unwrap().chosen;
    assert_eq!(on("linux/amd64"), entry("in1", "linux/amd64"), "the nested one is listed first");
    assert_eq!(on("linux/arm64"), entry("in2", "linux/arm64"));
    let listed: Vec<_> = candidates.manifests().map(|(d, _)| d.clone()).collect();
    assert_eq!(listed.len(), 3);
}

#[test]
fn an_index_in_itself_is_seen() {
    let digest = Digest::sha256(b"the outer one");
    let itself = Descriptor::new(media_type::OCI_INDEX, digest, 1);
    let outer = Index::new(vec![itself.clone()]);
    let candidates = Candidates::new(digest, &outer);
    assert_eq!(candidates.question(), None);
    let refusal = select(&candidates, &named("linux/amd64")).unwrap_err();
    assert!(refusal.to_string().contains("this index contains itself"), "{refusal}");

    // Through another one.
    let inner_digest = Digest::sha256(b"the inner one");
    let inner_entry = Descriptor::new(media_type::DOCKER_LIST, inner_digest, 1);
    let mut candidates = Candidates::new(digest, &Index::new(vec![inner_entry]));
    candidates.answer_index(&inner_digest, &Index::new(vec![itself, entry("x", "linux/amd64")]));
    assert_eq!(candidates.question(), None);
    let selection = select(&candidates, &named("linux/amd64")).unwrap();
    assert_eq!(selection.considered[0].outcome, Outcome::Cycle);
    assert_eq!(selection.chosen, entry("x", "linux/amd64"));
}

#[test]
fn nesting_is_bounded() {
    let deep = |n: usize| Descriptor::of(media_type::OCI_INDEX, &n.to_be_bytes());
    let mut candidates = of(&[deep(0)]);
    let mut opened = 0;
    while let Some(Question::Index(descriptor)) = candidates.question() {
        opened += 1;
        candidates.answer_index(&descriptor.digest, &Index::new(vec![deep(opened)]));
    }
    assert_eq!(opened, MAX_DEPTH - 1);
    let refusal = select(&candidates, &named("linux/amd64")).unwrap_err();
    assert_eq!(refusal.considered[0].outcome, Outcome::TooDeep);
    assert_eq!(may_run(&candidates, &named("linux/amd64")).len(), 1, "unseen is not harmless");
    assert_eq!(candidates.unopened().map(|d| d.digest), Some(deep(opened).digest));
}

#[test]
fn a_nested_index_listed_often_is_opened_once() {
    let inner = Index::new(vec![entry("x", "linux/amd64"); 1000]);
    let mut candidates = of(&vec![nested(&inner); 1000]);
    candidates.answer_index(&nested(&inner).digest, &inner);
    assert_eq!(candidates.question(), None);
    assert_eq!(candidates.unopened(), None);
    let selection = select(&candidates, &named("linux/amd64")).unwrap();
    assert_eq!(selection.considered.len(), 1999);
    assert_eq!(selection.considered[1998].outcome, Outcome::Repeated);
}

#[test]
fn entries_and_questions_are_bounded() {
    let wide = Index::new(vec![entry("x", "linux/amd64"); 20_000]);
    let openers: Vec<_> = (0..10_u8).map(|n| Descriptor::of(media_type::OCI_INDEX, &[n])).collect();
    let mut candidates = of(&openers);
    while let Some(Question::Index(descriptor)) = candidates.question() {
        candidates.answer_index(&descriptor.digest, &wide);
    }
    let selection = select(&candidates, &named("linux/amd64")).unwrap();
    assert!(selection.considered.len() <= MAX_ENTRIES);
    assert_eq!(selection.considered.last().unwrap().outcome, Outcome::TooMany);

    let many: Vec<_> = (0..1000_u32).map(|n| bare(&n.to_string())).collect();
    let mut candidates = of(&many);
    let mut asked = 0;
    while let Some(Question::Platform(descriptor)) = candidates.question() {
        asked += 1;
        candidates.answer_platform(&descriptor.digest, None);
    }
    assert_eq!(asked, MAX_QUESTIONS);
}

#[test]
fn answers_to_questions_nobody_asked_change_nothing() {
    let mut candidates = of(&[entry("a", "linux/amd64")]);
    candidates.answer_platform(&entry("a", "linux/amd64").digest, Some(platform("linux/arm64")));
    candidates.answer_index(&Digest::sha256(b"?"), &Index::new(vec![entry("b", "linux/arm64")]));
    assert!(select(&candidates, &named("linux/arm64")).is_err());
}

#[test]
fn may_run_covers_every_runtime() {
    let list = [
        "linux/amd64",
        "linux/amd64/v4",
        "linux/386",
        "linux/arm64",
        "linux/arm64/v9",
        "linux/arm/v7",
        "linux/arm/v9",
        "windows/amd64",
        "linux/riscv64",
        "linux/riscv64/rva23u64",
        "linux(+gpu)/amd64",
        "windows(10.0.20348.1)/amd64",
        "windows(10.0.17763.1)/amd64",
        // Begins like a version, and is one where numbers are cut to 16 bits.
        "windows(10.0.203480.9999)/amd64",
        "windows(10.0.85884.9999)/amd64",
    ];
    let entries: Vec<_> = list.iter().map(|p| entry(p, p)).collect();
    let candidates = of(&entries);
    for (host, expected) in [
        ("linux/amd64", vec![0, 1, 2, 10]),
        ("linux/amd64/v3", vec![0, 1, 2, 10]),
        ("linux/386", vec![2]),
        ("linux/arm64", vec![3, 4, 5, 6]),
        ("linux/arm/v6", vec![5, 6]),
        ("linux/riscv64", vec![8, 9]),
        ("windows(10.0.20348)/amd64", vec![7, 11, 13, 14]),
        ("linux/s390x", vec![]),
    ] {
        let might = may_run(&candidates, &named(host));
        let positions: Vec<_> =
            might.iter().map(|d| entries.iter().position(|e| e == *d).unwrap()).collect();
        assert_eq!(positions, expected, "{host}");
    }
}

fn some_platform() -> impl Strategy<Value = String> {
    prop::sample::select(vec![
        "linux/amd64",
        "linux/amd64/v2",
        "linux/amd64/v3",
        "linux/x86_64/v4",
        "linux/386",
        "linux/arm/v6",
        "linux/armhf",
        "linux/arm/v9",
        "linux/arm64",
        "linux/arm64/v8.2",
        "linux/arm64/v9",
        "linux/arm64/odd",
        "linux/riscv64",
        "linux/riscv64/rva22u64",
        "windows(10.0.20348.1)/amd64",
        "windows(10.0.26100)/amd64",
        "linux(+a)/amd64",
        "unknown/unknown",
    ])
    .prop_map(str::to_owned)
}

fn some_host() -> impl Strategy<Value = HostPlatform> {
    let compat32 = prop::sample::select(vec![Support::Yes, Support::No, Support::Unknown]);
    (some_platform(), compat32).prop_map(|(p, compat32)| HostPlatform { compat32, ..named(&p) })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn only_what_the_host_satisfies_and_only_what_may_run(
        platforms in prop::collection::vec(some_platform(), 0..8),
        host in some_host(),
    ) {
        let entries: Vec<_> =
            platforms.iter().enumerate().map(|(n, p)| entry(&n.to_string(), p)).collect();
        let candidates = of(&entries);
        match select(&candidates, &host) {
            Ok(selection) => {
                prop_assert!(host.satisfies(selection.chosen.platform.as_ref().unwrap()));
                prop_assert!(may_run(&candidates, &host).contains(&&selection.chosen));
                let chosen = selection.considered.iter().filter(|c| c.outcome == Outcome::Chosen);
                prop_assert_eq!(chosen.count(), 1);
            }
            Err(no_match) => {
                prop_assert!(no_match.considered.iter().all(|c| !c.outcome.fits()));
                let runs = |p: &String| p != "unknown/unknown" && host.satisfies(&platform(p));
                prop_assert!(!platforms.iter().any(runs));
            }
        }
    }

    /// Entries of different levels: whatever their order, the same platform wins.
    #[test]
    fn the_order_decides_only_between_equals(
        platforms in Just(vec!["linux/amd64", "linux/amd64/v2", "linux/amd64/v3", "linux/arm64"]).prop_shuffle(),
        host in some_host(),
    ) {
        let shuffled = chosen(&platforms, &host).map(|n| platforms[n]);
        let sorted = ["linux/amd64", "linux/amd64/v2", "linux/amd64/v3", "linux/arm64"];
        prop_assert_eq!(shuffled, chosen(&sorted, &host).map(|n| sorted[n]));
    }

    #[test]
    fn annotations_in_any_order_change_nothing(
        annotations in Just(vec![("a", "1"), ("b", "2"), ("c", "3")]).prop_shuffle(),
        features in Just(vec!["x", "y", "z"]).prop_shuffle(),
    ) {
        let write = |annotations: &[(&str, &str)], features: &[&str]| {
            let annotations: Vec<_> =
                annotations.iter().map(|(k, v)| format!(r#""{k}":"{v}""#)).collect();
            let features: Vec<_> = features.iter().map(|f| format!(r#""{f}""#)).collect();
            let first = entry("1", "linux/amd64");
            format!(
                r#"{{"schemaVersion":2,"manifests":[{},{{"mediaType":"{}","digest":"{}","size":1,"annotations":{{{}}},"platform":{{"os":"linux","architecture":"amd64","os.features":[{}]}}}}]}}"#,
                serde_json::to_string(&first).unwrap(),
                media_type::OCI_MANIFEST,
                Digest::sha256(b"2"),
                annotations.join(","),
                features.join(",")
            )
        };
        let select_in = |text: String| {
            let document = portolan_core::Document::parse(text.as_bytes(), None).unwrap();
            let entries = document.children().to_vec();
            select(&of(&entries), &named("linux(+x+y+z)/amd64")).unwrap().chosen.digest
        };
        let plain = select_in(write(&[("a", "1"), ("b", "2"), ("c", "3")], &["x", "y", "z"]));
        prop_assert_eq!(plain, Digest::sha256(b"2"));
        prop_assert_eq!(select_in(write(&annotations, &features)), plain);
    }
}

#[test]
fn of_machines_known_by_half_every_entry_that_one_might_run_is_found() {
    let platforms = [
        "linux/amd64",
        "linux/amd64/v3",
        "linux/arm64",
        "linux/arm/v6",
        "windows(10.0.17763.1)/amd64",
        "windows(10.0.20348.1)/amd64",
        "unknown/unknown",
    ];
    let entries: Vec<_> = platforms
        .iter()
        .map(|text| Descriptor {
            platform: Some(text.parse().unwrap()),
            ..Descriptor::of(media_type::OCI_MANIFEST, text.as_bytes())
        })
        .collect();
    let index = Index::new(entries);
    let candidates = Candidates::new(Digest::sha256(&index.to_vec()), &index);
    for (wanted, expected) in [
        ("linux/amd64", &[0, 1][..]),
        ("linux/arm64", &[2, 3]),
        ("linux/arm/v7", &[3]),
        ("*/amd64", &[0, 1, 4, 5]),
        ("*/arm64", &[2, 3]),
        ("linux/*", &[0, 1, 2, 3]),
        ("windows/*", &[4, 5]),
        ("windows/amd64", &[4, 5]),
        ("windows(10.0.20348)/amd64", &[5]),
        ("windows(10.0.17763.9)/*", &[4]),
        ("linux/s390x", &[]),
        ("*", &[0, 1, 2, 3, 4, 5]),
    ] {
        let found: Vec<_> = may_run_on(&candidates, &wanted.parse().unwrap())
            .into_iter()
            .map(|(descriptor, _)| descriptor.digest)
            .collect();
        let expected: Vec<_> = expected.iter().map(|n| index.manifests[*n].digest).collect();
        assert_eq!(found, expected, "{wanted}");
    }
}
