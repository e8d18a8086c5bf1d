//! What instances need of the cache.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use portolan_core::Digest;
use portolan_core::manifest::ImageConfig;
use tokio_util::sync::CancellationToken;

use crate::api::Progress;
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::reason::Reason;

/// Gives out root disks and takes them back.
pub trait RootDisks: Send + Sync + 'static {
    /// A root disk that stays as long as the instance holds it. Cancelled, it fails soon.
    fn acquire<'a>(
        &'a self,
        id: &'a InstanceId,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RootDisk, NoRootDisk>>;

    /// How far the disk of a manifest is that somebody waits for; none while nobody is at it.
    fn progress(&self, resolved_digest: &Digest) -> Option<Progress>;

    /// The instance holds nothing any more. Whoever holds nothing may say so again.
    fn release<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<(), String>>;
}

/// A disk that an instance holds.
#[derive(Debug, Clone)]
pub struct RootDisk {
    /// Its file.
    pub path: PathBuf,
    /// Its key.
    pub key: String,
    /// Whether it was there already.
    pub cached: bool,
    /// How its image is started.
    pub config: ImageConfig,
}

/// What an instance holds, or should.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Which.
    pub id: InstanceId,
    /// A machine of it may run.
    pub machine: bool,
    /// The disk that its last machine was started from.
    pub rootdisk_key: Option<String>,
    /// The manifest that its spec names; none where the spec cannot be read.
    pub digest: Option<Digest>,
}

/// Why there is none.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NoRootDisk {
    /// Nobody wanted it any more.
    Cancelled,
    /// It could not be had.
    Failed {
        /// For control planes.
        reason: Reason,
        /// For people, with the causes.
        message: String,
    },
}
