//! From places to disks: documents that disagree, layers that are damaged on their way.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;

use portolan_core::manifest::Manifest;
use portolan_core::{Descriptor, Digest, HostPlatform, Index, Platform, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::images::Place;
use portolan_registry::layout::Layout;
use portolan_rootdisk::build::{BuildError, Request, Trouble, Unwatched, Watch, build};
use portolan_rootdisk::fetch::{self, FetchError, KeepInLayout, PlaceLayers};
use tokio_util::sync::CancellationToken;

use crate::images::{GZIP, Image, ZSTD, count, noise, small, tree};
use crate::support::tarball::{Item, Tarball};

struct Yard {
    dir: tempfile::TempDir,
    layout: Layout,
}

impl Yard {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::create(&dir.path().join("layout")).unwrap();
        Self { dir, layout }
    }

    fn place(&self) -> Place {
        Place::Layout(self.layout.clone())
    }

    /// Stores an image whose config says this.
    fn store(&self, image: &Image, config: &serde_json::Value, config_type: &str) -> Digest {
        for blob in &image.blobs {
            self.layout.put_blob(blob).unwrap();
        }
        let config = serde_json::to_vec(config).unwrap();
        self.layout.put_blob(&config).unwrap();
        let layers = image.layers.iter().map(|layer| layer.descriptor.clone()).collect();
        let manifest = Manifest::new(Descriptor::of(config_type, &config), layers);
        let bytes = manifest.to_vec();
        self.layout.put_manifest(media_type::OCI_MANIFEST, &bytes, None).unwrap().digest
    }
}

fn config(image: &Image, architecture: &str) -> serde_json::Value {
    let diff_ids: Vec<_> = image.layers.iter().map(|layer| layer.diff_id.to_string()).collect();
    serde_json::json!({"os": "linux", "architecture": architecture,
        "rootfs": {"type": "layers", "diff_ids": diff_ids}})
}

fn host() -> HostPlatform {
    HostPlatform::named(&Platform::new("linux", "amd64"))
}

fn two_layers() -> Image {
    Image::default()
        .with(GZIP, &Tarball::of([Item::file("a", noise(700_000, 1))]))
        .with(ZSTD, &Tarball::of([Item::file("b", "top")]))
}

#[tokio::test]
async fn documents_that_disagree_are_refused_before_any_layer() {
    let yard = Yard::new();
    let image = two_layers();
    let oci = media_type::OCI_CONFIG;
    let good = config(&image, "amd64");
    let fetch = async |digest: Digest| fetch::image(&yard.place(), &digest, &host()).await;

    let fetched = fetch(yard.store(&image, &good, oci)).await.unwrap();
    assert_eq!(fetched.layers, image.layers);

    let other = yard.store(&image, &config(&image, "arm64"), oci);
    let error = fetch(other).await.unwrap_err();
    assert!(matches!(error, FetchError::Platform { .. }) && error.is_platform(), "{error}");

    let mut nameless = good.clone();
    nameless["os"] = "".into();
    let error = fetch(yard.store(&image, &nameless, oci)).await.unwrap_err();
    assert!(matches!(error, FetchError::NoPlatform { .. }), "{error}");

    let mut short = good.clone();
    short["rootfs"]["diff_ids"].as_array_mut().unwrap().pop();
    let error = fetch(yard.store(&image, &short, oci)).await.unwrap_err();
    assert!(matches!(error, FetchError::LayerCount { layers: 2, diff_ids: 1, .. }), "{error}");

    let error = fetch(yard.store(&image, &good, media_type::OCI_EMPTY)).await.unwrap_err();
    assert!(matches!(error, FetchError::NoImage { .. }), "{error}");

    let error = fetch(yard.store(&image, &"text".into(), oci)).await.unwrap_err();
    assert!(matches!(error, FetchError::Config { .. }), "{error}");

    let index = Index::new(Vec::new()).to_vec();
    let index = yard.layout.put_manifest(media_type::OCI_INDEX, &index, None).unwrap();
    let error = fetch(index.digest).await.unwrap_err();
    assert!(matches!(error, FetchError::IsIndex { .. }), "{error}");
    assert_eq!(error.class(), ErrorClass::BadInput);

    let error = fetch(Digest::sha256(b"nothing")).await.unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
}

/// Builds from the yard, as a command would.
async fn built(
    yard: &Yard,
    image: &Image,
    keep: Option<&std::path::Path>,
    cancel: &CancellationToken,
) -> (Result<portolan_rootdisk::build::Built, BuildError>, std::io::Result<()>) {
    let blobs = image.layers.iter().map(|layer| layer.descriptor.clone()).collect();
    let keep = keep.map(|dir| Arc::new(KeepInLayout::new(dir)) as _);
    let source = PlaceLayers::new(yard.place(), blobs, keep, cancel);
    let request: Request = image.request(small());
    let (dir, layers) = (yard.dir.path().join("tmp"), source.clone());
    let watch: Arc<dyn Watch> = Arc::new(Unwatched);
    let work = move || build(&request, &layers, &dir, &watch);
    let result = tokio::task::spawn_blocking(work).await.unwrap();
    (result, source.settled().await)
}

#[tokio::test(flavor = "multi_thread")]
async fn layers_are_kept_as_they_pass_and_used_again() {
    let yard = Yard::new();
    let image = two_layers();
    yard.store(&image, &config(&image, "amd64"), media_type::OCI_CONFIG);
    let kept = yard.dir.path().join("kept");
    let cancel = CancellationToken::new();
    let (first, settled) = built(&yard, &image, Some(&kept), &cancel).await;
    settled.unwrap();
    let first = first.unwrap();
    assert_eq!(tree(first.disk.path())["b"], "file top");
    for (layer, blob) in image.layers.iter().zip(&image.blobs) {
        let file = kept.join("blobs/sha256").join(layer.descriptor.digest.hex());
        assert_eq!(std::fs::read(file).unwrap(), blob[..]);
        yard.layout.delete_blob(&layer.descriptor.digest).unwrap();
    }
    assert_eq!(count(&kept.join(".portolan/tmp")), 0);
    let (second, _) = built(&yard, &image, Some(&kept), &cancel).await;
    assert_eq!(second.unwrap().metadata.checksum, first.metadata.checksum);
    let (gone, _) = built(&yard, &image, None, &cancel).await;
    let error = gone.unwrap_err();
    assert_eq!(error.trouble(), Trouble::Pull);
    assert!(
        matches!(error, BuildError::Source { source, .. } if source.class == ErrorClass::NotFound)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blob_that_was_damaged_is_blamed_and_not_its_author() {
    let yard = Yard::new();
    let image = two_layers();
    yard.store(&image, &config(&image, "amd64"), media_type::OCI_CONFIG);
    let digest = image.layers[0].descriptor.digest;
    let file = yard.dir.path().join("layout/blobs/sha256").join(digest.hex());
    // Gzip breaks long before the digest can be known.
    let mut bytes = image.blobs[0].to_vec();
    bytes[15] ^= 0xff;
    std::fs::write(&file, &bytes).unwrap();
    let kept = yard.dir.path().join("kept");
    for keep in [None, Some(kept.as_path())] {
        let (result, settled) = built(&yard, &image, keep, &CancellationToken::new()).await;
        let error = result.unwrap_err();
        assert_eq!(error.trouble(), Trouble::Pull, "{error:?}");
        assert!(matches!(error, BuildError::Source { layer: 0, .. }), "{error:?}");
        settled.unwrap();
    }
    assert!(!kept.join("blobs/sha256").join(digest.hex()).exists(), "what is wrong is not kept");
    assert_eq!(count(&kept.join(".portolan/tmp")), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_transfer_ends_the_build() {
    let yard = Yard::new();
    let image = two_layers();
    yard.store(&image, &config(&image, "amd64"), media_type::OCI_CONFIG);
    let cancel = CancellationToken::new();
    cancel.cancel();
    let kept = yard.dir.path().join("kept");
    let (result, settled) = built(&yard, &image, Some(&kept), &cancel).await;
    assert_eq!(result.unwrap_err().trouble(), Trouble::Cancelled);
    settled.unwrap();
    assert_eq!(count(&yard.dir.path().join("tmp")), 0);
}
