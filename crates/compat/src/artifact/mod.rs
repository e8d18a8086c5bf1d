//! The artifact that says what an image needs: how it is made, found, chosen among several, and
//! taken away again. All of it works for repositories and for layouts on disk alike.
//!
//! | what | media type |
//! |---|---|
//! | the artifact | [`Kind::artifact_type`] |
//! | its config | the empty one |
//! | the spec, exactly one layer | [`Kind::spec_type`] |
//! | plugins, any number of layers | [`PLUGIN`], [`PLUGIN_WASM`] |
//!
//! Its subject is the manifest of one platform. Layers are known by their media type, never by
//! their place: another writer may put them in another order.

mod attach;
mod choose;
mod contents;
mod find;

use portolan_core::manifest::MAX_MANIFEST_BYTES;

pub use attach::{AttachError, Attachment, PluginFile, attach};
pub use choose::{Choice, Listed, choose};
pub use contents::{Contents, ContentsError, PluginLayer, contents, plugin_layers};
pub use find::{FindError, Found, Image, Subject, Which, find, list};

/// A plugin as a program of one platform.
pub const PLUGIN: &str = "application/vnd.oci.image-compatibility.plugin.v1";
/// A plugin as a WebAssembly module, for every platform.
pub const PLUGIN_WASM: &str = "application/vnd.oci.image-compatibility.plugin.v1+wasm";
/// Names a plugin's layer.
pub const TITLE: &str = "org.opencontainers.image.title";
/// Says what a plugin's layer runs on.
pub const PLUGIN_PLATFORM: &str = "org.opencontainers.image-compatibility.plugin.platform";
/// When the artifact was made.
pub const CREATED: &str = "org.opencontainers.image.created";
/// The same, as the working group's examples misspell it. Read, never written.
const CREATED_MISSPELT: &str = "oci.opencontainers.image.created";

/// The most bytes of a spec that are read. The customary bound of manifests.
pub const MAX_SPEC_BYTES: u64 = MAX_MANIFEST_BYTES as u64;
/// The most bytes of one plugin.
pub const MAX_PLUGIN_BYTES: u64 = 64 * 1024 * 1024;
/// The most plugins of one artifact.
pub const MAX_PLUGIN_LAYERS: usize = 256;

/// Whose artifact it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Kind {
    /// A compatibility spec: a graph of namespaces.
    Spec,
    /// A set of rules of Node Feature Discovery, `v1alpha1`.
    Nfd,
}

impl Kind {
    /// Both, the one that is taken before the other first.
    pub const ALL: [Self; 2] = [Self::Spec, Self::Nfd];

    /// What its manifest says it is.
    pub fn artifact_type(self) -> &'static str {
        match self {
            Self::Spec => "application/vnd.oci.image-compatibility.v1",
            Self::Nfd => "application/vnd.nfd.image-compatibility.v1alpha1",
        }
    }

    /// What the layer that holds the requirements is.
    pub fn spec_type(self) -> &'static str {
        match self {
            Self::Spec => "application/vnd.oci.image-compatibility.spec.v1+json",
            Self::Nfd => "application/vnd.nfd.image-compatibility.spec.v1alpha1+yaml",
        }
    }

    /// The kind of an artifact type; none for any other artifact.
    pub fn of(artifact_type: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.artifact_type() == artifact_type)
    }
}

#[cfg(test)]
mod tests;
