//! An authority that certifies identities for a day, and shows its certificates to a log.

use portolan_core::Digest;
use portolan_verify::cosign::{CERTIFICATE, LOG_ENTRY, Payload};
use portolan_verify::evidence::Content;
use portolan_verify::key::PrivateKey;
use portolan_verify::sigstore::Statement;
use rcgen::{
    BasicConstraints, CertificateParams, CustomExtension, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, SanType, SerialNumber, date_time_ymd,
};
use serde_json::{Value, json};
use x509_cert::der::{Decode as _, Encode as _};

use super::{Log, b64, bundle, dsse_entry, envelope, hashedrekord, simple};

const ISSUER: &[u64] = &[1, 3, 6, 1, 4, 1, 57264, 1, 8];
const SCTS: &[u64] = &[1, 3, 6, 1, 4, 1, 11129, 2, 4, 2];

pub(crate) struct Fulcio {
    issuer: Issuer<'static, KeyPair>,
    certificate: Vec<u8>,
    spki: Vec<u8>,
}

/// Somebody's key for a day, and what certifies it.
pub(crate) struct Identity {
    pub(crate) key: PrivateKey,
    pub(crate) certificate: Vec<u8>,
}

impl Identity {
    pub(crate) fn pem(&self) -> String {
        pem::encode(&pem::Pem::new("CERTIFICATE", self.certificate.as_slice()))
    }
}

impl Fulcio {
    pub(crate) fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "an authority of identities");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        params.not_before = date_time_ymd(2024, 1, 1);
        params.not_after = date_time_ymd(2044, 1, 1);
        let certificate = params.self_signed(&key).unwrap().der().to_vec();
        let parsed = x509_cert::Certificate::from_der(&certificate).unwrap();
        let spki = parsed.tbs_certificate.subject_public_key_info.to_der().unwrap();
        Self { issuer: Issuer::new(params, key), certificate, spki }
    }

    pub(crate) fn in_root(&self) -> Value {
        json!({
            "subject": {"organization": "example", "commonName": "an authority of identities"},
            "uri": "https://identities.example",
            "certChain": {"certificates": [{"rawBytes": b64(&self.certificate)}]},
            "validFor": {"start": "2024-01-01T00:00:00Z"},
        })
    }

    /// Certifies `name`, whom `vouched` knows, for the first of January 2025.
    pub(crate) fn certify(&self, name: &str, vouched: &str, ct_log: Option<&Log>) -> Identity {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.serial_number = Some(SerialNumber::from(42));
        params.subject_alt_names = vec![SanType::Rfc822Name(name.try_into().unwrap())];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::CodeSigning];
        params.not_before = date_time_ymd(2025, 1, 1);
        params.not_after = date_time_ymd(2025, 1, 2);
        let length = u8::try_from(vouched.len()).unwrap();
        let text = [&[0x0c, length], vouched.as_bytes()].concat();
        params.custom_extensions = vec![CustomExtension::from_oid_content(ISSUER, text)];
        if let Some(log) = ct_log {
            let before = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
            let scts = self.scts(&before, log);
            params.custom_extensions.push(CustomExtension::from_oid_content(SCTS, scts));
        }
        let certificate = params.signed_by(&key, &self.issuer).unwrap().der().to_vec();
        Identity { key: PrivateKey::from_pkcs8(&key.serialize_der()).unwrap(), certificate }
    }

    /// What `log` says of the certificate, as RFC 6962 puts it into the certificate.
    fn scts(&self, certificate: &[u8], log: &Log) -> Vec<u8> {
        let parsed = x509_cert::Certificate::from_der(certificate).unwrap();
        let tbs = parsed.tbs_certificate.to_der().unwrap();
        let time = (super::NOON as u64 * 1000).to_be_bytes();
        let length = u32::try_from(tbs.len()).unwrap().to_be_bytes();
        let issuer = Digest::sha256(&self.spki);
        let entry = [&[0, 0][..], &time, &[0, 1], issuer.as_bytes(), &length[1..], &tbs, &[0, 0]];
        let signature = log.sign(&entry.concat());
        let two = |n: usize| u16::try_from(n).unwrap().to_be_bytes();
        let length = two(signature.len());
        let sct = [&[0][..], &log.id(), &time, &[0, 0, 4, 3], &length, &signature].concat();
        let list = [&two(sct.len())[..], &sct].concat();
        let list = [&two(list.len())[..], &list].concat();
        x509_cert::der::asn1::OctetString::new(list).unwrap().to_der().unwrap()
    }
}

/// A signature as cosign 2 keeps it.
pub(crate) fn layer(who: &Identity, digest: &Digest, log: &Log, time: i64) -> Content {
    let payload = Payload::new(digest, "registry.example/app").to_vec();
    let signature = who.key.sign(&payload).unwrap();
    let entry = log.annotation(&hashedrekord(&payload, &signature, &who.pem()), time);
    simple(&payload, &signature, &[(CERTIFICATE, who.pem()), (LOG_ENTRY, entry)])
}

/// The same as cosign 3 keeps it.
pub(crate) fn sealed(who: &Identity, digest: &Digest, log: &Log, time: i64) -> Value {
    let payload = Statement::signature(digest).to_vec();
    let envelope = envelope(&payload, |message| who.key.sign(message).unwrap());
    let entry = log.entry(&dsse_entry(&envelope, &who.pem()), time);
    let certificate = json!({"rawBytes": b64(&who.certificate)});
    let material = json!({"certificate": certificate, "tlogEntries": [entry]});
    bundle(material, ("dsseEnvelope", envelope))
}
