//! Revocation lists: given, genuine, in time, and about this certificate.

use const_oid::db::{rfc5280, rfc5912};
use der::Encode as _;
use der::asn1::{BitString, GeneralizedTime, Ia5String, Uint};
use portolan_verify::authority::RefusalCode::{RevocationUnknown, Revoked};
use portolan_verify::authority::{Accepted, Refusal};
use portolan_verify::notation::{
    Action, CrlError, JWS, Level, NotationAuthority, PolicyParts, StoreError, TrustPolicy,
    TrustStores,
};
use x509_cert::Version;
use x509_cert::crl::{CertificateList, RevokedCert, TbsCertList};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::crl::dp::{DistributionPoint, IssuingDistributionPoint};
use x509_cert::ext::pkix::crl::{BaseCrlNumber, CrlNumber};
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AccessDescription, AuthorityInfoAccessSyntax, CrlDistributionPoints, CrlReason, KeyUsages,
};
use x509_cert::serial_number::SerialNumber;
use x509_cert::time::Time;

use crate::mint::{Family, Key, NOW, Shape, extension, judge, key_usage, time};
use crate::policies::{parts, stores};

fn uri(text: &str) -> GeneralName {
    GeneralName::UniformResourceIdentifier(Ia5String::new(text).unwrap())
}

/// An extension that says where lists are.
pub(crate) fn points(text: &str) -> Extension {
    let point = DistributionPoint {
        distribution_point: Some(DistributionPointName::FullName(vec![uri(text)])),
        reasons: None,
        crl_issuer: None,
    };
    let value = CrlDistributionPoints(vec![point]);
    extension(rfc5280::ID_CE_CRL_DISTRIBUTION_POINTS, false, &value)
}

fn responder(text: &str) -> Extension {
    let access =
        AccessDescription { access_method: rfc5912::ID_AD_OCSP, access_location: uri(text) };
    extension(rfc5280::ID_PE_AUTHORITY_INFO_ACCESS, false, &AuthorityInfoAccessSyntax(vec![access]))
}

/// A list to be.
struct List<'a> {
    issuer: &'a str,
    key: &'a Key,
    from: &'a str,
    until: Option<&'a str>,
    number: u8,
    extensions: Vec<Extension>,
    entries: Vec<(u8, Option<CrlReason>)>,
}

const MIDDLE: &str = "CN=middle,O=Acme,ST=WA,C=US";
const ROOT: &str = "CN=root,O=Acme,ST=WA,C=US";

impl<'a> List<'a> {
    fn new(issuer: &'a str, key: &'a Key, revoked: &[u8]) -> Self {
        let entries = revoked.iter().map(|serial| (*serial, None)).collect();
        let (from, until) = ("2026-11-10T00:00:00Z", Some("2026-11-20T00:00:00Z"));
        Self { issuer, key, from, until, number: 3, extensions: Vec::new(), entries }
    }

    fn with(mut self, extension: Extension) -> Self {
        self.extensions.push(extension);
        self
    }

    fn der(&self) -> Vec<u8> {
        let moment = |text: &str| {
            let seconds = u64::try_from(time(text).as_second()).unwrap();
            let since = std::time::Duration::from_secs(seconds);
            Time::GeneralTime(GeneralizedTime::from_unix_duration(since).unwrap())
        };
        let revoked = self.entries.iter().map(|(serial, reason)| RevokedCert {
            serial_number: SerialNumber::new(&[*serial]).unwrap(),
            revocation_date: moment("2026-11-09T00:00:00Z"),
            crl_entry_extensions: reason
                .map(|reason| vec![extension(rfc5280::ID_CE_CRL_REASONS, false, &reason)]),
        });
        let mut extensions = self.extensions.clone();
        let number = CrlNumber(Uint::new(&[self.number]).unwrap());
        extensions.push(extension(rfc5280::ID_CE_CRL_NUMBER, false, &number));
        let (algorithm, _) = self.key.sign_x509(b"");
        let tbs_cert_list = TbsCertList {
            version: Version::V2,
            signature: algorithm.clone(),
            issuer: self.issuer.parse().unwrap(),
            this_update: moment(self.from),
            next_update: self.until.map(moment),
            revoked_certificates: Some(revoked.collect()),
            crl_extensions: Some(extensions),
        };
        let (_, signature) = self.key.sign_x509(&tbs_cert_list.to_der().unwrap());
        let signature = BitString::from_bytes(&signature).unwrap();
        CertificateList { tbs_cert_list, signature_algorithm: algorithm, signature }
            .to_der()
            .unwrap()
    }
}

fn family() -> Family {
    Family::changed(|shapes| {
        shapes.leaf = shapes.leaf.clone().with(points("http://crl.example/middle"));
    })
}

fn verdict(
    family: &Family,
    lists: &[Vec<u8>],
    change: impl Fn(&mut PolicyParts),
) -> Result<Accepted, Refusal> {
    let mut stores = stores(family.root());
    for list in lists {
        stores.add_crls(list).unwrap();
    }
    let mut parts = parts();
    change(&mut parts);
    let authority = NotationAuthority::new(TrustPolicy::new(parts).unwrap(), stores).unwrap();
    judge(&authority, JWS, &family.draft().jws())
}

#[test]
fn a_revoked_certificate_is_refused_wherever_it_is_in_the_chain() {
    let family = family();
    verdict(&family, &[List::new(MIDDLE, &family.middle_key, &[8, 9]).der()], |_| {}).unwrap();
    let leaf = List::new(MIDDLE, &family.middle_key, &[8, 7]).der();
    let refusal = verdict(&family, std::slice::from_ref(&leaf), |_| {}).unwrap_err();
    assert_eq!(refusal.code, Revoked);
    assert!(refusal.message.contains("CN=build"), "{refusal}");
    let good = List::new(MIDDLE, &family.middle_key, &[]).der();
    let middle = List::new(ROOT, &family.root_key, &[5]).der();
    let refusal = verdict(&family, &[good, middle], |_| {}).unwrap_err();
    assert_eq!(refusal.code, Revoked);
    assert!(refusal.message.contains("CN=middle"), "{refusal}");
    let told =
        verdict(&family, std::slice::from_ref(&leaf), |parts| parts.level = Level::Permissive)
            .unwrap();
    assert!(told.warnings[0].starts_with("revocation is not enforced"), "{told:?}");
    let skipped = verdict(&family, &[leaf], |parts| {
        parts.overrides.revocation = Some(Action::Skip);
    });
    assert!(skipped.unwrap().warnings.is_empty());
}

#[test]
fn what_cannot_be_told_is_refused_or_told() {
    let named = [
        Shape::signer("build").with(points("http://crl.example/middle")),
        Shape::signer("build").with(responder("http://ocsp.example")),
    ];
    for leaf in named {
        let family = Family::changed(|shapes| shapes.leaf = leaf.clone());
        let refusal = verdict(&family, &[], |_| {}).unwrap_err();
        assert_eq!(refusal.code, RevocationUnknown);
        assert!(refusal.message.contains("cannot be told"), "{refusal}");
        let told = verdict(&family, &[], |parts| parts.level = Level::Permissive).unwrap();
        assert_eq!(told.warnings.len(), 1);
    }
    // Nobody ever tells for it.
    verdict(&Family::new(), &[], |_| {}).unwrap();
}

#[test]
fn a_list_counts_when_its_issuer_signed_it_and_its_time_is_now() {
    let family = family();
    let stranger = Key::p521();
    let good = || List::new(MIDDLE, &family.middle_key, &[]);
    let cases = [
        (List { key: &stranger, ..good() }, "not its issuer's"),
        (List { from: "2026-11-18T00:00:00Z", ..good() }, "from the future"),
        (List { until: Some("2026-11-17T00:00:00Z"), ..good() }, "out of date"),
        (List { issuer: "CN=other,C=US", ..good() }, "no revocation list of CN=middle"),
        (good().with(delta(3)), "only a delta"),
    ];
    for (list, why) in cases {
        let refusal = verdict(&family, &[list.der()], |_| {}).unwrap_err();
        assert_eq!(refusal.code, RevocationUnknown, "{refusal}");
        assert!(refusal.message.contains(why), "{why}: {refusal}");
    }
    let exact = List { from: NOW, until: Some(NOW), ..good() };
    verdict(&family, &[exact.der()], |_| {}).unwrap();
    let mute = Family::changed(|shapes| {
        shapes.middle = shapes.middle.clone().with(key_usage(true, KeyUsages::KeyCertSign));
    });
    let refusal =
        verdict(&mute, &[List::new(MIDDLE, &mute.middle_key, &[]).der()], |_| {}).unwrap_err();
    assert!(refusal.message.contains("not for signing such lists"), "{refusal}");
}

fn delta(base: u8) -> Extension {
    let value = BaseCrlNumber(Uint::new(&[base]).unwrap());
    extension(rfc5280::ID_CE_DELTA_CRL_INDICATOR, true, &value)
}

#[test]
fn a_delta_changes_the_list_that_it_continues() {
    let family = family();
    let base = |revoked: &[u8]| List::new(MIDDLE, &family.middle_key, revoked).der();
    let change = |number, since, entries: Vec<(u8, Option<CrlReason>)>| {
        let list = List { number, entries, ..List::new(MIDDLE, &family.middle_key, &[]) };
        list.with(delta(since)).der()
    };
    let code = |lists: &[Vec<u8>]| verdict(&family, lists, |_| {}).map_err(|r| r.code);
    assert_eq!(code(&[base(&[]), change(4, 3, vec![(7, None)])]), Err(Revoked));
    assert!(code(&[base(&[]), change(4, 3, vec![(9, None)])]).is_ok());
    let restored = vec![(7, Some(CrlReason::RemoveFromCRL))];
    assert!(code(&[base(&[7]), change(4, 2, restored.clone())]).is_ok());
    // Of two changes the later one.
    let both = [base(&[]), change(5, 3, restored.clone()), change(4, 3, vec![(7, None)])];
    assert!(code(&both).is_ok());
    // A change of a list that comes after ours says nothing about ours.
    assert_eq!(code(&[base(&[7]), change(5, 4, restored)]), Err(Revoked));
}

#[test]
fn the_newest_list_decides() {
    let family = family();
    let list = |number, revoked: &[u8]| {
        List { number, ..List::new(MIDDLE, &family.middle_key, revoked) }.der()
    };
    let refusal = verdict(&family, &[list(9, &[7]), list(8, &[])], |_| {}).unwrap_err();
    assert_eq!(refusal.code, Revoked);
    verdict(&family, &[list(1, &[7]), list(200, &[])], |_| {}).unwrap();
}

#[test]
fn a_list_of_a_part_speaks_of_that_part() {
    let family = family();
    let part = |change: &dyn Fn(&mut IssuingDistributionPoint)| {
        let mut point = IssuingDistributionPoint {
            distribution_point: None,
            only_contains_user_certs: false,
            only_contains_ca_certs: false,
            only_some_reasons: None,
            indirect_crl: false,
            only_contains_attribute_certs: false,
        };
        change(&mut point);
        let extension = extension(rfc5280::ID_CE_ISSUING_DISTRIBUTION_POINT, true, &point);
        List::new(MIDDLE, &family.middle_key, &[7]).with(extension).der()
    };
    let at = |text: &str| Some(DistributionPointName::FullName(vec![uri(text)]));
    let code = |list: Vec<u8>| verdict(&family, &[list], |_| {}).unwrap_err().code;
    assert_eq!(code(part(&|p| p.only_contains_user_certs = true)), Revoked);
    assert_eq!(code(part(&|p| p.only_contains_ca_certs = true)), RevocationUnknown);
    assert_eq!(code(part(&|p| p.distribution_point = at("http://crl.example/middle"))), Revoked);
    assert_eq!(
        code(part(&|p| p.distribution_point = at("http://crl.example/2"))),
        RevocationUnknown
    );
    let unusable = |list: &[u8]| {
        let Err(StoreError::Crl { at: 1, source }) = TrustStores::new().add_crls(list) else {
            panic!("it was taken");
        };
        source
    };
    for list in
        [part(&|p| p.indirect_crl = true), part(&|p| p.only_contains_attribute_certs = true)]
    {
        assert!(matches!(unusable(&list), CrlError::Unsupported(_)));
    }
    let endless = List { until: None, ..List::new(MIDDLE, &family.middle_key, &[]) };
    assert_eq!(unusable(&endless.der()), CrlError::NoNextUpdate);
    assert!(matches!(unusable(&[0x30, 0x00]), CrlError::Der(_)));
}

#[test]
fn lists_are_taken_as_pem_too() {
    let family = family();
    let der = List::new(MIDDLE, &family.middle_key, &[7]).der();
    let text = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der);
    let pem = format!("-----BEGIN X509 CRL-----\n{text}\n-----END X509 CRL-----\n");
    let refusal = verdict(&family, &[pem.into_bytes()], |_| {}).unwrap_err();
    assert_eq!(refusal.code, Revoked);
}
