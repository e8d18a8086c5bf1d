//! Who is trusted, and which checks decide.

use portolan_verify::authority::RefusalCode::{Expired, OtherSigner, UntrustedCertificate};
use portolan_verify::notation::{
    Action, AuthorityError, Identities, JWS, Level, NotationAuthority, Override, PolicyParts,
    StoreError, StoreName, TrustPolicies, TrustPolicy, TrustStores, VerifyTimestamp,
};

use crate::mint::{AUTHENTIC, EXPIRY, Family, Key, SCHEME, Shape, judge, judge_as, subject};

/// A policy to be: strict, one ca store, anybody in it.
pub(crate) fn parts() -> PolicyParts {
    PolicyParts {
        name: "test".to_owned(),
        level: Level::Strict,
        overrides: Override::default(),
        verify_timestamp: VerifyTimestamp::Always,
        stores: vec!["ca:acme".parse().unwrap()],
        identities: Identities::Any,
    }
}

pub(crate) fn store(name: &str) -> StoreName {
    name.parse().unwrap()
}

pub(crate) fn stores(root: &[u8]) -> TrustStores {
    let mut stores = TrustStores::new();
    stores.add_certificates(store("ca:acme"), root).unwrap();
    stores
}

/// The policy that `change` makes of [`parts`], with `root` trusted.
pub(crate) fn authority(root: &[u8], change: impl Fn(&mut PolicyParts)) -> NotationAuthority {
    let mut parts = parts();
    change(&mut parts);
    NotationAuthority::new(TrustPolicy::new(parts).unwrap(), stores(root)).unwrap()
}

fn identity(texts: &[&str]) -> Identities {
    Identities::parse(texts).unwrap()
}

#[test]
fn only_what_leads_to_the_store_of_the_policy_is_trusted() {
    let (ours, theirs) = (Family::new(), Family::new());
    for (kind, envelope) in ours.draft().both() {
        let accepted = judge(&authority(ours.root(), |_| {}), kind, &envelope).unwrap();
        assert_eq!(accepted.signer, "CN=build,O=Acme,ST=WA,C=US");
        assert_eq!(accepted.issuer.as_deref(), Some("CN=middle,O=Acme,ST=WA,C=US"));
        assert!(accepted.warnings.is_empty() && accepted.signed_at.is_none());
        // The same names, other keys.
        let refusal = judge(&authority(theirs.root(), |_| {}), kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, UntrustedCertificate, "{refusal}");
        assert!(refusal.message.contains("is in a ca store"), "{refusal}");
        // An authority in the middle may be the one that is trusted.
        judge(&authority(&ours.chain[1], |_| {}), kind, &envelope).unwrap();
    }
}

#[test]
fn a_self_signed_signer_is_trusted_by_itself() {
    let (key, other) = (Key::p256(), Key::p256());
    let own = Shape::signer("me").issue_itself(&key);
    let copy = Shape::signer("me").issue_itself(&other);
    let draft = crate::mint::Draft::new(&key, vec![own.clone()]);
    for (kind, envelope) in draft.both() {
        judge(&authority(&own, |_| {}), kind, &envelope).unwrap();
        let refusal = judge(&authority(&copy, |_| {}), kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, UntrustedCertificate);
    }
}

#[test]
fn the_signer_must_be_one_of_the_policys_identities() {
    let family = Family::new();
    let jws = family.draft().jws();
    let verdict = |texts: &[&str]| {
        let texts = texts.to_vec();
        judge(&authority(family.root(), |parts| parts.identities = identity(&texts)), JWS, &jws)
    };
    verdict(&["x509.subject: C=US, ST=WA, O=Acme"]).unwrap();
    verdict(&["x509.subject: C=DE, ST=BE, O=Acme", "x509.subject: C=US, ST=WA, O=Acme, CN=build"])
        .unwrap();
    for other in ["x509.subject: C=US, ST=WA, O=Evil", "x509.subject: C=US, ST=WA, O=Acme, CN=root"]
    {
        let refusal = verdict(&[other]).unwrap_err();
        assert_eq!(refusal.code, OtherSigner, "{refusal}");
        assert!(refusal.message.contains("CN=build"), "{refusal}");
    }
}

#[test]
fn levels_grade_what_fails() {
    let (family, stranger) = (Family::new(), Family::new());
    let mut draft = family.draft();
    draft.times.push((EXPIRY, "2026-11-10T00:00:00Z"));
    draft.critical.push(EXPIRY);
    for (kind, envelope) in draft.both() {
        let at = |level, root: &[u8]| judge(&authority(root, |p| p.level = level), kind, &envelope);
        assert_eq!(at(Level::Strict, family.root()).unwrap_err().code, Expired);
        let told = at(Level::Permissive, family.root()).unwrap();
        assert_eq!(told.warnings.len(), 1);
        assert!(told.warnings[0].starts_with("expiry is not enforced"), "{:?}", told.warnings);
        assert!(!told.checks.contains(&"expiry") && told.checks.contains(&"authenticity"));
        assert_eq!(at(Level::Permissive, stranger.root()).unwrap_err().code, UntrustedCertificate);
        let overridden = authority(family.root(), |parts| {
            parts.overrides.expiry = Some(Action::Log);
        });
        assert_eq!(judge(&overridden, kind, &envelope).unwrap().warnings.len(), 1);
    }
}

#[test]
fn integrity_is_enforced_at_every_level() {
    let family = Family::new();
    let mut jws: serde_json::Value = serde_json::from_slice(&family.draft().jws()).unwrap();
    jws["signature"] = serde_json::json!("AAAA");
    let jws = jws.to_string();
    for level in [Level::Strict, Level::Permissive] {
        let authority = authority(family.root(), |parts| parts.level = level);
        assert!(judge(&authority, JWS, jws.as_bytes()).is_err(), "{level:?}");
    }
}

#[test]
fn a_signing_authority_has_stores_of_its_own_and_vouches_for_the_time() {
    let family = Family::new();
    let mut draft = family.draft();
    draft.texts = vec![(SCHEME, "notary.x509.signingAuthority")];
    draft.times = vec![(AUTHENTIC, "2026-06-01T00:00:00Z")];
    draft.critical.push(AUTHENTIC);
    let mut stores = stores(family.root());
    stores.add_certificates(store("signingAuthority:acme"), family.root()).unwrap();
    let with = |names: &[&str]| {
        let names = names.iter().map(|name| store(name)).collect();
        let policy = TrustPolicy::new(PolicyParts { stores: names, ..parts() }).unwrap();
        NotationAuthority::new(policy, stores.clone()).unwrap()
    };
    for (kind, envelope) in draft.both() {
        let later = "2030-01-01T00:00:00Z";
        let trusted = with(&["signingAuthority:acme"]);
        let accepted = judge_as(&trusted, &subject(), kind, &envelope, later).unwrap();
        assert_eq!(accepted.signed_at.unwrap().to_string(), "2026-06-01T00:00:00Z");
        let refusal = judge(&with(&["ca:acme"]), kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, UntrustedCertificate);
        let plain = family.draft().jws();
        let refusal = judge(&trusted, JWS, &plain).unwrap_err();
        assert_eq!(refusal.code, UntrustedCertificate);
    }
    draft.times = vec![(AUTHENTIC, "2025-06-01T00:00:00Z")];
    for (kind, envelope) in draft.both() {
        let refusal = judge(&with(&["signingAuthority:acme"]), kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, Expired, "{refusal}");
    }
}

#[test]
fn a_policy_whose_store_is_not_there_makes_no_authority() {
    let family = Family::new();
    let missing = PolicyParts { stores: vec![store("ca:acme"), store("tsa:clock")], ..parts() };
    let policy = TrustPolicy::new(missing).unwrap();
    let error = NotationAuthority::new(policy, stores(family.root())).unwrap_err();
    let AuthorityError::NoStore { store: named, .. } = &error;
    assert_eq!(named.to_string(), "tsa:clock");
}

#[test]
fn stores_take_pem_and_der_and_only_what_can_be_a_root() {
    let family = Family::new();
    let pem = |der: &[u8]| {
        let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
        format!("a comment\n-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
    };
    let both = pem(family.root()) + &pem(&family.chain[1]);
    TrustStores::new().add_certificates(store("ca:a"), both.as_bytes()).unwrap();
    let two = [family.root(), &family.chain[1]].concat();
    TrustStores::new().add_certificates(store("ca:a"), &two).unwrap();
    let add = |name: &str, bytes: &[u8]| TrustStores::new().add_certificates(store(name), bytes);
    assert!(matches!(add("ca:a", &family.chain[0]), Err(StoreError::NoRoot(_))));
    assert!(matches!(add("tsa:a", &family.chain[1]), Err(StoreError::NoTsaRoot(_))));
    add("tsa:a", family.root()).unwrap();
    assert!(matches!(add("ca:a", b""), Err(StoreError::Empty)));
    assert!(matches!(add("ca:a", b"hello"), Err(StoreError::Neither(_))));
    assert!(matches!(add("ca:a", b"-----BEGIN CERTIFICATE-----\n"), Err(StoreError::Pem(_))));
    assert!(matches!(add("ca:a", &[0x30, 0x00]), Err(StoreError::Certificate { at: 1, .. })));
}

#[test]
fn a_document_of_the_notary_project_judges() {
    let family = Family::new();
    let document = br#"{"version": "1.0", "trustPolicies": [{
        "name": "acme", "registryScopes": ["registry.example/team/app"],
        "signatureVerification": {"level": "strict"},
        "trustStores": ["ca:acme"],
        "trustedIdentities": ["x509.subject: C=US, ST=WA, O=Acme"]}]}"#;
    let policies = TrustPolicies::parse(document).unwrap();
    let policy = policies.for_repository("registry.example/team/app").unwrap();
    let authority = NotationAuthority::new(policy.clone(), stores(family.root())).unwrap();
    for (kind, envelope) in family.draft().both() {
        judge(&authority, kind, &envelope).unwrap();
    }
}
