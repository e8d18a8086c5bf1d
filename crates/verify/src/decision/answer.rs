//! What is told of a decision.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use portolan_core::{Digest, Platform};
use serde::{Serialize, Serializer};

use crate::authority::RefusalCode;
use crate::collect::PassedOver;
use crate::evidence::SignatureKind;
use crate::policy::IndexPolicy;
use crate::rego::SubjectFacts;
use crate::subject::Kind;

/// What comes of a question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Everything that the policy asks for is there.
    Verified,
    /// Something is not.
    Refused,
    /// Nothing was said of this image, which is no yes.
    NoPolicy,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Verified => "verified",
            Self::Refused => "refused",
            Self::NoPolicy => "no policy",
        })
    }
}

/// A verdict and everything that led to it.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Answer {
    /// Yes or no.
    pub verdict: Verdict,
    /// As it was asked for.
    pub reference: String,
    /// What the reference named: pin this. None where nothing was resolved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// The rule that decided.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub policy: Option<String>,
    /// What of an index had to pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index_policy: Option<IndexPolicy>,
    /// The machines it was for.
    pub platforms: Vec<String>,
    /// What had to be signed.
    pub subjects: Vec<SubjectAnswer>,
    /// Why not; empty exactly when it is verified.
    pub reasons: Vec<Reason>,
    /// What a yes does not cover.
    pub warnings: Vec<Warning>,
}

/// What a yes does not cover. Written as its sentence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Warning {
    /// The reference is a tag, which may move.
    Tag {
        /// What it was when it was verified.
        digest: Digest,
    },
    /// The index has images that nobody looked at.
    OtherPlatforms(Vec<Platform>),
    /// What a policy in Rego says beside its yes.
    Policy(String),
}

/// Platforms that a warning names; the rest is not told.
const MAX_NAMED: usize = 20;

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tag { digest } => {
                write!(f, "the reference is a tag, which may move; what was verified is {digest}")
            }
            Self::OtherPlatforms(platforms) => {
                let named: Vec<_> =
                    platforms.iter().take(MAX_NAMED).map(ToString::to_string).collect();
                let named = named.join(", ");
                write!(
                    f,
                    "the index has images for other machines, which were not looked at: {named}"
                )
            }
            Self::Policy(message) => f.write_str(message),
        }
    }
}

impl Serialize for Warning {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What came of one subject.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SubjectAnswer {
    /// Which.
    pub digest: Digest,
    /// What it is.
    pub media_type: String,
    /// Index or image.
    pub kind: Kind,
    /// What it runs on; none for an index.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "shown")]
    pub platform: Option<Platform>,
    /// Whether everything asked for is there.
    pub verified: bool,
    /// What each signer says of each piece of evidence.
    pub signatures: Vec<SignatureAnswer>,
    /// What was there and does not count.
    pub passed_over: Vec<PassedOver>,
    /// Why it is not verified.
    pub reasons: Vec<Reason>,
    /// What a policy in Rego is told of it; none where there is no such policy.
    #[serde(skip)]
    pub facts: Option<Arc<SubjectFacts>>,
}

/// As people write it: `linux/arm64`.
pub(crate) fn shown<S: Serializer>(
    platform: &Option<Platform>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match platform {
        Some(platform) => serializer.collect_str(platform),
        None => serializer.serialize_none(),
    }
}

/// What one signer of the policy says of one piece of evidence.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SignatureAnswer {
    /// The artifact it came in.
    pub artifact: Digest,
    /// The tag it was found under; none where it was listed as a referrer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// How it is kept.
    #[serde(skip)]
    pub kind: SignatureKind,
    /// Who was asked: a name of the policy.
    pub signer: String,
    /// Whether it counts.
    pub accepted: bool,
    /// The key or identity it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub identity: Option<String>,
    /// Who vouches for that identity.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// When, where that is proven.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<Timestamp>,
    /// Of an attestation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub predicate_type: Option<String>,
    /// What was checked.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub checks: Vec<&'static str>,
    /// What was found wanting and is told only, as its signer's rules say.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// Why it does not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code: Option<RefusalCode>,
    /// The same for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Why the answer is no.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Reason {
    /// For programs.
    pub code: ReasonCode,
    /// For people.
    pub message: String,
}

impl Reason {
    pub(crate) fn new(code: ReasonCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// The kinds of no. The words are stable: policies and dashboards match them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ReasonCode {
    /// The index has nothing for a machine.
    PlatformNotFound,
    /// No policy speaks of the image.
    NoPolicy,
    /// Nothing is attached to it.
    NotSigned,
    /// Something is, but not by those who must have signed.
    SignerMissing,
    /// A statement is missing.
    AttestationMissing,
    /// A statement is there and says something else.
    AttestationCondition,
    /// A document is missing.
    DocumentMissing,
    /// A document says what it may not.
    DocumentViolation,
    /// The index does not pass.
    IndexRefused,
    /// An image of the index does not pass.
    PlatformRefused,
    /// A policy in Rego says no.
    PolicyDenied,
    /// A policy in Rego did not decide.
    PolicyBroken,
}

impl fmt::Display for ReasonCode {
    /// As in JSON.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Why a policy in Rego did not decide, where another time it may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// It had no time to.
    #[error("{0}")]
    Late(String),
    /// This machine failed.
    #[error("the policy broke down: {0}")]
    Failed(String),
}
