//! One certificate, read once, with what the rules ask of it.

use const_oid::{AssociatedOid, ObjectIdentifier};
use der::Decode;
use jiff::Timestamp;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::{
    AuthorityInfoAccessSyntax, BasicConstraints, CrlDistributionPoints, ExtendedKeyUsage, KeyUsage,
    SubjectKeyIdentifier,
};
use x509_cert::name::Name;
use x509_cert::spki::AlgorithmIdentifierOwned;
use x509_cert::time::Time;

use super::asn1::{DerFault, decode, signed_parts};
use super::name::shown;
use super::signature::{Fault, PublicKey};

/// Real ones have two kilobytes; tokens and envelopes of strangers carry several.
pub(super) const MAX_CERTIFICATE_BYTES: usize = 32 * 1024;

/// A certificate of a kind that can be judged at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    der: Vec<u8>,
    signed: Vec<u8>,
    algorithm: AlgorithmIdentifierOwned,
    signature: Vec<u8>,
    key: Option<PublicKey>,
    inner: x509_cert::TbsCertificate,
}

/// Why bytes are no certificate.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    /// More bytes than any real one.
    #[error("a certificate has {0} bytes; {MAX_CERTIFICATE_BYTES} are taken")]
    TooLarge(usize),
    /// Not X.509.
    #[error("a certificate cannot be read")]
    Der(#[from] DerFault),
    /// The algorithm that is signed and the one beside the signature are two.
    #[error("a certificate names two signature algorithms")]
    TwoAlgorithms,
}

/// An extension as far as the rules ask.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Found<T> {
    Absent,
    /// There, but not readable or there twice.
    Broken,
    There {
        critical: bool,
        value: T,
    },
}

impl Certificate {
    /// Reads one from DER.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, CertificateError> {
        if bytes.len() > MAX_CERTIFICATE_BYTES {
            return Err(CertificateError::TooLarge(bytes.len()));
        }
        let whole: x509_cert::Certificate = decode(bytes)?;
        let parts = signed_parts(bytes)?;
        let inner = whole.tbs_certificate;
        if inner.signature != parts.algorithm {
            return Err(CertificateError::TwoAlgorithms);
        }
        Ok(Self {
            der: bytes.to_vec(),
            signed: parts.signed.to_vec(),
            algorithm: parts.algorithm,
            signature: parts.signature,
            key: PublicKey::read(&inner.subject_public_key_info),
            inner,
        })
    }

    /// As it was given.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Whom it is for, as people read it.
    pub fn subject(&self) -> String {
        shown(&self.inner.subject)
    }

    /// Who made it, as people read it.
    pub fn issuer(&self) -> String {
        shown(&self.inner.issuer)
    }

    pub(super) fn subject_name(&self) -> &Name {
        &self.inner.subject
    }

    pub(super) fn issuer_name(&self) -> &Name {
        &self.inner.issuer
    }

    pub(super) fn serial(&self) -> &[u8] {
        self.inner.serial_number.as_bytes()
    }

    /// None when the key is of a kind that is not taken.
    pub(super) fn key(&self) -> Option<&PublicKey> {
        self.key.as_ref()
    }

    /// Whether its name and signature say that `issuer` made it.
    pub(super) fn is_issued_by(&self, issuer: &Self) -> Result<(), Fault> {
        if self.inner.issuer != issuer.inner.subject {
            return Err(Fault::Mismatch);
        }
        let key = issuer.key.as_ref().ok_or(Fault::Algorithm)?;
        key.verify_x509(&self.algorithm, &self.signed, &self.signature)
    }

    pub(super) fn is_self_signed(&self) -> Result<(), Fault> {
        self.is_issued_by(self)
    }

    /// Whether `time` is between both ends of its validity, ends included.
    pub(super) fn is_valid_at(&self, time: Timestamp) -> bool {
        !self.is_before(time) && !self.is_after(time)
    }

    /// Whether `time` is before its validity begins.
    pub(super) fn is_before(&self, time: Timestamp) -> bool {
        nanoseconds(&self.inner.validity.not_before) > time.as_nanosecond()
    }

    /// Whether `time` is after its validity ended.
    pub(super) fn is_after(&self, time: Timestamp) -> bool {
        time.as_nanosecond() > nanoseconds(&self.inner.validity.not_after)
    }

    /// Both ends of its validity, for people.
    pub(super) fn validity(&self) -> String {
        let validity = &self.inner.validity;
        format!("{} to {}", validity.not_before, validity.not_after)
    }

    pub(super) fn basic_constraints(&self) -> Found<BasicConstraints> {
        find(self.extensions())
    }

    pub(super) fn key_usage(&self) -> Found<KeyUsage> {
        find(self.extensions())
    }

    pub(super) fn extended_key_usage(&self) -> Found<ExtendedKeyUsage> {
        find(self.extensions())
    }

    pub(super) fn crl_distribution_points(&self) -> Found<CrlDistributionPoints> {
        find(self.extensions())
    }

    pub(super) fn subject_key_identifier(&self) -> Found<SubjectKeyIdentifier> {
        find(self.extensions())
    }

    /// Whether it says where one could ask about its revocation.
    pub(super) fn names_revocation(&self) -> bool {
        let access = find::<AuthorityInfoAccessSyntax>(self.extensions());
        let ocsp = match access {
            Found::Absent => false,
            Found::Broken => true,
            Found::There { value, .. } => value
                .0
                .iter()
                .any(|access| access.access_method == const_oid::db::rfc5912::ID_AD_OCSP),
        };
        ocsp || self.crl_distribution_points() != Found::Absent
    }

    /// A critical extension other than `known`, if there is one.
    pub(super) fn other_critical(&self, known: &[ObjectIdentifier]) -> Option<ObjectIdentifier> {
        let critical = self.extensions().iter().filter(|extension| extension.critical);
        critical.map(|extension| extension.extn_id).find(|id| !known.contains(id))
    }

    pub(super) fn is_ca(&self) -> bool {
        matches!(self.basic_constraints(), Found::There { value, .. } if value.ca)
    }

    fn extensions(&self) -> &[Extension] {
        self.inner.extensions.as_deref().unwrap_or_default()
    }
}

/// The extension of type `T` among `extensions`.
pub(super) fn find<T>(extensions: &[Extension]) -> Found<T>
where
    T: AssociatedOid + for<'a> Decode<'a>,
{
    find_as(T::OID, extensions)
}

/// The extension called `oid` among `extensions`, as a `T`.
pub(super) fn find_as<T>(oid: ObjectIdentifier, extensions: &[Extension]) -> Found<T>
where
    T: for<'a> Decode<'a>,
{
    let mut found = extensions.iter().filter(|extension| extension.extn_id == oid);
    match (found.next(), found.next()) {
        (None, _) => Found::Absent,
        (Some(_), Some(_)) => Found::Broken,
        (Some(extension), None) => match decode(extension.extn_value.as_bytes()) {
            Ok(value) => Found::There { critical: extension.critical, value },
            Err(_) => Found::Broken,
        },
    }
}

/// Since 1970. Certificates may end in the year 9999, later than a timestamp can be.
pub(super) fn nanoseconds(time: &Time) -> i128 {
    i128::from(time.to_unix_duration().as_secs()) * 1_000_000_000
}
