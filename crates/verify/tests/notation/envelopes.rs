//! What an envelope may say, and what it signs.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portolan_core::Digest;
use portolan_verify::authority::RefusalCode::{
    self, BadSignature, Expired, Malformed, OtherSubject, Unsupported,
};
use portolan_verify::notation::{COSE, JWS, MAX_ENVELOPE_BYTES};
use serde_json::{Value, json};

use crate::mint::{
    AUTHENTIC, Draft, EXPIRY, Family, Key, NOW, SCHEME, SIGNING_TIME, Shapes, judge, judge_as,
    subject,
};
use crate::policies::authority;

#[test]
fn each_kind_of_key_signs_with_its_own_algorithm_in_both_forms() {
    for key in [Key::p256(), Key::p384(), Key::p521(), Key::rsa2048()] {
        let family = Family::of(&Shapes::default(), key);
        for (kind, envelope) in family.draft().both() {
            let accepted = judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap();
            let wanted = ["subject", "chain", "signature", "authenticity", "authenticTimestamp"];
            assert_eq!(accepted.checks[..5], wanted);
        }
        // The key decides; what the envelope says must agree.
        for alg in ["PS256", "PS384", "PS512", "ES256", "ES384", "ES512"] {
            if alg == family.leaf_key.alg() {
                continue;
            }
            let draft = Draft { alg, ..family.draft() };
            for (kind, envelope) in draft.both() {
                let refusal =
                    judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap_err();
                assert_eq!(refusal.code, Unsupported, "{alg}: {refusal}");
            }
        }
    }
}

#[test]
fn algorithms_that_are_not_the_projects_are_refused() {
    let family = Family::new();
    for alg in ["none", "HS256", "RS256", "es256", "EdDSA"] {
        let draft = Draft { alg, ..family.draft() };
        for (kind, envelope) in draft.both() {
            let refusal = judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap_err();
            assert_eq!(refusal.code, Unsupported, "{alg}: {refusal}");
        }
    }
}

#[test]
fn a_signature_for_another_image_is_none_for_this_one() {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    for (kind, envelope) in family.draft().both() {
        let mut digest = subject();
        digest.descriptor.digest = Digest::sha256(b"other");
        let mut size = subject();
        size.descriptor.size -= 1;
        let mut media_type = subject();
        media_type.descriptor.media_type = "application/vnd.oci.image.manifest.v1+json".to_owned();
        for (other, what) in [(digest, "digest"), (size, "size"), (media_type, "media type")] {
            let refusal = judge_as(&authority, &other, kind, &envelope, NOW).unwrap_err();
            assert_eq!(refusal.code, OtherSubject);
            assert!(refusal.message.contains(&format!("whose {what} is")), "{refusal}");
        }
    }
}

#[test]
fn a_payload_that_is_not_exactly_a_target_is_refused() {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    let good = family.draft().payload["targetArtifact"].clone();
    let with = |name: &str, value: Value| {
        let mut target = good.clone();
        target[name] = value;
        json!({"targetArtifact": target})
    };
    for payload in [
        json!([]),
        json!({}),
        json!({"targetArtifact": good, "more": 1}),
        with("size", json!("1234")),
        with("size", json!(-1)),
        with("size", json!(1234.0)),
        with("digest", json!("sha256:1234")),
        with("digest", json!(null)),
        with("mediaType", json!(1)),
    ] {
        let draft = Draft { payload: payload.clone(), ..family.draft() };
        for (kind, envelope) in draft.both() {
            let refusal = judge(&authority, kind, &envelope).unwrap_err();
            assert_eq!(refusal.code, Malformed, "{payload}: {refusal}");
        }
    }
    let draft = Draft { payload: with("annotations", json!({"a": "b"})), ..family.draft() };
    for (kind, envelope) in draft.both() {
        judge(&authority, kind, &envelope).unwrap();
    }
}

#[test]
fn headers_keep_the_rules() {
    type Change = fn(&mut Draft<'_>);
    let cases: &[(&str, Change, RefusalCode)] = &[
        ("other content type", |d| d.content_type = "application/json", Unsupported),
        ("no scheme", |d| d.texts.clear(), Malformed),
        ("other scheme", |d| d.texts = vec![(SCHEME, "notary.x509.other")], Unsupported),
        ("scheme not critical", |d| d.critical = vec![SIGNING_TIME], Malformed),
        ("no time", |d| d.times.clear(), Malformed),
        ("both times", |d| push(d, AUTHENTIC, "2026-11-01T08:00:00Z"), Malformed),
        ("wrong scheme for its time", |d| d.texts = vec![(SCHEME, AUTHORITY)], Malformed),
        ("expiry not critical", |d| d.times.push((EXPIRY, "2027-01-01T00:00:00Z")), Malformed),
        ("expiry before signing", |d| push(d, EXPIRY, "2026-10-01T00:00:00Z"), Malformed),
        ("expired", |d| push(d, EXPIRY, "2026-11-17T12:00:00Z"), Expired),
        ("critical, but missing", |d| d.critical.push(EXPIRY), Malformed),
        ("critical twice", |d| d.critical.push(SCHEME), Malformed),
        ("unknown and critical", |d| text(d, "com.example.mfa", true), Unsupported),
        ("plugin", |d| text(d, PLUGIN, true), Unsupported),
        ("plugin, not critical", |d| text(d, PLUGIN, false), Unsupported),
    ];
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    for (name, change, code) in cases {
        let mut draft = family.draft();
        change(&mut draft);
        for (kind, envelope) in draft.both() {
            let refusal = judge(&authority, kind, &envelope).expect_err(name);
            assert_eq!(refusal.code, *code, "{name}, {kind}: {refusal}");
        }
    }
    let mut fine = family.draft();
    push(&mut fine, EXPIRY, "2026-11-17T12:00:01Z");
    fine.critical.push(SIGNING_TIME);
    text(&mut fine, "com.example.note", false);
    for (kind, envelope) in fine.both() {
        judge(&authority, kind, &envelope).unwrap();
    }
}

const PLUGIN: &str = "io.cncf.notary.verificationPlugin";
const AUTHORITY: &str = "notary.x509.signingAuthority";

fn push(draft: &mut Draft<'_>, name: &'static str, time: &'static str) {
    draft.times.push((name, time));
    draft.critical.push(name);
}

fn text(draft: &mut Draft<'_>, name: &'static str, critical: bool) {
    draft.texts.push((name, "x"));
    if critical {
        draft.critical.push(name);
    }
}

#[test]
fn what_was_changed_after_signing_is_refused() {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    let jws: Value = serde_json::from_slice(&family.draft().jws()).unwrap();
    let text = |name: &str| jws[name].as_str().unwrap().to_owned();
    let decoded = |name: &str| URL_SAFE_NO_PAD.decode(text(name)).unwrap();
    let mut signature = decoded("signature");
    signature[5] ^= 1;
    let payload = String::from_utf8(decoded("payload")).unwrap().replace('{', "{ ");
    let protected = String::from_utf8(decoded("protected")).unwrap().replace("08:00", "08:01");
    for (name, bytes) in
        [("signature", signature), ("payload", payload.into()), ("protected", protected.into())]
    {
        let mut changed = jws.clone();
        changed[name] = json!(URL_SAFE_NO_PAD.encode(bytes));
        let refusal = judge(&authority, JWS, changed.to_string().as_bytes()).unwrap_err();
        assert_eq!(refusal.code, BadSignature, "{name}: {refusal}");
    }
    // Another signer's certificate, with the same names.
    let other = Family::new();
    let chain = Draft { key: &other.leaf_key, ..family.draft() };
    for (kind, envelope) in chain.both() {
        assert_eq!(judge(&authority, kind, &envelope).unwrap_err().code, BadSignature);
    }
}

#[test]
fn json_that_two_readers_read_differently_is_refused() {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    let good = String::from_utf8(family.draft().jws()).unwrap();
    let jws: Value = serde_json::from_str(&good).unwrap();
    let again = |name: &str| good.replacen('{', &format!("{{\"{name}\":{},", jws[name]), 1);
    for name in ["payload", "protected", "header", "signature"] {
        let refusal = judge(&authority, JWS, again(name).as_bytes()).unwrap_err();
        assert_eq!(refusal.code, Malformed);
        assert!(refusal.message.contains("twice"), "{refusal}");
    }
    let general = good.replacen('{', "{\"signatures\":[],", 1);
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let nested = good.replacen(
        '{',
        &format!("{{\"header\":{}1{},", "{\"a\":".repeat(64), "}".repeat(64)),
        1,
    );
    for text in [general, deep, nested, good.clone() + "{}", "null".to_owned(), String::new()] {
        assert_eq!(judge(&authority, JWS, text.as_bytes()).unwrap_err().code, Malformed);
    }
    judge(&authority, JWS, good.as_bytes()).unwrap();
}

#[test]
fn envelopes_have_a_bound_and_a_type() {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    let five_mib = vec![b' '; 5 * 1024 * 1024];
    for kind in [JWS, COSE] {
        let refusal = judge(&authority, kind, &five_mib).unwrap_err();
        assert_eq!(refusal.code, Malformed);
        assert!(refusal.message.contains(&MAX_ENVELOPE_BYTES.to_string()), "{refusal}");
    }
    let [(_, jws), (_, cose)] = family.draft().both();
    assert_eq!(judge(&authority, COSE, &jws).unwrap_err().code, Malformed);
    assert_eq!(judge(&authority, JWS, &cose).unwrap_err().code, Malformed);
    assert_eq!(judge(&authority, "application/json", &jws).unwrap_err().code, Unsupported);
}

#[test]
fn cose_that_is_cut_untagged_detached_or_nested_is_refused() {
    let family = Family::new();
    let authority = authority(family.root(), |_| {});
    let good = family.draft().cose();
    judge(&authority, COSE, &good).unwrap();
    let untagged = good[1..].to_vec();
    let longer = [&good[..], &[0]].concat();
    let deep = [vec![0xd2], vec![0x81; 500_000]].concat();
    let huge = [vec![0xd2, 0x84, 0x5b], vec![0xff; 8]].concat();
    for bytes in [untagged, longer, deep, huge] {
        assert_eq!(judge(&authority, COSE, &bytes).unwrap_err().code, Malformed);
    }
    for end in 0..good.len() {
        assert_eq!(judge(&authority, COSE, &good[..end]).unwrap_err().code, Malformed);
    }
}

#[test]
fn other_evidence_is_left_to_others() {
    use portolan_verify::authority::Authority as _;
    use portolan_verify::evidence::{Carrier, Content, Evidence};
    let family = Family::new();
    let bundle = Evidence {
        artifact: Digest::sha256(b"x"),
        carrier: Carrier::Referrer,
        content: Content::Bundle(bytes::Bytes::new()),
    };
    let now = crate::mint::time(NOW);
    assert!(authority(family.root(), |_| {}).judge(&subject(), &bundle, now).is_none());
}
