//! Whom Sigstore's identities and logs rest on.

use std::fmt;
use std::sync::Arc;

use sigstore_verify::Verifier;
use sigstore_verify::trust_root::TrustedRoot as Document;
use sigstore_verify::types::{Bundle, TransparencyLogEntry};

use super::refusal::refusal;
use crate::authority::{Refusal, RefusalCode};

/// The public instance's has 7 KiB.
const MAX_ROOT_BYTES: usize = 4 * 1024 * 1024;

/// Certificate authorities, logs and timestamping authorities that are trusted, as in a
/// `trusted_root.json`. Nothing is fetched to judge with it.
#[derive(Clone)]
pub struct TrustedRoot {
    verifier: Arc<Verifier>,
    logs: usize,
    authorities: usize,
}

impl fmt::Debug for TrustedRoot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { logs, authorities, .. } = self;
        write!(f, "TrustedRoot({logs} logs, {authorities} certificate authorities)")
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
        Ok(Self { verifier: Arc::new(verifier), logs, authorities })
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
