//! From a place to what the builder reads: the image's documents, checked against each other, and
//! its layers as they come.

mod file;
mod keep;
mod layers;

use portolan_core::manifest::{ImageConfig, MAX_MANIFEST_BYTES, ParseConfigError};
use portolan_core::platform::Mismatch;
use portolan_core::{Descriptor, Digest, Document, HostPlatform, Manifest, Target, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::images::{ImageError, Place};

use crate::build::LayerInput;

pub use file::FileChunks;
pub use keep::KeepInLayout;
pub use layers::{Keep, Keeping, PlaceLayers};

/// An image's documents, which agree with each other.
#[derive(Debug, Clone)]
pub struct Image {
    /// Of the manifest.
    pub resolved_digest: Digest,
    /// The manifest, as it came.
    pub manifest_bytes: bytes::Bytes,
    /// What it says.
    pub manifest: Manifest,
    /// The config, as it came.
    pub config_bytes: bytes::Bytes,
    /// How the image is started.
    pub config: ImageConfig,
    /// What to build from, bottom first.
    pub layers: Vec<LayerInput>,
}

/// Why an image cannot be fetched.
#[derive(Debug, thiserror::Error)]
pub enum FetchError {
    /// The manifest or config did not come, or is not what its digest says.
    #[error("the {what} of {digest} cannot be read")]
    Read {
        /// Manifest or config.
        what: &'static str,
        /// The manifest.
        digest: Digest,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// The digest is of many images.
    #[error(
        "{digest} is an index of several images; resolve it to the manifest of one platform first"
    )]
    IsIndex {
        /// The index.
        digest: Digest,
    },
    /// A signature, an attestation, a chart: nothing that runs.
    #[error("{digest} is no image: its config has type {media_type:?}")]
    NoImage {
        /// The manifest.
        digest: Digest,
        /// Of the config.
        media_type: String,
    },
    /// The config is not one.
    #[error("the config of {digest} cannot be understood; the image is damaged, push it again")]
    Config {
        /// The manifest.
        digest: Digest,
        /// What is wrong.
        #[source]
        source: ParseConfigError,
    },
    /// The config names another number of layers than the manifest.
    #[error(
        "{digest} has {layers} layers, but its config has {diff_ids} diff_ids; the image is damaged, push it again"
    )]
    LayerCount {
        /// The manifest.
        digest: Digest,
        /// In the manifest.
        layers: usize,
        /// In the config.
        diff_ids: usize,
    },
    /// The config does not say what the image runs on.
    #[error("the config of {digest} names no platform, so nobody can tell whether it runs here")]
    NoPlatform {
        /// The manifest.
        digest: Digest,
    },
    /// It is for other machines.
    #[error("{digest} does not run on {host}")]
    Platform {
        /// The manifest.
        digest: Digest,
        /// What was asked for.
        host: String,
        /// Why not.
        #[source]
        source: Mismatch,
    },
}

impl FetchError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read { source, .. } => source.class(),
            _ => ErrorClass::BadInput,
        }
    }

    /// Whether the image came, but is for other machines.
    pub fn is_platform(&self) -> bool {
        matches!(self, Self::NoPlatform { .. } | Self::Platform { .. })
    }
}

/// Reads the manifest with this digest and its config, and checks that they agree and run on
/// `host`. No layer is touched yet.
pub async fn image(
    place: &Place,
    digest: &Digest,
    host: &HostPlatform,
) -> Result<Image, FetchError> {
    let read = |what| move |source| FetchError::Read { what, digest: *digest, source };
    let fetched = place.manifest(&Target::Digest(*digest)).await.map_err(read("manifest"))?;
    let Document::Manifest(manifest) = fetched.document else {
        return Err(FetchError::IsIndex { digest: *digest });
    };
    if !media_type::is_image_config(&manifest.config.media_type) {
        let media_type = manifest.config.media_type.chars().take(120).collect();
        return Err(FetchError::NoImage { digest: *digest, media_type });
    }
    let limit = MAX_MANIFEST_BYTES as u64;
    let config_bytes = place.read_blob(&manifest.config, limit).await.map_err(read("config"))?;
    let config = ImageConfig::parse(&config_bytes)
        .map_err(|source| FetchError::Config { digest: *digest, source })?;
    let layers = agreed(digest, &manifest.layers, &config, host)?;
    Ok(Image {
        resolved_digest: *digest,
        manifest_bytes: fetched.bytes,
        manifest,
        config_bytes,
        config,
        layers,
    })
}

/// The layers with their diff_ids, if the config fits the manifest and the host. For callers that
/// have the documents already.
pub fn agreed(
    digest: &Digest,
    layers: &[Descriptor],
    config: &ImageConfig,
    host: &HostPlatform,
) -> Result<Vec<LayerInput>, FetchError> {
    let platform = config.platform.as_ref().ok_or(FetchError::NoPlatform { digest: *digest })?;
    host.check(platform).map_err(|source| FetchError::Platform {
        digest: *digest,
        host: host.to_string(),
        source,
    })?;
    if layers.len() != config.diff_ids.len() {
        return Err(FetchError::LayerCount {
            digest: *digest,
            layers: layers.len(),
            diff_ids: config.diff_ids.len(),
        });
    }
    let pair = |(layer, diff_id): (&Descriptor, &Digest)| LayerInput {
        descriptor: layer.clone(),
        diff_id: *diff_id,
    };
    Ok(layers.iter().zip(&config.diff_ids).map(pair).collect())
}
