//! Layers in, a root disk out.

mod error;

use std::num::NonZeroUsize;

use bytes::Bytes;
use portolan_core::{Descriptor, Digest};
use portolan_registry::ErrorClass;
use portolan_registry::durable::TempFile;

use crate::meta::Metadata;

pub use error::{BuildError, Trouble};

/// What to build.
#[derive(Debug, Clone)]
pub struct Request {
    /// The image's manifest, which names the disk and seeds its UUID.
    pub resolved_digest: Digest,
    /// Bottom first.
    pub layers: Vec<LayerInput>,
    /// How.
    pub options: BuildOptions,
}

/// One layer as manifest and config name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LayerInput {
    /// Of the compressed blob.
    pub descriptor: Descriptor,
    /// Of the tar inside it.
    pub diff_id: Digest,
}

/// How to build. What is marked *bytes* changes the disk: all disks of one cache must be built
/// alike there, or one digest and format version would name two different disks.
#[derive(Debug, Clone)]
pub struct BuildOptions {
    /// Layers at work at a time; none for as many as there are processors, and at least four, so
    /// that a slow network is used.
    pub threads: Option<NonZeroUsize>,
    /// Writes past the page cache where the file system takes it.
    pub direct_io: bool,
    /// *bytes*: a dm-verity hash tree behind the file system.
    pub verity: bool,
    /// *bytes*: the smallest size of the disk.
    pub min_bytes: u64,
    /// *bytes*: how much larger than what is used the disk is at least, in percent.
    pub headroom_percent: u32,
}

impl Default for BuildOptions {
    fn default() -> Self {
        Self {
            threads: None,
            direct_io: true,
            verity: false,
            min_bytes: 512 * 1024 * 1024,
            headroom_percent: 20,
        }
    }
}

/// Where layers come from. Called from the builder's threads, several at a time.
pub trait LayerSource: Send + Sync {
    /// Begins to read a layer's blob, by its place in the request. Called once for each layer.
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError>;

    /// The build failed or was given up: whoever waits in [`Chunks::next`] should soon return.
    fn stop(&self) {}
}

/// A blob, piece by piece.
pub trait Chunks: Send {
    /// The next piece, never empty; none only after the size and the digest were found right.
    fn next(&mut self) -> Result<Option<Bytes>, SourceError>;
}

/// Why a layer's blob could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the blob cannot be read")]
pub struct SourceError {
    /// What kind of trouble it is.
    pub class: ErrorClass,
    /// Because somebody asked for it.
    pub cancelled: bool,
    /// What happened.
    #[source]
    pub source: Box<dyn std::error::Error + Send + Sync>,
}

/// What a build is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Layers are read, inflated and written.
    Layers,
    /// All layers are in; what was replaced is taken out and the file system is written.
    Filesystem,
    /// The hash tree is made.
    Verity,
    /// The file is being made durable.
    Flush,
}

/// Listens to a build and may give it up. Every method is called from several threads and must
/// return quickly.
pub trait Watch: Send + Sync {
    /// So many more bytes of a layer's blob were taken in.
    fn bytes(&self, layer: usize, more: u64) {
        let _ = (layer, more);
    }

    /// So many more entries were read from layers.
    fn files(&self, more: u64) {
        let _ = more;
    }

    /// A layer is in, and is what manifest and config say.
    fn layer_done(&self, layer: usize) {
        let _ = layer;
    }

    /// The next phase begins.
    fn phase(&self, phase: Phase) {
        let _ = phase;
    }

    /// Whether to give up. Asked every few hundred KiB, so it must be cheap.
    fn cancelled(&self) -> bool {
        false
    }
}

/// Listens to nothing and never gives up.
#[derive(Debug, Clone, Copy)]
pub struct Unwatched;

impl Watch for Unwatched {}

/// A disk that was built: complete and durable, but still under its temp name. Dropped, it is
/// gone; [`TempFile::rename`] makes it valid.
#[derive(Debug)]
pub struct Built {
    /// The file.
    pub disk: TempFile,
    /// To be stored beside it.
    pub metadata: Metadata,
    /// What it took.
    pub stats: Stats,
}

/// What a build moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Stats {
    /// Compressed bytes read.
    pub blob_bytes: u64,
    /// Bytes of tar that came out of them.
    pub tar_bytes: u64,
    /// Entries in them.
    pub entries: u64,
    /// Bytes of file data written.
    pub data_bytes: u64,
    /// Of those, bytes that an upper layer replaced and that were taken out again.
    pub lost_bytes: u64,
    /// Whether writes went past the page cache.
    pub direct: bool,
}
