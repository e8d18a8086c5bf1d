//! Countersignatures: when they are needed, and what makes them count.

use const_oid::db::{rfc5280, rfc5912};
use portolan_verify::authority::RefusalCode::{
    self, Expired, NotTimestamped, UntrustedCertificate,
};
use portolan_verify::notation::{
    Action, COSE, JWS, Level, NotationAuthority, PolicyParts, TrustPolicy, TrustStores,
    VerifyTimestamp,
};
use x509_cert::ext::pkix::KeyUsages;
use x509_tsp::Accuracy;

use crate::mint::{Draft, Family, Key, NOW, Shape, extended, judge_as, key_usage, subject};
use crate::policies::{parts, store, stores};
use crate::token::Token;

/// After the end of every certificate.
const LATER: &str = "2030-01-01T00:00:00Z";

/// A timestamping authority.
struct Clock {
    key: Key,
    root: Vec<u8>,
    chain: Vec<Vec<u8>>,
}

impl Clock {
    fn of(shape: &Shape) -> Self {
        let (root_key, key) = (Key::p384(), Key::p256());
        let top = Shape::authority("clock root");
        let leaf = shape.issue(&key, &top.subject, &root_key);
        let root = top.issue_itself(&root_key);
        Self { key, chain: vec![leaf, root.clone()], root }
    }

    fn new() -> Self {
        Self::of(&Shape::clock("clock"))
    }

    fn token(&self) -> Token<'_> {
        Token::new(&self.key, self.chain.clone())
    }

    fn stores(&self, family: &Family) -> TrustStores {
        let mut stores = stores(family.root());
        stores.add_certificates(store("tsa:clock"), &self.root).unwrap();
        stores
    }

    fn authority(&self, family: &Family, change: impl Fn(&mut PolicyParts)) -> NotationAuthority {
        let mut parts =
            PolicyParts { stores: vec![store("ca:acme"), store("tsa:clock")], ..parts() };
        change(&mut parts);
        NotationAuthority::new(TrustPolicy::new(parts).unwrap(), self.stores(family)).unwrap()
    }
}

fn stamped<'a>(family: &'a Family, token: &Token<'a>) -> Draft<'a> {
    let token = token.clone();
    Draft { stamp: Some(Box::new(move |signature| token.over(signature))), ..family.draft() }
}

#[test]
fn an_expired_signer_counts_when_a_trusted_clock_saw_it_in_time() {
    let (family, clock) = (Family::new(), Clock::new());
    for when in [VerifyTimestamp::Always, VerifyTimestamp::AfterCertExpiry] {
        let authority = clock.authority(&family, |parts| parts.verify_timestamp = when);
        for (kind, envelope) in stamped(&family, &clock.token()).both() {
            let accepted = judge_as(&authority, &subject(), kind, &envelope, LATER).unwrap();
            assert_eq!(accepted.signed_at.unwrap().to_string(), "2026-11-01T08:00:00Z");
        }
        for (kind, envelope) in family.draft().both() {
            let refusal = judge_as(&authority, &subject(), kind, &envelope, LATER).unwrap_err();
            assert_eq!(refusal.code, NotTimestamped, "{refusal}");
        }
    }
    // Without a store of clocks nobody looks at it.
    let blind = clock.authority(&family, |parts| parts.stores = vec![store("ca:acme")]);
    for (kind, envelope) in stamped(&family, &clock.token()).both() {
        let refusal = judge_as(&blind, &subject(), kind, &envelope, LATER).unwrap_err();
        assert_eq!(refusal.code, Expired);
    }
}

#[test]
fn a_timestamp_is_wanted_always_or_only_after_the_end() {
    let (family, clock) = (Family::new(), Clock::new());
    let after = VerifyTimestamp::AfterCertExpiry;
    for (kind, envelope) in family.draft().both() {
        let always = clock.authority(&family, |_| {});
        let refusal = judge_as(&always, &subject(), kind, &envelope, NOW).unwrap_err();
        assert_eq!(refusal.code, NotTimestamped);
        let later = clock.authority(&family, |parts| parts.verify_timestamp = after);
        let accepted = judge_as(&later, &subject(), kind, &envelope, NOW).unwrap();
        assert_eq!(accepted.signed_at, None);
        let before = "2025-01-01T00:00:00Z";
        let refusal = judge_as(&later, &subject(), kind, &envelope, before).unwrap_err();
        assert_eq!(refusal.code, Expired);
        let logged = clock.authority(&family, |parts| parts.level = Level::Permissive);
        let accepted = judge_as(&logged, &subject(), kind, &envelope, NOW).unwrap();
        assert!(accepted.warnings[0].starts_with("authenticTimestamp is not"), "{accepted:?}");
    }
}

/// Something wrong with a token.
type Change = fn(&mut Token<'_>);

/// What comes of a token in which `change` broke something.
fn refused(change: Change) -> (RefusalCode, String) {
    let (family, clock) = (Family::new(), Clock::new());
    let mut token = clock.token();
    change(&mut token);
    let jws = stamped(&family, &token).jws();
    let authority = clock.authority(&family, |_| {});
    let refusal = judge_as(&authority, &subject(), JWS, &jws, NOW).unwrap_err();
    (refusal.code, refusal.message)
}

#[test]
fn a_token_binds_signature_content_and_certificate() {
    let cases: &[(Change, &str)] = &[
        (|t| t.imprint = |_| vec![0; 32], "over another signature"),
        (|t| t.imprint_hash = rfc5912::ID_SHA_1, "not made with SHA-2"),
        (|t| t.imprint_hash = rfc5912::ID_SHA_512, "over another signature"),
        (|t| t.content_type = const_oid::db::rfc5911::ID_DATA, "no time"),
        (|t| t.names = None, "1.2.840.113549.1.9.16.2.47 is not there once"),
        (|t| t.names = Some(t.certificates[1].clone()), "another certificate than its signer's"),
        // A minute later, after it was signed.
        (|t| t.after = later, "what is signed is not its content"),
        (|t| t.time = "20261101080000", "time cannot be read"),
        (|t| t.time = "20261301080000Z", "time cannot be read"),
        (|t| t.time = "20261101080000.Z", "time cannot be read"),
        (|t| t.time = "2026-11-01 08:00Z", "time cannot be read"),
        (
            |t| t.accuracy = Some(Accuracy { seconds: Some(u64::MAX), millis: None, micros: None }),
            "worse than a day",
        ),
        (
            |t| t.accuracy = Some(Accuracy { seconds: None, millis: Some(-1), micros: None }),
            "beyond 0 to 999",
        ),
    ];
    for (change, why) in cases {
        let (code, message) = refused(*change);
        assert_eq!(code, NotTimestamped, "{message}");
        assert!(message.contains(why), "{why}: {message}");
    }
}

fn later(content: &mut [u8]) {
    let at = content.windows(4).position(|window| window == b"0800").unwrap();
    content[at + 3] = b'1';
}

#[test]
fn a_token_signed_by_another_key_is_refused() {
    let (family, clock, other) = (Family::new(), Clock::new(), Clock::new());
    let forged = Token { key: &other.key, ..clock.token() };
    let authority = clock.authority(&family, |_| {});
    for (kind, envelope) in stamped(&family, &forged).both() {
        let refusal = judge_as(&authority, &subject(), kind, &envelope, NOW).unwrap_err();
        assert_eq!(refusal.code, NotTimestamped);
        assert!(refusal.message.contains("does not fit its signer's key"), "{refusal}");
    }
    for (kind, envelope) in stamped(&family, &other.token()).both() {
        let refusal = judge_as(&authority, &subject(), kind, &envelope, NOW).unwrap_err();
        assert_eq!(refusal.code, UntrustedCertificate);
        assert!(refusal.message.contains("no root in a tsa store"), "{refusal}");
    }
    let garbage = Draft { stamp: Some(Box::new(|_| vec![0x30, 0x80])), ..family.draft() };
    let bomb = Draft { stamp: Some(Box::new(|_| bomb())), ..family.draft() };
    let large = Draft { stamp: Some(Box::new(|_| vec![0; 300_000])), ..family.draft() };
    for draft in [garbage, bomb, large] {
        for (kind, envelope) in draft.both() {
            let refusal = judge_as(&authority, &subject(), kind, &envelope, NOW).unwrap_err();
            assert_eq!(refusal.code, NotTimestamped);
        }
    }
}

/// A SET of tens of thousands in the order that is slowest to sort.
fn bomb() -> Vec<u8> {
    let mut set: Vec<u8> = Vec::new();
    for number in (0..20_000_u16).rev() {
        set.extend([0x30, 0x04, 0x02, 0x02]);
        set.extend(number.to_be_bytes());
    }
    let length = u32::try_from(set.len()).unwrap().to_be_bytes();
    [&[0x31, 0x84][..], &length, &set].concat()
}

#[test]
fn a_clocks_certificate_is_for_timestamps_alone_and_valid_then() {
    let code = rfc5280::ID_KP_CODE_SIGNING;
    let stamping = rfc5280::ID_KP_TIME_STAMPING;
    let clock = || Shape::clock("clock");
    for (shape, expected, why) in [
        (Shape::signer("clock"), UntrustedCertificate, "critical extension"),
        (clock().with(extended(false, &[stamping])), UntrustedCertificate, "critical extension"),
        (clock().with(extended(true, &[stamping, code])), UntrustedCertificate, "alone"),
        (clock().without(rfc5280::ID_CE_EXT_KEY_USAGE), UntrustedCertificate, "not for timestamps"),
        (
            clock().with(key_usage(true, KeyUsages::KeyAgreement)),
            UntrustedCertificate,
            "digital signatures",
        ),
        (clock().valid("2026-11-02T00:00:00Z", LATER), Expired, "the time that it states"),
    ] {
        let (family, clock) = (Family::new(), Clock::of(&shape));
        let authority = clock.authority(&family, |_| {});
        for (kind, envelope) in stamped(&family, &clock.token()).both() {
            let refusal = judge_as(&authority, &subject(), kind, &envelope, NOW).unwrap_err();
            assert_eq!(refusal.code, expected, "{refusal}");
            assert!(refusal.message.contains(why), "{why}: {refusal}");
        }
    }
}

#[test]
fn a_clock_leads_to_its_root_by_what_the_token_brings() {
    let family = Family::new();
    let verdict = |middle: &Shape, brings: fn(Vec<u8>, Vec<u8>) -> Vec<Vec<u8>>| {
        let (root_key, middle_key, key) = (Key::p384(), Key::p256(), Key::p256());
        let top = Shape::authority("clock root");
        let leaf = Shape::clock("clock").issue(&key, &middle.subject, &middle_key);
        let between = middle.issue(&middle_key, &top.subject, &root_key);
        let root = top.issue_itself(&root_key);
        let clock = Clock { key, chain: brings(leaf, between), root };
        let jws = stamped(&family, &clock.token()).jws();
        judge_as(&clock.authority(&family, |_| {}), &subject(), JWS, &jws, LATER)
    };
    let middle = || Shape::authority("clock middle");
    let both: fn(_, _) -> _ = |leaf, between| vec![leaf, between];
    verdict(&middle(), both).unwrap();
    let stamping = extended(false, &[rfc5280::ID_KP_TIME_STAMPING]);
    verdict(&middle().with(stamping), both).unwrap();
    let refusal = verdict(&middle(), |leaf, _| vec![leaf]).unwrap_err();
    assert!(refusal.message.contains("no root in a tsa store"), "{refusal}");
    let web = extended(false, &[rfc5280::ID_KP_SERVER_AUTH]);
    let refusal = verdict(&middle().with(web), both).unwrap_err();
    assert_eq!(refusal.code, UntrustedCertificate);
    assert!(refusal.message.contains("is not for timestamps"), "{refusal}");
}

#[test]
fn the_whole_interval_lies_within_the_signers_validity() {
    let clock = Clock::of(&Shape::clock("clock"));
    let family = Family::changed(|shapes| {
        shapes.leaf = shapes.leaf.clone().valid("2026-11-01T07:59:59Z", "2026-11-01T08:00:01Z");
    });
    let accuracy =
        |seconds, millis| Some(Accuracy { seconds: Some(seconds), millis, micros: None });
    let verdict = |change: &dyn Fn(&mut Token<'_>)| {
        let mut token = clock.token();
        change(&mut token);
        let authority = clock.authority(&family, |_| {});
        let envelope = stamped(&family, &token).cose();
        judge_as(&authority, &subject(), COSE, &envelope, LATER).map_err(|refusal| refusal.code)
    };
    assert!(verdict(&|_| {}).is_ok());
    assert!(verdict(&|token| token.accuracy = accuracy(1, None)).is_ok());
    assert_eq!(verdict(&|token| token.accuracy = accuracy(1, Some(1))), Err(Expired));
    assert!(verdict(&|token| token.time = "20261101080000.999Z").is_ok());
    assert_eq!(verdict(&|token| token.time = "20261101080001.001Z"), Err(Expired));
    assert_eq!(verdict(&|token| token.time = "20261101075958Z"), Err(Expired));
    // Only one end of the interval outside.
    let early = |token: &mut Token<'_>| {
        token.time = "20261101075959.5Z";
        token.accuracy = accuracy(1, None);
    };
    assert_eq!(verdict(&early), Err(Expired));
    let late = |token: &mut Token<'_>| {
        token.time = "20261101080000.5Z";
        token.accuracy = accuracy(1, None);
    };
    assert_eq!(verdict(&late), Err(Expired));
    // ETSI's policy means a second where nothing is said.
    let baseline = "0.4.0.2023.1.1";
    assert!(verdict(&|token| token.policy = baseline).is_ok());
    let edge = |token: &mut Token<'_>| {
        token.policy = baseline;
        token.time = "20261101080000.001Z";
    };
    assert_eq!(verdict(&edge), Err(Expired));
}

#[test]
fn a_clocks_revocation_that_cannot_be_told_is_told() {
    let access = crate::revocation::points("http://crl.example/clock");
    let (family, clock) = (Family::new(), Clock::of(&Shape::clock("clock").with(access)));
    for (kind, envelope) in stamped(&family, &clock.token()).both() {
        let strict = clock.authority(&family, |_| {});
        let refusal = judge_as(&strict, &subject(), kind, &envelope, NOW).unwrap_err();
        assert_eq!(refusal.code, RefusalCode::RevocationUnknown, "{refusal}");
        let skip = clock.authority(&family, |parts| {
            parts.overrides.revocation = Some(Action::Skip);
        });
        judge_as(&skip, &subject(), kind, &envelope, NOW).unwrap();
    }
}
