//! What a policy in Rego is given: only what was verified, and apart from it what was not.

use jiff::Timestamp;
use portolan_core::{Digest, Reference};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::Value;

use crate::authority::{Claim, Judgement};
use crate::decision::{Examined, Judged};
use crate::evidence::{Content, Evidence};
use crate::subject::Kind;

/// The input of a policy in Rego.
#[derive(Debug, Clone, Default, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Input {
    /// As it was asked for: `registry.example/team/app:1`.
    pub reference: String,
    /// Without tag and digest.
    pub repository: String,
    /// Where one was written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tag: Option<String>,
    /// What the reference names: of the index, or of the only image.
    pub digest: String,
    /// The machines it is for, such as `linux/arm64`; `*` is a half that may be any.
    pub platforms: Vec<String>,
    /// Where the question comes from; not there where nobody says.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub namespace: Option<String>,
    /// Seconds since 1970.
    pub now: i64,
    /// The index, where there is one, and every image that one of the machines might run.
    pub subjects: Vec<SubjectFacts>,
}

/// What is known of one index or image.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubjectFacts {
    /// Which.
    pub digest: String,
    /// What it is.
    pub media_type: String,
    /// `index` or `manifest`.
    #[schemars(with = "String")]
    pub kind: Kind,
    /// What an image runs on, such as `linux/arm64/v8`; not there for an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<String>,
    /// Who signed it, verified.
    pub signatures: Vec<Signature>,
    /// What was stated about it, and by whom, verified.
    pub attestations: Vec<Attestation>,
    /// Documents that are attached without a signature, as anybody can who may push.
    pub unsigned_documents: Vec<UnsignedDocument>,
}

/// A signature that a signer of the policy accepted for this very subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Signature {
    /// The signer's name in the policy.
    pub signer: String,
    /// The key's fingerprint, or who the certificate says it is. One key has one, under whatever
    /// names: count these, not the names.
    pub identity: String,
    /// Who vouches for the identity, where it is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub issuer: Option<String>,
    /// Seconds since 1970, where somebody else than the signer proves it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signed_at: Option<i64>,
    /// The digest of the artifact that it came in.
    pub artifact: String,
}

/// A statement that a signer of the policy made about this very subject.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Attestation {
    /// By whom.
    #[serde(flatten)]
    pub by: Signature,
    /// Such as `https://slsa.dev/provenance/v1`.
    pub predicate_type: String,
    /// What it says.
    pub predicate: Value,
}

/// A document without a signature.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnsignedDocument {
    /// What the artifact says it is.
    pub artifact_type: String,
    /// What the layer says it is.
    pub media_type: String,
    /// When the artifact says it was made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<String>,
    /// The document; not there where it is not JSON.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<Value>,
    /// The digest of the artifact that it came in.
    pub artifact: String,
}

impl Input {
    /// For an image of which `subjects` are known.
    pub(crate) fn new(
        (reference, namespace): (&Reference, Option<&str>),
        digest: Digest,
        platforms: Vec<String>,
        now: Timestamp,
        subjects: Vec<SubjectFacts>,
    ) -> Self {
        let repository = match reference {
            Reference::Registry(one) => format!("{}/{}", one.registry, one.repository),
            Reference::Layout(one) => format!("oci:{}", one.dir.display()),
        };
        Self {
            reference: reference.to_string(),
            repository,
            tag: reference.tag().map(ToString::to_string),
            digest: digest.to_string(),
            platforms,
            namespace: namespace.map(str::to_owned),
            now: now.as_second(),
            subjects,
        }
    }
}

impl SubjectFacts {
    /// What was found out of a subject.
    pub(crate) fn of(examined: &Examined) -> Self {
        let subject = &examined.subject;
        let (mut signatures, mut attestations) = (Vec::new(), Vec::new());
        for judged in &examined.judged {
            match claim(judged) {
                Some((by, None)) => signatures.push(by),
                Some((by, Some((predicate_type, predicate)))) => {
                    attestations.push(Attestation { by, predicate_type, predicate });
                }
                None => {}
            }
        }
        Self {
            digest: subject.descriptor.digest.to_string(),
            media_type: subject.descriptor.media_type.clone(),
            kind: subject.kind,
            platform: subject.platform.as_ref().map(ToString::to_string),
            signatures,
            attestations,
            unsigned_documents: examined.documents.iter().filter_map(document).collect(),
        }
    }

    /// About as many bytes as it takes, for the server's caches.
    #[cfg(feature = "server")]
    pub(crate) fn bytes(&self) -> usize {
        serde_json::to_vec(self).map_or(usize::MAX, |text| text.len())
    }
}

/// Who made what was accepted, and what it states; none of what was not.
fn claim(judged: &Judged) -> Option<(Signature, Option<(String, Value)>)> {
    let Judgement::Accepted(accepted) = &judged.judgement else { return None };
    let by = Signature {
        signer: judged.signer.clone(),
        identity: accepted.signer.clone(),
        issuer: accepted.issuer.clone(),
        signed_at: accepted.signed_at.map(Timestamp::as_second),
        artifact: judged.artifact.to_string(),
    };
    Some(match &accepted.claim {
        Claim::Signature => (by, None),
        Claim::Statement { predicate_type, predicate } => {
            (by, Some((predicate_type.clone(), predicate.clone())))
        }
    })
}

fn document(piece: &Evidence) -> Option<UnsignedDocument> {
    let Content::Document { artifact_type, media_type, created, bytes } = &piece.content else {
        return None;
    };
    Some(UnsignedDocument {
        artifact_type: artifact_type.clone(),
        media_type: media_type.clone(),
        created: created.clone(),
        content: serde_json::from_slice(bytes).ok(),
        artifact: piece.artifact.to_string(),
    })
}
