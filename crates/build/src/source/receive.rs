//! A source as it comes from somebody's machine: the layer of a source artifact, announced by its
//! digests, unpacked as every other.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};

use portolan_core::{Descriptor, Digest};
use portolan_registry::ErrorClass;
use portolan_registry::images::Place;
use portolan_registry::layout::{Layout, LayoutError};
use portolan_rootdisk::build::LayerInput;

use super::{MAX_TOTAL, Packed, UnpackError, unpack_layer};
use crate::assemble::layer::MEDIA_TYPE;
use crate::workshop::Workshop;

const BUFFER: usize = 64 * 1024;

/// What is sent, as its sender announces it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announced {
    /// Of the bytes that are sent.
    pub digest: Digest,
    /// How many.
    pub size: u64,
    /// Of the tar in them.
    pub diff_id: Digest,
}

impl From<&Packed> for Announced {
    fn from(packed: &Packed) -> Self {
        Self { digest: packed.layer.digest, size: packed.layer.size, diff_id: packed.diff_id }
    }
}

/// Why a source was not received.
#[derive(Debug, thiserror::Error)]
pub enum ReceiveError {
    /// More than anybody builds from.
    #[error("{0} bytes are announced, at most {MAX_TOTAL} are received")]
    TooLarge(u64),
    /// It broke off.
    #[error("the source ended after {received} of {announced} bytes; send it again")]
    Short {
        /// How many came.
        received: u64,
        /// How many were announced.
        announced: u64,
    },
    /// It cannot be read or kept here.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// Doing what.
        step: &'static str,
        /// Where.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// It cannot be kept, or is not what was announced.
    #[error("the source that came cannot be kept")]
    Keep(#[from] LayoutError),
    /// There is something already.
    #[error("{} is not empty; a source goes to an empty directory", .0.display())]
    NotEmpty(PathBuf),
    /// A bug.
    #[error("the thread that kept the source has panicked")]
    Panicked,
    /// It cannot be unpacked.
    #[error(transparent)]
    Unpack(#[from] UnpackError),
}

impl ReceiveError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::TooLarge(_) | Self::NotEmpty(_) => ErrorClass::BadInput,
            Self::Short { .. } => ErrorClass::Transport,
            Self::Io { .. } | Self::Panicked => ErrorClass::Local,
            Self::Keep(source) => source.class(),
            Self::Unpack(source) => source.class(),
        }
    }
}

/// Reads exactly what was announced and unpacks it into `target`, an empty directory; `temp` is
/// worked in.
pub async fn receive(
    input: impl Read + Send + 'static,
    announced: &Announced,
    temp: &Path,
    target: &Path,
) -> Result<(), ReceiveError> {
    let io = |step: &'static str, path: &Path| {
        let path = path.to_owned();
        move |source| ReceiveError::Io { step, path, source }
    };
    if announced.size > MAX_TOTAL {
        return Err(ReceiveError::TooLarge(announced.size));
    }
    let mut there = fs::read_dir(target).map_err(io("list", target))?;
    if there.next().is_some() {
        return Err(ReceiveError::NotEmpty(target.to_owned()));
    }
    let staged = Workshop::new(temp).map_err(io("make a directory in", temp))?;
    let layout = Layout::create_passing(staged.path())?;
    let (expected, kept) = (announced.clone(), layout.clone());
    let stored = tokio::task::spawn_blocking(move || store(input, &expected, &kept)).await;
    stored.map_err(|_| ReceiveError::Panicked)??;
    let descriptor = Descriptor::new(MEDIA_TYPE, announced.digest, announced.size);
    let layer = LayerInput { descriptor, diff_id: announced.diff_id };
    let (place, name) = (Place::Layout(layout), "what was sent");
    unpack_layer(place, layer, name, staged.path(), target).await?;
    Ok(())
}

fn store(mut input: impl Read, announced: &Announced, layout: &Layout) -> Result<(), ReceiveError> {
    let mut writer = layout.blob_writer(announced.digest, Some(announced.size))?;
    let mut buffer = vec![0; BUFFER];
    let mut left = announced.size;
    // No more is read than was announced: not every connection tells where its input ends.
    while left > 0 {
        let room = usize::try_from(left).unwrap_or(BUFFER).min(BUFFER);
        let read = input.read(&mut buffer[..room]).map_err(|source| ReceiveError::Io {
            step: "read",
            path: PathBuf::from("stdin"),
            source,
        })?;
        if read == 0 {
            let received = announced.size - left;
            return Err(ReceiveError::Short { received, announced: announced.size });
        }
        writer.write(&buffer[..read])?;
        left -= read as u64;
    }
    Ok(writer.commit()?)
}
