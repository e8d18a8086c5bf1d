//! The cases of the proposal and of upstream's own tests, by their numbers in the reference.

use portolan_api::shim::ShimSpec;
use serde_json::{Value, json};

use super::*;

const A: &str = "1111111111111111111111111111111111111111111111111111111111111111";
const B: &str = "2222222222222222222222222222222222222222222222222222222222222222";

fn spec(fetch: Value) -> ShimSpec {
    serde_json::from_value(json!({
        "fetchStrategy": fetch,
        "runtimeClass": {"name": "wasmtime-spin-v2", "handler": "spin-v2"},
        "rolloutStrategy": {"type": "recreate"},
    }))
    .unwrap()
}

fn entry(os: &str, arch: &str, digest: Option<&str>) -> Value {
    let mut entry =
        json!({"os": os, "arch": arch, "location": format!("https://x.example/{arch}")});
    if let Some(digest) = digest {
        entry["sha256"] = json!(digest);
    }
    entry
}

fn node<'a>(os: &'a str, arch: &'a str) -> Node<'a> {
    Node { name: "node-1", os, arch, runtime: "containerd://1.7.2" }
}

/// Location and digest, or the message.
fn get(fetch: Value, os: &str, arch: &str) -> Result<(String, Option<String>), String> {
    match resolve("spin-v2", &spec(fetch), &node(os, arch)) {
        Ok(found) => Ok((found.location, found.sha256)),
        Err(refusal) => Err(refusal.to_string()),
    }
}

fn found(location: &str, digest: Option<&str>) -> Result<(String, Option<String>), String> {
    Ok((format!("https://x.example/{location}"), digest.map(str::to_owned)))
}

#[test]
fn p1_p2_each_node_gets_the_archive_of_its_processor_with_its_digest() {
    let fetch =
        json!({"platforms": [entry("linux", "amd64", Some(A)), entry("linux", "arm64", Some(B))]});
    assert_eq!(get(fetch.clone(), "linux", "amd64"), found("amd64", Some(A)));
    assert_eq!(get(fetch, "linux", "arm64"), found("arm64", Some(B)));
}

#[test]
fn p3_p4_p12_names_of_uname_and_of_go_are_one_in_both_directions() {
    for (written, reported) in [
        ("x86_64", "amd64"),
        ("amd64", "x86_64"),
        ("amd64", "AMD64"),
        ("x86_64", "AMD64"),
        ("aarch64", "arm64"),
        ("arm64", "aarch64"),
        ("arm", "armv7l"),
        ("armv7l", "arm"),
        ("riscv64", "riscv64"),
        ("ppc64le", "ppc64le"),
        ("s390x", "s390x"),
    ] {
        let fetch = json!({"platforms": [entry("linux", written, Some(A))]});
        assert_eq!(get(fetch, "linux", reported), found(written, Some(A)), "{reported}");
    }
}

#[test]
fn p5_p6_no_match_names_the_node_and_never_falls_back() {
    let message = Err("no platform artifact matches node node-1 (linux/amd64)".to_owned());
    let mut fetch = json!({"platforms": [entry("linux", "arm64", None)]});
    assert_eq!(get(fetch.clone(), "linux", "amd64"), message);
    fetch["anonHttp"] = json!({"location": "https://x.example/any"});
    assert_eq!(get(fetch, "linux", "amd64"), message);
}

#[test]
fn p7_p8_p9_one_archive_for_all_where_no_platform_is_named_and_an_error_where_nothing_is() {
    let any = json!({"location": "https://x.example/any"});
    for arch in ["amd64", "arm64", "riscv64", ""] {
        assert_eq!(get(json!({"anonHttp": any}), "linux", arch), found("any", None));
    }
    let both = json!({"anonHttp": any, "platforms": [entry("linux", "amd64", Some(A))]});
    assert_eq!(get(both, "linux", "amd64"), found("amd64", Some(A)));
    let none = Err("no fetch source configured for shim spin-v2".to_owned());
    assert_eq!(get(json!({}), "linux", "amd64"), none);
    assert_eq!(get(json!({"platforms": []}), "linux", "amd64"), none);
}

#[test]
fn p10_p11_case_does_not_matter_and_the_operating_system_does() {
    let fetch = json!({"platforms": [entry("Linux", "AMD64", None)]});
    assert_eq!(get(fetch, "linux", "amd64"), found("AMD64", None));
    let windows = json!({"platforms": [entry("windows", "amd64", None)]});
    get(windows, "linux", "amd64").expect_err("another operating system");
}

#[test]
fn p13_two_entries_for_one_platform_are_found_however_they_are_spelt() {
    let fetch = json!({"platforms": [
        entry("linux", "amd64", None), entry("linux", "arm64", None), entry("linux", "x86_64", None)
    ]});
    assert_eq!(duplicates(&spec(fetch.clone()).fetch_strategy.platforms), [(2, 0)]);
    assert_eq!(get(fetch, "linux", "amd64"), found("amd64", None), "the first is taken");
}

#[test]
fn p15_the_deprecated_type_changes_nothing() {
    let fetch = json!({
        "type": "anonymousHttp", "anonHttp": {"location": "https://x.example/any"},
        "platforms": [entry("linux", "x86_64", None)],
    });
    assert_eq!(get(fetch, "linux", "amd64"), found("x86_64", None));
}

#[test]
fn c14_windows_and_other_runtimes_are_refused_and_not_sent_a_job() {
    let any = spec(json!({"anonHttp": {"location": "https://x.example/any"}}));
    for (os, runtime, reason) in [
        ("windows", "containerd://1.7.2", "OperatingSystemNotSupported"),
        ("linux", "cri-o://1.30.0", "RuntimeNotSupported"),
        ("linux", "docker://27.0", "RuntimeNotSupported"),
    ] {
        let node = Node { name: "n", os, arch: "amd64", runtime };
        let refusal = resolve("s", &any, &node).expect_err(reason);
        assert_eq!((refusal.reason(), refusal.is_unsupported()), (reason, true));
    }
    let silent = Node { name: "n", os: "", arch: "", runtime: "" };
    resolve("s", &any, &silent).expect("it has not spoken yet");
}

#[test]
fn policies_are_off_told_or_enforced() {
    use Requirement::{Enforce, Off, Warn};
    let plain = Artifact { location: "http://x.example/a".into(), sha256: None };
    let judge = |digest, https| {
        let policy = Policy { require_digest: digest, require_https: https };
        match admit(&plain, &policy) {
            Ok(admitted) => admitted.warnings.iter().map(Complaint::reason).collect::<Vec<_>>(),
            Err(refusal) => vec![refusal.reason(), "refused"],
        }
    };
    assert_eq!(judge(Off, Off), [""; 0]);
    assert_eq!(judge(Warn, Warn), ["HttpsRequired", "DigestRequired"]);
    assert_eq!(judge(Enforce, Warn), ["DigestRequired", "refused"]);
    assert_eq!(judge(Warn, Enforce), ["HttpsRequired", "refused"]);
    assert_eq!(Policy::default(), Policy { require_digest: Warn, require_https: Warn });
}

#[test]
fn what_can_never_be_installed_is_refused_before_anything_is_asked_of_a_node() {
    let judge = |location: &str, digest: Option<&str>| {
        let artifact = Artifact { location: location.into(), sha256: digest.map(str::to_owned) };
        admit(&artifact, &Policy::default()).map(|admitted| admitted.sha256).map_err(|r| r.reason())
    };
    for location in ["file:///etc/passwd", "ftp://x/a", "", "https://", "x.example/a"] {
        assert_eq!(judge(location, None), Err("LocationNotAllowed"), "{location}");
    }
    // A node would refuse it, after a Job.
    for location in ["https://me@x.example/a", "https://me:secret@x.example/a"] {
        assert_eq!(judge(location, None), Err("LocationNotAllowed"), "{location}");
    }
    let url = "https://x.example/a";
    assert_eq!(judge(url, Some("a1b2c3d4e5f6...")), Err("DigestNotValid"));
    assert_eq!(judge(url, Some(&"g".repeat(64))), Err("DigestNotValid"));
    assert_eq!(judge(url, Some(&"AB".repeat(32))), Ok(Some("ab".repeat(32))));
    assert_eq!(judge(url, Some(&format!("sha256:{A}"))), Ok(Some(A.to_owned())));
}

/// Complaints are Events, statuses and logs.
#[test]
fn no_secret_of_a_location_is_told() {
    let policy = |require_https| Policy { require_digest: Requirement::Enforce, require_https };
    for location in [
        "https://x.example/a?X-Amz-Signature=secret",
        "http://x.example/a?token=secret#secret",
        "https://me:secret@x.example/a",
        "ftp://me:secret@x.example/a?secret",
        "x.example/a?sig=secret",
        "//me:secret@x.example/a#secret",
    ] {
        for (sha256, https) in [
            (None, Requirement::Enforce),
            (None, Requirement::Off),
            (Some("1...".to_owned()), Requirement::Warn),
        ] {
            let artifact = Artifact { location: location.into(), sha256 };
            let refusal = admit(&artifact, &policy(https)).expect_err(location).to_string();
            assert!(refusal.contains("x.example/a") && !refusal.contains("secret"), "{refusal}");
        }
        let warned = Artifact { location: location.into(), sha256: None };
        let warnings = admit(&warned, &Policy::default()).map_or(Vec::new(), |one| one.warnings);
        assert!(warnings.iter().all(|one| !one.to_string().contains("secret")), "{warnings:?}");
    }
}

/// A slash that is part of a name in an address stays that, and a digest may be in either case.
#[test]
fn shims_as_projects_publish_them_come_out_as_they_are_meant() {
    let path = format!("{}/../../fixtures/shim/published.yaml", env!("CARGO_MANIFEST_DIR"));
    let shims = portolan_api::document::read(&std::fs::read(path).unwrap()).unwrap();
    let mut seen = Vec::new();
    for shim in shims {
        let portolan_api::document::Resource::Shim(shim) = shim else { panic!("{shim:?}") };
        let errors = crate::lint::lint(&shim).into_iter();
        let errors: Vec<_> =
            errors.filter(|found| found.severity == crate::lint::Severity::Error).collect();
        assert_eq!(errors, []);
        let node = Node { name: "n", os: "linux", arch: "amd64", runtime: "containerd://2.1.4" };
        let artifact = resolve("s", &shim.spec, &node).unwrap();
        sound(&shim.spec).unwrap();
        let admitted = admit(&artifact, &Policy::default()).unwrap();
        assert_eq!(admitted.location, artifact.location);
        let file = admitted.location.rsplit_once("/download/").unwrap().1.to_owned();
        seen.push((file, admitted.sha256.map(|digest| digest[..8].to_owned())));
    }
    let expected = [
        ("v0.23.0/containerd-shim-spin-v2-linux-x86_64.tar.gz", Some("1b2d3f4a")),
        (
            "containerd-shim-wasmtime%2Fv0.6.0/containerd-shim-wasmtime-x86_64-linux-musl.tar.gz",
            None,
        ),
    ];
    let owned = |(file, digest): (&str, Option<&str>)| (file.to_owned(), digest.map(str::to_owned));
    assert_eq!(seen, expected.map(owned));
}
