//! What a piece of evidence says and over which bytes it was signed, whatever its form. Nothing
//! here looks at a signature.

use bytes::Bytes;
use portolan_core::{Algorithm, Digest};
use sigstore_verify::types::bundle::VerificationMaterialContent;
use sigstore_verify::types::{Artifact, ArtifactDigest, Bundle, HashAlgorithm, SignatureContent};

use super::MAX_BUNDLE_BYTES;
use super::convert;
use super::dsse::{Envelope, Statement, Unread, pae};
use super::refusal::{malformed, refusal};
use crate::authority::{Refusal, RefusalCode};
use crate::cosign::{Layer, Payload};
use crate::evidence::Content;

/// Of log entries, of timestamps and of certificates in one bundle.
const MAX_OF_A_KIND: usize = 8;

/// Evidence that speaks of the subject, if its signature is good.
pub(super) struct Signed {
    pub(super) claim: Unread,
    pub(super) message: Message,
    /// Over the message; any of them may be the one that counts.
    pub(super) signatures: Vec<Vec<u8>>,
    pub(super) signer: Signer,
    form: Form,
}

/// What was signed.
pub(super) enum Message {
    /// These bytes.
    Bytes(Bytes),
    /// The subject itself, of which only the digest is known.
    Subject(Digest),
}

/// Who says they signed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Signer {
    /// Somebody with a key of their own, and perhaps a word on which.
    Key { hint: Option<String> },
    /// Whoever the certificate names.
    Certificate,
}

enum Form {
    Payload(Layer),
    Attestation(Layer, Envelope),
    Bundle(Box<Bundle>),
}

impl Signed {
    /// Reads evidence for `subject`; none when it is not of Sigstore's kinds.
    pub(super) fn read(subject: &Digest, content: &Content) -> Option<Result<Self, Refusal>> {
        match content {
            Content::SimpleSigning { payload, annotations } => {
                let layer = Layer::read(annotations).map_err(|error| malformed(error.to_string()));
                Some(layer.and_then(|layer| simple(subject, payload, layer)))
            }
            Content::Attestation { envelope, annotations } => {
                let layer = Layer::read(annotations).map_err(|error| malformed(error.to_string()));
                Some(layer.and_then(|layer| attestation(subject, envelope, layer)))
            }
            Content::Bundle(bytes) => Some(bundle(subject, bytes)),
            Content::Notation { .. } | Content::Document { .. } => None,
        }
    }

    /// The same as a bundle, for the Sigstore library.
    pub(super) fn to_bundle(&self) -> Result<Bundle, Refusal> {
        match (&self.form, &self.message, self.signatures.first()) {
            (Form::Bundle(bundle), ..) => Ok((**bundle).clone()),
            (Form::Attestation(layer, envelope), ..) => {
                convert::bundle(&convert::Content::Envelope(envelope), layer)
            }
            (Form::Payload(layer), Message::Bytes(bytes), Some(signature)) => {
                convert::bundle(&convert::Content::Payload { bytes, signature }, layer)
            }
            (Form::Payload(_), ..) => Err(malformed("the layer has no signature")),
        }
    }

    /// What the Sigstore library shall hold the bundle against.
    pub(super) fn artifact<'a>(&'a self, subject: &Digest) -> Artifact<'a> {
        match (&self.form, &self.message) {
            (Form::Payload(_), Message::Bytes(bytes)) => Artifact::from_blob(bytes),
            _ => {
                let algorithm = match subject.algorithm() {
                    Algorithm::Sha256 => HashAlgorithm::Sha2256,
                    Algorithm::Sha512 => HashAlgorithm::Sha2512,
                };
                let digest = ArtifactDigest::new(algorithm, subject.as_bytes().to_vec());
                Artifact::from_digest(digest.expect("a digest has as many bytes as its algorithm"))
            }
        }
    }
}

fn other_subject(found: &Digest, subject: &Digest) -> Refusal {
    refusal(RefusalCode::OtherSubject, format!("the signature is for {found}, not {subject}"))
}

fn simple(subject: &Digest, payload: &Bytes, layer: Layer) -> Result<Signed, Refusal> {
    let named = Payload::parse(payload).and_then(|read| read.digest());
    let named = named.map_err(|error| malformed(error.to_string()))?;
    if named != *subject {
        return Err(other_subject(&named, subject));
    }
    let signature =
        layer.signature.clone().ok_or_else(|| malformed("the layer has no signature"))?;
    Ok(Signed {
        claim: Unread::Signature,
        message: Message::Bytes(payload.clone()),
        signatures: vec![signature],
        signer: of_layer(&layer),
        form: Form::Payload(layer),
    })
}

fn attestation(subject: &Digest, envelope: &Bytes, layer: Layer) -> Result<Signed, Refusal> {
    let envelope = Envelope::parse(envelope)?;
    let claim = envelope.statement()?.about(subject)?;
    Ok(Signed {
        claim,
        message: Message::Bytes(pae(&envelope.payload_type, &envelope.payload).into()),
        signatures: envelope.signatures.clone(),
        signer: of_layer(&layer),
        form: Form::Attestation(layer, envelope),
    })
}

fn of_layer(layer: &Layer) -> Signer {
    match layer.certificates.is_empty() {
        true => Signer::Key { hint: None },
        false => Signer::Certificate,
    }
}

fn bundle(subject: &Digest, bytes: &Bytes) -> Result<Signed, Refusal> {
    let size = bytes.len();
    if size > MAX_BUNDLE_BYTES {
        let message = format!("the bundle has {size} bytes, at most {MAX_BUNDLE_BYTES} are read");
        return Err(malformed(message));
    }
    let bundle: Bundle = serde_json::from_slice(bytes)
        .map_err(|error| malformed(format!("this is no Sigstore bundle: {error}")))?;
    check_material(&bundle)?;
    let signer = match &bundle.verification_material.content {
        VerificationMaterialContent::PublicKey(key) => {
            Signer::Key { hint: Some(key.hint.clone()).filter(|hint| !hint.is_empty()) }
        }
        _ => Signer::Certificate,
    };
    let (claim, message, signature) = match &bundle.content {
        SignatureContent::DsseEnvelope(envelope) => {
            let payload = envelope.payload.as_bytes();
            let statement = Statement::parse(&envelope.payload_type, payload)?;
            let message = pae(&envelope.payload_type, payload).into();
            (statement.about(subject)?, Message::Bytes(message), &envelope.signature.sig)
        }
        SignatureContent::MessageSignature(message) => {
            check_message_digest(subject, message.message_digest.as_ref())?;
            (Unread::Signature, Message::Subject(*subject), &message.signature)
        }
        _ => {
            let message = "the bundle holds neither a message's signature nor an envelope";
            return Err(refusal(RefusalCode::Unsupported, message));
        }
    };
    let signatures = vec![signature.as_bytes().to_vec()];
    Ok(Signed { claim, message, signatures, signer, form: Form::Bundle(Box::new(bundle)) })
}

/// Each of these costs a verification or two, and a bundle has one or two of each.
fn check_material(bundle: &Bundle) -> Result<(), Refusal> {
    let material = &bundle.verification_material;
    let certificates = match &material.content {
        VerificationMaterialContent::X509CertificateChain { certificates } => certificates.len(),
        _ => 1,
    };
    let timestamps = material.timestamp_verification_data.rfc3161_timestamps.len();
    for (what, found) in [
        ("log entries", material.tlog_entries.len()),
        ("timestamps", timestamps),
        ("certificates", certificates),
    ] {
        if found > MAX_OF_A_KIND {
            let message =
                format!("the bundle has {found} {what}, at most {MAX_OF_A_KIND} are read");
            return Err(malformed(message));
        }
    }
    Ok(())
}

/// The digest that a bundle says was signed is only a word to find it by, but a wrong word is told
/// apart from a wrong signature.
fn check_message_digest(
    subject: &Digest,
    said: Option<&sigstore_verify::types::bundle::MessageDigest>,
) -> Result<(), Refusal> {
    let Some(said) = said else { return Ok(()) };
    let same_algorithm = match subject.algorithm() {
        Algorithm::Sha256 => said.algorithm == HashAlgorithm::Sha2256,
        Algorithm::Sha512 => said.algorithm == HashAlgorithm::Sha2512,
    };
    if same_algorithm && said.digest.as_bytes() == subject.as_bytes() {
        return Ok(());
    }
    let found = portolan_core::hex(said.digest.as_bytes());
    let found: String = found.chars().take(128).collect();
    let message = format!("the signature is for content with the hash {found}, not {subject}");
    Err(refusal(RefusalCode::OtherSubject, message))
}
