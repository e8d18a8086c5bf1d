//! The Notary Project's rules for chains, each broken once.

use const_oid::db::{rfc5280, rfc5912};
use der::{Decode as _, Encode as _};
use portolan_verify::authority::RefusalCode::{
    self, Expired, Malformed, Unsupported, UntrustedCertificate,
};
use portolan_verify::notation::JWS;
use x509_cert::ext::pkix::KeyUsages;
use x509_cert::spki::AlgorithmIdentifierOwned;

use crate::mint::{
    Draft, Family, Key, NOW, Shape, Shapes, constraints, extended, extension, judge, judge_as,
    key_usage, subject,
};
use crate::policies::authority;

/// Something wrong with a chain.
type Change = fn(&mut Shapes);

/// What comes of a chain in which `change` broke something.
fn refused(change: Change) -> (RefusalCode, String) {
    let family = Family::changed(change);
    let authority = authority(family.root(), |_| {});
    let [(jws, one), (cose, two)] = family.draft().both();
    let refusal = judge(&authority, jws, &one).unwrap_err();
    assert_eq!(judge(&authority, cose, &two).unwrap_err(), refusal);
    (refusal.code, refusal.message)
}

/// RFC 9336: signing documents.
const DOCUMENTS: const_oid::ObjectIdentifier =
    const_oid::ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.36");

fn leaf(shapes: &mut Shapes, change: impl Fn(Shape) -> Shape) {
    shapes.leaf = change(shapes.leaf.clone());
}

fn middle(shapes: &mut Shapes, change: impl Fn(Shape) -> Shape) {
    shapes.middle = change(shapes.middle.clone());
}

#[test]
fn a_signers_certificate_is_for_signing_code_and_nothing_else() {
    let cases: &[(Change, &str)] = &[
        (|s| leaf(s, |l| l.with(constraints(true, true, None))), "is an authority's"),
        (|s| leaf(s, |l| l.without(rfc5280::ID_CE_KEY_USAGE)), "no critical key usage"),
        (
            |s| leaf(s, |l| l.with(key_usage(false, KeyUsages::DigitalSignature))),
            "no critical key usage",
        ),
        (|s| leaf(s, |l| l.with(key_usage(true, KeyUsages::NonRepudiation))), "digital signatures"),
        (
            |s| {
                let usages = KeyUsages::DigitalSignature | KeyUsages::KeyCertSign;
                leaf(s, |l| l.with(key_usage(true, usages)));
            },
            "beside digital signatures",
        ),
        (
            |s| {
                let usages = KeyUsages::DigitalSignature | KeyUsages::KeyEncipherment;
                leaf(s, |l| l.with(key_usage(true, usages)));
            },
            "beside digital signatures",
        ),
        (
            |s| leaf(s, |l| l.with(extended(false, &[rfc5280::ID_KP_SERVER_AUTH]))),
            "something else than signing code",
        ),
        (
            |s| {
                let usages = [rfc5280::ID_KP_CODE_SIGNING, rfc5280::ID_KP_TIME_STAMPING];
                leaf(s, |l| l.with(extended(true, &usages)));
            },
            "something else than signing code",
        ),
        (
            |s| leaf(s, |l| l.with(extended(false, &[rfc5280::ANY_EXTENDED_KEY_USAGE]))),
            "something else than signing code",
        ),
        (|s| leaf(s, |l| l.with(extended(false, &[DOCUMENTS]))), "is not for signing code"),
    ];
    for (change, why) in cases {
        let (code, message) = refused(*change);
        assert_eq!(code, UntrustedCertificate, "{message}");
        assert!(message.contains(why), "{why}: {message}");
    }
    let free = Family::changed(|s| leaf(s, |l| l.without(rfc5280::ID_CE_EXT_KEY_USAGE)));
    judge(&authority(free.root(), |_| {}), JWS, &free.draft().jws()).unwrap();
}

#[test]
fn authorities_are_marked_as_such_and_keep_their_path_length() {
    let cases: &[(Change, &str)] = &[
        (|s| middle(s, |m| m.with(constraints(true, false, None))), "not marked"),
        (|s| middle(s, |m| m.with(constraints(false, true, None))), "not marked"),
        (|s| middle(s, |m| m.without(rfc5280::ID_CE_BASIC_CONSTRAINTS)), "not marked"),
        (|s| middle(s, |m| m.without(rfc5280::ID_CE_KEY_USAGE)), "no critical key usage"),
        (|s| middle(s, |m| m.with(key_usage(true, KeyUsages::CRLSign))), "signing certificates"),
        (
            |s| s.root = s.root.clone().with(constraints(true, true, Some(0))),
            "allows 0 authorities below it; there are 1",
        ),
    ];
    for (change, why) in cases {
        let (code, message) = refused(*change);
        assert_eq!(code, UntrustedCertificate, "{message}");
        assert!(message.contains(why), "{why}: {message}");
    }
    let tight = Family::changed(|s| {
        s.root = s.root.clone().with(constraints(true, true, Some(1)));
        middle(s, |m| m.with(constraints(true, true, Some(0))));
    });
    judge(&authority(tight.root(), |_| {}), JWS, &tight.draft().jws()).unwrap();
}

#[test]
fn an_unknown_critical_extension_makes_a_chain_unusable() {
    let oid = const_oid::ObjectIdentifier::new_unwrap("1.3.6.1.4.1.99999.1");
    let unknown = |critical| extension(oid, critical, &der::asn1::Null);
    let family = Family::changed(|s| leaf(s, |l| l.with(unknown(false))));
    let jws = family.draft().jws();
    judge(&authority(family.root(), |_| {}), JWS, &jws).unwrap();
    for family in [
        Family::changed(|s| leaf(s, |l| l.with(unknown(true)))),
        Family::changed(|s| middle(s, |m| m.with(unknown(true)))),
    ] {
        for (kind, envelope) in family.draft().both() {
            let refusal = judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap_err();
            assert_eq!(refusal.code, Unsupported, "{refusal}");
            assert!(refusal.message.contains("1.3.6.1.4.1.99999.1"), "{refusal}");
        }
    }
}

#[test]
fn a_chain_is_complete_and_in_order() {
    let family = Family::new();
    let [leaf, middle, root] = [0, 1, 2].map(|at| family.chain[at].clone());
    let stranger = Family::new();
    let authority = authority(family.root(), |_| {});
    let chains = [
        (vec![], Malformed),
        (vec![leaf.clone()], UntrustedCertificate),
        (vec![leaf.clone(), middle.clone()], UntrustedCertificate),
        (vec![leaf.clone(), root.clone()], UntrustedCertificate),
        (vec![leaf.clone(), root.clone(), middle.clone()], UntrustedCertificate),
        (vec![middle.clone(), leaf.clone(), root.clone()], UntrustedCertificate),
        (vec![leaf.clone(), middle.clone(), root.clone(), root.clone()], UntrustedCertificate),
        (vec![leaf.clone(), middle.clone(), stranger.chain[2].clone()], UntrustedCertificate),
        (vec![leaf.clone(), stranger.chain[1].clone(), root.clone()], UntrustedCertificate),
        (vec![leaf.clone(); 11], Malformed),
        (vec![vec![0x30, 0x00], middle.clone(), root.clone()], Malformed),
        (vec![[leaf.clone(), vec![0]].concat(), middle.clone(), root.clone()], Malformed),
        (vec![vec![0x30; 40_000], middle, root], Malformed),
    ];
    for (chain, code) in chains {
        let count = chain.len();
        let draft = Draft { chain, ..family.draft() };
        for (kind, envelope) in draft.both() {
            let refusal = judge(&authority, kind, &envelope).unwrap_err();
            assert_eq!(refusal.code, code, "{count}: {refusal}");
        }
    }
}

#[test]
fn the_name_of_an_issuer_counts_and_not_its_key_alone() {
    let family = Family::new();
    let other = "CN=other,O=Acme,ST=WA,C=US";
    let leaf = Shape::signer("build").issue(&family.leaf_key, other, &family.middle_key);
    let mut chain = family.chain.clone();
    chain[0] = leaf;
    let draft = Draft { chain, ..family.draft() };
    for (kind, envelope) in draft.both() {
        let refusal = judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, UntrustedCertificate);
        assert!(refusal.message.contains("is not issued by CN=middle"), "{refusal}");
    }
}

#[test]
fn sha_1_is_taken_nowhere_in_a_chain() {
    let family = Family::new();
    let weaken = |der: &[u8]| {
        let mut certificate = x509_cert::Certificate::from_der(der).unwrap();
        let oid = const_oid::ObjectIdentifier::new_unwrap("1.2.840.10045.4.1");
        let sha1 = AlgorithmIdentifierOwned { oid, parameters: None };
        certificate.tbs_certificate.signature = sha1.clone();
        certificate.signature_algorithm = sha1;
        certificate.to_der().unwrap()
    };
    for at in 0..3 {
        let mut chain = family.chain.clone();
        chain[at] = weaken(&chain[at]);
        let trusted = if at == 2 { &family.chain[1] } else { &family.chain[2] };
        let draft = Draft { chain, ..family.draft() };
        for (kind, envelope) in draft.both() {
            let refusal = judge(&authority(trusted, |_| {}), kind, &envelope).unwrap_err();
            assert_eq!(refusal.code, Unsupported, "{at}: {refusal}");
        }
    }
}

#[test]
fn the_two_algorithms_of_a_certificate_are_one() {
    let family = Family::new();
    let mut leaf = x509_cert::Certificate::from_der(&family.chain[0]).unwrap();
    leaf.signature_algorithm =
        AlgorithmIdentifierOwned { oid: rfc5912::ECDSA_WITH_SHA_256, parameters: None };
    let mut chain = family.chain.clone();
    chain[0] = leaf.to_der().unwrap();
    let draft = Draft { chain, ..family.draft() };
    let authority = authority(family.root(), |_| {});
    for (kind, envelope) in draft.both() {
        let refusal = judge(&authority, kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, Malformed);
        assert!(refusal.message.contains("two signature algorithms"), "{refusal}");
    }
}

#[test]
fn a_signer_with_a_key_that_is_not_the_projects_is_refused() {
    // A key that fits no rule: the leaf's is on P-256, but it says RSA of 1024 bits.
    let family = Family::new();
    let mut leaf = x509_cert::Certificate::from_der(&family.chain[0]).unwrap();
    let rsa = Key::rsa2048().public();
    let half = rsa.subject_public_key.raw_bytes().to_vec();
    leaf.tbs_certificate.subject_public_key_info = rsa;
    let short = der::asn1::BitString::from_bytes(&half[..half.len() / 2]).unwrap();
    leaf.tbs_certificate.subject_public_key_info.subject_public_key = short;
    let mut chain = family.chain.clone();
    chain[0] = leaf.to_der().unwrap();
    let draft = Draft { chain, ..family.draft() };
    for (kind, envelope) in draft.both() {
        let refusal = judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap_err();
        assert_eq!(refusal.code, Unsupported, "{refusal}");
    }
}

#[test]
fn without_a_timestamp_every_certificate_is_valid_now() {
    let (ended, later) = ("2026-11-17T11:59:59Z", "2026-11-17T12:00:01Z");
    let (early, end) = ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");
    for family in [
        Family::changed(|s| leaf(s, |l| l.valid(early, ended))),
        Family::changed(|s| leaf(s, |l| l.valid(later, end))),
        Family::changed(|s| middle(s, |m| m.valid(early, ended))),
        Family::changed(|s| s.root = s.root.clone().valid(early, ended)),
    ] {
        for (kind, envelope) in family.draft().both() {
            let refusal = judge(&authority(family.root(), |_| {}), kind, &envelope).unwrap_err();
            assert_eq!(refusal.code, Expired, "{refusal}");
        }
    }
    // Both ends count.
    let exact = Family::changed(|s| leaf(s, |l| l.valid(NOW, NOW)));
    for (kind, envelope) in exact.draft().both() {
        judge(&authority(exact.root(), |_| {}), kind, &envelope).unwrap();
        let after = "2026-11-17T12:00:00.000000001Z";
        let authority = authority(exact.root(), |_| {});
        assert!(judge_as(&authority, &subject(), kind, &envelope, after).is_err());
    }
}
