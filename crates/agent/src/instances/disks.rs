//! What instances need of the cache.

use std::path::PathBuf;

use futures_util::future::BoxFuture;
use portolan_core::manifest::ImageConfig;
use tokio_util::sync::CancellationToken;

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
