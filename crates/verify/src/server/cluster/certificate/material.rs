//! What is in the Secret: authorities with their keys, and the certificate that is shown.
//!
//! | member | what it holds |
//! |---|---|
//! | `ca.crt` | every authority that may vouch for a certificate in use, the newest first; this is the `caBundle` |
//! | `ca.key` | their keys, in the same order |
//! | `tls.crt`, `tls.key` | what is shown, and its key |

use std::collections::{BTreeMap, BTreeSet};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use der::{Decode as _, Encode as _};
use jiff::Timestamp;
use rcgen::KeyPair;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_cert::Certificate;
use x509_cert::ext::pkix::SubjectAltName;
use x509_cert::ext::pkix::name::GeneralName;
use zeroize::Zeroizing;

pub(super) const CA_CERTIFICATES: &str = "ca.crt";
pub(super) const CA_KEYS: &str = "ca.key";
pub(super) const CERTIFICATE: &str = "tls.crt";
pub(super) const KEY: &str = "tls.key";
/// More were never made; what has more was written by somebody else.
pub(super) const MAX_AUTHORITIES: usize = 8;

/// From when to when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Validity {
    pub(super) from: Timestamp,
    pub(super) until: Timestamp,
}

/// Who vouches for certificates.
#[derive(Clone)]
pub(super) struct Authority {
    pub(super) der: Vec<u8>,
    pub(super) validity: Validity,
    /// As rcgen wrote it into the subject.
    pub(super) name: String,
    pub(super) key: Zeroizing<String>,
}

impl Authority {
    pub(super) fn pem(&self) -> String {
        encode(&pem::Pem::new("CERTIFICATE", self.der.clone()))
    }
}

/// What is shown.
#[derive(Clone)]
pub(super) struct Leaf {
    pub(super) certificate: String,
    pub(super) key: Zeroizing<String>,
    pub(super) validity: Validity,
    pub(super) names: BTreeSet<String>,
    /// Which of the authorities signed it; none: none of them.
    pub(super) issuer: Option<usize>,
}

/// All that is kept.
#[derive(Clone)]
pub(super) struct Kept {
    /// The newest first; at least one.
    pub(super) authorities: Vec<Authority>,
    pub(super) leaf: Leaf,
}

/// Keys are not for logs.
impl std::fmt::Debug for Kept {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names = self.authorities.iter().map(|one| (&one.name, one.validity));
        f.debug_struct("Kept")
            .field("authorities", &names.collect::<Vec<_>>())
            .field("leaf", &(&self.leaf.names, self.leaf.validity, self.leaf.issuer))
            .finish()
    }
}

impl Kept {
    /// Everybody to trust, in the form of a `caBundle`.
    pub(super) fn bundle(&self) -> String {
        self.authorities.iter().map(Authority::pem).collect()
    }

    /// As the Secret holds it.
    pub(super) fn to_data(&self) -> BTreeMap<String, Vec<u8>> {
        let keys: Zeroizing<String> =
            Zeroizing::new(self.authorities.iter().map(|one| one.key.as_str()).collect());
        [
            (CA_CERTIFICATES, self.bundle().into_bytes()),
            (CA_KEYS, keys.as_bytes().to_vec()),
            (CERTIFICATE, self.leaf.certificate.clone().into_bytes()),
            (KEY, self.leaf.key.as_bytes().to_vec()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into()
    }

    /// What a Secret holds, or what is wrong with it.
    pub(super) fn from_data(data: &BTreeMap<String, Vec<u8>>) -> Result<Self, String> {
        let text = |name: &str| {
            let bytes = data.get(name).ok_or_else(|| format!("it has no {name}"))?;
            std::str::from_utf8(bytes).map_err(|_| format!("its {name} is no text"))
        };
        let certificates = certificates(text(CA_CERTIFICATES)?.as_bytes())
            .map_err(|what| format!("its {CA_CERTIFICATES}: {what}"))?;
        let keys = keys(text(CA_KEYS)?).map_err(|what| format!("its {CA_KEYS}: {what}"))?;
        if certificates.is_empty()
            || certificates.len() != keys.len()
            || keys.len() > MAX_AUTHORITIES
        {
            return Err(format!(
                "it has {} authorities and {} keys of them",
                certificates.len(),
                keys.len()
            ));
        }
        let authorities = certificates.into_iter().zip(keys).map(|(der, key)| authority(der, key));
        let authorities = authorities.collect::<Result<Vec<_>, _>>()?;
        let leaf = leaf(text(CERTIFICATE)?, text(KEY)?, &authorities)?;
        Ok(Self { authorities, leaf })
    }
}

/// With the ends of lines that everybody else here writes.
fn encode(one: &pem::Pem) -> String {
    pem::encode_config(one, pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF))
}

/// All certificates in some PEM.
pub(super) fn certificates(pem: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let all = CertificateDer::pem_slice_iter(pem);
    let all = all.map(|one| one.map(|der| der.as_ref().to_vec()));
    all.collect::<Result<_, _>>().map_err(|error| format!("it is no PEM: {error}"))
}

fn keys(text: &str) -> Result<Vec<Zeroizing<String>>, String> {
    let all = pem::parse_many(text).map_err(|error| format!("it is no PEM: {error}"))?;
    Ok(all.iter().map(|one| Zeroizing::new(encode(one))).collect())
}

fn authority(der: Vec<u8>, key: Zeroizing<String>) -> Result<Authority, String> {
    let parsed = parse(&der)?;
    belongs(&parsed, &key).map_err(|what| format!("an authority and its key: {what}"))?;
    let subject = &parsed.tbs_certificate.subject;
    let name = subject.to_string().strip_prefix("CN=").map(str::to_owned);
    let name = name.ok_or_else(|| format!("the authority {subject} was not made here"))?;
    Ok(Authority { validity: validity(&parsed)?, der, name, key })
}

fn leaf(certificate: &str, key: &str, authorities: &[Authority]) -> Result<Leaf, String> {
    let all = certificates(certificate.as_bytes());
    let all = all.map_err(|what| format!("its {CERTIFICATE}: {what}"))?;
    let [der] = &all[..] else { return Err(format!("its {CERTIFICATE} is not one certificate")) };
    let parsed = parse(der)?;
    belongs(&parsed, key).map_err(|what| format!("its {CERTIFICATE} and {KEY}: {what}"))?;
    Ok(Leaf {
        certificate: certificate.to_owned(),
        key: Zeroizing::new(key.to_owned()),
        validity: validity(&parsed)?,
        names: names(&parsed),
        issuer: authorities.iter().position(|one| vouches(one, &parsed)),
    })
}

fn parse(der: &[u8]) -> Result<Certificate, String> {
    Certificate::from_der(der).map_err(|error| format!("a certificate cannot be read: {error}"))
}

/// Whether the key is that of the certificate.
fn belongs(certificate: &Certificate, key: &str) -> Result<(), String> {
    let key = KeyPair::from_pem(key).map_err(|error| format!("the key cannot be read: {error}"))?;
    let theirs = certificate.tbs_certificate.subject_public_key_info.subject_public_key.raw_bytes();
    match key.public_key_raw() == theirs {
        true => Ok(()),
        false => Err("they do not belong together".to_owned()),
    }
}

fn validity(certificate: &Certificate) -> Result<Validity, String> {
    let stamp = |time: x509_cert::time::Time| {
        let seconds = i64::try_from(time.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        Timestamp::from_second(seconds).map_err(|error| format!("a certificate's time: {error}"))
    };
    let x509_cert::time::Validity { not_before, not_after } = certificate.tbs_certificate.validity;
    Ok(Validity { from: stamp(not_before)?, until: stamp(not_after)? })
}

fn names(certificate: &Certificate) -> BTreeSet<String> {
    let names = certificate.tbs_certificate.get::<SubjectAltName>().ok().flatten();
    let names = names.map(|(_, names)| names.0).unwrap_or_default();
    let address = |bytes: &[u8]| {
        let four = <[u8; 4]>::try_from(bytes).map(std::net::IpAddr::from);
        let sixteen = <[u8; 16]>::try_from(bytes).map(std::net::IpAddr::from);
        four.or(sixteen).ok().map(|address| address.to_string())
    };
    let text = |name: &GeneralName| match name {
        GeneralName::DnsName(name) => Some(name.to_string()),
        GeneralName::IpAddress(bytes) => address(bytes.as_bytes()),
        _ => None,
    };
    names.iter().filter_map(text).collect()
}

fn vouches(authority: &Authority, certificate: &Certificate) -> bool {
    let (Ok(theirs), Ok(signed)) =
        (Certificate::from_der(&authority.der), certificate.tbs_certificate.to_der())
    else {
        return false;
    };
    let key = theirs.tbs_certificate.subject_public_key_info.subject_public_key.raw_bytes();
    let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key);
    key.verify(&signed, certificate.signature.raw_bytes()).is_ok()
}
