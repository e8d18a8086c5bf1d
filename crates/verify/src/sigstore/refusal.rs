//! From what goes wrong to why evidence does not count.

use portolan_core::terminal::plays;
use sigstore_verify::{CertificateError, Error, bundle};

use crate::authority::{Refusal, RefusalCode};

/// A parser quotes what it did not like, and that is a stranger's.
const MAX_MESSAGE: usize = 600;

/// A message for people on one line of a terminal, whatever it quotes.
pub(super) fn refusal(code: RefusalCode, message: impl AsRef<str>) -> Refusal {
    let mut plain = String::new();
    for c in message.as_ref().chars().take(MAX_MESSAGE) {
        if plays(c) {
            plain.extend(c.escape_unicode());
        } else {
            plain.push(c);
        }
    }
    Refusal { code, message: plain }
}

pub(super) fn malformed(message: impl AsRef<str>) -> Refusal {
    refusal(RefusalCode::Malformed, message)
}

/// What the Sigstore library said, in our words for programs and its words for people. Where no log is
/// asked for, nothing but a timestamp could have proven the time.
pub(super) fn from_sigstore(error: &Error, log_is_asked_for: bool) -> Refusal {
    let code = match error {
        Error::IdentityMismatch { .. } | Error::IssuerMismatch { .. } => RefusalCode::OtherSigner,
        Error::SignatureInvalid(_) => RefusalCode::BadSignature,
        // That it names the subject was seen before the library was asked; what is left is a log
        // entry of something else.
        Error::ArtifactMismatch(_) => RefusalCode::NotLogged,
        Error::Certificate(inner) => match inner {
            CertificateError::Expired { .. } | CertificateError::NotYetValid { .. } => {
                RefusalCode::Expired
            }
            // The library tells the time of a chain only in words; a test holds them.
            CertificateError::ChainInvalid(words)
                if words.contains("CertExpired") || words.contains("CertNotValidYet") =>
            {
                RefusalCode::Expired
            }
            CertificateError::Malformed(_) => RefusalCode::Malformed,
            _ => RefusalCode::UntrustedCertificate,
        },
        Error::TransparencyLog(_) => RefusalCode::NotLogged,
        Error::Timestamp(_) => RefusalCode::NotTimestamped,
        Error::Bundle(inner) => match inner {
            bundle::Error::MissingSigningTimeEvidence if !log_is_asked_for => {
                RefusalCode::NotTimestamped
            }
            bundle::Error::MissingInclusionPromise(_)
            | bundle::Error::MissingInclusionProof(_)
            | bundle::Error::MissingSigningTimeEvidence => RefusalCode::NotLogged,
            _ => RefusalCode::Malformed,
        },
        Error::InvalidBundle(_) | Error::Types(_) => RefusalCode::Malformed,
        _ => RefusalCode::Unsupported,
    };
    refusal(code, error.to_string())
}
