//! Labels, annotations and times of an image that is made already. Layers are never changed: what
//! other images share stays shared.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::future::{BoxFuture, FutureExt as _};
use portolan_core::manifest::{Document, MAX_MANIFEST_BYTES};
use portolan_core::{Descriptor, Index, Manifest, Target, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::client::Fetched;
use portolan_registry::images::Place;
use serde_json::{Map, Value, json};

use super::REASON;
use crate::steps::StepError;

/// What is changed.
#[derive(Debug, Clone, Default)]
pub struct Changes {
    /// Of manifests and indexes.
    pub annotations: BTreeMap<String, String>,
    /// Of configurations.
    pub labels: BTreeMap<String, String>,
    /// Of configurations and their history: seconds since 1970.
    pub timestamp: Option<i64>,
}

impl Changes {
    /// Whether nothing is changed.
    pub fn is_empty(&self) -> bool {
        self.annotations.is_empty() && self.labels.is_empty() && self.timestamp.is_none()
    }

    fn touches_config(&self) -> bool {
        !self.labels.is_empty() || self.timestamp.is_some()
    }
}

/// Changes what `top` is and everything below it. New configurations and manifests go to `to`; the
/// new top is returned and not written to a registry, where a tag is to come with it.
pub(crate) fn apply<'a>(
    from: &'a Place,
    to: &'a Place,
    top: Fetched,
    changes: &'a Changes,
) -> BoxFuture<'a, Result<Fetched, StepError>> {
    async move {
        let bytes = match &top.document {
            Document::Manifest(manifest) => {
                image(from, to, &top.bytes, manifest.clone(), changes).await?
            }
            Document::Index(index) => {
                let mut index = index.clone();
                for entry in &mut index.manifests {
                    let child = fetch(from, entry).await?;
                    let attestation = entry.platform.as_ref().is_some_and(|p| p.is_unknown());
                    let child = match attestation {
                        // It speaks of digests, and is no image.
                        true => child,
                        false => apply(from, to, child, changes).await?,
                    };
                    let Descriptor { digest, size, .. } = child.descriptor;
                    let stored = to
                        .push_manifest(&child.descriptor.media_type, child.bytes, None)
                        .await
                        .map_err(write_failed)?;
                    debug_assert_eq!(stored.digest, digest);
                    (entry.digest, entry.size) = (digest, size);
                }
                index.annotations.extend(changes.annotations.clone());
                written(&top.bytes, &index, |value: &mut Map<String, Value>, index: &Index| {
                    value.insert("manifests".to_owned(), json!(index.manifests));
                    value.insert("annotations".to_owned(), json!(index.annotations));
                })
            }
        };
        let document = Document::parse(&bytes, Some(&top.descriptor.media_type)).map_err(bad)?;
        let descriptor = Descriptor::of(&top.descriptor.media_type, &bytes);
        let bytes = Bytes::from(bytes);
        if let Place::Layout(_) = to {
            let media_type = descriptor.media_type.clone();
            to.push_manifest(&media_type, bytes.clone(), None).await.map_err(write_failed)?;
        }
        Ok(Fetched { descriptor, bytes, document })
    }
    .boxed()
}

async fn fetch(from: &Place, entry: &Descriptor) -> Result<Fetched, StepError> {
    let read = from.manifest(&Target::Digest(entry.digest)).await;
    read.map_err(|source| StepError::image(REASON, format!("cannot read {}", entry.digest), source))
}

async fn image(
    from: &Place,
    to: &Place,
    bytes: &[u8],
    mut manifest: Manifest,
    changes: &Changes,
) -> Result<Vec<u8>, StepError> {
    if changes.touches_config() && media_type::is_image_config(&manifest.config.media_type) {
        let digest = manifest.config.digest;
        let old = from.read_blob(&manifest.config, MAX_MANIFEST_BYTES as u64).await;
        let old = old.map_err(|source| {
            StepError::image(REASON, format!("cannot read the configuration {digest}"), source)
        })?;
        let new = config(&old, changes)?;
        let kind = manifest.config.media_type.clone();
        manifest.config = to.push_blob(&kind, new.into()).await.map_err(write_failed)?;
    }
    manifest.annotations.extend(changes.annotations.clone());
    Ok(written(bytes, &manifest, |value: &mut Map<String, Value>, manifest: &Manifest| {
        value.insert("config".to_owned(), json!(manifest.config));
        value.insert("annotations".to_owned(), json!(manifest.annotations));
    }))
}

/// A document as we write it; where the old one has members that we do not know, they stay, and
/// only what changed is put in.
fn written<T: serde::Serialize + serde::de::DeserializeOwned>(
    old: &[u8],
    new: &T,
    change: impl Fn(&mut Map<String, Value>, &T),
) -> Vec<u8> {
    let known =
        serde_json::from_slice::<T>(old).ok().and_then(|old| serde_json::to_value(old).ok());
    let value = serde_json::from_slice::<Value>(old).ok();
    match (known, value) {
        (Some(known), Some(Value::Object(mut value))) if known != Value::Object(value.clone()) => {
            change(&mut value, new);
            serde_json::to_vec(&value).expect("JSON")
        }
        _ => serde_json::to_vec(new).expect("JSON"),
    }
}

fn config(old: &[u8], changes: &Changes) -> Result<Vec<u8>, StepError> {
    let mut value: Map<String, Value> = serde_json::from_slice(old).map_err(bad)?;
    if !changes.labels.is_empty() {
        let start = object(&mut value, "config");
        let labels = object(start, "Labels");
        labels.extend(changes.labels.iter().map(|(key, text)| (key.clone(), json!(text))));
    }
    if let Some(seconds) = changes.timestamp {
        let time = jiff::Timestamp::from_second(seconds).map_err(bad)?.to_string();
        value.insert("created".to_owned(), json!(time));
        let lines = value.get_mut("history").and_then(Value::as_array_mut);
        for line in lines.into_iter().flatten().filter_map(Value::as_object_mut) {
            line.insert("created".to_owned(), json!(time));
        }
    }
    Ok(serde_json::to_vec(&value).expect("JSON"))
}

fn object<'a>(map: &'a mut Map<String, Value>, key: &str) -> &'a mut Map<String, Value> {
    let value = map.entry(key).or_insert_with(|| json!({}));
    if !value.is_object() {
        *value = json!({});
    }
    value.as_object_mut().expect("it is one")
}

fn bad(source: impl std::error::Error + Send + Sync + 'static) -> StepError {
    StepError::of(REASON, Some(ErrorClass::BadInput), "the image cannot be changed", source)
}

fn write_failed(source: portolan_registry::images::ImageError) -> StepError {
    StepError::image(REASON, "the changed image cannot be stored", source)
}
