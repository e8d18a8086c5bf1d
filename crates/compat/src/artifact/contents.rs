//! What is in an artifact, from its manifest.

use jiff::Timestamp;
use portolan_core::{Descriptor, Digest, Document, Manifest, Platform};

use super::{
    CREATED, CREATED_MISSPELT, Kind, MAX_PLUGIN_BYTES, MAX_PLUGIN_LAYERS, MAX_SPEC_BYTES, PLUGIN,
    PLUGIN_PLATFORM, PLUGIN_WASM, TITLE,
};

/// What an artifact holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// Whose artifact it is.
    pub kind: Kind,
    /// What it speaks of.
    pub subject: Digest,
    /// The layer with the requirements.
    pub spec: Descriptor,
    /// The plugins that came with it, in the order of the layers.
    pub plugins: Vec<PluginLayer>,
    /// When it was made, where it says so.
    pub created: Option<Timestamp>,
}

/// A plugin that came with an artifact.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PluginLayer {
    /// What namespaces call it.
    pub name: String,
    /// What it runs on; none where the layer does not say, or it is WebAssembly.
    pub platform: Option<Platform>,
    /// Whether it is WebAssembly.
    pub wasm: bool,
    /// The layer. Its digest is what a policy pins.
    pub layer: Descriptor,
}

/// Why a manifest is no compatibility artifact, or none that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ContentsError {
    /// Something else.
    #[error("it is {found:?}, not a compatibility artifact")]
    OtherKind {
        /// What it says it is.
        found: String,
    },
    /// It speaks of nothing.
    #[error("it has no subject, so it says of no image what it needs")]
    NoSubject,
    /// No layer, or more than one, holds the requirements.
    #[error("{found} of its layers are {media_type:?}, and it must be exactly one")]
    SpecLayers {
        /// What was looked for.
        media_type: &'static str,
        /// How many there are.
        found: usize,
    },
    /// Larger than any spec or plugin may be.
    #[error("its layer {digest} has {size} bytes, at most {limit} are read")]
    TooLarge {
        /// The layer.
        digest: Digest,
        /// As the manifest says.
        size: u64,
        /// The bound.
        limit: u64,
    },
    /// More plugins than anybody asks.
    #[error("it brings {found} plugins, at most {MAX_PLUGIN_LAYERS} are looked at")]
    TooManyPlugins {
        /// How many.
        found: usize,
    },
    /// A plugin without a name, or one that could not be a file's.
    #[error("the plugin in its layer {digest} has no usable name in {TITLE}")]
    PluginName {
        /// The layer.
        digest: Digest,
    },
    /// A plugin for a platform that is none.
    #[error("the plugin {name:?} says it is for {platform:?}, which is no platform")]
    PluginPlatform {
        /// The plugin.
        name: String,
        /// As written.
        platform: String,
    },
}

/// Reads what an artifact holds.
pub fn contents(document: &Document) -> Result<Contents, ContentsError> {
    let found = document.artifact_type().unwrap_or_default();
    let (Some(kind), Document::Manifest(manifest)) = (Kind::of(found), document) else {
        return Err(ContentsError::OtherKind { found: found.chars().take(120).collect() });
    };
    let subject = document.subject().ok_or(ContentsError::NoSubject)?.digest;
    let media_type = kind.spec_type();
    let mut specs = manifest.layers.iter().filter(|layer| layer.media_type == media_type);
    let spec = match (specs.next(), specs.count()) {
        (Some(only), 0) => only.clone(),
        (first, more) => {
            let found = usize::from(first.is_some()) + more;
            return Err(ContentsError::SpecLayers { media_type, found });
        }
    };
    bounded(&spec, MAX_SPEC_BYTES)?;
    let plugins = plugin_layers(manifest)?;
    let created = created(&manifest.annotations);
    Ok(Contents { kind, subject, spec, plugins, created })
}

/// The plugins in an artifact, in the order of its layers.
pub fn plugin_layers(manifest: &Manifest) -> Result<Vec<PluginLayer>, ContentsError> {
    let is_plugin =
        |layer: &&Descriptor| [PLUGIN, PLUGIN_WASM].contains(&layer.media_type.as_str());
    let layers: Vec<_> = manifest.layers.iter().filter(is_plugin).collect();
    if layers.len() > MAX_PLUGIN_LAYERS {
        return Err(ContentsError::TooManyPlugins { found: layers.len() });
    }
    layers.into_iter().map(plugin).collect()
}

/// When an artifact says it was made; none where it does not, or not in a form that is a time.
pub(super) fn created(
    annotations: &std::collections::BTreeMap<String, String>,
) -> Option<Timestamp> {
    let mut texts = [CREATED, CREATED_MISSPELT].into_iter().filter_map(|key| annotations.get(key));
    texts.next().and_then(|text| text.parse().ok())
}

fn plugin(layer: &Descriptor) -> Result<PluginLayer, ContentsError> {
    bounded(layer, MAX_PLUGIN_BYTES)?;
    let digest = layer.digest;
    let name = layer.annotations.get(TITLE).filter(|name| is_name(name));
    let name = name.ok_or(ContentsError::PluginName { digest })?.clone();
    let platform = match layer.annotations.get(PLUGIN_PLATFORM) {
        None => None,
        Some(text) => match text.parse::<Platform>() {
            Ok(platform) => Some(platform.normalised()),
            Err(_) => {
                let platform = text.chars().take(80).collect();
                return Err(ContentsError::PluginPlatform { name, platform });
            }
        },
    };
    let wasm = layer.media_type == PLUGIN_WASM;
    Ok(PluginLayer { name, platform, wasm, layer: layer.clone() })
}

/// The same rule as for the names of plugins in a spec: they become names of files.
pub(super) fn is_name(name: &str) -> bool {
    let plain = |c: &u8| c.is_ascii_alphanumeric();
    let bytes = name.as_bytes();
    bytes.first().is_some_and(plain)
        && bytes.len() <= 128
        && bytes.iter().all(|c| plain(c) || matches!(c, b'.' | b'_' | b'-'))
}

fn bounded(layer: &Descriptor, limit: u64) -> Result<(), ContentsError> {
    let Descriptor { digest, size, .. } = *layer;
    if size > limit { Err(ContentsError::TooLarge { digest, size, limit }) } else { Ok(()) }
}
