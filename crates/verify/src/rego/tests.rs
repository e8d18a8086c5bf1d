use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::json;

use super::*;
use crate::subject::Kind;

fn parse(text: &str) -> Result<RegoPolicy, RegoError> {
    RegoPolicy::parse("policy.rego", text.as_bytes())
}

fn with(rule: &str) -> RegoPolicy {
    let text = format!("package portolan\n{rule}\n");
    parse(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn signature(signer: &str, identity: &str) -> Signature {
    Signature {
        signer: signer.to_owned(),
        identity: identity.to_owned(),
        issuer: None,
        signed_at: Some(1_790_000_000),
        artifact: "sha256:a".to_owned(),
    }
}

fn subject(kind: Kind, signers: &[&str]) -> SubjectFacts {
    SubjectFacts {
        digest: "sha256:d".to_owned(),
        media_type: "application/vnd.oci.image.index.v1+json".to_owned(),
        kind,
        platform: (kind == Kind::Manifest).then(|| "linux/amd64".to_owned()),
        signatures: signers.iter().map(|one| signature(one, one)).collect(),
        attestations: vec![Attestation {
            by: signature("ci", "ci"),
            predicate_type: "https://slsa.dev/provenance/v1".to_owned(),
            predicate: json!({"buildDefinition": {"buildType": "https://ci.example/build/v1"}}),
        }],
        unsigned_documents: Vec::new(),
    }
}

fn input(signers: &[&[&str]]) -> Input {
    let kinds = [Kind::Index, Kind::Manifest, Kind::Manifest];
    let subjects = signers.iter().zip(kinds).map(|(signers, kind)| subject(kind, signers));
    Input {
        reference: "registry.example/team/app:1".to_owned(),
        repository: "registry.example/team/app".to_owned(),
        digest: "sha256:d".to_owned(),
        platforms: vec!["linux/amd64".to_owned()],
        now: 1_790_000_100,
        subjects: subjects.collect(),
        ..Input::default()
    }
}

/// The guide's own policy, word for word.
#[test]
fn the_rego_in_the_guide_decides() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verify.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let text = guide.split("```rego\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let policy = parse(text).unwrap();
    assert_eq!(policy.decide(&input(&[&["release"], &["release"]])), Ruling::Allow(vec![]));
    let Ruling::Deny(messages) = policy.decide(&input(&[&["release"], &["other"]])) else {
        panic!("an image that is not signed")
    };
    assert!(
        messages[0].contains("sha256:d") && messages[0].contains("linux/amd64"),
        "{messages:?}"
    );
    assert!(matches!(policy.decide(&input(&[])), Ruling::Deny(_)), "nothing is no yes");
}

#[test]
fn only_a_plain_yes_is_a_yes() {
    let none = input(&[]);
    let allow = |rule: &str| with(rule).decide(&none);
    assert_eq!(allow("decision := {\"allow\": true}"), Ruling::Allow(vec![]));
    assert_eq!(
        allow("decision := {\"allow\": true, \"messages\": [\"but\"]}"),
        Ruling::Allow(vec!["but".to_owned()])
    );
    assert_eq!(
        allow("decision := {\"allow\": false, \"messages\": {\"b\", \"a\"}}"),
        Ruling::Deny(vec!["a".to_owned(), "b".to_owned()])
    );
    for rule in [
        "decision := true",
        "decision := \"allow\"",
        "decision := [true]",
        "decision := {\"allow\": \"true\"}",
        "decision := {\"allow\": 1}",
        "decision := {\"allow\": null}",
        "decision := {\"allow\": [true]}",
        "decision := {\"allowed\": true}",
        "decision := {\"allow\": true, \"messages\": \"x\"}",
        "decision := {\"allow\": true, \"messages\": [1]}",
        "decision := {\"allow\": true} if input.never",
        "decision := {\"allow\": true} if false",
        "decision contains {\"allow\": true}",
        "decision := {\"allow\": true} if input.subjects[0]",
    ] {
        let ruling = allow(rule);
        assert!(matches!(ruling, Ruling::Broken(_)), "{rule}: {ruling:?}");
    }
}

#[test]
fn what_is_no_policy_is_refused_when_it_is_read() {
    for (text, part) in [
        ("", "not Rego"),
        ("package portolan\n{", "not Rego"),
        ("package other\ndecision := {\"allow\": true}", "package is data.other"),
        ("package portolan\nallow := true", "no rule `decision`"),
        ("package portolan\ndecision { true }", "not Rego v1"),
        ("package portolan\nf(x) := f(x)\ndecision := f(1)", "calls itself"),
        (
            "package portolan\ndecision := {\"allow\": count(numbers.range(1, 9)) > 0}",
            "numbers.range",
        ),
        (
            "package portolan\ndecision := {\"allow\": count(x) > 0} if x := count([]) with count as numbers.range_step",
            "numbers.range_step",
        ),
        ("package portolan\ndecision := {\"allow\": bits.lsh(1, 999999999) > 0}", "bits.lsh"),
        ("package portolan\ndecision := {\"allow\": sprintf(\"%½d\", [1]) != \"\"}", "\"%½\""),
        (
            "package portolan\ndecision := {\"allow\": sprintf(\"%4000000000d\", [1]) != \"\"}",
            "\"%4000000000\"",
        ),
        // The same, made while it is evaluated: a panic of the engine is no panic here.
        (
            "package portolan\ndecision := {\"allow\": sprintf(concat(\"\", [\"%\", \"½d\"]), [1]) != \"\"}",
            "the engine panicked",
        ),
        // There is nobody to ask, and nothing of this machine to see.
        (
            "package portolan\ndecision := {\"allow\": http.send({\"method\": \"get\", \"url\": \"http://x\"}).status_code == 200}",
            "http.send",
        ),
        (
            "package portolan\ndecision := {\"allow\": opa.runtime().env.HOME != \"\"}",
            "opa.runtime",
        ),
        (
            "package portolan\ndecision := {\"allow\": net.lookup_ip_addr(\"x\") != {}}",
            "net.lookup",
        ),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert!(matches!(RegoPolicy::parse("x", &[0xff]), Err(RegoError::NotText)));
    let deep = format!("package portolan\ndecision := {}1{}", "[".repeat(99), "]".repeat(99));
    assert!(matches!(parse(&deep), Err(RegoError::Unsafe(Unsafe::Deep))));
}

/// What would take for ever on this image ends, soon, with a no.
#[test]
fn a_decision_that_takes_too_long_is_a_no() {
    let policy = with(
        "digits := [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n\
         decision := {\"allow\": true} if {\n\
           count(input.subjects) > 0\n\
           count([1 | digits[a]; digits[b]; digits[c]; digits[d]; digits[e]; digits[f]; digits[g]; digits[h]; digits[i]]) > 0\n\
         }",
    );
    let start = Instant::now();
    let ruling = policy.decide(&input(&[&["release"]]));
    assert!(matches!(ruling, Ruling::Late(_)), "{ruling:?}");
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    // And the next one is not affected.
    assert!(matches!(policy.decide(&input(&[])), Ruling::Broken(_)));
}

/// What only breaks the engine for this image breaks nothing else.
#[test]
fn a_decision_in_which_the_engine_panics_is_a_no() {
    let policy = with(
        "decision := {\"allow\": sprintf(concat(\"\", [\"%\", input.tag, \"d\"]), [1]) != \"\"}",
    );
    let mut asked = input(&[]);
    asked.tag = Some("½".to_owned());
    let ruling = policy.decide(&asked);
    assert!(matches!(&ruling, Ruling::Broken(what) if what.contains("panicked")), "{ruling:?}");
    asked.tag = Some("5".to_owned());
    assert_eq!(policy.decide(&asked), Ruling::Allow(vec![]));
}

/// What a stranger wrote into a statement is data, however it looks.
#[test]
fn what_strangers_wrote_is_only_data() {
    let policy = with(
        "default decision := {\"allow\": false}\n\
         decision := {\"allow\": true} if input.subjects[0].attestations[0].predicate.allow == true",
    );
    let mut asked = input(&[&[]]);
    for predicate in [
        json!(null),
        json!("package portolan\ndecision := {\"allow\": true}"),
        json!({"allow": "true"}),
        json!({"allow": {"allow": true}}),
        json!([[[[[[[[[[[[[[[[[[[[[[[[[[1]]]]]]]]]]]]]]]]]]]]]]]]]]),
        json!({"allow": 1e308}),
    ] {
        asked.subjects[0].attestations[0].predicate = predicate.clone();
        assert_eq!(policy.decide(&asked), Ruling::Deny(vec![]), "{predicate}");
    }
    asked.subjects[0].attestations[0].predicate = json!({"allow": true});
    assert_eq!(policy.decide(&asked), Ruling::Allow(vec![]));
}

#[test]
fn messages_have_bounds() {
    let policy =
        with("decision := {\"allow\": false, \"messages\": [x | some x in input.platforms]}");
    let mut asked = input(&[]);
    asked.platforms = vec!["x".repeat(10_000); 100];
    let Ruling::Deny(messages) = policy.decide(&asked) else { panic!("a no") };
    assert_eq!((messages.len(), messages[0].len()), (MAX_MESSAGES, MAX_LETTERS));
}

#[test]
fn the_checked_in_schema_of_the_rego_input_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/rego-input.json");
    let schema = schemars::schema_for!(Input);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("PORTOLAN_UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/schemas/rego-input.json is old; run cargo xtask schemas");
}
