//! Who may vouch for an image, and what comes of asking them.

use std::fmt;

use jiff::Timestamp;

use crate::evidence::Evidence;
use crate::subject::Subject;

/// One who may vouch: a key, an identity, a chain of certificates. Judging asks nobody: no network, no
/// files. `now` is the time for what ends; the library that judges Sigstore's bundles reads the
/// clock besides, for the keys of logs that are in force and to refuse times in the future.
pub trait Authority: fmt::Debug + Send + Sync {
    /// Judges one piece of evidence for one subject; none when it is of a kind that this authority
    /// does not read.
    fn judge(&self, subject: &Subject, evidence: &Evidence, now: Timestamp) -> Option<Judgement>;
}

/// What an authority says of a piece of evidence.
#[derive(Debug, Clone, PartialEq)]
pub enum Judgement {
    /// It is genuine and speaks of this very subject.
    Accepted(Accepted),
    /// It does not count, and why.
    Refused(Refusal),
}

impl From<Result<Accepted, Refusal>> for Judgement {
    fn from(decided: Result<Accepted, Refusal>) -> Self {
        match decided {
            Ok(accepted) => Self::Accepted(accepted),
            Err(refusal) => Self::Refused(refusal),
        }
    }
}

/// Evidence that counts.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    /// Who signed: a key's fingerprint, an identity, a certificate's subject.
    pub signer: String,
    /// Who vouches for that identity, where it is one.
    pub issuer: Option<String>,
    /// When it was signed, where that is proven by somebody else than the signer.
    pub signed_at: Option<Timestamp>,
    /// What it says of the subject.
    pub claim: Claim,
    /// What was checked, for people.
    pub checks: Vec<&'static str>,
    /// What was found wrong and does not count, because a policy says so; for people.
    pub warnings: Vec<String>,
}

/// What accepted evidence says.
#[derive(Debug, Clone, PartialEq)]
pub enum Claim {
    /// "I signed this image."
    Signature,
    /// An in-toto statement about it.
    Statement {
        /// What kind of statement.
        predicate_type: String,
        /// What it says.
        predicate: serde_json::Value,
    },
}

/// Why evidence does not count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// For programs.
    pub code: RefusalCode,
    /// For people: what is wrong with which input.
    pub message: String,
}

/// The kinds of refusal. The words are stable: policies and dashboards match them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefusalCode {
    /// The bytes are not what they say they are.
    Malformed,
    /// Genuine or not, it speaks of another image.
    OtherSubject,
    /// The signature does not fit the key.
    BadSignature,
    /// Signed by somebody else than this authority.
    OtherSigner,
    /// The certificate does not lead to a trusted one, or breaks its rules.
    UntrustedCertificate,
    /// Not valid at the time that counts.
    Expired,
    /// The certificate was taken back.
    Revoked,
    /// Whether the certificate was taken back cannot be told from what is here.
    RevocationUnknown,
    /// The proof that it is in a transparency log is missing or wrong.
    NotLogged,
    /// The proof of when it was signed is missing or wrong.
    NotTimestamped,
    /// An algorithm or form that is not taken.
    Unsupported,
}

impl fmt::Display for RefusalCode {
    /// As in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        serde::Serialize::serialize(self, f)
    }
}
