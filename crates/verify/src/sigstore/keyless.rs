//! Trust in identities: whoever an issuer says they are, proven by a certificate for minutes.

use jiff::Timestamp;
use portolan_core::Digest;
use regex::{Regex, RegexBuilder};
use sigstore_verify::VerificationPolicy;

use super::refusal::{from_sigstore, refusal};
use super::root::{TrustedRoot, every_entry_is_proven};
use super::signed::{Signed, Signer};
use crate::authority::{Accepted, Authority, Judgement, Refusal, RefusalCode};
use crate::evidence::Evidence;
use crate::subject::Subject;

/// A pattern may take this much memory, in bytes.
const MAX_PATTERN: usize = 256 * 1024;

/// A pattern that does not take much memory.
pub fn pattern(text: &str) -> Result<Regex, regex::Error> {
    RegexBuilder::new(text).size_limit(MAX_PATTERN).build()
}

/// Which identities or issuers are meant.
#[derive(Debug, Clone)]
pub enum Match {
    /// This one.
    Exact(String),
    /// Those that the expression matches **as a whole**: `alice` does not match
    /// `alice@example.com.evil.example`.
    Regex(Regex),
}

/// An expression that does not stand alone.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error(
    "the expression {pattern:?} cannot be held against a whole name; remove comments ((?x) … #) from its end, or make it smaller"
)]
pub struct MatchError {
    /// As given.
    pub pattern: String,
    /// Why not.
    #[source]
    source: regex::Error,
}

impl Match {
    /// The same, but an expression is tied to the beginning and the end.
    fn whole(self) -> Result<Self, MatchError> {
        let Self::Regex(regex) = self else { return Ok(self) };
        let pattern = regex.as_str().to_owned();
        // Groups keep alternatives together: `a|b` must not become `\Aa` or `b\z`.
        match self::pattern(&format!(r"\A(?:{pattern})\z")) {
            Ok(regex) => Ok(Self::Regex(regex)),
            Err(source) => Err(MatchError { pattern, source }),
        }
    }

    fn fits(&self, text: &str) -> bool {
        match self {
            Self::Exact(exact) => exact == text,
            Self::Regex(regex) => regex.is_match(text),
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Exact(exact) => format!("{exact:?}"),
            Self::Regex(regex) => format!("/{}/", regex.as_str()),
        }
    }
}

/// What has to be proven beside the identity. The default is everything.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeylessOptions {
    /// That a transparency log holds the signature. Without it a timestamp must prove the time.
    pub require_log: bool,
    /// That the certificate was shown to a log of certificates before it was given out.
    pub require_sct: bool,
}

impl Default for KeylessOptions {
    fn default() -> Self {
        Self { require_log: true, require_sct: true }
    }
}

/// Whoever has this identity may vouch.
#[derive(Debug, Clone)]
pub struct KeylessAuthority {
    identity: Match,
    issuer: Match,
    root: TrustedRoot,
    options: KeylessOptions,
}

impl KeylessAuthority {
    /// Certificates of `root` for `identity`, vouched for by `issuer`. Both are asked for: an
    /// address means nothing without who checked it.
    pub fn new(
        identity: Match,
        issuer: Match,
        root: TrustedRoot,
        options: KeylessOptions,
    ) -> Result<Self, MatchError> {
        Ok(Self { identity: identity.whole()?, issuer: issuer.whole()?, root, options })
    }

    fn policy(&self) -> VerificationPolicy {
        // Who it was is looked at afterwards, by us: the library only knows exact names.
        let mut policy = VerificationPolicy::any_identity();
        if !self.options.require_log {
            policy = policy.skip_tlog_unsafe();
        }
        if !self.options.require_sct {
            policy = policy.skip_sct();
        }
        policy
    }

    fn decide(&self, subject: &Digest, signed: Signed) -> Result<Accepted, Refusal> {
        if signed.signer != Signer::Certificate {
            let message = "it was signed with a key and carries no certificate with an identity";
            return Err(refusal(RefusalCode::OtherSigner, message));
        }
        let bundle = signed.to_bundle()?;
        if self.options.require_log {
            every_entry_is_proven(&bundle)?;
        }
        let verifier = self.root.verifier();
        let result = verifier.verify(signed.artifact(subject), &bundle, &self.policy());
        let result = result.map_err(|error| from_sigstore(&error, self.options.require_log))?;
        // The policy asks for all of this; if it ever did not, nothing may count.
        let proven = result.certificate_verified()
            && (result.sct_verified() || !self.options.require_sct)
            && (result.tlog_verified() || !self.options.require_log);
        if !proven {
            let message = "the certificate was not checked in full";
            return Err(refusal(RefusalCode::UntrustedCertificate, message));
        }
        let identity = result.identity().map(|name| name.as_str().to_owned()).unwrap_or_default();
        let issuer = result.issuer().unwrap_or_default().to_owned();
        self.is_meant("identity", &self.identity, &identity)?;
        self.is_meant("issuer", &self.issuer, &issuer)?;
        let mut checks = vec![
            "the signature fits the certificate",
            "the certificate leads to the trusted root and was valid",
            "identity and issuer are the ones asked for",
            "it names this digest",
        ];
        if self.options.require_sct {
            checks.push("a log of certificates was shown the certificate");
        }
        if self.options.require_log {
            checks.push("a transparency log holds it");
        }
        let signed_at = result.verified_timestamps().iter().min().copied();
        let (signer, issuer, warnings) = (identity, Some(issuer), Vec::new());
        let claim = signed.claim.read()?;
        Ok(Accepted { signer, issuer, signed_at, claim, checks, warnings })
    }

    fn is_meant(&self, what: &str, wanted: &Match, found: &str) -> Result<(), Refusal> {
        // An expression such as `.*` must not make nobody somebody.
        if !found.is_empty() && wanted.fits(found) {
            return Ok(());
        }
        let found: String = found.chars().take(200).collect();
        let message = format!("the {what} is {found:?}, not {}", wanted.shown());
        Err(refusal(RefusalCode::OtherSigner, message))
    }
}

impl Authority for KeylessAuthority {
    fn judge(&self, subject: &Subject, evidence: &Evidence, _now: Timestamp) -> Option<Judgement> {
        let digest = &subject.descriptor.digest;
        let signed = Signed::read(digest, &evidence.content)?;
        Some(signed.and_then(|signed| self.decide(digest, signed)).into())
    }
}
