//! Signed statements: the envelope (DSSE) and what is in it (in-toto).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use portolan_core::Digest;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::MAX_BUNDLE_BYTES;
use super::refusal::{malformed, refusal};
use crate::authority::{Claim, Refusal, RefusalCode};

/// What a statement of in-toto is called in an envelope.
pub const IN_TOTO: &str = "application/vnd.in-toto+json";
/// The statement "I signed this image".
pub const COSIGN_SIGN: &str = "https://sigstore.dev/cosign/sign/v1";

const STATEMENTS: [&str; 2] =
    ["https://in-toto.io/Statement/v1", "https://in-toto.io/Statement/v0.1"];
/// Each costs a verification per key.
const MAX_SIGNATURES: usize = 16;

/// An envelope: bytes, what they are, and signatures over both.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Envelope {
    /// What the payload is.
    pub payload_type: String,
    /// The bytes.
    pub payload: Vec<u8>,
    /// Any of them may be the one that counts.
    pub signatures: Vec<Vec<u8>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEnvelope {
    payload_type: String,
    payload: String,
    signatures: Vec<RawSignature>,
}

#[derive(Deserialize)]
struct RawSignature {
    sig: String,
}

impl Envelope {
    /// Reads an envelope.
    pub fn parse(bytes: &[u8]) -> Result<Self, Refusal> {
        if bytes.len() > MAX_BUNDLE_BYTES {
            let size = bytes.len();
            let message = format!("the envelope has {size} bytes, at most {MAX_BUNDLE_BYTES}");
            return Err(malformed(message));
        }
        let raw: RawEnvelope = serde_json::from_slice(bytes)
            .map_err(|error| malformed(format!("this is no DSSE envelope: {error}")))?;
        if raw.signatures.is_empty() || raw.signatures.len() > MAX_SIGNATURES {
            let found = raw.signatures.len();
            let message = format!("the envelope has {found} signatures, 1 to {MAX_SIGNATURES} fit");
            return Err(malformed(message));
        }
        let signatures = raw.signatures.iter().map(|one| decode("signature", &one.sig));
        let signatures = signatures.collect::<Result<_, _>>()?;
        let payload = decode("payload", &raw.payload)?;
        Ok(Self { payload_type: raw.payload_type, payload, signatures })
    }

    /// The statement in it.
    pub fn statement(&self) -> Result<Statement, Refusal> {
        Statement::parse(&self.payload_type, &self.payload)
    }
}

/// Both alphabets are allowed, and used.
fn decode(what: &str, text: &str) -> Result<Vec<u8>, Refusal> {
    STANDARD
        .decode(text)
        .or_else(|_| URL_SAFE.decode(text))
        .map_err(|error| malformed(format!("the envelope's {what} is no base64: {error}")))
}

/// The bytes that a signature in an envelope is over: type and payload, each with its length, so
/// that neither can pass for a part of the other.
pub fn pae(payload_type: &str, payload: &[u8]) -> Vec<u8> {
    let head = format!("DSSEv1 {} {payload_type} {} ", payload_type.len(), payload.len());
    [head.as_bytes(), payload].concat()
}

/// What is said of one or more things that are named by digest.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Statement {
    #[serde(rename = "_type")]
    kind: String,
    subject: Vec<Named>,
    predicate_type: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    predicate: Option<Box<RawValue>>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct Named {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default)]
    digest: BTreeMap<String, String>,
}

impl Statement {
    /// "I signed this image", as cosign 3 says it.
    pub fn signature(subject: &Digest) -> Self {
        let digest = BTreeMap::from([(subject.algorithm().as_str().to_owned(), subject.hex())]);
        Self {
            kind: STATEMENTS[0].to_owned(),
            subject: vec![Named { name: None, digest }],
            predicate_type: COSIGN_SIGN.to_owned(),
            predicate: serde_json::value::to_raw_value(&serde_json::Map::new()).ok(),
        }
    }

    /// The bytes to sign.
    pub fn to_vec(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("strings and JSON values are JSON")
    }

    pub(super) fn parse(payload_type: &str, payload: &[u8]) -> Result<Self, Refusal> {
        if payload_type != IN_TOTO {
            let found: String = payload_type.chars().take(80).collect();
            let message = format!("the envelope holds {found:?}, only {IN_TOTO:?} names an image");
            return Err(refusal(RefusalCode::Unsupported, message));
        }
        let statement: Self = serde_json::from_slice(payload)
            .map_err(|error| malformed(format!("the payload is no in-toto statement: {error}")))?;
        if !STATEMENTS.contains(&statement.kind.as_str()) {
            let found: String = statement.kind.chars().take(80).collect();
            let message = format!("the statement is of the unknown kind {found:?}");
            return Err(refusal(RefusalCode::Unsupported, message));
        }
        Ok(statement)
    }

    /// What it says, provided that it speaks of `subject`. A statement may speak of many things.
    ///
    /// Nobody's signature was looked at yet, so the predicate is not read: it may be large, and read it
    /// is many times larger.
    pub(super) fn about(self, subject: &Digest) -> Result<Unread, Refusal> {
        let (algorithm, hex) = (subject.algorithm().as_str(), subject.hex());
        let names = |named: &Named| named.digest.get(algorithm).is_some_and(|found| *found == hex);
        if !self.subject.iter().any(names) {
            let others: Vec<_> = self.subject.iter().take(3).map(Named::shown).collect();
            let message = format!("the statement is about {}, not {subject}", others.join(", "));
            return Err(refusal(RefusalCode::OtherSubject, message));
        }
        if self.predicate_type == COSIGN_SIGN {
            return Ok(Unread::Signature);
        }
        let Self { predicate_type, predicate, .. } = self;
        Ok(Unread::Statement { predicate_type, predicate })
    }
}

/// What is said by whoever signed it, which is not known yet.
#[derive(Debug)]
pub(super) enum Unread {
    Signature,
    Statement { predicate_type: String, predicate: Option<Box<RawValue>> },
}

impl Unread {
    /// What is said, for who knows who said it.
    pub(super) fn read(self) -> Result<Claim, Refusal> {
        let Self::Statement { predicate_type, predicate } = self else {
            return Ok(Claim::Signature);
        };
        let predicate = predicate.map(|raw| serde_json::from_str(raw.get())).transpose();
        let predicate = predicate
            .map_err(|error| malformed(format!("the predicate cannot be read: {error}")))?;
        Ok(Claim::Statement { predicate_type, predicate: predicate.unwrap_or_default() })
    }
}

impl Named {
    fn shown(&self) -> String {
        match self.digest.iter().next() {
            Some((algorithm, hex)) => format!("{algorithm}:{hex}").chars().take(140).collect(),
            None => "something without a digest".to_owned(),
        }
    }
}
