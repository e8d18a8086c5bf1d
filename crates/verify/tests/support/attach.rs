//! Signatures put at images as those who make them do.

use bytes::Bytes;
use portolan_core::{Descriptor, Manifest, media_type};
use portolan_registry::images::Place;

/// Pushes an artifact of one layer that speaks of `subject`; under `tag` where that is given.
pub(crate) async fn attach(
    place: &Place,
    subject: &Descriptor,
    artifact_type: &str,
    layer: (Descriptor, Bytes),
    tag: Option<&str>,
) {
    let config = place.push_blob(media_type::OCI_EMPTY, Bytes::from_static(b"{}")).await.unwrap();
    let (described, bytes) = layer;
    let pushed = place.push_blob(&described.media_type, bytes).await.unwrap();
    let mut manifest =
        Manifest::new(config, vec![Descriptor { annotations: described.annotations, ..pushed }]);
    if tag.is_none() {
        manifest.artifact_type = Some(artifact_type.to_owned());
        manifest.subject = Some(Descriptor::new(&subject.media_type, subject.digest, subject.size));
    }
    let tag = tag.map(|tag| tag.parse().unwrap());
    let bytes = Bytes::from(manifest.to_vec());
    place.push_manifest(media_type::OCI_MANIFEST, bytes, tag.as_ref()).await.unwrap();
}

pub(crate) fn plain(media_type: &str, bytes: Vec<u8>) -> (Descriptor, Bytes) {
    (Descriptor::of(media_type, &bytes), bytes.into())
}
