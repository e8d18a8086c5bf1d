//! Statements and documents: what must be said of an image, and what may not.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portolan_core::{Descriptor, Index, Manifest, media_type};
use portolan_verify::collect::{CollectError, Limits};
use portolan_verify::cosign;
use portolan_verify::decision::{Answer, ReasonCode, Verdict};
use portolan_verify::key::PrivateKey;
use portolan_verify::policy::{self, Rule};
use portolan_verify::sign::{Form, sign};
use portolan_verify::sigstore::{IN_TOTO, pae};
use portolan_verify::verify::VerifyError;
use serde_json::{Value, json};

use crate::bench::{Bench, is};
use crate::support::fault::{Answer as Page, Fault};
use crate::support::image::{Image, to_json};

const SLSA: &str = "https://slsa.dev/provenance/v1";
const SPDX: &str = "https://spdx.dev/Document";
const VULN: &str = "https://cosign.sigstore.dev/attestation/vuln/v1";

/// Attaches a statement as cosign 2 does: a layer of its own, as a referrer or under the tag.
async fn attest(bench: &Bench, key: &PrivateKey, kind: &str, predicate: Value, by_tag: bool) {
    let subject = bench.top();
    let statement = json!({
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": "", "digest": {"sha256": subject.digest.hex()}}],
        "predicateType": kind,
        "predicate": predicate,
    });
    let payload = serde_json::to_vec(&statement).unwrap();
    let signature = key.sign(&pae(IN_TOTO, &payload)).unwrap();
    let envelope = json!({
        "payloadType": IN_TOTO,
        "payload": STANDARD.encode(&payload),
        "signatures": [{"sig": STANDARD.encode(signature)}],
    });
    let layer = ("application/vnd.dsse.envelope.v1+json", to_json(&envelope));
    attach(bench, "application/vnd.dsse.envelope.v1+json", layer, None, by_tag).await;
}

async fn attach(
    bench: &Bench,
    artifact_type: &str,
    layer: (&str, Vec<u8>),
    created: Option<&str>,
    by_tag: bool,
) {
    let (place, subject) = (bench.place(), bench.top());
    let config = place.push_blob(media_type::OCI_EMPTY, Bytes::from_static(b"{}")).await.unwrap();
    let layer = place.push_blob(layer.0, layer.1.into()).await.unwrap();
    let mut manifest = Manifest::new(config, vec![layer]);
    manifest.artifact_type = Some(artifact_type.to_owned());
    let created =
        created.map(|time| ("org.opencontainers.image.created".to_owned(), time.to_owned()));
    manifest.annotations.extend(created);
    let tag = cosign::tag(&subject.digest, "att");
    if !by_tag {
        let own = Descriptor::new(&subject.media_type, subject.digest, subject.size);
        manifest.subject = Some(own);
    }
    let bytes = Bytes::from(to_json(&manifest));
    let tag = by_tag.then_some(&tag);
    place.push_manifest(media_type::OCI_MANIFEST, bytes, tag).await.unwrap();
}

/// One image, and a policy with its key as `release` and this rule.
async fn asked(bench: &Bench, rule: &str) -> Answer {
    asked_with(bench, &bench.key, rule).await
}

/// The same with a second signer, `scanner`.
async fn asked_with(bench: &Bench, scanner: &PrivateKey, rule: &str) -> Answer {
    let rule = rule_of(bench, scanner, rule);
    bench.ask(&bench.reference(), "linux/amd64", &rule).await.unwrap()
}

fn rule_of(bench: &Bench, scanner: &PrivateKey, rule: &str) -> Rule {
    let signer = |name: &str, key: &PrivateKey| {
        let pem = key.public().to_pem();
        let pem: String = pem.lines().map(|line| format!("          {line}\n")).collect();
        format!("  {name}:\n    keys:\n      inline:\n        - |\n{pem}")
    };
    let signers = signer("release", &bench.key) + &signer("scanner", scanner);
    let rule: String = rule.lines().map(|line| format!("  {line}\n")).collect();
    let text = format!("version: 1\nsigners:\n{signers}default:\n{rule}");
    let policy = policy::parse(text.as_bytes(), &|_| Err("no files".to_owned()));
    let policy = policy.unwrap_or_else(|error| panic!("{error}\n{text}"));
    Rule::clone(policy.rule(&bench.reference()).unwrap())
}

fn bench() -> Bench {
    Bench::holding(Image::single("linux/amd64", &[100], 1))
}

#[tokio::test]
async fn a_statement_must_be_there_by_the_right_signer_and_say_what_it_must() {
    let rule = "attestations:\n- predicateType: https://slsa.dev/provenance/v1\n  require: {anyOf: [release]}\n  conditions:\n  - {pointer: /builder/id, equals: https://ci.example}\n  - {pointer: /level, atLeast: 3}";
    let good = json!({"builder": {"id": "https://ci.example"}, "level": 3});
    let bad = json!({"builder": {"id": "https://ci.example"}, "level": 2});
    let code = |answer: &Answer| answer.subjects[0].reasons[0].code;

    let bench = bench();
    // A signature is no statement.
    bench.sign(&bench.top()).await;
    let answer = asked(&bench, rule).await;
    is(&answer, Verdict::Refused);
    assert_eq!(code(&answer), ReasonCode::AttestationMissing);
    // Another kind of statement, and the right one by a stranger.
    attest(&bench, &bench.key, "https://example.com/other", good.clone(), false).await;
    attest(&bench, &PrivateKey::generate().unwrap(), SLSA, good.clone(), false).await;
    assert_eq!(code(&asked(&bench, rule).await), ReasonCode::AttestationMissing);
    // The right one that says something else.
    attest(&bench, &bench.key, SLSA, bad, false).await;
    let answer = asked(&bench, rule).await;
    assert_eq!(code(&answer), ReasonCode::AttestationCondition);
    assert!(answer.subjects[0].reasons[0].message.contains("/level is 2"), "{answer:?}");
    // The right one, under the tag.
    attest(&bench, &bench.key, SLSA, good, true).await;
    is(&asked(&bench, rule).await, Verdict::Verified);
}

#[tokio::test]
async fn a_statement_is_no_signature() {
    let bench = bench();
    attest(&bench, &bench.key, SLSA, json!({}), false).await;
    let answer = asked(&bench, "require: {allOf: [release]}").await;
    is(&answer, Verdict::Refused);
    assert_eq!(answer.subjects[0].reasons[0].code, ReasonCode::SignerMissing);
    assert!(answer.subjects[0].signatures[0].accepted, "{answer:?}");
}

#[tokio::test]
async fn lists_of_parts_are_signed_and_clean() {
    let rule = "require: {allOf: [release]}\ndocuments:\n  sbom:\n    disallowedLicenses: [GPL-3.0-only]\n    disallowedPackages: [{name: log4j-core, version: 2.14.1}]";
    let spdx = |license: &str, version: &str| {
        json!({"spdxVersion": "SPDX-2.3", "packages": [
            {"name": "zlib", "licenseConcluded": license},
            {"name": "log4j-core", "versionInfo": version, "licenseConcluded": "Apache-2.0"},
        ]})
    };
    let bench = bench();
    bench.sign(&bench.top()).await;
    let code = |answer: &Answer| answer.subjects[0].reasons[0].code;
    assert_eq!(code(&asked(&bench, rule).await), ReasonCode::DocumentMissing);
    // Attached by anybody: does not count unless the policy says so.
    let bytes = serde_json::to_vec(&spdx("Zlib", "2.20.0")).unwrap();
    attach(&bench, "application/spdx+json", ("application/spdx+json", bytes), None, false).await;
    assert_eq!(code(&asked(&bench, rule).await), ReasonCode::DocumentMissing);
    is(&asked(&bench, &format!("{rule}\n    allowUnsigned: true")).await, Verdict::Verified);
    attest(&bench, &bench.key, SPDX, spdx("Zlib", "2.20.0"), false).await;
    is(&asked(&bench, rule).await, Verdict::Verified);
    // Every one that counts must be clean.
    attest(&bench, &bench.key, SPDX, spdx("MIT OR (gpl-3.0-only)", "2.14.1"), false).await;
    let answer = asked(&bench, rule).await;
    is(&answer, Verdict::Refused);
    assert_eq!(code(&answer), ReasonCode::DocumentViolation);
    let message = &answer.subjects[0].reasons[0].message;
    for part in ["zlib under gpl-3.0-only", "log4j-core 2.14.1"] {
        assert!(message.contains(part), "{message}");
    }
}

#[tokio::test]
async fn the_newest_list_of_weaknesses_is_young_and_clean() {
    let rule = "require: {allOf: [release]}\ndocuments:\n  vulnerabilities:\n    disallowedSeverities: [critical, high]\n    deniedIds: [cve-2026-0009]\n    maximumAge: 7d";
    let report = |id: &str, severity: &str, days: i64| {
        let time = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
        json!({
            "metadata": {"scanFinishedOn": time.to_string()},
            "scanner": {"result": {"runs": [
                {"tool": {"driver": {"name": "first"}}, "results": []},
                {"tool": {"driver": {"name": "trivy", "rules": [
                    {"id": id, "help": {"text": format!("Vulnerability {id}\nSeverity: {severity}\n")}},
                ]}}, "results": [{"ruleId": id, "ruleIndex": 0, "level": "note"}]},
            ]}},
        })
    };
    let bench = bench();
    bench.sign(&bench.top()).await;
    let message = |answer: &Answer| answer.subjects[0].reasons[0].message.clone();
    attest(&bench, &bench.key, VULN, report("CVE-2026-0001", "CRITICAL", 9), false).await;
    let old = asked(&bench, rule).await;
    assert!(message(&old).contains("the newest list of weaknesses was made"), "{old:?}");
    // A newer one takes its place, in a run that is not the first.
    attest(&bench, &bench.key, VULN, report("CVE-2026-0002", "HIGH", 3), false).await;
    let high = asked(&bench, rule).await;
    assert!(message(&high).contains("CVE-2026-0002 of severity High"), "{high:?}");
    attest(&bench, &bench.key, VULN, report("CVE-2026-0003", "MEDIUM", 2), false).await;
    is(&asked(&bench, rule).await, Verdict::Verified);
    attest(&bench, &bench.key, VULN, report("CVE-2026-0009", "LOW", 1), false).await;
    let denied = asked(&bench, rule).await;
    assert!(message(&denied).contains("CVE-2026-0009, which is denied"), "{denied:?}");
    // One from tomorrow would be the newest for ever.
    attest(&bench, &bench.key, VULN, report("CVE-2026-0003", "LOW", -2), false).await;
    is(&asked(&bench, rule).await, Verdict::Refused);
}

const WEAKNESSES: &str =
    "documents:\n  vulnerabilities:\n    disallowedSeverities: [critical, high]";

fn scan(level: &str, days: Option<i64>) -> Value {
    let ago = |days| jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
    let time = days.map(|days| ago(days).to_string());
    let results = json!([{"ruleId": "CVE-2026-0001", "level": level}]);
    json!({
        "metadata": {"scanFinishedOn": time},
        "scanner": {"result": {"runs": [{"tool": {"driver": {"name": "x"}}, "results": results}]}},
    })
}

/// As `trivy image --format cosign-vuln` writes it, and cosign attests it.
#[tokio::test]
async fn a_list_of_weaknesses_in_the_scanners_own_json_is_read() {
    let rule = format!("require: {{allOf: [release]}}\n{WEAKNESSES}\n    maximumAge: 7d");
    let report = |severity: &str, days: i64| {
        let time = jiff::Timestamp::now() - jiff::SignedDuration::from_hours(24 * days);
        let found =
            json!([{"VulnerabilityID": "CVE-2026-0001", "PkgName": "musl", "Severity": severity}]);
        json!({
            "metadata": {"scanFinishedOn": time.to_string()},
            "scanner": {"uri": "pkg:github/aquasecurity/trivy", "result": {"SchemaVersion": 2,
                "Results": [{"Target": "app", "Class": "os-pkgs", "Vulnerabilities": found}]}},
        })
    };
    let bench = bench();
    bench.sign(&bench.top()).await;
    attest(&bench, &bench.key, VULN, report("HIGH", 2), false).await;
    let high = asked(&bench, &rule).await;
    let message = &high.subjects[0].reasons[0].message;
    assert!(message.contains("CVE-2026-0001 of severity High"), "{message}");
    attest(&bench, &bench.key, VULN, report("LOW", 1), true).await;
    is(&asked(&bench, &rule).await, Verdict::Verified);
}

/// Who is trusted for another statement does not speak of weaknesses.
#[tokio::test]
async fn documents_of_signers_that_are_not_required_do_not_count() {
    let rule = format!(
        "require: {{allOf: [release]}}\nattestations:\n  - predicateType: {SLSA}\n    require: {{allOf: [scanner]}}\n{WEAKNESSES}"
    );
    let (bench, scanner) = (bench(), PrivateKey::generate().unwrap());
    bench.sign(&bench.top()).await;
    attest(&bench, &scanner, SLSA, json!({}), false).await;
    attest(&bench, &bench.key, VULN, scan("error", Some(3)), false).await;
    is(&asked_with(&bench, &scanner, &rule).await, Verdict::Refused);
    attest(&bench, &scanner, VULN, scan("note", Some(1)), false).await;
    is(&asked_with(&bench, &scanner, &rule).await, Verdict::Refused);
    attest(&bench, &bench.key, VULN, scan("note", Some(2)), false).await;
    is(&asked_with(&bench, &scanner, &rule).await, Verdict::Verified);
}

/// Where two must vouch, one alone does not decide what the newest list is.
#[tokio::test]
async fn no_signer_hides_what_another_found_behind_a_newer_list() {
    let rule = format!("require: {{allOf: [release, scanner]}}\n{WEAKNESSES}");
    let young = format!("{rule}\n    maximumAge: 2d");
    let (bench, scanner) = (bench(), PrivateKey::generate().unwrap());
    bench.sign(&bench.top()).await;
    sign(&bench.place(), &bench.top(), &scanner, Form::Bundle).await.unwrap();
    attest(&bench, &bench.key, VULN, scan("error", Some(5)), false).await;
    attest(&bench, &scanner, VULN, scan("note", Some(1)), false).await;
    is(&asked_with(&bench, &scanner, &rule).await, Verdict::Refused);
    attest(&bench, &bench.key, VULN, scan("note", Some(3)), false).await;
    is(&asked_with(&bench, &scanner, &rule).await, Verdict::Verified);
    is(&asked_with(&bench, &scanner, &young).await, Verdict::Refused);
    attest(&bench, &bench.key, VULN, scan("note", Some(0)), false).await;
    is(&asked_with(&bench, &scanner, &young).await, Verdict::Verified);
}

/// Nobody knows that it is older.
#[tokio::test]
async fn a_list_of_weaknesses_without_a_time_counts_beside_newer_ones() {
    let rule = format!("require: {{allOf: [release]}}\n{WEAKNESSES}");
    let bench = bench();
    bench.sign(&bench.top()).await;
    attest(&bench, &bench.key, VULN, scan("note", Some(1)), false).await;
    is(&asked(&bench, &rule).await, Verdict::Verified);
    attest(&bench, &bench.key, VULN, scan("error", None), false).await;
    is(&asked(&bench, &rule).await, Verdict::Refused);
}

/// Many weaknesses make a large list: what is too large to be read must not leave the word to an
/// older one.
#[tokio::test]
async fn a_list_that_is_too_large_is_an_error_where_lists_count() {
    let weaknesses = format!("require: {{allOf: [release]}}\n{WEAKNESSES}");
    let (bench, nobody) = (bench(), PrivateKey::generate().unwrap());
    bench.sign(&bench.top()).await;
    attest(&bench, &bench.key, VULN, scan("note", Some(3)), false).await;
    let mut large = scan("error", Some(1));
    large["padding"] = Value::from("x".repeat(4000));
    attest(&bench, &bench.key, VULN, large, false).await;
    let ask = async |rule: &str, blob: u64| {
        let (rule, limits) = (rule_of(&bench, &nobody, rule), Limits { blob, ..Limits::default() });
        bench.ask_within(&limits, &bench.reference(), "linux/amd64", &rule).await
    };
    let error = ask(&weaknesses, 4000).await.expect_err("nobody knows what it says");
    let VerifyError::Collect(CollectError::TooLarge { size, limit: 4000, .. }) = error else {
        panic!("{error}")
    };
    is(&ask(&weaknesses, size).await.unwrap(), Verdict::Refused);
    // Where only signatures count there is nothing in it that could say no.
    let answer = ask("require: {allOf: [release]}", 4000).await.unwrap();
    is(&answer, Verdict::Verified);
    assert!(answer.subjects[0].passed_over[0].why.contains("more than the 4000"), "{answer:?}");
}

#[tokio::test]
async fn components_of_cyclonedx_are_found_and_those_inside_of_others() {
    const CYCLONEDX: &str = "https://cyclonedx.org/bom";
    let rule = "require: {allOf: [release]}\ndocuments:\n  sbom:\n    disallowedLicenses: [GPL-3.0-only]\n    disallowedPackages: [{name: log4j-core, version: 2.14.1}]";
    let bom = |inner: Value| {
        let outer = json!({"name": "app", "version": "1", "licenses": [{"license": {"id": "MIT"}}],
                           "components": [inner]});
        json!({"bomFormat": "CycloneDX", "specVersion": "1.5", "components": [outer]})
    };
    for (inner, told) in [
        (json!({"name": "log4j-core", "version": "2.20.0"}), None),
        (json!({"name": "log4j-core", "version": "2.14.1"}), Some("log4j-core 2.14.1")),
        (
            json!({"name": "x", "licenses": [{"license": {"id": "GPL-3.0-only"}}]}),
            Some("x under gpl-3.0-only"),
        ),
        (
            json!({"name": "x", "licenses": [{"license": {"name": "gpl-3.0-only"}}]}),
            Some("x under gpl-3.0-only"),
        ),
        (
            json!({"name": "x", "licenses": [{"expression": "MIT AND GPL-3.0-only"}]}),
            Some("x under gpl-3.0-only"),
        ),
    ] {
        let bench = bench();
        bench.sign(&bench.top()).await;
        attest(&bench, &bench.key, CYCLONEDX, bom(inner.clone()), false).await;
        let answer = asked(&bench, rule).await;
        match told {
            None => is(&answer, Verdict::Verified),
            Some(words) => {
                is(&answer, Verdict::Refused);
                let message = &answer.subjects[0].reasons[0].message;
                assert!(message.contains(words), "{inner}: {message}");
            }
        }
    }
}

/// A list of earlier days lies under the tag, and a gateway answers where the list of today is.
#[tokio::test]
async fn an_old_list_does_not_win_where_the_new_one_cannot_be_had() {
    let rule = format!("require: {{allOf: [release]}}\n{WEAKNESSES}");
    let bench = bench();
    let digest = bench.top().digest;
    bench.sign(&bench.top()).await;
    attest(&bench, &bench.key, VULN, scan("note", Some(3)), false).await;
    let old = bench.place().referrers(&digest, None).await.unwrap();
    let old = Image::of_manifest(media_type::OCI_INDEX, &to_json(&Index::new(old)));
    let tag = digest.referrers_tag();
    bench.server.registry().repositories.get_mut("team/app").unwrap().hold(&old, &tag);
    is(&asked(&bench, &rule).await, Verdict::Verified);
    attest(&bench, &bench.key, VULN, scan("error", Some(1)), false).await;
    is(&asked(&bench, &rule).await, Verdict::Refused);
    let page = Fault::Answer(Page::new(200, "<html>").header("content-type", "text/html"));
    bench.server.always("GET", format!("/referrers/{digest}"), page);
    let rule = rule_of(&bench, &bench.key, &rule);
    let asked = bench.ask(&bench.reference(), "linux/amd64", &rule).await;
    let error = asked.expect_err("nobody knows");
    assert!(matches!(error, VerifyError::Collect(CollectError::List { .. })), "{error}");
}

#[tokio::test]
async fn a_document_that_says_nothing_is_not_clean() {
    let weaknesses = format!("require: {{allOf: [release]}}\n{WEAKNESSES}");
    let parts = "require: {allOf: [release]}\ndocuments:\n  sbom:\n    disallowedLicenses: [X]";
    for (kind, rule, predicate) in [
        (VULN, weaknesses.as_str(), json!({"runs": []})),
        (VULN, &weaknesses, json!({"runs": {}})),
        (VULN, &weaknesses, json!({"runs": [{}]})),
        (VULN, &weaknesses, json!({"runs": [{"results": []}, {"results": {"0": {}}}]})),
        (VULN, &weaknesses, json!({"runs": [{"results": ["CVE-2026-0001"]}]})),
        (SPDX, parts, json!({"spdxVersion": "SPDX-2.3"})),
        (SPDX, parts, json!({"spdxVersion": "SPDX-2.3", "packages": {}})),
        (SPDX, parts, json!({"spdxVersion": "SPDX-2.3", "packages": ["x"]})),
        (SPDX, parts, json!({"bomFormat": "CycloneDX"})),
        (SPDX, parts, json!({"bomFormat": "CycloneDX", "components": null})),
        (SPDX, parts, json!({"bomFormat": "CycloneDX", "components": [{"components": {}}]})),
    ] {
        let bench = bench();
        bench.sign(&bench.top()).await;
        attest(&bench, &bench.key, kind, predicate.clone(), false).await;
        let answer = asked(&bench, rule).await;
        assert_eq!(answer.verdict, Verdict::Refused, "{predicate}");
        let message = &answer.subjects[0].reasons[0].message;
        assert!(message.contains("cannot be read"), "{predicate}: {message}");
    }
}
