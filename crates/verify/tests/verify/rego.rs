//! A policy in Rego over images in a registry.

use std::path::Path;

use portolan_registry::ErrorClass;
use portolan_verify::collect::Limits;
use portolan_verify::decision::{Question, ReasonCode, Undecided, Verdict};
use portolan_verify::policy::{self, Policy};
use portolan_verify::subject::{Kind, Subject};
use portolan_verify::subjects::{Subjects, Wanted};
use portolan_verify::verify::{UnansweredError, VerifyError, verify_subjects};

use crate::bench::{Bench, digests, is};

const SIGNED: &str = r#"package portolan

default decision := {"allow": false, "messages": ["not decided"]}

decision := {"allow": count(bad) == 0, "messages": bad} if count(input.subjects) > 0

bad contains sprintf("%v is not signed", [subject.digest]) if {
  some subject in input.subjects
  count({signature.identity | some signature in subject.signatures; signature.signer == "release"}) == 0
}

bad contains "another repository" if not endswith(input.repository, "/team/app")
"#;

/// What has no end within any time that a policy is given.
const SLOW: &str = r#"package portolan

digits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]

decision := {"allow": true} if {
  count(input.subjects) > 0
  count([1 | digits[a]; digits[b]; digits[c]; digits[d]; digits[e]; digits[f]; digits[g]; digits[h]; digits[i]]) > 0
}
"#;

fn load(dir: &Path, key: &str, rego: &str) -> Policy {
    let files = [
        ("release.pub", key),
        ("decision.rego", rego),
        (
            "policy.yaml",
            "version: 1\nsigners: {release: {keys: {files: [release.pub]}}}\ndefault: {rego: decision.rego}\n",
        ),
    ];
    for (name, text) in files {
        std::fs::write(dir.join(name), text).unwrap();
    }
    policy::load(&dir.join("policy.yaml")).unwrap()
}

/// Index and image, as with any policy; what says no names the subject.
#[tokio::test]
async fn a_policy_in_rego_decides_over_what_was_verified() {
    let bench = Bench::new(&["linux/amd64", "linux/arm64"]);
    let dir = tempfile::tempdir().unwrap();
    let policy = load(dir.path(), &bench.key.public().to_pem(), SIGNED);
    let reference = bench.reference();
    let rule = policy.rule(&reference).unwrap();
    bench.sign(&bench.top()).await;
    let answer = bench.ask(&reference, "linux/amd64", rule).await.unwrap();
    is(&answer, Verdict::Refused);
    assert_eq!(digests(&answer), [bench.top().digest, bench.entry(0).digest]);
    assert_eq!(answer.reasons[0].code, ReasonCode::PolicyDenied);
    assert!(answer.reasons[0].message.contains(&bench.entry(0).digest.to_string()), "{answer:?}");
    assert!(answer.subjects.iter().all(|one| !one.verified));
    bench.sign(&bench.entry(0)).await;
    let answer = bench.ask(&reference, "linux/amd64", rule).await.unwrap();
    is(&answer, Verdict::Verified);
    assert!(answer.subjects.iter().all(|one| one.verified));
    let arm = bench.ask(&reference, "linux/arm64", rule).await.unwrap();
    is(&arm, Verdict::Refused);
}

/// Signatures of others, and of other images, are not there for Rego.
#[tokio::test]
async fn rego_never_sees_what_was_not_verified() {
    let bench = Bench::new(&["linux/amd64"]);
    let other = Bench::new(&["linux/amd64"]);
    let dir = tempfile::tempdir().unwrap();
    let anything = SIGNED.replace("; signature.signer == \"release\"", "");
    let policy = load(dir.path(), &other.key.public().to_pem(), &anything);
    bench.sign_all().await;
    let reference = bench.reference();
    let rule = policy.rule(&reference).unwrap();
    is(&bench.ask(&reference, "linux/amd64", rule).await.unwrap(), Verdict::Refused);
}

#[tokio::test]
async fn a_policy_in_rego_that_does_not_decide_is_a_no_with_its_own_code() {
    let bench = Bench::new(&["linux/amd64"]);
    bench.sign_all().await;
    let dir = tempfile::tempdir().unwrap();
    let key = bench.key.public().to_pem();
    let reference = bench.reference();
    for rego in [
        "package portolan\ndecision := {\"allow\": true} if input.nothing",
        "package portolan\ndecision := {\"allow\": \"yes\"}",
        "package portolan\ndecision := {\"allow\": to_number(input.subjects[0].digest) > 0}",
    ] {
        let policy = load(dir.path(), &key, rego);
        let rule = policy.rule(&reference).unwrap();
        let answer = bench.ask(&reference, "linux/amd64", rule).await.unwrap();
        is(&answer, Verdict::Refused);
        assert_eq!(answer.reasons[0].code, ReasonCode::PolicyBroken, "{rego}: {answer:?}");
    }
}

/// Nobody decided: that is no no, neither for people nor for programs that ask again.
#[tokio::test]
async fn a_policy_in_rego_that_had_no_time_is_no_answer() {
    let bench = Bench::new(&["linux/amd64"]);
    let dir = tempfile::tempdir().unwrap();
    let policy = load(dir.path(), &bench.key.public().to_pem(), SLOW);
    let reference = bench.reference();
    let rule = policy.rule(&reference).unwrap();
    let error = bench.ask(&reference, "linux/amd64", rule).await.expect_err("nobody decided");
    assert!(matches!(error, VerifyError::Undecided(Undecided::Late(_))), "{error}");

    let subject = Subject { descriptor: bench.entry(0), kind: Kind::Manifest, platform: None };
    let image = Subjects::of(None, vec![subject]).unwrap();
    let wanted = Wanted::all();
    let now = jiff::Timestamp::now();
    let question = Question { reference: &reference, namespace: None, rule, wanted: &wanted, now };
    let answer = verify_subjects(&bench.place(), &question, &image, &Limits::default()).await;
    let error = answer.expect_err("nobody decided");
    assert!(matches!(error, UnansweredError::Undecided(_)), "{error}");
    assert_eq!(error.class(), ErrorClass::Local);
}

#[test]
fn a_rule_with_rego_has_nothing_else_to_ask() {
    let dir = tempfile::tempdir().unwrap();
    let bench_key = portolan_verify::key::PrivateKey::generate().unwrap();
    load(dir.path(), &bench_key.public().to_pem(), SIGNED);
    let wrong = |rule: &str| {
        let text = format!(
            "version: 1\nsigners: {{release: {{keys: {{files: [release.pub]}}}}}}\ndefault: {{{rule}}}\n"
        );
        std::fs::write(dir.path().join("policy.yaml"), text).unwrap();
        crate::bench::chain(&policy::load(&dir.path().join("policy.yaml")).unwrap_err())
    };
    for more in ["require: {anyOf: [release]}", "indexPolicy: any", "documents: {sbom: {}}"] {
        let said = wrong(&format!("rego: decision.rego, {more}"));
        assert!(said.contains("decides alone"), "{more}: {said}");
    }
    assert!(wrong("rego: none.rego").contains("none.rego"));
    std::fs::write(dir.path().join("decision.rego"), "package other\n").unwrap();
    assert!(wrong("rego: decision.rego").contains("package portolan"));
}
