//! What a layer of an artifact is: by its own media type, and for signatures of the Notary Project
//! and documents by the artifact's.

use bytes::Bytes;
use portolan_core::{Descriptor, Manifest};

use crate::cosign::SIMPLE_SIGNING;
use crate::evidence::Content;
use crate::notation;

const DSSE: &str = "application/vnd.dsse.envelope.v1+json";
/// What comes after it is the version, in one of two spellings.
const BUNDLE: &str = "application/vnd.dev.sigstore.bundle";
/// When an artifact says it was made.
const CREATED: &str = "org.opencontainers.image.created";

/// Lists of parts, and of weaknesses.
pub(crate) const SPDX: [&str; 2] = ["application/spdx+json", "text/spdx+json"];
pub(crate) const CYCLONEDX: &str = "application/vnd.cyclonedx+json";
pub(crate) const SARIF: &str = "application/sarif+json";

/// What a layer is taken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// A signature of cosign 2.
    SimpleSigning,
    /// An attestation of cosign 2.
    Attestation,
    /// A Sigstore bundle.
    Bundle,
    /// A signature of the Notary Project.
    Notation,
    /// A list of parts or of weaknesses.
    Document,
}

/// What `layer` is; none where it is nothing that is judged.
pub(super) fn of(manifest: &Manifest, layer: &Descriptor) -> Option<Use> {
    let media_type = layer.media_type.as_str();
    let artifact_type = artifact_type(manifest);
    match media_type {
        SIMPLE_SIGNING => Some(Use::SimpleSigning),
        DSSE => Some(Use::Attestation),
        _ if media_type.starts_with(BUNDLE) => Some(Use::Bundle),
        _ if artifact_type == notation::SIGNATURE_ARTIFACT => {
            [notation::JWS, notation::COSE].contains(&media_type).then_some(Use::Notation)
        }
        _ if is_document(media_type) || is_document(artifact_type) => Some(Use::Document),
        _ => None,
    }
}

fn artifact_type(manifest: &Manifest) -> &str {
    manifest.artifact_type.as_deref().unwrap_or(&manifest.config.media_type)
}

fn is_document(media_type: &str) -> bool {
    SPDX.contains(&media_type) || [CYCLONEDX, SARIF].contains(&media_type)
}

impl Use {
    /// The evidence in these bytes.
    pub(super) fn content(self, manifest: &Manifest, layer: &Descriptor, bytes: Bytes) -> Content {
        let annotations = || layer.annotations.clone();
        match self {
            Self::SimpleSigning => {
                Content::SimpleSigning { payload: bytes, annotations: annotations() }
            }
            Self::Attestation => {
                Content::Attestation { envelope: bytes, annotations: annotations() }
            }
            Self::Bundle => Content::Bundle(bytes),
            Self::Notation => {
                Content::Notation { media_type: layer.media_type.clone(), envelope: bytes }
            }
            Self::Document => Content::Document {
                artifact_type: artifact_type(manifest).to_owned(),
                media_type: layer.media_type.clone(),
                created: manifest.annotations.get(CREATED).cloned(),
                bytes,
            },
        }
    }
}
