use std::path::Path;

use super::*;
use crate::key::PrivateKey;

fn read(file: &Path) -> Result<Vec<u8>, String> {
    match file.to_str() {
        Some("a.pub") => Ok(PrivateKey::generate().unwrap().public().to_pem().into_bytes()),
        Some("ed.pub") => {
            let pair = aws_lc_rs::signature::Ed25519KeyPair::generate().unwrap();
            let key = PrivateKey::from_pkcs8(pair.to_pkcs8v1().unwrap().as_ref()).unwrap();
            Ok(key.public().to_pem().into_bytes())
        }
        Some("root.json") => {
            Ok(br#"{"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}"#
                .to_vec())
        }
        Some("broken.pub") => Ok(b"no key".to_vec()),
        _ => Err("it is not there".to_owned()),
    }
}

/// A policy with a signer `a` and this after it.
fn policy(rest: &str) -> Result<Policy, PolicyContentError> {
    let text = format!("version: 1\nsigners:\n  a: {{keys: {{files: [a.pub]}}}}\n{rest}");
    parse(text.as_bytes(), &read)
}

const RULE: &str = "{require: {allOf: [a]}}";

/// The reader of YAML would take a minute for these.
#[test]
fn a_policy_that_nests_too_deep_is_refused_at_once() {
    for text in ["{\"a\":", "{\"]\":", "["] {
        let error = parse(text.repeat(60_000).as_bytes(), &read).unwrap_err();
        assert!(matches!(error, PolicyContentError::TooDeep), "{error}");
    }
}

#[test]
fn what_is_wrong_with_a_policy_is_told_with_its_place() {
    for (rest, parts) in [
        ("scopez: []", &["unknown field `scopez`", "line 4", "did you mean `scopes`?"][..]),
        (
            "default: {requir: {allOf: [a]}}",
            &["unknown field `requir`", "line 4 column 11", "`require`"],
        ),
        (
            "default: {require: {allOf: [a]}, indexPolicy: bth}",
            &["unknown variant `bth`", "`both`"],
        ),
        ("default: {require: {allOf: [a], allOf: [a]}}", &["duplicate field `allOf`"]),
        ("default: {require: null}", &["default.require"]),
        ("", &["neither `scopes` nor a `default`"]),
        ("default: {}", &["it asks for nothing"]),
        ("default: {require: {}}", &["names nobody"]),
        ("default: {require: {allOf: [], anyOf: []}}", &["names nobody"]),
        ("default: {require: {allOf: [b]}}", &["names \"b\", who is no signer"]),
        ("default: {require: {allOf: [a, a]}}", &["twice"]),
        ("default: {require: {anyOf: [a], atLeast: 2}}", &["from 1 to 1"]),
        ("default: {require: {anyOf: [a], atLeast: 0}}", &["from 1 to 1"]),
        ("default: {require: {allOf: [a], atLeast: 1}}", &["`atLeast` needs `anyOf`"]),
        ("default: {require: {allOf: [a]}, platforms: []}", &["empty list"]),
        ("default: {require: {allOf: [a]}, platforms: [lin*/x]}", &["line 4"]),
        ("default: {attestations: [{predicateType: x}]}", &["needs `require`"]),
        (
            "default: {require: {allOf: [a]}, attestations: [{predicateType: x, conditions: [{pointer: /a}]}]}",
            &["attestation \"x\"", "asks for nothing"],
        ),
        ("default: {documents: {sbom: {}}}", &["need `require`"]),
        (
            "default: {require: {allOf: [a]}, documents: {vulnerabilities: {maximumAge: soon}}}",
            &["`maximumAge` is \"soon\""],
        ),
        (
            "scopes: [{name: x, match: [], rule: {require: {allOf: [a]}}}]",
            &["scope \"x\"", "no image"],
        ),
        (
            "scopes: [{name: x, match: [app], rule: {require: {allOf: [a]}}}]",
            &["names no repositories"],
        ),
        (
            "scopes: [{name: x, match: [r.example/a], rule: {require: {allOf: [a]}}}, {name: y, match: [r.example/b, R.example/a], rule: {require: {allOf: [a]}}}]",
            &["scope \"y\"", "matched twice"],
        ),
    ] {
        let error = policy(rest).expect_err(rest).to_string();
        for part in parts {
            assert!(error.contains(part), "{rest}\n{error}\nlacks {part}");
        }
    }
}

#[test]
fn what_is_wrong_with_a_signer_is_told() {
    for (signer, part) in [
        ("{}", "exactly one of `keys`, `keyless` and `notation`"),
        ("{keys: {}}", "it has no key"),
        ("{keys: {files: [gone.pub]}}", "signers.s: cannot read gone.pub: it is not there"),
        ("{keys: {files: [broken.pub]}}", "cannot read broken.pub"),
        ("{keys: {inline: [x]}}", "key 1 in `inline`"),
        ("{keys: {files: [a.pub], log: required}}", "needs `trustedRoot`"),
        ("{keys: {files: [a.pub], trustedRoot: r.json}}", "means nothing"),
        (
            "{keys: {files: [a.pub, ed.pub], log: required, trustedRoot: root.json}}",
            "signers.s: the log cannot be required of the Ed25519 key sha256:",
        ),
        ("{keyless: {identity: {}, issuer: {exact: x}, trustedRoot: r}}", "exactly one of `exact`"),
        ("{keyless: {identity: {regex: \"(\"}, issuer: {exact: x}, trustedRoot: r}}", "s.identity"),
        ("{keyless: {identity: {exact: x}, trustedRoot: r}}", "missing field `issuer`"),
        (
            "{keyless: {identity: {exact: x}, issuer: {exact: y}, trustedRoot: root.json, log: timestamp}}",
            "signers.s: `log: timestamp` needs somebody who timestamps, and root.json",
        ),
        (
            "{keyless: {identity: {exact: x}, issuer: {exact: y}, trustedRoot: root.json, log: ignored}}",
            "unknown variant `ignored`",
        ),
    ] {
        let text =
            format!("version: 1\nsigners:\n  s: {signer}\ndefault: {{require: {{allOf: [s]}}}}");
        let error = parse(text.as_bytes(), &read).expect_err(signer).to_string();
        assert!(error.contains(part), "{signer}\n{error}");
    }
    let twice =
        "version: 1\nsigners:\n  s: {keys: {files: [a.pub]}}\n  s: {keys: {files: [a.pub]}}\n";
    let error = parse(twice.as_bytes(), &read).unwrap_err().to_string();
    assert!(error.contains("twice") || error.contains("duplicate"), "{error}");
    let error = parse(b"version: 2", &read).unwrap_err().to_string();
    assert!(error.contains("only 1 is known"), "{error}");
}

#[test]
fn a_policy_means_what_it_says() {
    let all = policy(&format!("default: {RULE}")).unwrap();
    let reference = "r.example/app:1".parse().unwrap();
    let rule = all.rule(&reference).unwrap();
    assert_eq!(rule.index_policy, IndexPolicy::Both);
    assert_eq!((rule.platforms.clone(), rule.missing), (PlatformDefault::Host, Missing::Refuse));
    let full = policy(
        "default: {require: {allOf: [a]}, indexPolicy: any, platforms: [linux/amd64, \"*/arm64\"], partialPlatform: host, missingPlatform: ignore}",
    )
    .unwrap();
    let rule = full.rule(&reference).unwrap();
    assert_eq!((rule.index_policy, rule.missing), (IndexPolicy::Any, Missing::Ignore));
    let host = || Ok::<_, ()>(Platform::new("linux", "amd64"));
    assert_eq!(rule.wanted(&[], None, host).unwrap().to_string(), "*/arm64, linux/amd64");
    let named = ["arm64".parse().unwrap()];
    assert_eq!(rule.wanted(&named, None, host).unwrap().to_string(), "linux/arm64");
    let every = [PartialPlatform::any()];
    assert_eq!(rule.wanted(&every, None, host).unwrap().to_string(), "*", "nothing is not half");
    let whole = ["windows/arm64".parse().unwrap()];
    let nobody = || Err::<Platform, _>("nobody asks the host");
    assert_eq!(rule.wanted(&whole, None, nobody).unwrap().to_string(), "windows/arm64");
}

#[test]
fn the_checked_in_policy_schema_is_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/verify-policy.json");
    let schema = schemars::schema_for!(document::Document);
    let text = serde_json::to_string_pretty(&schema).unwrap() + "\n";
    if std::env::var_os("PORTOLAN_UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/schemas/verify-policy.json is old; run cargo xtask schemas");
}

/// The guide's policy is read as far as that goes without its files.
#[test]
fn the_policy_in_the_guide_is_one() {
    let guide = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/verify.md");
    let guide = std::fs::read_to_string(guide).unwrap();
    let text = guide.split("```yaml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let document: document::Document = serde_yaml_ng::from_str(text).unwrap();
    assert_eq!(document.signers.len(), 4);
    let error = parse(text.as_bytes(), &read).unwrap_err();
    assert!(matches!(error, PolicyContentError::File { .. }), "{error}");
}
