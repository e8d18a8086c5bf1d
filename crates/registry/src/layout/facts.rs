//! What the store needs to know of a manifest: what it hangs from and what hangs from it.
//!
//! Reading here is lenient on purpose. A layout may hold manifests that a strict reader refuses,
//! and the store must neither hide them nor sweep away what they point to.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::{Descriptor, Digest, media_type};
use serde::Deserialize;
use serde_json::Value;

/// What a listed manifest says about its relations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Facts {
    /// What it speaks of.
    pub(crate) subject: Option<Digest>,
    /// `artifactType`, or the config's media type, as the referrers API wants it.
    pub(crate) artifact_type: Option<String>,
    /// Its annotations, which the referrers API repeats.
    pub(crate) annotations: BTreeMap<String, String>,
    /// The entries of an index.
    pub(crate) children: Vec<Child>,
    /// Whether it has `manifests`, whatever its media type says.
    pub(crate) is_index: bool,
}

/// An entry of an index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Child {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Outline {
    media_type: Option<String>,
    artifact_type: Option<String>,
    config: Option<Loose>,
    manifests: Option<Vec<Loose>>,
    subject: Option<Loose>,
    annotations: Option<BTreeMap<String, String>>,
}

/// A descriptor whose digest may be of a kind we cannot compute.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Loose {
    media_type: Option<String>,
    digest: Option<String>,
    size: Option<u64>,
}

impl Loose {
    fn digest(&self) -> Option<Digest> {
        self.digest.as_deref()?.parse().ok()
    }
}

/// Reads a manifest's relations.
pub(crate) fn read(bytes: &[u8]) -> Result<Facts, serde_json::Error> {
    let outline: Outline = serde_json::from_slice(bytes)?;
    let artifact_type = outline
        .artifact_type
        .filter(|t| !t.is_empty())
        .or_else(|| outline.config.and_then(|c| c.media_type).filter(|t| !t.is_empty()));
    let is_index = outline.manifests.is_some();
    let children = outline.manifests.unwrap_or_default().into_iter().filter_map(|entry| {
        let digest = entry.digest()?;
        let media_type = entry.media_type.unwrap_or_default();
        Some(Child { media_type, digest, size: entry.size.unwrap_or_default() })
    });
    Ok(Facts {
        subject: outline.subject.and_then(|s| s.digest()),
        artifact_type,
        annotations: outline.annotations.unwrap_or_default(),
        children: children.collect(),
        is_index,
    })
}

/// The media type of a manifest nobody declared one for: its own field, else its shape.
pub(crate) fn detect_media_type(bytes: &[u8]) -> Result<String, serde_json::Error> {
    let outline: Outline = serde_json::from_slice(bytes)?;
    Ok(match outline.media_type {
        Some(declared) => declared,
        None if outline.manifests.is_some() => media_type::OCI_INDEX.to_owned(),
        None => media_type::OCI_MANIFEST.to_owned(),
    })
}

/// Every digest a manifest mentions other than its subject's, wherever it stands.
///
/// Garbage collection marks with this and not with the known fields: an unknown kind of manifest
/// keeps alive whatever it seems to point to, and sweeping too little is the better mistake.
pub(crate) fn mentioned(bytes: &[u8]) -> Result<BTreeSet<Digest>, serde_json::Error> {
    let mut value: Value = serde_json::from_slice(bytes)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("subject");
    }
    let mut found = BTreeSet::new();
    collect(&value, &mut found);
    Ok(found)
}

fn collect(value: &Value, found: &mut BTreeSet<Digest>) {
    // serde_json refuses documents nested deeper than 128, so recursion is bounded.
    match value {
        Value::String(text) => found.extend(text.parse::<Digest>().ok()),
        Value::Array(items) => items.iter().for_each(|item| collect(item, found)),
        Value::Object(members) => members.values().for_each(|member| collect(member, found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

impl Facts {
    /// The descriptor the referrers API shows for a manifest with these facts.
    pub(crate) fn as_referrer(&self, listed: &Descriptor) -> Descriptor {
        let mut descriptor = Descriptor::new(&listed.media_type, listed.digest, listed.size);
        descriptor.artifact_type.clone_from(&self.artifact_type);
        descriptor.annotations.clone_from(&self.annotations);
        descriptor
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(n: u8) -> Digest {
        Digest::sha256(&[n])
    }

    #[test]
    fn an_artifact_takes_its_type_from_the_config_when_it_names_none() {
        let text = format!(
            r#"{{"config":{{"mediaType":"a/b","digest":"{}","size":2}},"layers":[],
                "subject":{{"mediaType":"m","digest":"{}","size":1}},"annotations":{{"k":"v"}}}}"#,
            digest(1),
            digest(2)
        );
        let facts = read(text.as_bytes()).unwrap();
        assert_eq!(facts.subject, Some(digest(2)));
        assert_eq!(facts.artifact_type.as_deref(), Some("a/b"));
        assert_eq!(facts.annotations["k"], "v");
        assert!(!facts.is_index);
    }

    #[test]
    fn an_index_without_a_type_is_known_by_its_shape() {
        let text = format!(
            r#"{{"manifests":[{{"digest":"{}","size":3,"mediaType":"m"}},{{"digest":"md5:00"}}]}}"#,
            digest(1)
        );
        assert_eq!(detect_media_type(text.as_bytes()).unwrap(), media_type::OCI_INDEX);
        let facts = read(text.as_bytes()).unwrap();
        let child = Child { media_type: "m".into(), digest: digest(1), size: 3 };
        assert_eq!((facts.is_index, facts.children), (true, vec![child]));
        assert_eq!(detect_media_type(b"{}").unwrap(), media_type::OCI_MANIFEST);
        assert_eq!(detect_media_type(br#"{"mediaType":"x/y"}"#).unwrap(), "x/y");
    }

    #[test]
    fn every_digest_but_the_subject_is_mentioned() {
        let text = format!(
            r#"{{"fsLayers":[{{"blobSum":"{}"}}],"subject":{{"digest":"{}"}},"x":{{"y":["{}"]}}}}"#,
            digest(1),
            digest(2),
            digest(3)
        );
        let found = mentioned(text.as_bytes()).unwrap();
        assert_eq!(found, BTreeSet::from([digest(1), digest(3)]));
    }
}
