//! A signature as the Notary Project packs it, read but not judged.

use portolan_core::{Descriptor, Digest};
use serde_json::Value;

use super::headers::Headers;
use super::refuse::{malformed, quoted, refuse, unsupported};
use super::{cose, json, jws};
use crate::authority::{Refusal, RefusalCode};

/// Real ones have ten kilobytes.
pub const MAX_ENVELOPE_BYTES: usize = 1024 * 1024;
/// What a manifest that holds one says it is.
pub const SIGNATURE_ARTIFACT: &str = "application/vnd.cncf.notary.signature";
/// The media type of a JWS envelope.
pub const JWS: &str = "application/jose+json";
/// The media type of a COSE envelope.
pub const COSE: &str = "application/cose";

/// An envelope of either form.
#[derive(Debug)]
pub(super) struct Envelope {
    pub(super) headers: Headers,
    /// What the signature is over.
    pub(super) signed: Vec<u8>,
    pub(super) signature: Vec<u8>,
    pub(super) payload: Vec<u8>,
    /// From the signer to the root, unread.
    pub(super) chain: Vec<Vec<u8>>,
    /// An RFC 3161 token over the signature, unread.
    pub(super) timestamp: Option<Vec<u8>>,
}

impl Envelope {
    /// Reads `bytes` by what their descriptor says they are.
    pub(super) fn read(media_type: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() > MAX_ENVELOPE_BYTES {
            return Err(malformed(format!(
                "the envelope has {} bytes; {MAX_ENVELOPE_BYTES} are taken",
                bytes.len()
            )));
        }
        match media_type {
            JWS => jws::read(bytes),
            COSE => cose::read(bytes),
            other => Err(unsupported(format!(
                "a signature of type {}; {JWS} and {COSE} are taken",
                quoted(other)
            ))),
        }
    }

    /// Whether the payload means exactly `subject`: digest, size and media type.
    pub(super) fn speaks_of(&self, subject: &Descriptor) -> Result<(), Refusal> {
        let target = Target::read(&self.payload)?;
        let other = |what: &str, said: &dyn std::fmt::Display, is: &dyn std::fmt::Display| {
            Err(refuse(
                RefusalCode::OtherSubject,
                format!("it signs an artifact whose {what} is {said}; the subject's is {is}"),
            ))
        };
        if target.digest != subject.digest {
            return other("digest", &target.digest, &subject.digest);
        }
        if target.size != subject.size {
            return other("size", &target.size, &subject.size);
        }
        if target.media_type != subject.media_type {
            return other("media type", &quoted(&target.media_type), &quoted(&subject.media_type));
        }
        Ok(())
    }
}

/// What a payload says was signed.
struct Target {
    media_type: String,
    digest: Digest,
    size: u64,
}

impl Target {
    fn read(payload: &[u8]) -> Result<Self, Refusal> {
        let document = json::parse(payload)
            .map_err(|error| malformed(format!("the payload is not JSON: {error}")))?;
        let Value::Object(members) = &document else {
            return Err(malformed("the payload is no object"));
        };
        if let Some(other) = members.keys().find(|key| *key != "targetArtifact") {
            return Err(malformed(format!("the payload has the member {}", quoted(other))));
        }
        let text = |name: &str| {
            let value = document["targetArtifact"][name].as_str();
            value.ok_or_else(|| malformed(format!("the payload has no targetArtifact.{name}")))
        };
        let digest = text("digest")?;
        Ok(Self {
            media_type: text("mediaType")?.to_owned(),
            digest: digest
                .parse()
                .map_err(|_| malformed(format!("the payload's digest is {}", quoted(digest))))?,
            size: document["targetArtifact"]["size"]
                .as_u64()
                .ok_or_else(|| malformed("the payload has no targetArtifact.size"))?,
        })
    }
}
