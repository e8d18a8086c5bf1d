//! Images that others stand on or are copied from: brought here, and read as file systems.

use std::path::Path;
use std::sync::{Arc, PoisonError};

use portolan_core::platform::HostPlatform;
use portolan_core::{Descriptor, Digest, LayoutReference, Platform, Reference, Target};
use portolan_registry::copy::{CopyOptions, copy};
use portolan_registry::images::{self, ImageError, Place, resolve_platform};
use portolan_registry::progress::Silent;
use portolan_rootdisk::build::{BuildOptions, LayerInput, Request, Watch, build};
use portolan_rootdisk::fetch::PlaceLayers;
use tokio_util::sync::CancellationToken;

use super::config::Config;
use super::layer::Layer;
use super::tree::{self, Disk};
use super::{AssembleImageError, Assembler, Finished, created};
use crate::blocking::blocking;

impl Assembler {
    /// What a reference is. It is asked for once, so that a tag that moves cannot give two
    /// platforms, or two instructions, different images.
    async fn pinned(&self, reference: &Reference, place: &Place) -> Result<Digest, ImageError> {
        let slot = {
            let mut pins = self.pins.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(pins.entry(reference.clone()).or_default())
        };
        let found = slot.get_or_try_init(|| async {
            Ok(place.resolve(images::target(reference).as_ref()).await?.digest)
        });
        found.await.copied()
    }

    /// Copies one image to the staging layout.
    async fn bring(&self, reference: &Reference, digest: Digest) -> Result<(), AssembleImageError> {
        let dir = self.staging.dir().to_owned();
        let staged = Reference::Layout(LayoutReference { dir, tag: None, digest: Some(digest) });
        let (from, options) = (reference.with_digest(digest), CopyOptions::default());
        let copied = copy(&from, &staged, &self.client, &options, Arc::new(Silent)).await;
        copied.map(drop).map_err(|source| AssembleImageError::Bring {
            reference: reference.to_string(),
            source: Box::new(source),
        })
    }

    /// An image from elsewhere, brought to the staging layout.
    pub(super) async fn image(
        &self,
        reference: &Reference,
        platform: &Platform,
    ) -> Result<Finished, AssembleImageError> {
        let failed = |source| AssembleImageError::Base {
            reference: reference.to_string(),
            platform: platform.to_string(),
            source: Box::new(source),
        };
        let read = |source| AssembleImageError::Read { reference: reference.to_string(), source };
        let place = Place::open(reference, &self.client).map_err(read)?;
        let host = HostPlatform::named(platform);
        let top = Target::Digest(self.pinned(reference, &place).await.map_err(read)?);
        let resolved = resolve_platform(&place, Some(&top), &host).await.map_err(failed)?;
        let digest = resolved.chosen().digest;
        self.bring(reference, digest).await?;
        let here = Place::Layout(self.staging.clone());
        let image =
            portolan_rootdisk::fetch::image(&here, &digest, &host).await.map_err(|source| {
                AssembleImageError::Fetch {
                    reference: reference.to_string(),
                    source: Box::new(source),
                }
            })?;
        let config = serde_json::from_slice(&image.config_bytes).map_err(|source| {
            AssembleImageError::Config { reference: reference.to_string(), source }
        })?;
        // An image for amd64 that says it is for 386 may run there, but it is not what was asked.
        let found = image.config.platform.as_ref().map(Platform::normalised);
        let same = found.as_ref().is_some_and(|found| {
            (&found.os, &found.architecture) == (&platform.os, &platform.architecture)
        });
        if !same {
            let found = found.map_or_else(|| "no platform".to_owned(), |found| found.to_string());
            return Err(AssembleImageError::OtherPlatform {
                reference: reference.to_string(),
                platform: platform.to_string(),
                found,
            });
        }
        let layers = image.layers.into_iter().map(|LayerInput { descriptor, diff_id }| Layer {
            blob: Descriptor::new(oci(&descriptor.media_type), descriptor.digest, descriptor.size),
            diff_id,
        });
        Ok(Finished {
            layers: layers.collect(),
            config: Config::on(config, created(self.recipe.epoch)),
            platform: platform.clone(),
            disk: tokio::sync::OnceCell::new(),
        })
    }

    /// The file system of an image whose layers are in the staging layout.
    pub(super) async fn disk(&self, image: &Finished) -> Result<Arc<Disk>, AssembleImageError> {
        let made = image.disk.get_or_try_init(|| async {
            let layers: Vec<LayerInput> = image
                .layers
                .iter()
                .map(|layer| LayerInput { descriptor: layer.blob.clone(), diff_id: layer.diff_id })
                .collect();
            let place = Place::Layout(self.staging.clone());
            let disk = file_system(place, layers, self.staging.dir()).await?;
            Ok(Arc::new(disk))
        });
        made.await.cloned()
    }
}

/// The file system that layers make together, as a disk in `dir` that goes with the value.
pub(crate) async fn file_system(
    place: Place,
    layers: Vec<LayerInput>,
    dir: &Path,
) -> Result<Disk, AssembleImageError> {
    let ids: Vec<String> = layers.iter().map(|layer| layer.diff_id.to_string()).collect();
    let blobs = layers.iter().map(|layer| layer.descriptor.clone()).collect();
    let options = BuildOptions { direct_io: false, min_bytes: 0, ..BuildOptions::default() };
    let resolved_digest = Digest::sha256(ids.join("\n").as_bytes());
    let request = Request { resolved_digest, layers, options };
    let source = PlaceLayers::new(place, blobs, None, &CancellationToken::new());
    let dir = dir.to_owned();
    let built = blocking(move |halt| {
        let watch: Arc<dyn Watch> = Arc::new(UntilHalted(halt.clone()));
        build(&request, &source, &dir, &watch)
    });
    let built = built.await;
    let built = built.map_err(|_| AssembleImageError::Panicked)?;
    let built = built.map_err(|source| AssembleImageError::Disk(Box::new(source)))?;
    Disk::open(built.disk).map_err(|source| {
        AssembleImageError::Context(Box::new(tree::TreeError::Disk(source).into()))
    })
}

/// Listens to nothing, and gives up when nobody waits any more.
struct UntilHalted(CancellationToken);

impl Watch for UntilHalted {
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// Docker's name for such a layer, in OCI's words: the bytes are the same.
fn oci(media_type: &str) -> &str {
    match media_type {
        "application/vnd.docker.image.rootfs.diff.tar.gzip" => super::layer::MEDIA_TYPE,
        other => other,
    }
}
