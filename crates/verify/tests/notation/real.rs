//! Envelopes recorded from the notation command line and a clock of OpenSSL
//! (`fixtures/notation/README.md`).

use std::path::{Path, PathBuf};

use portolan_core::Descriptor;
use portolan_verify::authority::RefusalCode::{
    Expired, NotTimestamped, OtherSubject, UntrustedCertificate,
};
use portolan_verify::authority::{Accepted, Refusal};
use portolan_verify::notation::{
    COSE, Identities, JWS, NotationAuthority, PolicyParts, TrustPolicy, TrustStores,
};
use portolan_verify::subject::{Kind, Subject};

use crate::mint::judge_as;
use crate::policies::{parts, store};

/// Within the validity of everything recorded.
const THEN: &str = "2026-11-17T13:00:00Z";
const LATER: &str = "2040-01-01T00:00:00Z";

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/notation").join(name)
}

fn read(name: &str) -> Vec<u8> {
    let path = file(name);
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn recorded() -> Subject {
    let descriptor: Descriptor = serde_json::from_slice(&read("subject.json")).unwrap();
    Subject { descriptor, kind: Kind::Manifest, platform: None }
}

fn authority(root: &str, change: impl Fn(&mut PolicyParts)) -> NotationAuthority {
    let mut stores = TrustStores::new();
    stores.add_certificates(store("ca:acme"), &read(root)).unwrap();
    stores.add_certificates(store("tsa:clock"), &read("tsa-root.crt")).unwrap();
    let mut parts = parts();
    change(&mut parts);
    NotationAuthority::new(TrustPolicy::new(parts).unwrap(), stores).unwrap()
}

fn both(authority: &NotationAuthority, name: &str, now: &str) -> [Result<Accepted, Refusal>; 2] {
    [(JWS, "jws"), (COSE, "cose")].map(|(kind, ending)| {
        let envelope = read(&format!("{name}.{ending}"));
        judge_as(authority, &recorded(), kind, &envelope, now)
    })
}

#[test]
fn what_notation_signs_is_accepted_with_every_kind_of_key_and_in_both_forms() {
    let authority = authority("root.crt", |parts| {
        let wanted = ["x509.subject: C=US, ST=WA, O=Portolan Fixtures"];
        parts.identities = Identities::parse(&wanted).unwrap();
    });
    for key in ["rsa2048", "rsa3072", "rsa4096", "P-256", "P-384", "P-521"] {
        for accepted in both(&authority, key, THEN) {
            let accepted = accepted.unwrap();
            assert_eq!(accepted.signer, format!("CN={key},O=Portolan Fixtures,ST=WA,C=US"));
            assert!(accepted.warnings.is_empty());
        }
        // They were signed for 48 hours.
        for refused in both(&authority, key, "2026-11-20T00:00:00Z") {
            assert_eq!(refused.unwrap_err().code, Expired);
        }
    }
}

#[test]
fn what_notations_test_certificate_signs_is_accepted() {
    let own = authority("self-signed.crt", |_| {});
    let other = authority("root.crt", |_| {});
    for accepted in both(&own, "self-signed", THEN) {
        assert_eq!(
            accepted.unwrap().signer,
            "CN=self-signed.example,O=Notary,L=Seattle,ST=WA,C=US"
        );
    }
    for refused in both(&other, "self-signed", THEN) {
        assert_eq!(refused.unwrap_err().code, UntrustedCertificate);
    }
}

#[test]
fn what_notation_had_timestamped_is_accepted_after_all_certificates_ended() {
    let authority = authority("root.crt", |parts| parts.stores.push(store("tsa:clock")));
    for accepted in both(&authority, "timestamped", LATER) {
        let signed_at = accepted.unwrap().signed_at.unwrap().to_string();
        assert!(signed_at.starts_with("2026-11-17T12:3"), "{signed_at}");
    }
    for refused in both(&authority, "P-256", THEN) {
        assert_eq!(refused.unwrap_err().code, NotTimestamped);
    }
}

#[test]
fn what_notation_signed_speaks_of_nothing_else() {
    let authority = authority("root.crt", |_| {});
    let mut other = recorded();
    other.descriptor.size += 1;
    for (kind, name) in [(JWS, "P-384.jws"), (COSE, "P-384.cose")] {
        let refusal = judge_as(&authority, &other, kind, &read(name), THEN).unwrap_err();
        assert_eq!(refusal.code, OtherSubject);
    }
}
