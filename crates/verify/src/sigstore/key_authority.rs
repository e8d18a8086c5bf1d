//! Trust in keys.

use std::sync::Arc;

use jiff::Timestamp;
use portolan_core::Digest;
use sigstore_verify::types::DerPublicKey;
use sigstore_verify::{Error, PublicKeyVerificationPolicy};

use super::proven::Proven;
use super::refusal::{from_sigstore, malformed, refusal};
use super::root::{LogPolicy, TrustedRoot};
use super::signed::{Message, Signed, Signer};
use crate::authority::{Accepted, Authority, Judgement, Refusal, RefusalCode};
use crate::evidence::Evidence;
use crate::key::{Algorithm, PublicKey};
use crate::subject::Subject;

/// Whoever holds one of these keys may vouch.
#[derive(Debug, Clone)]
pub struct KeyAuthority {
    keys: Vec<PublicKey>,
    log: LogPolicy,
    proven: Arc<Proven>,
}

impl KeyAuthority {
    /// One signature of any of `keys` counts; no keys, no signature counts. Those of a key that the log
    /// does not [fit](LogPolicy::fits) are refused.
    pub fn new(keys: Vec<PublicKey>, log: LogPolicy) -> Self {
        Self { keys, log, proven: Arc::default() }
    }

    fn decide(&self, subject: &Digest, signed: Signed) -> Result<Accepted, Refusal> {
        let key = self.signer(&signed)?;
        let mut checks = vec!["the signature fits the key", "it names this digest"];
        let mut signed_at = None;
        if let LogPolicy::Require(root) = &self.log {
            let unfit = |error| refusal(RefusalCode::Unsupported, format!("{error}"));
            self.log.fits(key).map_err(unfit)?;
            signed_at = logged(subject, &signed, key, root)?;
            checks.push("a transparency log holds it");
        }
        let signer = format!("sha256:{}", key.fingerprint());
        let (issuer, warnings) = (None, Vec::new());
        let claim = signed.claim.read()?;
        Ok(Accepted { signer, issuer, signed_at, claim, checks, warnings })
    }

    /// The key that made the signature. A hint is only a word: every key is tried.
    fn signer(&self, signed: &Signed) -> Result<&PublicKey, Refusal> {
        let fits = |key: &&PublicKey| {
            signed.signatures.iter().any(|signature| match &signed.message {
                Message::Bytes(bytes) => {
                    let verify = || key.verifies(bytes, signature);
                    self.proven.or(key, (bytes, signature), verify)
                }
                Message::Subject(digest) => key.verifies_digest(digest, signature),
            })
        };
        if let Some(key) = self.keys.iter().find(fits) {
            return Ok(key);
        }
        let known: Vec<_> = self.keys.iter().map(PublicKey::fingerprint).collect();
        let known = known.join(", ");
        let (code, message) = match &signed.signer {
            Signer::Certificate => (
                RefusalCode::OtherSigner,
                format!("it was signed with a certificate and not with one of the keys {known}"),
            ),
            Signer::Key { hint: Some(hint) } if !self.keys.iter().any(|key| hints(hint, key)) => {
                let hint: String = hint.chars().take(80).collect();
                let message = format!("it was signed with the key {hint:?}, not one of {known}");
                (RefusalCode::OtherSigner, message)
            }
            Signer::Key { .. } => {
                let message = format!("the signature fits none of the keys {known}");
                (RefusalCode::BadSignature, message)
            }
        };
        Err(refusal(code, message))
    }
}

/// The hint is the tool's own word; Sigstore's tools write the hash of the key in base64.
fn hints(hint: &str, key: &PublicKey) -> bool {
    hint == key.fingerprint() || hint == super::sign_hint(key)
}

impl Authority for KeyAuthority {
    fn judge(&self, subject: &Subject, evidence: &Evidence, _now: Timestamp) -> Option<Judgement> {
        let digest = &subject.descriptor.digest;
        let signed = Signed::read(digest, &evidence.content)?;
        Some(signed.and_then(|signed| self.decide(digest, signed)).into())
    }
}

/// When a log of `root` took the signature; an error when none proves that it did.
fn logged(
    subject: &Digest,
    signed: &Signed,
    key: &PublicKey,
    root: &TrustedRoot,
) -> Result<Option<Timestamp>, Refusal> {
    if signed.signer == Signer::Certificate {
        return Err(malformed("it fits the key but carries a certificate"));
    }
    let bundle = signed.to_bundle()?;
    super::root::every_entry_is_proven(&bundle)?;
    let policy = PublicKeyVerificationPolicy::new(DerPublicKey::new(key.as_der().to_vec()));
    let result = root.verifier().verify(signed.artifact(subject), &bundle, &policy);
    let result = result.map_err(|error| match error {
        // That it is good was seen before: what the library does not take is the hash.
        Error::SignatureInvalid(_) => other_hash(key),
        error => from_sigstore(&error, true),
    })?;
    if !result.tlog_verified() {
        return Err(refusal(RefusalCode::NotLogged, "no transparency log holds it"));
    }
    Ok(result.integrated_time())
}

fn other_hash(key: &PublicKey) -> Refusal {
    let held = match key.algorithm() {
        Algorithm::EcdsaP384 => "over SHA-384 in a bundle and over SHA-256 in a layer",
        _ => "over SHA-256",
    };
    let message = format!(
        "the signature fits the key, but over a hash with which it cannot be held against the log: those of {} keys are {held}; sign so, or do without the log",
        key.algorithm()
    );
    refusal(RefusalCode::Unsupported, message)
}
