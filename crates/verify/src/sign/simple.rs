//! Signatures as cosign 2 keeps them: layers of one manifest under a tag made of the digest.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portolan_core::{Descriptor, Digest, Document, Manifest, Tag, Target, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::images::{ImageError, Place};
use serde_json::json;

use super::{SignError, counts, readable};
use crate::cosign::{self, MAX_PAYLOAD_BYTES, Payload, SIGNATURE, SIMPLE_SIGNING};
use crate::evidence::Content;
use crate::key::PrivateKey;

pub(super) async fn sign(
    place: &Place,
    subject: &Descriptor,
    key: &PrivateKey,
) -> Result<(Digest, bool), SignError> {
    let tag = cosign::tag(&subject.digest, "sig");
    let before = read(place, &tag).await?;
    let mut written = None;
    if let Some((artifact, manifest)) = before {
        if is_among(place, subject, key, (artifact, &manifest)).await? {
            return Ok((artifact, true));
        }
        written = Some(manifest);
    }
    let mut layers =
        written.as_mut().map(|old| std::mem::take(&mut old.layers)).unwrap_or_default();
    let payload = Bytes::from(Payload::new(&subject.digest, &name(place)).to_vec());
    let signature = key.sign(&payload).map_err(SignError::Key)?;
    let mut layer = Descriptor::of(SIMPLE_SIGNING, &payload);
    layer.annotations.insert(SIGNATURE.to_owned(), STANDARD.encode(signature));
    layers.push(layer);
    let config = Bytes::from(config(&layers));
    let new = Manifest::new(Descriptor::of(media_type::OCI_CONFIG, &config), layers);
    // What others wrote beside the layers stays.
    let manifest = match written {
        Some(old) => Manifest { config: new.config, layers: new.layers, ..old },
        None => new,
    };
    let stored = async {
        place.push_blob(media_type::OCI_CONFIG, config).await?;
        place.push_blob(SIMPLE_SIGNING, payload).await?;
        place.push_manifest(media_type::OCI_MANIFEST, manifest.to_vec().into(), Some(&tag)).await
    };
    let stored = stored.await.map_err(|source| SignError::store(&subject.digest, place, source))?;
    Ok((stored.digest, false))
}

/// Where the image is, as cosign writes it. A folder's name is nobody's business but its owner's.
fn name(place: &Place) -> String {
    match place {
        Place::Remote(_) => place.to_string(),
        Place::Layout(_) => String::new(),
    }
}

/// As cosign makes it: a config of an image that runs nowhere. Clients of registries that only know
/// images want one.
fn config(layers: &[Descriptor]) -> Vec<u8> {
    let never = "0001-01-01T00:00:00Z";
    let digests: Vec<_> = layers.iter().map(|layer| layer.digest.to_string()).collect();
    let history: Vec<_> = layers.iter().map(|_| json!({"created": never})).collect();
    let config = json!({
        "architecture": "", "os": "", "created": never, "config": {}, "history": history,
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    serde_json::to_vec(&config).expect("strings are JSON")
}

/// What is under the tag; none where nothing is.
async fn read(place: &Place, tag: &Tag) -> Result<Option<(Digest, Manifest)>, SignError> {
    match place.manifest(&Target::Tag(tag.clone())).await {
        Ok(fetched) => match fetched.document {
            Document::Manifest(manifest) => Ok(Some((fetched.descriptor.digest, manifest))),
            Document::Index(_) => {
                Err(SignError::TakenTag { tag: tag.to_string(), place: place.to_string() })
            }
        },
        Err(error) if error.class() == ErrorClass::NotFound => Ok(None),
        Err(source) => Err(SignError::read(tag, place, source)),
    }
}

/// Whether one of the layers is a signature of `key`.
async fn is_among(
    place: &Place,
    subject: &Descriptor,
    key: &PrivateKey,
    (artifact, manifest): (Digest, &Manifest),
) -> Result<bool, SignError> {
    let limit = MAX_PAYLOAD_BYTES as u64;
    let is_signature =
        |layer: &&Descriptor| layer.media_type == SIMPLE_SIGNING && layer.size <= limit;
    for layer in manifest.layers.iter().filter(is_signature) {
        let payload = readable(place.read_blob(layer, limit).await);
        let failed = |source: ImageError| SignError::read(layer.digest, place, source);
        let Some(payload) = payload.map_err(failed)? else { continue };
        let annotations = layer.annotations.clone();
        if counts(key, subject, artifact, Content::SimpleSigning { payload, annotations }) {
            return Ok(true);
        }
    }
    Ok(false)
}
