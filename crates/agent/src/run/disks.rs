//! Between instances and the cache: root disks given out and taken back, pins set right.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portolan_core::Digest;
use portolan_rootdisk::build::Unwatched;
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;
use tokio_util::sync::CancellationToken;

use crate::artifacts::Artifacts;
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::instances::{Instances, NoRootDisk, RootDisk, RootDisks};
use crate::server::chain;

/// The cache, as instances see it.
#[derive(Debug)]
pub(super) struct Disks(pub(super) Artifacts);

impl RootDisks for Disks {
    fn acquire<'a>(
        &'a self,
        id: &'a InstanceId,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RootDisk, NoRootDisk>> {
        async move {
            match self.0.acquire(id, image, cancel, Arc::new(Unwatched)).await {
                Ok(artifact) => Ok(RootDisk {
                    path: artifact.disk,
                    key: artifact.key,
                    cached: artifact.cached,
                    config: artifact.config,
                }),
                Err(error) if error.is_cancelled() => Err(NoRootDisk::Cancelled),
                Err(error) => {
                    Err(NoRootDisk::Failed { reason: error.reason(), message: chain(&error) })
                }
            }
        }
        .boxed()
    }

    fn release<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<(), String>> {
        self.0.release(id);
        std::future::ready(Ok(())).boxed()
    }
}

/// What each instance holds: manifest and format version.
///
/// The database may be lost, and an instance may still run on a disk of an older version; its key
/// says which, since the cache knows the version of every key it has.
pub(super) fn pins(
    artifacts: &Artifacts,
    instances: &Instances,
) -> Vec<(InstanceId, Digest, String)> {
    let cache = artifacts.cache();
    let versions: BTreeMap<_, _> =
        cache.rootdisks.into_iter().map(|disk| (disk.key, disk.format_version)).collect();
    let version = |id: &InstanceId| {
        let key = instances.get(id).and_then(|status| status.rootdisk_key);
        let by_key = key.and_then(|key| versions.get(&key).cloned());
        let by_pin = || artifacts.pin_of(id).map(|pin| pin.format_version);
        by_key.or_else(by_pin).unwrap_or_else(|| ROOTDISK_FORMAT_VERSION.to_owned())
    };
    let held = instances.held().into_iter();
    held.map(|(id, digest)| {
        let version = version(&id);
        (id, digest, version)
    })
    .collect()
}
