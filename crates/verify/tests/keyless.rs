//! Identities that vouch for images, and everything that must not pass for them doing so.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

mod support;

use portolan_core::Digest;
use portolan_verify::authority::{Claim, Judgement, RefusalCode};
use portolan_verify::cosign::{CERTIFICATE, LOG_ENTRY, Payload};
use portolan_verify::evidence::Content;
use portolan_verify::sigstore::{
    KeyAuthority, KeylessAuthority, KeylessOptions, LogPolicy, Match, TrustedRoot, TrustedRootError,
};
use portolan_verify::subject::Subject;
use serde_json::{Value, json};
use support::fulcio::{Fulcio, Identity, layer, sealed};
use support::{
    Log, NOON, accepted, as_bundle, b64, dsse_entry, envelope, judge, key_bundle, refused, root,
    root_json, signed, simple, statement, subject,
};

const ALICE: &str = "alice@example.com";
const ISSUER: &str = "https://accounts.example.com";

/// A Sigstore of one's own.
struct World {
    fulcio: Fulcio,
    log: Log,
    ct_log: Log,
}

impl World {
    fn new() -> Self {
        Self { fulcio: Fulcio::new(), log: Log::new(), ct_log: Log::new() }
    }

    fn root(&self) -> TrustedRoot {
        root(&root_json(&[&self.log], &[self.fulcio.in_root()], &[&self.ct_log]))
    }

    fn trusting(&self, identity: Match, issuer: Match) -> KeylessAuthority {
        KeylessAuthority::new(identity, issuer, self.root(), KeylessOptions::default()).unwrap()
    }

    fn alice(&self) -> KeylessAuthority {
        self.trusting(exact(ALICE), exact(ISSUER))
    }

    fn certify(&self, name: &str) -> Identity {
        self.fulcio.certify(name, ISSUER, Some(&self.ct_log))
    }
}

fn exact(text: &str) -> Match {
    Match::Exact(text.to_owned())
}

fn expression(text: &str) -> Match {
    Match::Regex(regex::Regex::new(text).unwrap())
}

fn both(who: &Identity, image: &Subject, log: &Log, time: i64) -> [Content; 2] {
    let digest = &image.descriptor.digest;
    [layer(who, digest, log, time), as_bundle(&sealed(who, digest, log, time))]
}

#[test]
fn an_identity_vouches_in_both_forms_long_after_its_certificate_is_over() {
    let (world, image) = (World::new(), subject("image"));
    for content in both(&world.certify(ALICE), &image, &world.log, NOON) {
        let accepted = accepted(judge(&world.alice(), &image, content));
        assert_eq!((accepted.signer.as_str(), accepted.issuer.as_deref()), (ALICE, Some(ISSUER)));
        assert_eq!(accepted.signed_at.map(|time| time.as_second()), Some(NOON));
        assert_eq!(accepted.claim, Claim::Signature);
        assert_eq!(accepted.checks.len(), 6, "{:?}", accepted.checks);
    }
}

#[test]
fn another_identity_or_issuer_is_another_signer() {
    let (world, image) = (World::new(), subject("image"));
    let mallory = world.certify("mallory@example.com");
    let elsewhere = world.fulcio.certify(ALICE, "https://evil.example", Some(&world.ct_log));
    for (who, named) in [(&mallory, "mallory@example.com"), (&elsewhere, "https://evil.example")] {
        for content in both(who, &image, &world.log, NOON) {
            let refusal = refused(judge(&world.alice(), &image, content));
            assert_eq!(refusal.code, RefusalCode::OtherSigner, "{refusal}");
            assert!(refusal.message.contains(named), "{refusal}");
        }
    }
}

#[test]
fn an_expression_must_match_the_whole_name() {
    let (world, image) = (World::new(), subject("image"));
    let digest = &image.descriptor.digest;
    for (pattern, name, fits) in [
        (".*@example[.]com", ALICE, true),
        ("alice|bob@example[.]com", ALICE, false),
        ("alice", ALICE, false),
        (".*@example[.]com", "alice@example.com.evil.example", false),
        ("(?m)^alice@example[.]com$", ALICE, true),
        ("a|alice@example[.]com", ALICE, true),
    ] {
        let authority = world.trusting(expression(pattern), expression("https://.*"));
        let content = layer(&world.certify(name), digest, &world.log, NOON);
        match fits {
            true => drop(accepted(judge(&authority, &image, content))),
            false => {
                let refusal = refused(judge(&authority, &image, content));
                assert_eq!(refusal.code, RefusalCode::OtherSigner, "{pattern} {name}");
            }
        }
    }
    let comment = expression("(?x) alice # who");
    let root = world.root();
    let error = KeylessAuthority::new(comment, exact(ISSUER), root, KeylessOptions::default());
    assert!(error.unwrap_err().to_string().contains("(?x)"));
}

#[test]
fn a_signature_of_another_image_does_not_count() {
    let (world, image, other) = (World::new(), subject("image"), subject("other"));
    for content in both(&world.certify(ALICE), &other, &world.log, NOON) {
        let refusal = refused(judge(&world.alice(), &image, content));
        assert_eq!(refusal.code, RefusalCode::OtherSubject, "{refusal}");
    }
}

#[test]
fn what_was_signed_when_the_certificate_was_over_does_not_count() {
    let (world, image) = (World::new(), subject("image"));
    for time in [NOON - 86_400, NOON + 86_400] {
        for content in both(&world.certify(ALICE), &image, &world.log, time) {
            let refusal = refused(judge(&world.alice(), &image, content));
            assert_eq!(refusal.code, RefusalCode::Expired, "{refusal}");
        }
    }
}

#[test]
fn a_certificate_of_a_stranger_or_shown_to_nobody_is_not_trusted() {
    let (world, image) = (World::new(), subject("image"));
    let stranger = Fulcio::new().certify(ALICE, ISSUER, Some(&world.ct_log));
    let unseen = world.fulcio.certify(ALICE, ISSUER, None);
    let elsewhere = world.fulcio.certify(ALICE, ISSUER, Some(&Log::new()));
    for who in [&stranger, &unseen, &elsewhere] {
        for content in both(who, &image, &world.log, NOON) {
            let refusal = refused(judge(&world.alice(), &image, content));
            assert_eq!(refusal.code, RefusalCode::UntrustedCertificate, "{refusal}");
        }
    }
    // Whoever runs no log of certificates can say so.
    let options = KeylessOptions { require_sct: false, ..KeylessOptions::default() };
    let lenient =
        KeylessAuthority::new(exact(ALICE), exact(ISSUER), world.root(), options).unwrap();
    for content in both(&unseen, &image, &world.log, NOON) {
        accepted(judge(&lenient, &image, content));
    }
    for content in both(&stranger, &image, &world.log, NOON) {
        let refusal = refused(judge(&lenient, &image, content));
        assert_eq!(refusal.code, RefusalCode::UntrustedCertificate, "{refusal}");
    }
}

#[test]
fn the_log_must_hold_this_very_signature() {
    let (world, image) = (World::new(), subject("image"));
    let digest = &image.descriptor.digest;
    let alice = world.certify(ALICE);
    let plain = {
        let mut value = sealed(&alice, digest, &world.log, NOON);
        value["verificationMaterial"]["tlogEntries"] = json!([]);
        as_bundle(&value)
    };
    let borrowed = {
        let mut value = sealed(&alice, digest, &world.log, NOON);
        let other = sealed(&alice, &Digest::sha256(b"other"), &world.log, NOON);
        value["verificationMaterial"]["tlogEntries"] =
            other["verificationMaterial"]["tlogEntries"].clone();
        as_bundle(&value)
    };
    for (name, content) in [("none", plain), ("borrowed", borrowed)] {
        let refusal = refused(judge(&world.alice(), &image, content));
        assert_eq!(refusal.code, RefusalCode::NotLogged, "{name}: {refusal}");
    }
    for content in both(&alice, &image, &Log::new(), NOON) {
        let refusal = refused(judge(&world.alice(), &image, content));
        let codes = [RefusalCode::NotLogged, RefusalCode::NotTimestamped];
        assert!(codes.contains(&refusal.code), "{:?} {refusal}", refusal.code);
    }
    // Without the log something else must prove the time, and here nothing does.
    let options = KeylessOptions { require_log: false, ..KeylessOptions::default() };
    let lenient =
        KeylessAuthority::new(exact(ALICE), exact(ISSUER), world.root(), options).unwrap();
    let payload = Payload::new(digest, "a/b").to_vec();
    let signature = alice.key.sign(&payload).unwrap();
    let bare = simple(&payload, &signature, &[(CERTIFICATE, alice.pem())]);
    assert_eq!(refused(judge(&lenient, &image, bare)).code, RefusalCode::NotTimestamped);
}

#[test]
fn a_key_of_somebody_else_beside_a_good_certificate_does_not_fit() {
    let (world, image) = (World::new(), subject("image"));
    let digest = &image.descriptor.digest;
    let (alice, mallory) = (world.certify(ALICE), world.certify("mallory@example.com"));
    let mut forged = sealed(&mallory, digest, &world.log, NOON);
    forged["verificationMaterial"]["certificate"] = json!({"rawBytes": b64(&alice.certificate)});
    let refusal = refused(judge(&world.alice(), &image, as_bundle(&forged)));
    let codes = [RefusalCode::BadSignature, RefusalCode::NotLogged];
    assert!(codes.contains(&refusal.code), "{:?} {refusal}", refusal.code);
}

#[test]
fn keys_and_identities_do_not_stand_in_for_each_other() {
    let (world, image) = (World::new(), subject("image"));
    let digest = &image.descriptor.digest;
    let alice = world.certify(ALICE);
    for content in [signed(&alice.key, digest), as_bundle(&key_bundle(&alice.key, digest))] {
        let refusal = refused(judge(&world.alice(), &image, content));
        assert_eq!(refusal.code, RefusalCode::OtherSigner, "{refusal}");
    }
    let stranger = portolan_verify::key::PrivateKey::generate().unwrap();
    let keys = KeyAuthority::new(vec![stranger.public().clone()], LogPolicy::Ignore);
    for content in both(&alice, &image, &world.log, NOON) {
        let refusal = refused(judge(&keys, &image, content));
        assert_eq!(refusal.code, RefusalCode::OtherSigner, "{refusal}");
    }
}

#[test]
fn an_attestation_of_cosign_2_is_held_to_certificate_and_log() {
    let (world, image) = (World::new(), subject("image"));
    let alice = world.certify(ALICE);
    let said = |content: &str, log: &Log, time: i64| {
        let said = statement(&subject(content).descriptor.digest, "https://slsa.dev/provenance/v1");
        let payload = serde_json::to_vec(&said).unwrap();
        let sealed = envelope(&payload, |message| alice.key.sign(message).unwrap());
        let entry = log.annotation(&dsse_entry(&sealed, &alice.pem()), time);
        let annotations = [(CERTIFICATE, alice.pem()), (LOG_ENTRY, entry)];
        let annotations = annotations.map(|(name, value)| (name.to_owned(), value));
        let envelope = serde_json::to_vec(&sealed).unwrap().into();
        Content::Attestation { envelope, annotations: annotations.into() }
    };
    let good = accepted(judge(&world.alice(), &image, said("image", &world.log, NOON)));
    assert!(matches!(good.claim, Claim::Statement { .. }), "{:?}", good.claim);
    for (content, log, time, code) in [
        ("other", &world.log, NOON, RefusalCode::OtherSubject),
        ("image", &world.log, NOON + 86_400, RefusalCode::Expired),
        ("image", &Log::new(), NOON, RefusalCode::NotLogged),
    ] {
        let refusal = refused(judge(&world.alice(), &image, said(content, log, time)));
        assert_eq!(refusal.code, code, "{refusal}");
    }
}

fn recorded(name: &str) -> Vec<u8> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/sigstore");
    std::fs::read(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// What Sigstore's own instances certified and logged (`fixtures/sigstore/README.md`).
#[test]
fn what_the_instances_of_sigstore_recorded_is_accepted() {
    let package = "sha256:54303491a8418fbed24344b513546182c29b43bf282ceb433af65e2299f9271f";
    let blob = Digest::sha256(&recorded("blob.txt")).to_string();
    let action = "https://github.com/prefix-dev/sigstore-example/.github/workflows/action.yaml@refs/heads/main";
    let actions = "https://token.actions.githubusercontent.com";
    for (bundle, instance, digest, identity, issuer) in [
        ("conda.json", "public-good.json", package, action, actions),
        (
            "blob.json",
            "public-good.json",
            &blob,
            "w.vollprecht@gmail.com",
            "https://github.com/login/oauth",
        ),
        (
            "conda-rekor2.json",
            "staging.json",
            package,
            "jku@goto.fi",
            "https://github.com/login/oauth",
        ),
    ] {
        let trusted = TrustedRoot::from_json(&recorded(instance)).unwrap();
        let trusting = |identity: &str, issuer: &str| {
            let options = KeylessOptions::default();
            KeylessAuthority::new(exact(identity), exact(issuer), trusted.clone(), options).unwrap()
        };
        let mut image = subject("image");
        image.descriptor.digest = digest.parse().unwrap();
        let content = || Content::Bundle(recorded(bundle).into());
        let good = match judge(&trusting(identity, issuer), &image, content()) {
            Judgement::Accepted(good) => good,
            Judgement::Refused(refusal) => panic!("{bundle}: {refusal}"),
        };
        assert_eq!(good.signer, identity, "{bundle}");
        assert!(good.signed_at.is_some(), "{bundle}");
        // It speaks of nothing else, and for nobody else.
        let refusal = refused(judge(&trusting(identity, issuer), &subject("image"), content()));
        assert_eq!(refusal.code, RefusalCode::OtherSubject, "{bundle}: {refusal}");
        let refusal = refused(judge(&trusting("x@example.com", issuer), &image, content()));
        assert_eq!(refusal.code, RefusalCode::OtherSigner, "{bundle}: {refusal}");
        let own = World::new().trusting(exact(identity), exact(issuer));
        refused(judge(&own, &image, content()));
    }
}

#[test]
fn a_root_with_a_mistake_is_found_when_it_is_read() {
    let world = World::new();
    let good = root_json(&[&world.log], &[world.fulcio.in_root()], &[&world.ct_log]);
    let with = |pointer: &str, value: Value| {
        let mut root = good.clone();
        *root.pointer_mut(pointer).unwrap() = value;
        TrustedRoot::from_json(&serde_json::to_vec(&root).unwrap()).unwrap_err()
    };
    let key = with("/tlogs/0/publicKey/rawBytes", json!(b64(b"no key")));
    assert!(matches!(key, TrustedRootError::Material { .. }), "{key}");
    let path = "/certificateAuthorities/0/certChain/certificates/0/rawBytes";
    let certificate = with(path, json!(b64(b"no certificate")));
    assert!(matches!(certificate, TrustedRootError::Material { .. }), "{certificate}");
    let huge = TrustedRoot::from_json(&vec![b' '; 5 * 1024 * 1024]).unwrap_err();
    assert!(matches!(huge, TrustedRootError::TooLarge { .. }), "{huge}");
    let text = TrustedRoot::from_json(b"hello").unwrap_err();
    assert!(matches!(text, TrustedRootError::Json { .. }), "{text}");
}
