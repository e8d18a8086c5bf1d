//! What was found attached to a subject, fetched and bounded, but not judged.

use std::collections::BTreeMap;

use bytes::Bytes;
use portolan_core::{Digest, Tag};

/// How a piece of evidence was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Carrier {
    /// In the list of what refers to the subject.
    Referrer,
    /// Under a tag made of the subject's digest (`sha256-….sig`).
    Tag(Tag),
}

/// One signature, attestation or document.
#[derive(Debug, Clone)]
pub struct Evidence {
    /// The manifest that it came in.
    pub artifact: Digest,
    /// How that was found.
    pub carrier: Carrier,
    /// What it is.
    pub content: Content,
}

/// What a piece of evidence is. The bytes have the digest that their descriptor says, and nothing
/// more is known of them.
#[derive(Debug, Clone)]
pub enum Content {
    /// One layer of a signature as cosign 2 makes it.
    SimpleSigning {
        /// The signed bytes.
        payload: Bytes,
        /// Of the layer: signature, certificate, log entry.
        annotations: BTreeMap<String, String>,
    },
    /// One layer of an attestation as cosign 2 makes it: a DSSE envelope.
    Attestation {
        /// The envelope.
        envelope: Bytes,
        /// Of the layer: certificate, log entry.
        annotations: BTreeMap<String, String>,
    },
    /// A Sigstore bundle, as cosign 3 makes it: a signature or an attestation.
    Bundle(Bytes),
    /// A signature of the Notary Project.
    Notation {
        /// JWS or COSE.
        media_type: String,
        /// The envelope.
        envelope: Bytes,
    },
    /// A document that is not signed by itself, such as a list of parts or of weaknesses.
    Document {
        /// What the artifact says it is.
        artifact_type: String,
        /// What the layer says it is.
        media_type: String,
        /// When the artifact says it was made.
        created: Option<String>,
        /// The document.
        bytes: Bytes,
    },
}

/// How a signature or attestation is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SignatureKind {
    /// As a layer of cosign 2.
    Layer,
    /// As a Sigstore bundle.
    Bundle,
    /// As the Notary Project does.
    Notation,
}

impl Content {
    /// How many bytes have to be read to judge it.
    pub fn size(&self) -> usize {
        match self {
            Self::SimpleSigning { payload: bytes, .. }
            | Self::Attestation { envelope: bytes, .. }
            | Self::Bundle(bytes)
            | Self::Notation { envelope: bytes, .. }
            | Self::Document { bytes, .. } => bytes.len(),
        }
    }

    /// None where it is not signed by itself.
    pub fn kind(&self) -> Option<SignatureKind> {
        match self {
            Self::SimpleSigning { .. } | Self::Attestation { .. } => Some(SignatureKind::Layer),
            Self::Bundle(_) => Some(SignatureKind::Bundle),
            Self::Notation { .. } => Some(SignatureKind::Notation),
            Self::Document { .. } => None,
        }
    }
}
