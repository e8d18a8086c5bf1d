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

use super::stays_inside;
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

/// Unpacks the artifact into `target`, which is made; `temp` is worked in. Returns what it was.
pub async fn unpack(
    reference: &Reference,
    client: &Client,
    temp: &Path,
    target: &Path,
) -> Result<Digest, UnpackError> {
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
    let layers = vec![LayerInput { descriptor: layer.clone(), diff_id: *diff_id }];
    let disk = file_system(place, layers, temp).await;
    let disk =
        disk.map_err(|source| UnpackError::Layer { reference: name(), source: Box::new(source) })?;
    let root = disk.fs.root().map_err(UnpackError::Disk)?;
    for entry in disk.fs.walk(&root).map_err(UnpackError::Disk)? {
        let entry = entry.map_err(UnpackError::Disk)?;
        if entry.inode.kind == FileKind::Symlink {
            let link = disk.fs.read_link(&entry.inode).map_err(UnpackError::Disk)?;
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            let said = String::from_utf8_lossy(&link).into_owned();
            if !stays_inside(&path, Path::new(&said)) {
                return Err(UnpackError::Escapes { path, target: said });
            }
        }
    }
    // Owners are nobody's concern here, whoever runs this.
    let options = Options { privileged: false, ..Options::default() };
    extract(&disk.fs, target, &options).map_err(UnpackError::Extract)?;
    Ok(fetched.descriptor.digest)
}
