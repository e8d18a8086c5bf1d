//! Signatures as cosign 3 keeps them: a bundle in a manifest that refers to the subject.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portolan_core::{Descriptor, Digest, Document, Manifest, Target, media_type};
use portolan_registry::images::{ImageError, Place};
use serde_json::json;

use super::{SignError, counts, readable};
use crate::evidence::Content;
use crate::key::{PrivateKey, PrivateKeyError};
use crate::sigstore::{BUNDLE, COSIGN_SIGN, IN_TOTO, Statement, pae, sign_hint};

/// A bundle of a key without a log entry has 1 KiB; one with, 10.
const MAX_BYTES: u64 = 256 * 1024;
/// After so many artifacts of others one more signature is cheaper than to go on looking.
const MAX_LOOKED_AT: usize = 256;

pub(super) async fn sign(
    place: &Place,
    subject: &Descriptor,
    key: &PrivateKey,
) -> Result<(Digest, bool), SignError> {
    if let Some(artifact) = existing(place, subject, key).await? {
        return Ok((artifact, true));
    }
    let bundle = Bytes::from(make(&subject.digest, key).map_err(SignError::Key)?);
    let manifest = manifest(subject, &bundle);
    let stored = async {
        place.push_blob(media_type::OCI_EMPTY, Bytes::from_static(b"{}")).await?;
        place.push_blob(BUNDLE, bundle.clone()).await?;
        place.push_manifest(media_type::OCI_MANIFEST, manifest.to_vec().into(), None).await
    };
    let stored = stored.await.map_err(|source| SignError::store(&subject.digest, place, source))?;
    Ok((stored.digest, false))
}

/// The bundle: a statement in an envelope, and a word on the key.
fn make(subject: &Digest, key: &PrivateKey) -> Result<Vec<u8>, PrivateKeyError> {
    let payload = Statement::signature(subject).to_vec();
    let signature = key.sign(&pae(IN_TOTO, &payload))?;
    let bundle = json!({
        "mediaType": BUNDLE,
        "verificationMaterial": {"publicKey": {"hint": sign_hint(key.public())}},
        "dsseEnvelope": {
            "payload": STANDARD.encode(&payload),
            "payloadType": IN_TOTO,
            "signatures": [{"sig": STANDARD.encode(&signature)}],
        },
    });
    Ok(serde_json::to_vec(&bundle).expect("strings are JSON"))
}

/// Without the time of its making, so that the same signature is the same artifact: the time would
/// only be the signer's word.
fn manifest(subject: &Descriptor, bundle: &[u8]) -> Manifest {
    let annotations = [
        ("dev.sigstore.bundle.content", "dsse-envelope"),
        ("dev.sigstore.bundle.predicateType", COSIGN_SIGN),
    ];
    let annotations = annotations.map(|(name, value)| (name.to_owned(), value.to_owned()));
    let config = Descriptor::of(media_type::OCI_EMPTY, b"{}");
    Manifest {
        artifact_type: Some(BUNDLE.to_owned()),
        subject: Some(Descriptor::new(&subject.media_type, subject.digest, subject.size)),
        annotations: BTreeMap::from(annotations),
        ..Manifest::new(config, vec![Descriptor::of(BUNDLE, bundle)])
    }
}

/// The artifact in which `key` signed `subject` before.
async fn existing(
    place: &Place,
    subject: &Descriptor,
    key: &PrivateKey,
) -> Result<Option<Digest>, SignError> {
    let failed = |source: ImageError| SignError::read(subject.digest, place, source);
    // Not asked for by type: some registries list a bundle by the type of its config.
    let listed = place.referrers(&subject.digest, None).await.map_err(failed)?;
    let maybe = |entry: &&Descriptor| match entry.artifact_type.as_deref() {
        Some(kind) => kind == BUNDLE || kind == media_type::OCI_EMPTY,
        None => true,
    };
    for entry in listed.iter().filter(maybe).take(MAX_LOOKED_AT) {
        let target = Target::Digest(entry.digest);
        let Some(fetched) = readable(place.manifest(&target).await).map_err(failed)? else {
            continue;
        };
        let Document::Manifest(manifest) = &fetched.document else { continue };
        let is_bundle = |layer: &&Descriptor| layer.media_type == BUNDLE && layer.size <= MAX_BYTES;
        for layer in manifest.layers.iter().filter(is_bundle).take(1) {
            let bytes = readable(place.read_blob(layer, MAX_BYTES).await).map_err(failed)?;
            let Some(bytes) = bytes else { continue };
            if counts(key, subject, entry.digest, Content::Bundle(bytes)) {
                return Ok(Some(entry.digest));
            }
        }
    }
    Ok(None)
}
