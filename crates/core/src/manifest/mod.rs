//! Image indexes and image manifests, OCI and Docker v2 schema 2, as this project reads and
//! writes them.
//!
//! Bytes that came from elsewhere are read with [`Document::parse`], never with serde alone:
//! serde keeps the last of two equal keys without a word, and another reader may keep the first.

mod config;
mod document;
pub mod media_type;
mod strict;

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, Serialize};

use crate::digest::Digest;
use crate::platform::Platform;

pub use config::{ImageConfig, ParseConfigError, config_platform};
pub use document::{Document, ParseManifestError};

/// No registry takes a larger manifest, and no reader here holds a larger one in memory.
pub const MAX_MANIFEST_BYTES: usize = 4 * 1024 * 1024;

/// A pointer to content: what it is, how large, and its digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the bytes are.
    pub media_type: String,
    /// The name of the content.
    pub digest: Digest,
    /// Exactly how many bytes.
    pub size: u64,
    /// Other places to fetch it (foreign layers); never followed silently.
    #[serde(default, deserialize_with = "null_is_empty", skip_serializing_if = "Vec::is_empty")]
    pub urls: Vec<String>,
    /// Free key/value pairs, sorted so that what we write is the same bytes every time.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
    /// Base64 of the content itself, if the author embedded it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<String>,
    /// In an index: what the entry runs on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// In an index of referrers: the kind of artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
}

impl Descriptor {
    /// Describes `bytes`.
    pub fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self::new(media_type, Digest::sha256(bytes), bytes.len() as u64)
    }

    /// A descriptor with nothing optional set.
    pub fn new(media_type: &str, digest: Digest, size: u64) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest,
            size,
            urls: Vec::new(),
            annotations: BTreeMap::new(),
            data: None,
            platform: None,
            artifact_type: None,
        }
    }
}

/// Go writes an empty list that was never made as `null`, and so do many manifests in the wild.
pub(crate) fn null_is_empty<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

/// An image index or Docker manifest list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Index {
    /// Always 2.
    pub schema_version: u32,
    /// Written by us always; absent in some indexes in the wild.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Set when the index is an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The entries, in the author's order, which breaks ties.
    #[serde(deserialize_with = "null_is_empty")]
    pub manifests: Vec<Descriptor>,
    /// What this index speaks of, when it is an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Free key/value pairs.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

/// An image manifest, which may also be an artifact.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Manifest {
    /// Always 2.
    pub schema_version: u32,
    /// Written by us always; absent in some manifests in the wild.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub media_type: Option<String>,
    /// Set when the manifest is an artifact.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub artifact_type: Option<String>,
    /// The image configuration, or an artifact's own.
    pub config: Descriptor,
    /// The layers, bottom first.
    #[serde(deserialize_with = "null_is_empty")]
    pub layers: Vec<Descriptor>,
    /// What this manifest speaks of (signature, attestation, compatibility artifact).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<Descriptor>,
    /// Free key/value pairs.
    #[serde(
        default,
        deserialize_with = "null_is_empty",
        skip_serializing_if = "BTreeMap::is_empty"
    )]
    pub annotations: BTreeMap<String, String>,
}

impl Index {
    /// An OCI index over `manifests`, in this order.
    pub fn new(manifests: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media_type::OCI_INDEX.to_owned()),
            artifact_type: None,
            manifests,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// The bytes to store. The same index gives the same bytes on every machine.
    pub fn to_vec(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("an index has only string keys and finite numbers")
    }
}

impl Manifest {
    /// An OCI manifest over `config` and `layers`.
    pub fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(media_type::OCI_MANIFEST.to_owned()),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// The bytes to store. The same manifest gives the same bytes on every machine.
    pub fn to_vec(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a manifest has only string keys and finite numbers")
    }
}
