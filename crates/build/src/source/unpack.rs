//! A source artifact back to a directory.
//!
//! The layer becomes a root disk first, and the disk a directory: `rootdisk` reads strangers' tars
//! within bounds and never writes outside of the directory, and nothing of that is repeated here.

use std::path::Path;

use portolan_core::manifest::{Document, ImageConfig, MAX_MANIFEST_BYTES, ParseConfigError};
use portolan_core::{Digest, Reference};
use portolan_registry::ErrorClass;
use portolan_registry::client::Client;
use portolan_registry::images::{self, ImageError, Place};
use portolan_rootdisk::build::LayerInput;
use portolan_rootdisk::ext4::read::{FileKind, ReadError};
use portolan_rootdisk::extract::{ExtractError, Options, extract};

use super::links::{Astray, Links};
use crate::assemble::AssembleImageError;
use crate::assemble::base::file_system;

/// Why a source artifact is no directory.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// It cannot be read.
    #[error("{reference} cannot be read")]
    Read {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: ImageError,
    },
    /// It is something else.
    #[error("{reference} is no source artifact: {what}")]
    NotASource {
        /// Which.
        reference: String,
        /// What it is instead.
        what: String,
    },
    /// Its configuration is none.
    #[error("the configuration of {reference} cannot be read")]
    Config {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: ParseConfigError,
    },
    /// Its layer makes no file system.
    #[error("the source in {reference} cannot be read")]
    Layer {
        /// Which.
        reference: String,
        /// Why.
        #[source]
        source: Box<AssembleImageError>,
    },
    /// Its file system cannot be read.
    #[error("the source cannot be read")]
    Disk(#[source] ReadError),
    /// A link that leads out.
    #[error("the source has a link {path:?} to {target:?}, which is outside of it")]
    Escapes {
        /// The link.
        path: String,
        /// What it says.
        target: String,
    },
    /// Links of links without end.
    #[error("the links in the source lead through too many others")]
    Tangled,
    /// It cannot be written.
    #[error("the source cannot be unpacked")]
    Extract(#[source] ExtractError),
}

impl UnpackError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Read { source, .. } => source.class(),
            Self::Extract(_) => ErrorClass::Local,
            _ => ErrorClass::BadInput,
        }
    }
}

/// A source that is a directory now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unpacked {
    /// What it was.
    pub digest: Digest,
    /// When it was last changed: seconds since 1970, of the newest file.
    pub newest: i64,
}

/// Unpacks the artifact into `target`, which is made; `temp` is worked in. Returns what it was.
pub async fn unpack(
    reference: &Reference,
    client: &Client,
    temp: &Path,
    target: &Path,
) -> Result<Unpacked, UnpackError> {
    let name = || reference.to_string();
    let read = |source| UnpackError::Read { reference: name(), source };
    let wrong = |what: String| UnpackError::NotASource { reference: name(), what };
    let place = Place::open(reference, client).map_err(read)?;
    let fetched = place.fetch(images::target(reference).as_ref()).await.map_err(read)?;
    let Document::Manifest(manifest) = &fetched.document else {
        return Err(wrong("it is an index".to_owned()));
    };
    let config =
        place.read_blob(&manifest.config, MAX_MANIFEST_BYTES as u64).await.map_err(read)?;
    let config = ImageConfig::parse(&config)
        .map_err(|source| UnpackError::Config { reference: name(), source })?;
    let ([layer], [diff_id]) = (&manifest.layers[..], &config.diff_ids[..]) else {
        return Err(wrong(format!("it has {} layers, not one", manifest.layers.len())));
    };
    let layer = LayerInput { descriptor: layer.clone(), diff_id: *diff_id };
    let newest = unpack_layer(place, layer, &name(), temp, target).await?;
    Ok(Unpacked { digest: fetched.descriptor.digest, newest })
}

/// One layer as a directory; returns when its newest file was changed.
pub(crate) async fn unpack_layer(
    place: Place,
    layer: LayerInput,
    name: &str,
    temp: &Path,
    target: &Path,
) -> Result<i64, UnpackError> {
    let disk = file_system(place, vec![layer], temp).await.map_err(|source| {
        UnpackError::Layer { reference: name.to_owned(), source: Box::new(source) }
    })?;
    let (mut newest, mut links) = (0, Links::default());
    let root = disk.fs.root().map_err(UnpackError::Disk)?;
    for entry in disk.fs.walk(&root).map_err(UnpackError::Disk)? {
        let entry = entry.map_err(UnpackError::Disk)?;
        if entry.inode.kind == FileKind::File {
            newest = newest.max(entry.inode.modified.seconds);
        }
        if entry.inode.kind == FileKind::Symlink {
            let link = disk.fs.read_link(&entry.inode).map_err(UnpackError::Disk)?;
            links.add(entry.path, link);
        }
    }
    links.check().map_err(|astray| match astray {
        Astray::Escapes { path, target } => UnpackError::Escapes {
            path: String::from_utf8_lossy(&path).into_owned(),
            target: String::from_utf8_lossy(&target).into_owned(),
        },
        Astray::Tangled => UnpackError::Tangled,
    })?;
    // Owners are nobody's concern here, whoever runs this; and a pod's workspace is not the step's own.
    let options = Options { privileged: false, keep_target: true, ..Options::default() };
    extract(&disk.fs, target, &options).map_err(UnpackError::Extract)?;
    Ok(newest)
}
