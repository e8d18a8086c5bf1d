//! Between instances and the cache: root disks given out and taken back, pins set right.

use std::collections::HashMap;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use portolan_core::Digest;
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;
use tokio_util::sync::CancellationToken;

use crate::api::Progress;
use crate::artifacts::Artifacts;
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::instances::{Held, Instances, NoRootDisk, RootDisk, RootDisks};
use crate::pins::DiskId;
use portolan_core::causes::chain;

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
            match self.0.acquire(id, image, cancel).await {
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

    fn progress(&self, resolved_digest: &Digest) -> Option<Progress> {
        self.0.progress(resolved_digest)
    }

    fn release<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<(), String>> {
        self.0.release(id);
        std::future::ready(Ok(())).boxed()
    }
}

/// What each instance holds: manifest and format version.
pub(super) fn pins(
    artifacts: &Artifacts,
    instances: &Instances,
) -> Vec<(InstanceId, Digest, String)> {
    let disks = artifacts.cache().rootdisks.into_iter();
    let known: HashMap<String, DiskId> = disks
        .filter_map(|disk| {
            let digest = disk.resolved_digest.parse().ok()?;
            Some((disk.key, DiskId::new(digest, &disk.format_version)))
        })
        .collect();
    let pin = |held: Held| {
        let by_key = held.rootdisk_key.as_ref().and_then(|key| known.get(key));
        let disk = decide(&held, by_key, artifacts.pin_of(&held.id).as_ref())?;
        Some((held.id, disk.resolved_digest, disk.format_version))
    };
    instances.held().into_iter().filter_map(pin).collect()
}

/// Which disk an instance holds. The database of pins may be lost, the spec may be unreadable or may
/// have changed since its machine was started, and the disk may be of an older version: a machine
/// holds what it was started from, by the key that was noted then; else by what it pinned.
fn decide(held: &Held, by_key: Option<&DiskId>, by_pin: Option<&DiskId>) -> Option<DiskId> {
    let of_spec = |disk: &&DiskId| held.digest.is_some_and(|digest| digest == disk.resolved_digest);
    let candidates = match held.machine {
        true => [by_key, by_pin],
        false => [by_key.filter(of_spec), by_pin.filter(of_spec)],
    };
    let disk = candidates.into_iter().flatten().next().cloned();
    disk.or_else(|| Some(DiskId::new(held.digest?, ROOTDISK_FORMAT_VERSION)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(name: &str, version: &str) -> DiskId {
        DiskId::new(Digest::sha256(name.as_bytes()), version)
    }

    #[test]
    fn a_machine_holds_what_it_was_started_from_and_others_what_their_spec_says() {
        let old = disk("old", "0");
        let held = |machine, digest: Option<&str>| Held {
            id: "i".parse().unwrap(),
            machine,
            rootdisk_key: None,
            digest: digest.map(|name| Digest::sha256(name.as_bytes())),
        };
        let current = disk("new", ROOTDISK_FORMAT_VERSION);
        for (held, by_key, by_pin, expected) in [
            // The spec cannot be read, or is of another image by now.
            (held(true, None), Some(&old), None, Some(&old)),
            (held(true, None), None, Some(&old), Some(&old)),
            (held(true, Some("new")), Some(&old), Some(&current), Some(&old)),
            // Nothing runs: what is wanted, in the version that it had.
            (held(false, Some("new")), Some(&old), None, Some(&current)),
            (held(false, Some("old")), Some(&old), None, Some(&old)),
            (held(false, Some("old")), None, Some(&old), Some(&old)),
            (held(false, None), Some(&old), Some(&old), None),
        ] {
            assert_eq!(decide(&held, by_key, by_pin).as_ref(), expected, "{held:?}");
        }
    }
}
