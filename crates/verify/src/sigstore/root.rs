//! Whom Sigstore's identities and logs rest on.

use std::fmt;
use std::sync::Arc;

use sigstore_verify::Verifier;
use sigstore_verify::trust_root::TrustedRoot as Document;
use sigstore_verify::types::{Bundle, TransparencyLogEntry};

use super::refusal::refusal;
use crate::authority::{Refusal, RefusalCode};
use crate::key::{Algorithm, PublicKey};

/// The public instance's has 7 KiB.
const MAX_ROOT_BYTES: usize = 4 * 1024 * 1024;

/// Certificate authorities, logs and timestamping authorities that are trusted, as in a
/// `trusted_root.json`. Nothing is fetched to judge with it.
#[derive(Clone)]
pub struct TrustedRoot {
    verifier: Arc<Verifier>,
    logs: usize,
    authorities: usize,
    clocks: usize,
}

impl fmt::Debug for TrustedRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, authorities, clocks, .. } = self;
        write!(
            f,
            "TrustedRoot({logs} logs, {authorities} certificate authorities, {clocks} timestamping authorities)"
        )
    }
}

/// Why a document is no trusted root.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TrustedRootError {
    /// Larger than any.
    #[error("the trusted root has {size} bytes, at most {MAX_ROOT_BYTES} are read")]
    TooLarge {
        /// How many.
        size: usize,
    },
    /// Not the JSON that it should be.
    #[error("it is no trusted root (expected a trusted_root.json of Sigstore): {reason}")]
    Json {
        /// What the parser said.
        reason: String,
    },
    /// A key or certificate in it cannot be used.
    #[error("a key or certificate in the trusted root cannot be used: {reason}")]
    Material {
        /// Which and why.
        reason: String,
    },
}

impl TrustedRoot {
    /// Reads a `trusted_root.json`. Every key and certificate in it must be usable, so that a root
    /// with a mistake is found here and not at the first signature.
    pub fn from_json(bytes: &[u8]) -> Result<Self, TrustedRootError> {
        if bytes.len() > MAX_ROOT_BYTES {
            return Err(TrustedRootError::TooLarge { size: bytes.len() });
        }
        let json = |reason: String| TrustedRootError::Json { reason };
        let text = std::str::from_utf8(bytes).map_err(|error| json(error.to_string()))?;
        let document = Document::from_json(text).map_err(|error| json(error.to_string()))?;
        let verifier = Verifier::new(&document)
            .map_err(|error| TrustedRootError::Material { reason: error.to_string() })?;
        let (logs, authorities) = (document.tlogs.len(), document.certificate_authorities.len());
        let clocks = document.timestamp_authorities.len();
        Ok(Self { verifier: Arc::new(verifier), logs, authorities, clocks })
    }

    /// Whether it names anybody who timestamps.
    pub fn has_clocks(&self) -> bool {
        self.clocks > 0
    }

    pub(super) fn verifier(&self) -> &Verifier {
        &self.verifier
    }
}

/// Whether a signature has to be in a transparency log.
#[derive(Debug, Clone)]
pub enum LogPolicy {
    /// Whoever holds the key is trusted; nobody else has to have seen the signature.
    Ignore,
    /// A log of this root must have promised or proven that it holds the signature.
    Require(TrustedRoot),
}

/// A key whose signatures nobody here can hold against a log, so that none of them would count.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the log cannot be required of the {algorithm} key sha256:{fingerprint}: what a log holds of signatures of such keys is not read; do without the log (`log: ignored`, no --require-log), or sign with a key of ECDSA P-256 or RSA"
)]
pub struct UnlogableKey {
    /// What kind of key it is.
    pub algorithm: Algorithm,
    /// Which.
    pub fingerprint: String,
}

impl LogPolicy {
    /// Whether signatures of `key` can be held against the log, where one is required. The Sigstore
    /// library, which judges the log's entry together with the signature, takes Ed25519 only over the
    /// bytes themselves and P-521 not at all; cosign signs a hash with Ed25519, and only such
    /// signatures come to a log.
    pub fn fits(&self, key: &PublicKey) -> Result<(), UnlogableKey> {
        let algorithm = key.algorithm();
        match (self, algorithm) {
            (Self::Require(_), Algorithm::Ed25519 | Algorithm::EcdsaP521) => {
                Err(UnlogableKey { algorithm, fingerprint: key.fingerprint() })
            }
            _ => Ok(()),
        }
    }
}

/// An entry without proof and promise says nothing, so it must not stand beside one that does.
pub(super) fn every_entry_is_proven(bundle: &Bundle) -> Result<(), Refusal> {
    let entries = &bundle.verification_material.tlog_entries;
    let proven = |entry: &TransparencyLogEntry| {
        entry.inclusion_promise.is_some() || entry.inclusion_proof.is_some()
    };
    if !entries.is_empty() && entries.iter().all(proven) {
        return Ok(());
    }
    let message = "no transparency log says that it holds the signature";
    Err(refusal(RefusalCode::NotLogged, message))
}
