//! Revocation lists (RFC 5280), given by the operator: judging asks nobody.

use std::collections::BTreeMap;

use const_oid::AssociatedOid as _;
use const_oid::db::rfc5280;
use jiff::Timestamp;
use x509_cert::crl::CertificateList;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::crl::dp::IssuingDistributionPoint;
use x509_cert::ext::pkix::crl::{BaseCrlNumber, CrlNumber};
use x509_cert::ext::pkix::name::DistributionPointName;
use x509_cert::ext::pkix::{CrlDistributionPoints, CrlReason};
use x509_cert::name::Name;
use x509_cert::spki::AlgorithmIdentifierOwned;

use super::asn1::{DerFault, decode, signed_parts};
use super::certificate::{Certificate, Found, find, find_as, nanoseconds};
use super::chain::Chain;

/// Of what a list speaks. x509-cert 0.2.5 associates its type with the name of another extension.
const SCOPE: const_oid::ObjectIdentifier = rfc5280::ID_CE_ISSUING_DISTRIBUTION_POINT;

/// What is known of one certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Status {
    /// Not revoked, or nobody ever tells for it.
    Good,
    /// Taken back.
    Revoked(String),
    /// It cannot be told from what is here, and why.
    Unknown(String),
}

/// The worst that is known of any certificate of a chain; its root answers for itself.
pub(super) fn status(chain: &Chain, crls: &[Crl], now: Timestamp) -> Status {
    let mut worst = Status::Good;
    for (certificate, issuer) in chain.links() {
        match status_of(certificate, issuer, crls, now) {
            Status::Good => {}
            revoked @ Status::Revoked(_) => return revoked,
            Status::Unknown(_) if worst != Status::Good => {}
            unknown @ Status::Unknown(_) => worst = unknown,
        }
    }
    worst
}

fn status_of(
    certificate: &Certificate,
    issuer: &Certificate,
    crls: &[Crl],
    now: Timestamp,
) -> Status {
    let subject = certificate.subject();
    let about: Vec<&Crl> = crls.iter().filter(|crl| crl.is_about(certificate)).collect();
    if about.is_empty() {
        return if certificate.names_revocation() {
            Status::Unknown(format!(
                "whether the certificate of {subject} is revoked cannot be told: no revocation \
                 list of {} is given, and nobody is asked",
                certificate.issuer()
            ))
        } else {
            Status::Good
        };
    }
    let mut usable = Vec::new();
    let mut fault = "";
    for crl in about {
        match crl.check(issuer, now) {
            Ok(()) => usable.push(crl),
            Err(why) => fault = why,
        }
    }
    let newest = |delta: bool| {
        let same = usable.iter().filter(|crl| crl.base.is_some() == delta);
        same.max_by_key(|crl| crl.order()).copied()
    };
    let Some(base) = newest(false) else {
        let why = if fault.is_empty() { "only a delta of one is" } else { fault };
        return Status::Unknown(format!(
            "whether the certificate of {subject} is revoked cannot be told: a revocation list of \
             {} is given, but {why}",
            certificate.issuer()
        ));
    };
    let entry = newest(true)
        .filter(|delta| delta.continues(base))
        .and_then(|delta| delta.entries.get(certificate.serial()))
        .or_else(|| base.entries.get(certificate.serial()));
    match entry {
        None | Some(Entry::Restored) => Status::Good,
        Some(Entry::Revoked(since)) => {
            Status::Revoked(format!("the certificate of {subject} was revoked at {since}"))
        }
    }
}

/// One list.
#[derive(Debug, Clone)]
pub(super) struct Crl {
    signed: Vec<u8>,
    algorithm: AlgorithmIdentifierOwned,
    signature: Vec<u8>,
    issuer: Name,
    this_update: i128,
    next_update: i128,
    number: Option<Number>,
    /// For a delta: which list it changes.
    base: Option<Number>,
    scope: Option<IssuingDistributionPoint>,
    entries: BTreeMap<Vec<u8>, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    Revoked(String),
    /// In a delta: the base has it, and it no longer counts.
    Restored,
}

/// Big-endian without leading zeros; ordered as numbers are.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Number(usize, Vec<u8>);

impl Number {
    fn new(bytes: &[u8]) -> Self {
        let zeros = bytes.iter().take_while(|byte| **byte == 0).count();
        Self(bytes.len() - zeros, bytes[zeros..].to_vec())
    }
}

/// Why a list cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CrlError {
    /// Not a list of version 2.
    #[error("it is no revocation list of version 2")]
    Der(#[from] DerFault),
    /// It does not say when the next one comes, so it would count for ever.
    #[error("it has no nextUpdate")]
    NoNextUpdate,
    /// It speaks for other issuers, of some reasons only, or has a critical extension that is not
    /// known.
    #[error("it has {0}, which is not taken")]
    Unsupported(&'static str),
}

impl Crl {
    /// Reads one from DER.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, CrlError> {
        let list = decode::<CertificateList>(bytes)?.tbs_cert_list;
        let parts = signed_parts(bytes)?;
        if list.signature != parts.algorithm {
            return Err(CrlError::Unsupported("two signature algorithms"));
        }
        let extensions = list.crl_extensions.unwrap_or_default();
        let mut entries = BTreeMap::new();
        for revoked in list.revoked_certificates.unwrap_or_default() {
            let extensions = revoked.crl_entry_extensions.unwrap_or_default();
            let entry = entry(&extensions, revoked.revocation_date.to_string())?;
            entries.insert(revoked.serial_number.as_bytes().to_vec(), entry);
        }
        Ok(Self {
            signed: parts.signed.to_vec(),
            algorithm: parts.algorithm,
            signature: parts.signature,
            issuer: list.issuer,
            this_update: nanoseconds(&list.this_update),
            next_update: nanoseconds(&list.next_update.ok_or(CrlError::NoNextUpdate)?),
            number: number(find::<CrlNumber>(&extensions), |number| number.0.as_bytes().to_vec())?,
            base: number(find::<BaseCrlNumber>(&extensions), |base| base.0.as_bytes().to_vec())?,
            scope: scope(&extensions)?,
            entries,
        })
    }

    /// Whether it would list `certificate` if that were revoked.
    fn is_about(&self, certificate: &Certificate) -> bool {
        if self.issuer != *certificate.issuer_name() {
            return false;
        }
        let Some(scope) = &self.scope else { return true };
        let kind = if certificate.is_ca() {
            !scope.only_contains_user_certs
        } else {
            !scope.only_contains_ca_certs
        };
        let part = match &scope.distribution_point {
            None => true,
            Some(DistributionPointName::FullName(here)) => {
                points(certificate).iter().any(|name| here.contains(name))
            }
            Some(DistributionPointName::NameRelativeToCRLIssuer(_)) => false,
        };
        kind && part
    }

    /// Whether `issuer` made it and it counts at `now`.
    fn check(&self, issuer: &Certificate, now: Timestamp) -> Result<(), &'static str> {
        if let Found::There { value, .. } = issuer.key_usage()
            && !value.crl_sign()
        {
            return Err("its issuer's key is not for signing such lists");
        }
        let key = issuer.key().ok_or("its issuer's key is of a kind that is not taken")?;
        key.verify_x509(&self.algorithm, &self.signed, &self.signature)
            .map_err(|_| "its signature is not its issuer's")?;
        if self.this_update > now.as_nanosecond() {
            return Err("it is from the future");
        }
        if self.next_update < now.as_nanosecond() {
            return Err("it is out of date");
        }
        Ok(())
    }

    fn order(&self) -> (Option<&Number>, i128) {
        (self.number.as_ref(), self.this_update)
    }

    /// Whether this delta says what changed since `base` or an earlier list.
    fn continues(&self, base: &Self) -> bool {
        let (Some(from), Some(of)) = (&self.base, &base.number) else { return false };
        from <= of && self.number.as_ref() >= Some(of)
    }
}

/// The names of the places where a certificate says that lists are.
fn points(certificate: &Certificate) -> Vec<x509_cert::ext::pkix::name::GeneralName> {
    let found: Found<CrlDistributionPoints> = certificate.crl_distribution_points();
    let Found::There { value, .. } = found else { return Vec::new() };
    let names = value.0.into_iter().filter_map(|point| match point.distribution_point {
        Some(DistributionPointName::FullName(names)) => Some(names),
        _ => None,
    });
    names.flatten().collect()
}

fn entry(extensions: &[Extension], since: String) -> Result<Entry, CrlError> {
    // The only critical one that exists is the issuer of an indirect list's entry.
    if extensions.iter().any(|extension| extension.critical) {
        return Err(CrlError::Unsupported("an entry with a critical extension"));
    }
    Ok(match find::<CrlReason>(extensions) {
        Found::There { value: CrlReason::RemoveFromCRL, .. } => Entry::Restored,
        _ => Entry::Revoked(since),
    })
}

fn number<T>(found: Found<T>, bytes: impl Fn(&T) -> Vec<u8>) -> Result<Option<Number>, CrlError> {
    match found {
        Found::Absent => Ok(None),
        Found::Broken => Err(CrlError::Unsupported("a number that cannot be read")),
        Found::There { value, .. } => Ok(Some(Number::new(&bytes(&value)))),
    }
}

fn scope(extensions: &[Extension]) -> Result<Option<IssuingDistributionPoint>, CrlError> {
    let known = [SCOPE, BaseCrlNumber::OID, CrlNumber::OID];
    let other = |extension: &&Extension| extension.critical && !known.contains(&extension.extn_id);
    if extensions.iter().any(|extension| other(&extension)) {
        return Err(CrlError::Unsupported("a critical extension"));
    }
    match find_as::<IssuingDistributionPoint>(SCOPE, extensions) {
        Found::Absent => Ok(None),
        Found::Broken => Err(CrlError::Unsupported("an unreadable distribution point")),
        Found::There { value, .. } => {
            let partial = value.indirect_crl
                || value.only_contains_attribute_certs
                || value.only_some_reasons.is_some();
            if partial {
                return Err(CrlError::Unsupported("a scope other than all of its issuer's"));
            }
            Ok(Some(value))
        }
    }
}
