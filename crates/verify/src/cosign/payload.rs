//! The document that a simple signature signs.

use portolan_core::Digest;
use serde::{Deserialize, Serialize};

/// What `type` must say. Without this, a document that the same key signed for another purpose
/// could pass for an image's signature.
const KIND: &str = "cosign container image signature";

/// No such document is larger: it is one digest, one name and a few annotations.
pub const MAX_PAYLOAD_BYTES: usize = 256 * 1024;

/// A document that says "this digest".
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Payload {
    critical: Critical,
    optional: Option<serde_json::Map<String, serde_json::Value>>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Critical {
    identity: Identity,
    image: Image,
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Identity {
    #[serde(rename = "docker-reference")]
    reference: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Image {
    #[serde(rename = "docker-manifest-digest")]
    digest: String,
}

/// Why a document names no image.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// Larger than any.
    #[error("the signed document has {size} bytes, at most {MAX_PAYLOAD_BYTES} are read")]
    TooLarge {
        /// How many.
        size: usize,
    },
    /// Not the JSON that it should be.
    #[error("the signed document is no simple signature: {reason}")]
    Json {
        /// What the parser said.
        reason: String,
    },
    /// Signed for another purpose.
    #[error("the signed document is of the type {found:?}, not {KIND:?}")]
    OtherKind {
        /// As written.
        found: String,
    },
    /// It names something that is no digest.
    #[error("the signed document names {found:?}, which is no digest")]
    NoDigest {
        /// As written.
        found: String,
    },
}

impl Payload {
    /// A document for the image `digest`, as cosign writes it. The same image and name give the
    /// same bytes.
    pub fn new(digest: &Digest, reference: &str) -> Self {
        let identity = Identity { reference: reference.to_owned() };
        let image = Image { digest: digest.to_string() };
        Self { critical: Critical { identity, image, kind: KIND.to_owned() }, optional: None }
    }

    /// The bytes to sign.
    pub fn to_vec(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and JSON values are JSON")
    }

    /// Reads what was signed.
    pub fn parse(bytes: &[u8]) -> Result<Self, PayloadError> {
        if bytes.len() > MAX_PAYLOAD_BYTES {
            return Err(PayloadError::TooLarge { size: bytes.len() });
        }
        let payload: Self = serde_json::from_slice(bytes)
            .map_err(|error| PayloadError::Json { reason: error.to_string() })?;
        if payload.critical.kind != KIND {
            let found = payload.critical.kind.chars().take(80).collect();
            return Err(PayloadError::OtherKind { found });
        }
        payload.digest()?;
        Ok(payload)
    }

    /// The image it names. Where the image was when it was signed does not count: a copy of an
    /// image is the image.
    pub fn digest(&self) -> Result<Digest, PayloadError> {
        let text = &self.critical.image.digest;
        text.parse().map_err(|_| PayloadError::NoDigest { found: text.chars().take(140).collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_document_is_the_one_cosign_writes() {
        let digest = Digest::sha256(b"");
        let bytes = Payload::new(&digest, "127.0.0.1:5000/app").to_vec();
        let expected = format!(
            r#"{{"critical":{{"identity":{{"docker-reference":"127.0.0.1:5000/app"}},"image":{{"docker-manifest-digest":"{digest}"}},"type":"cosign container image signature"}},"optional":null}}"#
        );
        assert_eq!(String::from_utf8(bytes.clone()).unwrap(), expected);
        assert_eq!(Payload::parse(&bytes).unwrap().digest().unwrap(), digest);
    }

    #[test]
    fn what_is_no_simple_signature_is_refused_with_the_reason() {
        let good = String::from_utf8(Payload::new(&Digest::sha256(b""), "a/b").to_vec()).unwrap();
        let atomic = good.replace(KIND, "atomic container signature");
        let no_digest = good.replace("sha256:", "md5:");
        let twice = good.replace("\"type\":", "\"type\":\"x\",\"type\":");
        let huge = format!("{good}{}", " ".repeat(MAX_PAYLOAD_BYTES));
        for (text, expected) in [
            (atomic.as_str(), "of the type \"atomic container signature\""),
            (&no_digest, "which is no digest"),
            (&twice, "duplicate field"),
            (&huge, "bytes, at most"),
            ("{}", "missing field"),
            ("", "EOF"),
            (&"[".repeat(100_000), "no simple signature"),
        ] {
            let error = Payload::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
