//! What to build, and what came out.

use std::num::NonZeroUsize;

use portolan_core::{Descriptor, Digest};
use portolan_registry::durable::TempFile;

use crate::limits::Limits;
use crate::meta::Metadata;

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
    /// Layers at work at a time; none for as many as there are processors, but at least four, so
    /// that a slow network is used, and at most eight, so that memory is bounded.
    pub threads: Option<NonZeroUsize>,
    /// Writes past the page cache where the file system takes it.
    pub direct_io: bool,
    /// What a stranger's image may ask for.
    pub limits: Limits,
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
            limits: Limits::default(),
            verity: false,
            min_bytes: 512 * 1024 * 1024,
            headroom_percent: 20,
        }
    }
}

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
    /// Extended attributes that Linux has no place for.
    pub dropped_xattrs: u32,
    /// Whether writes went past the page cache.
    pub direct: bool,
}
