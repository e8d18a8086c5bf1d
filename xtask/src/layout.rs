//! OCI layouts that chores write: the testbed's images, the image that is measured, fixtures.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use portolan_core::manifest::{Descriptor, Index, Manifest, media_type};
use portolan_core::{Digest, Platform};
use serde_json::json;

/// A layout in the making, in an empty folder.
#[derive(Debug)]
pub(crate) struct LayoutWriter {
    dir: PathBuf,
}

/// One layer: its bytes as stored, what they are, and the digest of the tar inside.
#[derive(Debug)]
pub(crate) struct Layer<'a> {
    pub(crate) media_type: &'static str,
    pub(crate) bytes: &'a [u8],
    pub(crate) diff_id: Digest,
}

impl<'a> Layer<'a> {
    pub(crate) const TAR: &'static str = "application/vnd.oci.image.layer.v1.tar";
    pub(crate) const GZIP: &'static str = "application/vnd.oci.image.layer.v1.tar+gzip";
    pub(crate) const ZSTD: &'static str = "application/vnd.oci.image.layer.v1.tar+zstd";

    /// A layer that is stored as it is.
    pub(crate) fn tar(bytes: &'a [u8]) -> Self {
        Self { media_type: Self::TAR, bytes, diff_id: Digest::sha256(bytes) }
    }
}

impl LayoutWriter {
    pub(crate) fn new(dir: &Path) -> Result<Self> {
        let blobs = dir.join("blobs/sha256");
        fs::create_dir_all(&blobs).with_context(|| format!("create {}", blobs.display()))?;
        Ok(Self { dir: dir.to_owned() })
    }

    pub(crate) fn blob(&self, media_type: &str, bytes: &[u8]) -> Result<Descriptor> {
        let descriptor = Descriptor::of(media_type, bytes);
        let path = self.dir.join("blobs/sha256").join(descriptor.digest.hex());
        fs::write(&path, bytes).with_context(|| format!("write {}", path.display()))?;
        Ok(descriptor)
    }

    /// An image of these layers; `config` is what its `config` key holds.
    pub(crate) fn image(
        &self,
        platform: &Platform,
        config: serde_json::Value,
        layers: &[Descriptor],
        diff_ids: &[Digest],
    ) -> Result<Descriptor> {
        let mut config = json!({
            "os": platform.os,
            "architecture": platform.architecture,
            "config": config,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        if let Some(variant) = &platform.variant {
            config["variant"] = json!(variant);
        }
        let config = self.blob(media_type::OCI_CONFIG, &serde_json::to_vec(&config)?)?;
        self.blob(media_type::OCI_MANIFEST, &Manifest::new(config, layers.to_vec()).to_vec())
    }

    pub(crate) fn layer(&self, layer: &Layer<'_>) -> Result<Descriptor> {
        self.blob(layer.media_type, layer.bytes)
    }

    /// An index of these entries.
    pub(crate) fn index(&self, index: &Index) -> Result<Descriptor> {
        self.blob(media_type::OCI_INDEX, &index.to_vec())
    }

    /// Writes what makes the folder a layout, its one image tagged `tag` if any.
    pub(crate) fn finish(self, mut entry: Descriptor, tag: Option<&str>) -> Result<()> {
        if let Some(tag) = tag {
            entry
                .annotations
                .insert("org.opencontainers.image.ref.name".to_owned(), tag.to_owned());
        }
        fs::write(self.dir.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#)?;
        fs::write(self.dir.join("index.json"), Index::new(vec![entry]).to_vec())?;
        Ok(())
    }
}
