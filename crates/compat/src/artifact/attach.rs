//! Attaching requirements to an image that is already there.

use std::collections::BTreeMap;

use bytes::Bytes;
use jiff::Timestamp;
use portolan_core::{Descriptor, Manifest, Platform, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::images::{ImageError, Place};

use super::contents::is_name;
use super::{
    CREATED, Kind, MAX_PLUGIN_BYTES, MAX_PLUGIN_LAYERS, MAX_SPEC_BYTES, PLUGIN, PLUGIN_PLATFORM,
    PLUGIN_WASM, TITLE,
};

/// What is attached. The same attachment gives the same artifact for the same image.
#[derive(Debug, Clone)]
pub struct Attachment {
    /// Whose artifact it becomes.
    pub kind: Kind,
    /// The requirements, checked before.
    pub spec: Bytes,
    /// Programs that the requirements ask for.
    pub plugins: Vec<PluginFile>,
    /// When it was made.
    pub created: Timestamp,
}

/// A plugin to come with the artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginFile {
    /// What namespaces call it.
    pub name: String,
    /// What it runs on; none for WebAssembly.
    pub platform: Option<Platform>,
    /// The program.
    pub program: Bytes,
}

/// Why nothing was attached.
#[derive(Debug, thiserror::Error)]
pub enum AttachError {
    /// Too large to be read by anybody.
    #[error("{what} has {size} bytes, at most {limit} are taken")]
    TooLarge {
        /// The spec or a plugin.
        what: String,
        /// How many.
        size: usize,
        /// The bound.
        limit: u64,
    },
    /// A name that could not be a file's.
    #[error("{name:?} cannot be the name of a plugin; use 1 to 128 of A-Z a-z 0-9 . _ -")]
    PluginName {
        /// As given.
        name: String,
    },
    /// More plugins than are ever looked at.
    #[error("{found} plugins, at most {MAX_PLUGIN_LAYERS} are looked at")]
    TooManyPlugins {
        /// How many.
        found: usize,
    },
    /// Two programs of one name for one platform.
    #[error("plugin {name:?} is given twice for the same platform")]
    PluginTwice {
        /// The name.
        name: String,
    },
    /// A blob or the manifest could not be stored.
    #[error("cannot store the artifact for {subject} in {place}")]
    Store {
        /// The image.
        subject: portolan_core::Digest,
        /// Where.
        place: String,
        /// Why.
        #[source]
        source: Box<ImageError>,
    },
}

impl AttachError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Store { source, .. } => source.class(),
            _ => ErrorClass::BadInput,
        }
    }
}

impl PluginFile {
    fn is_wasm(&self) -> bool {
        self.program.starts_with(b"\0asm")
    }

    pub(super) fn layer(&self) -> Descriptor {
        let media_type = if self.is_wasm() { PLUGIN_WASM } else { PLUGIN };
        let mut layer = Descriptor::of(media_type, &self.program);
        layer.annotations.insert(TITLE.to_owned(), self.name.clone());
        if let Some(platform) = &self.platform {
            let platform = platform.normalised().to_string();
            layer.annotations.insert(PLUGIN_PLATFORM.to_owned(), platform);
        }
        layer
    }
}

impl Attachment {
    /// The artifact's manifest for the image manifest `subject`.
    pub fn manifest(&self, subject: &Descriptor) -> Manifest {
        let spec = Descriptor::of(self.kind.spec_type(), &self.spec);
        let layers = std::iter::once(spec).chain(self.plugins.iter().map(PluginFile::layer));
        let config = Descriptor::of(media_type::OCI_EMPTY, b"{}");
        Manifest {
            artifact_type: Some(self.kind.artifact_type().to_owned()),
            // What an index says of its entry is not part of what is spoken of.
            subject: Some(Descriptor::new(&subject.media_type, subject.digest, subject.size)),
            annotations: BTreeMap::from([(CREATED.to_owned(), self.created.to_string())]),
            ..Manifest::new(config, layers.collect())
        }
    }

    fn check(&self) -> Result<(), AttachError> {
        let bounded = |what: &str, size: usize, limit: u64| {
            if size as u64 <= limit {
                return Ok(());
            }
            Err(AttachError::TooLarge { what: what.to_owned(), size, limit })
        };
        bounded("the spec", self.spec.len(), MAX_SPEC_BYTES)?;
        if self.plugins.len() > MAX_PLUGIN_LAYERS {
            return Err(AttachError::TooManyPlugins { found: self.plugins.len() });
        }
        let mut seen = std::collections::BTreeSet::new();
        for plugin in &self.plugins {
            let name = || plugin.name.clone();
            if !is_name(&plugin.name) {
                return Err(AttachError::PluginName { name: name() });
            }
            bounded(&format!("plugin {:?}", plugin.name), plugin.program.len(), MAX_PLUGIN_BYTES)?;
            if !seen.insert((name(), plugin.platform.as_ref().map(Platform::normalised))) {
                return Err(AttachError::PluginTwice { name: name() });
            }
        }
        Ok(())
    }
}

/// Attaches requirements to the image manifest `subject` and returns the artifact's descriptor.
pub async fn attach(
    place: &Place,
    subject: &Descriptor,
    attachment: &Attachment,
) -> Result<Descriptor, AttachError> {
    attachment.check()?;
    let manifest = attachment.manifest(subject);
    let stored = async {
        place.push_blob(media_type::OCI_EMPTY, Bytes::from_static(b"{}")).await?;
        place.push_blob(attachment.kind.spec_type(), attachment.spec.clone()).await?;
        for (plugin, layer) in attachment.plugins.iter().zip(&manifest.layers[1..]) {
            place.push_blob(&layer.media_type, plugin.program.clone()).await?;
        }
        place.push_manifest(media_type::OCI_MANIFEST, manifest.to_vec().into(), None).await
    };
    stored.await.map_err(|source| AttachError::Store {
        subject: subject.digest,
        place: place.to_string(),
        source: Box::new(source),
    })
}
