//! Keys that vouch for images, and everything that must not pass for them doing so.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use aws_lc_rs::digest::SHA384;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P384_SHA384_ASN1_SIGNING, EcdsaKeyPair, Ed25519KeyPair, RsaKeyPair,
};
use portolan_core::Digest;
use portolan_verify::authority::{Authority as _, Claim, Judgement, RefusalCode};
use portolan_verify::cosign::{LOG_ENTRY, MAX_PAYLOAD_BYTES, Payload};
use portolan_verify::evidence::Content;
use portolan_verify::key::PrivateKey;
use portolan_verify::sigstore::{KeyAuthority, LogPolicy, Statement};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha512};
use support::{
    Log, NOON, accepted, as_bundle, b64, bundle, dsse_entry, envelope, evidence, hashedrekord,
    judge, key_bundle, refused, root, root_json, signed, simple, statement, subject,
};

fn trusting(keys: &[&PrivateKey]) -> KeyAuthority {
    KeyAuthority::new(keys.iter().map(|key| key.public().clone()).collect(), LogPolicy::Ignore)
}

fn key() -> PrivateKey {
    PrivateKey::generate().unwrap()
}

fn attestation(key: &PrivateKey, statement: &Value) -> Content {
    let payload = serde_json::to_vec(statement).unwrap();
    let envelope = envelope(&payload, |message| key.sign(message).unwrap());
    let envelope = serde_json::to_vec(&envelope).unwrap().into();
    Content::Attestation { envelope, annotations: Default::default() }
}

#[test]
fn a_key_vouches_in_every_form() {
    let (key, image) = (key(), subject("image"));
    let digest = &image.descriptor.digest;
    let authority = trusting(&[&key]);
    let message_digest = json!({"algorithm": "SHA2_256", "digest": b64(digest.as_bytes())});
    let message =
        json!({"messageDigest": message_digest, "signature": b64(key.sign(b"image").unwrap())});
    let message = bundle(json!({"publicKey": {"hint": ""}}), ("messageSignature", message));
    for content in [signed(&key, digest), as_bundle(&key_bundle(&key, digest)), as_bundle(&message)]
    {
        let accepted = accepted(judge(&authority, &image, content));
        assert_eq!(accepted.signer, format!("sha256:{}", key.public().fingerprint()));
        assert_eq!(accepted.claim, Claim::Signature);
        assert_eq!(accepted.signed_at, None, "nobody else saw it");
    }
}

#[test]
fn an_attestation_is_no_signature() {
    let (key, image) = (key(), subject("image"));
    let said = statement(&image.descriptor.digest, "https://spdx.dev/Document");
    let expected = Claim::Statement {
        predicate_type: "https://spdx.dev/Document".to_owned(),
        predicate: json!({"answer": 42}),
    };
    let authority = trusting(&[&key]);
    assert_eq!(accepted(judge(&authority, &image, attestation(&key, &said))).claim, expected);
    let payload = serde_json::to_vec(&said).unwrap();
    let sealed = envelope(&payload, |message| key.sign(message).unwrap());
    let sealed = bundle(json!({"publicKey": {"hint": ""}}), ("dsseEnvelope", sealed));
    assert_eq!(accepted(judge(&authority, &image, as_bundle(&sealed))).claim, expected);
}

#[test]
fn any_subject_of_a_statement_may_be_the_image() {
    let (key, image) = (key(), subject("image"));
    let mut said = statement(&Digest::sha256(b"other"), "https://example/predicate");
    let named = json!({"digest": {"sha256": image.descriptor.digest.hex()}});
    said["subject"].as_array_mut().unwrap().push(named);
    accepted(judge(&trusting(&[&key]), &image, attestation(&key, &said)));
}

#[test]
fn a_signature_of_another_image_does_not_count_wherever_it_is_found() {
    let (key, image, other) = (key(), subject("image"), subject("other"));
    let digest = &other.descriptor.digest;
    let message = json!({"signature": b64(key.sign(b"other").unwrap())});
    let silent = bundle(json!({"publicKey": {"hint": ""}}), ("messageSignature", message.clone()));
    let mut named = silent.clone();
    named["messageSignature"]["messageDigest"] =
        json!({"algorithm": "SHA2_256", "digest": b64(digest.as_bytes())});
    for (content, code) in [
        (signed(&key, digest), RefusalCode::OtherSubject),
        (as_bundle(&key_bundle(&key, digest)), RefusalCode::OtherSubject),
        (attestation(&key, &statement(digest, "p")), RefusalCode::OtherSubject),
        (as_bundle(&named), RefusalCode::OtherSubject),
        (as_bundle(&silent), RefusalCode::BadSignature),
    ] {
        let refusal = refused(judge(&trusting(&[&key]), &image, content));
        assert_eq!(refusal.code, code, "{refusal}");
    }
}

#[test]
fn a_document_that_lies_about_what_was_signed_does_not_fit_its_signature() {
    let (key, image, other) = (key(), subject("image"), subject("other"));
    let authority = trusting(&[&key]);
    let honest = Payload::new(&other.descriptor.digest, "a/b").to_vec();
    let lie = Payload::new(&image.descriptor.digest, "a/b").to_vec();
    let content = simple(&lie, &key.sign(&honest).unwrap(), &[]);
    assert_eq!(refused(judge(&authority, &image, content)).code, RefusalCode::BadSignature);
    // The same with a statement: another payload below a good signature.
    let mut forged = key_bundle(&key, &other.descriptor.digest);
    let payload = Statement::signature(&image.descriptor.digest).to_vec();
    forged["dsseEnvelope"]["payload"] = json!(b64(payload));
    let refusal = refused(judge(&authority, &image, as_bundle(&forged)));
    assert_eq!(refusal.code, RefusalCode::BadSignature);
    // And with another type of payload, which is signed, too.
    let mut retyped = key_bundle(&key, &image.descriptor.digest);
    retyped["dsseEnvelope"]["payloadType"] = json!("application/json");
    let refusal = refused(judge(&authority, &image, as_bundle(&retyped)));
    assert_eq!(refusal.code, RefusalCode::Unsupported);
}

#[test]
fn a_document_signed_for_another_purpose_is_no_signature_of_an_image() {
    let (key, image) = (key(), subject("image"));
    let payload = Payload::new(&image.descriptor.digest, "a/b").to_vec();
    let payload = String::from_utf8(payload).unwrap();
    let payload = payload.replace("cosign container image signature", "receipt").into_bytes();
    let content = simple(&payload, &key.sign(&payload).unwrap(), &[]);
    let refusal = refused(judge(&trusting(&[&key]), &image, content));
    assert_eq!(refusal.code, RefusalCode::Malformed);
    assert!(refusal.message.contains("receipt"), "{refusal}");
}

#[test]
fn another_key_is_another_signer() {
    let (key, stranger, image) = (key(), key(), subject("image"));
    let digest = &image.descriptor.digest;
    let authority = trusting(&[&key]);
    let layer = refused(judge(&authority, &image, signed(&stranger, digest)));
    assert_eq!(layer.code, RefusalCode::BadSignature);
    let fingerprint = key.public().fingerprint();
    assert!(layer.message.contains(&fingerprint), "{layer}");
    let bundled = refused(judge(&authority, &image, as_bundle(&key_bundle(&stranger, digest))));
    assert_eq!(bundled.code, RefusalCode::OtherSigner);
    // A hint that names the trusted key does not make it the signer.
    let mut lie = key_bundle(&stranger, digest);
    lie["verificationMaterial"] = key_bundle(&key, digest)["verificationMaterial"].clone();
    let refusal = refused(judge(&authority, &image, as_bundle(&lie)));
    assert_eq!(refusal.code, RefusalCode::BadSignature);
    // One of several keys is enough, and no key trusts nobody.
    accepted(judge(&trusting(&[&stranger, &key]), &image, signed(&key, digest)));
    let nobody = refused(judge(&trusting(&[]), &image, signed(&key, digest)));
    assert_eq!(nobody.code, RefusalCode::BadSignature);
}

#[test]
fn one_good_layer_among_bad_ones_is_found_in_any_order() {
    let (key, stranger, image) = (key(), key(), subject("image"));
    let digest = &image.descriptor.digest;
    let mut layers =
        [signed(&stranger, digest), signed(&key, digest), signed(&key, &Digest::sha256(b"o"))];
    let authority = trusting(&[&key]);
    for _ in 0..3 {
        layers.rotate_left(1);
        let judged = layers.iter().map(|layer| judge(&authority, &image, layer.clone()));
        assert_eq!(judged.filter(|one| matches!(one, Judgement::Accepted(_))).count(), 1);
    }
}

#[test]
fn what_cannot_be_read_is_refused_and_never_panics() {
    let (key, image) = (key(), subject("image"));
    let digest = &image.descriptor.digest;
    let good = key_bundle(&key, digest);
    let without = |pointer: &str| {
        let mut value = good.clone();
        *value.pointer_mut(pointer).unwrap() = Value::Null;
        as_bundle(&value)
    };
    let text = |text: &str| Content::Bundle(text.to_owned().into());
    let mut entries = good.clone();
    let entry = Log::new().entry(&dsse_entry(&good["dsseEnvelope"], ""), NOON);
    entries["verificationMaterial"]["tlogEntries"] = json!(vec![entry; 9]);
    let mut two = good.clone();
    let signature = two["dsseEnvelope"]["signatures"][0].clone();
    two["dsseEnvelope"]["signatures"].as_array_mut().unwrap().push(signature);
    let many = json!({"payloadType": "application/vnd.in-toto+json", "payload": "e30=",
        "signatures": vec![json!({"sig": ""}); 17]});
    let many = serde_json::to_vec(&many).unwrap().into();
    for (name, content) in [
        ("empty", text("")),
        ("not json", text("hello")),
        ("deep", text(&"[".repeat(1_000_000))),
        ("no media type", without("/mediaType")),
        ("no material", without("/verificationMaterial")),
        ("no envelope", without("/dsseEnvelope")),
        ("no payload", without("/dsseEnvelope/payload")),
        ("two signatures", as_bundle(&two)),
        ("many log entries", as_bundle(&entries)),
        (
            "many signatures",
            Content::Attestation { envelope: many, annotations: Default::default() },
        ),
        ("huge payload", simple(&vec![b' '; MAX_PAYLOAD_BYTES + 1], b"", &[])),
        ("no signature", simple(&Payload::new(digest, "a").to_vec(), b"", &[])),
    ] {
        let refusal = refused(judge(&trusting(&[&key]), &image, content));
        assert_eq!(refusal.code, RefusalCode::Malformed, "{name}: {refusal}");
        assert!(refusal.message.len() < 1000, "{name}: {}", refusal.message.len());
    }
}

#[test]
fn no_refusal_plays_with_a_terminal() {
    let (key, image) = (key(), subject("image"));
    let hostile = "\u{1b}]0;x\u{7}\u{202e}\n";
    let mut kind = key_bundle(&key, &image.descriptor.digest);
    kind["mediaType"] = json!(hostile);
    let mut hint = key_bundle(&PrivateKey::generate().unwrap(), &image.descriptor.digest);
    hint["verificationMaterial"]["publicKey"]["hint"] = json!(hostile);
    for content in [as_bundle(&kind), as_bundle(&hint)] {
        let refusal = refused(judge(&trusting(&[&key]), &image, content));
        assert!(refusal.message.contains("x"), "{refusal:?}");
        let plays = |c: char| c.is_control() || c == '\u{202e}';
        assert!(!refusal.message.contains(plays), "{refusal:?}");
    }
}

#[test]
fn other_kinds_of_evidence_are_not_this_authoritys_business() {
    let image = subject("image");
    let now = jiff::Timestamp::UNIX_EPOCH;
    let media_type = "application/jose+json".to_owned();
    let content = Content::Notation { media_type, envelope: Default::default() };
    assert_eq!(trusting(&[]).judge(&image, &evidence(content), now), None);
}

#[test]
fn where_the_log_is_asked_for_its_promise_must_be_genuine_and_for_this_signature() {
    let (key, log, image) = (key(), Log::new(), subject("image"));
    let digest = &image.descriptor.digest;
    let root = root(&root_json(&[&log], &[], &[]));
    let authority = KeyAuthority::new(vec![key.public().clone()], LogPolicy::Require(root));
    let payload = Payload::new(digest, "a/b").to_vec();
    let signature = key.sign(&payload).unwrap();
    let pem = key.public().to_pem();
    let layer = |entry: String| simple(&payload, &signature, &[(LOG_ENTRY, entry)]);
    let body = hashedrekord(&payload, &signature, &pem);

    let good = accepted(judge(&authority, &image, layer(log.annotation(&body, NOON))));
    assert_eq!(good.signed_at.map(|time| time.as_second()), Some(NOON));

    let other_body = hashedrekord(b"other", &key.sign(b"other").unwrap(), &pem);
    let mut moved: Value = serde_json::from_str(&log.annotation(&body, NOON)).unwrap();
    moved["Payload"]["integratedTime"] = json!(NOON - 3600);
    for (name, content) in [
        ("none", simple(&payload, &signature, &[])),
        ("another log", layer(Log::new().annotation(&body, NOON))),
        ("another signature's entry", layer(log.annotation(&other_body, NOON))),
        ("another time", layer(moved.to_string())),
    ] {
        let refusal = refused(judge(&authority, &image, content));
        assert_eq!(refusal.code, RefusalCode::NotLogged, "{name}: {refusal}");
    }
}

#[test]
fn a_bundle_is_held_to_the_log_alike() {
    let (key, log, image) = (key(), Log::new(), subject("image"));
    let digest = &image.descriptor.digest;
    let root = root(&root_json(&[&log], &[], &[]));
    let authority = KeyAuthority::new(vec![key.public().clone()], LogPolicy::Require(root));
    let plain = key_bundle(&key, digest);
    let body = dsse_entry(&plain["dsseEnvelope"], &key.public().to_pem());
    let with = |entry: Value| {
        let mut bundle = plain.clone();
        bundle["verificationMaterial"]["tlogEntries"] = json!([entry]);
        bundle
    };
    let logged = with(log.entry(&body, NOON));
    let good = accepted(judge(&authority, &image, as_bundle(&logged)));
    assert_eq!(good.claim, Claim::Signature);

    let without = |fields: &[&str]| {
        let mut entry = log.entry(&body, NOON);
        fields.iter().for_each(|field| drop(entry.as_object_mut().unwrap().remove(*field)));
        with(entry)
    };
    let other = key_bundle(&key, &Digest::sha256(b"other"));
    let other = dsse_entry(&other["dsseEnvelope"], &key.public().to_pem());
    for (name, bundle) in [
        ("no entry", plain.clone()),
        ("no proof", without(&["inclusionProof"])),
        ("neither", without(&["inclusionProof", "inclusionPromise"])),
        ("another log", with(Log::new().entry(&body, NOON))),
        ("another signature's entry", with(log.entry(&other, NOON))),
    ] {
        let refusal = refused(judge(&authority, &image, as_bundle(&bundle)));
        assert_eq!(refusal.code, RefusalCode::NotLogged, "{name}: {refusal}");
    }
    // A log that vouches for a stranger's signature makes the stranger nobody else.
    let stranger = PrivateKey::generate().unwrap();
    let mut theirs = key_bundle(&stranger, digest);
    let body = dsse_entry(&theirs["dsseEnvelope"], &stranger.public().to_pem());
    theirs["verificationMaterial"]["tlogEntries"] = json!([log.entry(&body, NOON)]);
    let refusal = refused(judge(&authority, &image, as_bundle(&theirs)));
    assert_eq!(refusal.code, RefusalCode::OtherSigner, "{refusal}");
}

/// Ed25519 over a hash, as cosign signs.
fn prehashed(pkcs8: &[u8], message: &[u8]) -> Vec<u8> {
    let seed = &pkcs8[16..48];
    let key = ed25519_dalek::SigningKey::from_bytes(seed.try_into().unwrap());
    let hash = Sha512::new_with_prefix(message);
    key.sign_prehashed(hash, None).unwrap().to_bytes().to_vec()
}

/// P-384 over SHA-256, as cosign signs. The library has no name for it, but to the curve a hash is a
/// number, and one with zeros before it is the same number.
fn shorter(pkcs8: &[u8], message: &[u8]) -> Vec<u8> {
    let hash = [&[0; 16], Digest::sha256(message).as_bytes()].concat();
    let hash = aws_lc_rs::digest::Digest::import_less_safe(&hash, &SHA384).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(&ECDSA_P384_SHA384_ASN1_SIGNING, pkcs8).unwrap();
    pair.sign_digest(&hash).unwrap().as_ref().to_vec()
}

/// What each kind of key signs, in both forms and in a log: it counts, or it is said why it does not.
#[test]
fn where_the_log_is_asked_for_each_kind_of_key_is_held_to_it_or_told_that_it_cannot_be() {
    let p384 = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_ASN1_SIGNING).unwrap();
    let p384 = p384.to_pkcs8v1().unwrap().as_ref().to_vec();
    let rsa = RsaKeyPair::generate(KeySize::Rsa2048).unwrap().as_der().unwrap().as_ref().to_vec();
    let ed = Ed25519KeyPair::generate().unwrap().to_pkcs8v1().unwrap().as_ref().to_vec();
    let read = |pkcs8: &[u8]| PrivateKey::from_pkcs8(pkcs8).unwrap();
    let ours = |pkcs8: &[u8], message: &[u8]| read(pkcs8).sign(message).unwrap();
    type Sign<'a> = &'a dyn Fn(&[u8], &[u8]) -> Vec<u8>;
    let (log, image) = (Log::new(), subject("image"));
    let digest = &image.descriptor.digest;
    let root = root(&root_json(&[&log], &[], &[]));
    for (name, pkcs8, sign, in_layer, in_bundle) in [
        ("RSA", &rsa, &ours as Sign<'_>, Ok(()), Ok(())),
        ("P-384 over SHA-384", &p384, &ours, Err("over SHA-256 in a layer"), Ok(())),
        ("P-384 over SHA-256", &p384, &shorter, Ok(()), Err("over SHA-384 in a bundle")),
        ("Ed25519", &ed, &ours, Err("do without the log"), Err("do without the log")),
        ("Ed25519ph", &ed, &prehashed, Err("do without the log"), Err("do without the log")),
    ] {
        let key = read(pkcs8);
        let pem = key.public().to_pem();
        let keys = || vec![key.public().clone()];
        let asking = KeyAuthority::new(keys(), LogPolicy::Require(root.clone()));
        let payload = Payload::new(digest, "a/b").to_vec();
        let signature = sign(pkcs8, &payload);
        let body = hashedrekord(&payload, &signature, &pem);
        let layer = simple(&payload, &signature, &[(LOG_ENTRY, log.annotation(&body, NOON))]);
        let sealed =
            envelope(&Statement::signature(digest).to_vec(), |message| sign(pkcs8, message));
        let entry = log.entry(&dsse_entry(&sealed, &pem), NOON);
        let material = json!({"publicKey": {"hint": ""}, "tlogEntries": [entry]});
        let bundle = as_bundle(&bundle(material, ("dsseEnvelope", sealed)));
        for (content, expected) in [(layer, in_layer), (bundle, in_bundle)] {
            // Where nobody asks for the log all of them count.
            let ignoring = KeyAuthority::new(keys(), LogPolicy::Ignore);
            accepted(judge(&ignoring, &image, content.clone()));
            match (judge(&asking, &image, content), expected) {
                (Judgement::Accepted(one), Ok(())) => assert!(one.signed_at.is_some(), "{name}"),
                (Judgement::Refused(refusal), Err(part)) => {
                    assert_eq!(refusal.code, RefusalCode::Unsupported, "{name}: {refusal}");
                    assert!(refusal.message.contains(part), "{name}: {refusal}");
                }
                (judgement, expected) => panic!("{name}: {expected:?}, but {judgement:?}"),
            }
        }
    }
}

proptest::proptest! {
    #[test]
    fn damaged_evidence_counts_for_nobody_else_and_never_panics(
        at in 0_usize..4096, with in proptest::prelude::any::<u8>(), cut in 0_usize..4096,
    ) {
        let (key, image) = (key(), subject("image"));
        let digest = &image.descriptor.digest;
        let damage = |bytes: Vec<u8>| {
            let mut bytes = bytes;
            let length = bytes.len();
            bytes[at % length] = with;
            bytes.truncate(cut.max(1));
            bytes
        };
        let bundle = damage(serde_json::to_vec(&key_bundle(&key, digest)).unwrap());
        let payload = Payload::new(digest, "a/b").to_vec();
        let layer = simple(&damage(payload.clone()), &key.sign(&payload).unwrap(), &[]);
        let log = Log::new();
        let root = root(&root_json(&[&log], &[], &[]));
        let keys = vec![key.public().clone()];
        for policy in [LogPolicy::Ignore, LogPolicy::Require(root)] {
            let authority = KeyAuthority::new(keys.clone(), policy);
            for content in [Content::Bundle(bundle.clone().into()), layer.clone()] {
                for about in [&image, &subject("other")] {
                    if let Judgement::Accepted(accepted) = judge(&authority, about, content.clone()) {
                        assert_eq!(about, &image, "{accepted:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn what_a_statement_says_is_not_read_before_its_signature_counts() {
    let (key, stranger, image) = (key(), key(), subject("image"));
    // Deeper than anybody reads.
    let deep = format!("{}0{}", "[".repeat(300), "]".repeat(300));
    let said = statement(&image.descriptor.digest, "https://example/predicate");
    let payload = said.to_string().replace(r#"{"answer":42}"#, &deep).into_bytes();
    assert!(payload.len() > 600);
    let by = |key: &PrivateKey| {
        let sealed = envelope(&payload, |message| key.sign(message).unwrap());
        as_bundle(&bundle(json!({"publicKey": {"hint": ""}}), ("dsseEnvelope", sealed)))
    };
    let authority = trusting(&[&key]);
    assert_eq!(refused(judge(&authority, &image, by(&stranger))).code, RefusalCode::BadSignature);
    assert_eq!(refused(judge(&authority, &image, by(&key))).code, RefusalCode::Malformed);
}
