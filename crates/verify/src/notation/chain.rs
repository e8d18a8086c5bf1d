//! The Notary Project's rules for certificates, which are not those of the web: the chain is
//! complete and in order, a signer may be its own root, and only three extensions count.

use const_oid::db::rfc5280;
use const_oid::db::rfc5912::{ID_CE_BASIC_CONSTRAINTS, ID_CE_EXT_KEY_USAGE, ID_CE_KEY_USAGE};
use jiff::Timestamp;
use x509_cert::ext::pkix::{KeyUsage, KeyUsages};

use super::certificate::{Certificate, Found};
use super::refuse::{malformed, refuse, unsupported, untrusted};
use super::signature::Fault;
use crate::authority::{Refusal, RefusalCode};

/// Certificates in a chain. Real ones have two to four.
pub(super) const MAX_CHAIN: usize = 10;

/// What a chain is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Signing,
    Timestamping,
}

/// A chain that keeps the rules: not empty, from the signer to the root. Says nothing of trust or
/// time.
#[derive(Debug, Clone)]
pub(super) struct Chain(Vec<Certificate>);

impl Chain {
    /// Reads certificates as an envelope has them.
    pub(super) fn read(ders: &[Vec<u8>]) -> Result<Self, Refusal> {
        if ders.len() > MAX_CHAIN {
            return Err(malformed(format!(
                "the envelope has {} certificates; {MAX_CHAIN} are taken",
                ders.len()
            )));
        }
        let read = |(at, der): (usize, &Vec<u8>)| {
            Certificate::read(der).map_err(|error| {
                let cause = std::error::Error::source(&error).map(|c| format!(": {c}"));
                malformed(format!(
                    "certificate {} of the envelope: {error}{}",
                    at + 1,
                    cause.unwrap_or_default()
                ))
            })
        };
        let certificates = ders.iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        Self::check(certificates, Purpose::Signing)
    }

    /// Holds `certificates` against the rules.
    pub(super) fn check(certificates: Vec<Certificate>, purpose: Purpose) -> Result<Self, Refusal> {
        let Some((leaf, above)) = certificates.split_first() else {
            return Err(malformed("there is no certificate"));
        };
        check_leaf(leaf, purpose)?;
        for (below, authority) in above.iter().enumerate() {
            check_authority(authority, below, purpose)?;
        }
        for pair in certificates.windows(2) {
            check_link(&pair[0], &pair[1])?;
        }
        let root = above.last().unwrap_or(leaf);
        root.is_self_signed().map_err(|fault| {
            let subject = root.subject();
            match fault {
                Fault::Algorithm => weak(root),
                Fault::Mismatch => {
                    untrusted(format!("the chain ends in {subject}, which is not self-signed"))
                }
            }
        })?;
        Ok(Self(certificates))
    }

    pub(super) fn leaf(&self) -> &Certificate {
        &self.0[0]
    }

    pub(super) fn certificates(&self) -> &[Certificate] {
        &self.0
    }

    /// Each certificate that has an issuer above it, with that issuer.
    pub(super) fn links(&self) -> impl Iterator<Item = (&Certificate, &Certificate)> {
        self.0.iter().zip(self.0.iter().skip(1))
    }

    /// Whether every certificate is valid at `time`.
    pub(super) fn valid_at(&self, time: Timestamp, which: &str) -> Result<(), Refusal> {
        match self.0.iter().find(|certificate| !certificate.is_valid_at(time)) {
            None => Ok(()),
            Some(certificate) => Err(refuse(
                RefusalCode::Expired,
                format!(
                    "the certificate of {} is valid from {}, not at {which} ({time})",
                    certificate.subject(),
                    certificate.validity()
                ),
            )),
        }
    }
}

fn check_link(below: &Certificate, above: &Certificate) -> Result<(), Refusal> {
    if below.is_self_signed().is_ok() {
        return Err(untrusted(format!(
            "{} is self-signed and yet not the end of the chain",
            below.subject()
        )));
    }
    below.is_issued_by(above).map_err(|fault| match fault {
        Fault::Algorithm => weak(below),
        Fault::Mismatch => untrusted(format!(
            "{} is not issued by {}, the next in the chain",
            below.subject(),
            above.subject()
        )),
    })
}

fn weak(certificate: &Certificate) -> Refusal {
    unsupported(format!(
        "the certificate of {} is signed with an algorithm or key that is not taken (RSA of 2048 \
         bits and more, P-256, P-384, P-521 or Ed25519, with SHA-2)",
        certificate.subject()
    ))
}

fn check_leaf(leaf: &Certificate, purpose: Purpose) -> Result<(), Refusal> {
    let no = |why: &str| untrusted(format!("the signing certificate of {} {why}", leaf.subject()));
    match leaf.basic_constraints() {
        Found::Broken => return Err(no("has basic constraints that cannot be read")),
        Found::There { value, .. } if value.ca => return Err(no("is an authority's")),
        Found::Absent | Found::There { .. } => {}
    }
    let usage = key_usage(leaf, purpose)?;
    if !usage.digital_signature() {
        return Err(no("is not for digital signatures"));
    }
    // Signing and, for those who think of contracts, non-repudiation; nothing else.
    let allowed = KeyUsages::DigitalSignature | KeyUsages::NonRepudiation;
    if !(usage.0 - allowed).is_empty() {
        return Err(no("has a key usage beside digital signatures"));
    }
    check_extended(leaf, purpose)?;
    check_extensions(leaf)?;
    if leaf.key().is_none_or(|key| key.envelope_algorithm().is_none()) {
        return Err(unsupported(format!(
            "the key of {} is not RSA of 2048, 3072 or 4096 bits, nor on P-256, P-384 or P-521",
            leaf.subject()
        )));
    }
    Ok(())
}

fn check_extended(leaf: &Certificate, purpose: Purpose) -> Result<(), Refusal> {
    let no = |why: &str| untrusted(format!("the signing certificate of {} {why}", leaf.subject()));
    let usages = match (leaf.extended_key_usage(), purpose) {
        (Found::Broken, _) => return Err(no("has extended key usages that cannot be read")),
        (Found::Absent, Purpose::Signing) => return Ok(()),
        (Found::Absent, Purpose::Timestamping) => return Err(no("is not for timestamps")),
        (Found::There { critical: false, .. }, Purpose::Timestamping) => {
            return Err(no("is for timestamps, but not as a critical extension"));
        }
        (Found::There { value, .. }, _) => value.0,
    };
    match purpose {
        Purpose::Timestamping if usages != [rfc5280::ID_KP_TIME_STAMPING] => {
            Err(no("is not for timestamps alone"))
        }
        Purpose::Signing => {
            let forbidden = [
                rfc5280::ANY_EXTENDED_KEY_USAGE,
                rfc5280::ID_KP_SERVER_AUTH,
                rfc5280::ID_KP_CLIENT_AUTH,
                rfc5280::ID_KP_EMAIL_PROTECTION,
                rfc5280::ID_KP_TIME_STAMPING,
                rfc5280::ID_KP_OCSP_SIGNING,
            ];
            if usages.iter().any(|usage| forbidden.contains(usage)) {
                return Err(no("is for something else than signing code, too"));
            }
            if !usages.contains(&rfc5280::ID_KP_CODE_SIGNING) {
                return Err(no("is not for signing code"));
            }
            Ok(())
        }
        Purpose::Timestamping => Ok(()),
    }
}

/// `below` is how many authorities stand between this one and the signer.
fn check_authority(authority: &Certificate, below: usize, purpose: Purpose) -> Result<(), Refusal> {
    let no = |why: String| untrusted(format!("the certificate of {} {why}", authority.subject()));
    match authority.basic_constraints() {
        Found::There { critical: true, value } if value.ca => match value.path_len_constraint {
            Some(most) if usize::from(most) < below => {
                return Err(no(format!("allows {most} authorities below it; there are {below}")));
            }
            _ => {}
        },
        _ => return Err(no("is not marked as an authority's, critically".to_owned())),
    }
    if !key_usage(authority, purpose)?.key_cert_sign() {
        return Err(no("is not for signing certificates".to_owned()));
    }
    // For signers the project leaves an authority's extended usages alone; for clocks they limit.
    if purpose == Purpose::Timestamping {
        let allowed = [rfc5280::ID_KP_TIME_STAMPING, rfc5280::ANY_EXTENDED_KEY_USAGE];
        match authority.extended_key_usage() {
            Found::Absent => {}
            Found::There { value, .. } if value.0.iter().any(|usage| allowed.contains(usage)) => {}
            Found::Broken | Found::There { .. } => {
                return Err(no("is not for timestamps".to_owned()));
            }
        }
    }
    check_extensions(authority)
}

fn key_usage(certificate: &Certificate, purpose: Purpose) -> Result<KeyUsage, Refusal> {
    match certificate.key_usage() {
        Found::There { critical, value } if critical || purpose == Purpose::Timestamping => {
            Ok(value)
        }
        _ => Err(untrusted(format!(
            "the certificate of {} has no critical key usage",
            certificate.subject()
        ))),
    }
}

/// RFC 5280: what is critical and not understood makes a certificate unusable.
fn check_extensions(certificate: &Certificate) -> Result<(), Refusal> {
    let known = [ID_CE_BASIC_CONSTRAINTS, ID_CE_KEY_USAGE, ID_CE_EXT_KEY_USAGE];
    match certificate.other_critical(&known) {
        None => Ok(()),
        Some(extension) => Err(unsupported(format!(
            "the certificate of {} has the critical extension {extension}, which is not taken",
            certificate.subject()
        ))),
    }
}
