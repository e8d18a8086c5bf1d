//! A root disk for whoever wants one: its documents, the gates, the one build.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use portolan_rootdisk::meta::{Metadata, ROOTDISK_FORMAT_VERSION};

use super::documents::Documents;
use super::{AcquireError, Artifact, Artifacts, Candidate, PrepareError, build};
use crate::flight::Landing;
use crate::id::InstanceId;
use crate::image::ResolvedImage;
use crate::metrics::CacheResult;
use crate::pins::DiskId;
use crate::store::{Disk, wall_clock};

/// What a root disk is wanted for, and so what may be done for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// An instance. What nobody uses goes where room is needed; that there was none is remembered, and told of the host.
    Start,
    /// Somebody who asked for this image. What nobody uses goes; want of room is told to him alone.
    Request,
    /// Nobody yet. Room that is free is filled and nothing goes, or what may be needed would push out what was.
    Ahead,
}

impl Artifacts {
    /// Documents, gates, disk.
    pub(super) async fn ensure(
        &self,
        wanted: &DiskId,
        image: &ResolvedImage,
        purpose: Purpose,
    ) -> Result<(DiskId, Artifact), AcquireError> {
        let documents = self.documents(image, purpose).await?;
        let candidate =
            Candidate { image, manifest: &documents.manifest, config: &documents.config };
        for gate in &self.0.gates {
            gate.check(candidate).await.map_err(AcquireError::Refused)?;
        }
        if let Some(disk) = self.0.store.look_up(wanted) {
            self.0.metrics.cache_request(CacheResult::Hit);
            self.touch(&disk);
            return Ok((wanted.clone(), artifact(&disk, &documents, true)));
        }
        let id = DiskId::new(image.resolved_digest, ROOTDISK_FORMAT_VERSION);
        let disk = self.fly(&id, image, &documents, purpose).await?;
        self.touch(&disk);
        Ok((id, artifact(&disk, &documents, false)))
    }

    /// Joins the one build of a disk, or starts it.
    pub(super) async fn fly(
        &self,
        id: &DiskId,
        image: &ResolvedImage,
        documents: &Arc<Documents>,
        purpose: Purpose,
    ) -> Result<Disk, AcquireError> {
        let mut own_turn = false;
        loop {
            let landing = self.0.disks.join(id.clone(), |cancel| {
                let job = build::Job {
                    inner: Arc::clone(&self.0),
                    image: image.clone(),
                    documents: Arc::clone(documents),
                    cancel,
                    purpose,
                    keep: AtomicBool::new(self.0.config.cache.keep_blobs),
                };
                job.run()
            });
            match landing.await {
                Landing::Done { outcome: Ok(disk), led } => {
                    let result = if led { CacheResult::Miss } else { CacheResult::Joined };
                    self.0.metrics.cache_request(result);
                    return Ok(disk);
                }
                // Another start asked another repository, which does not give the image; ours may.
                Landing::Done { outcome: Err(error), led: false }
                    if error.is_about_the_repository() && !own_turn =>
                {
                    own_turn = true;
                }
                // Nobody made room, since nobody needed the disk yet. We do.
                Landing::Done { outcome: Err(error), led: false }
                    if error.is_for_want_of_free_room() && purpose != Purpose::Ahead => {}
                Landing::Done { outcome: Err(error), .. } => {
                    if purpose == Purpose::Start {
                        self.0.remember_shortfall(&error, || self.0.expanded(documents));
                    }
                    return Err(AcquireError::Prepare(error));
                }
                Landing::Lost => {
                    return Err(PrepareError::Lost { digest: id.resolved_digest }.into());
                }
            }
        }
    }

    fn touch(&self, disk: &Disk) {
        self.0.store.state().touch(&disk.metadata.rootdisk_key, wall_clock());
    }
}

fn artifact(disk: &Disk, documents: &Documents, cached: bool) -> Artifact {
    let metadata = Metadata::clone(&disk.metadata);
    Artifact {
        key: metadata.rootdisk_key.clone(),
        resolved_digest: metadata.resolved_digest,
        format_version: metadata.rootdisk_format_version.clone(),
        disk: disk.path.clone(),
        metadata,
        config: documents.config.clone(),
        cached,
    }
}

pub(super) fn log_outcome(
    instance: Option<&InstanceId>,
    image: &ResolvedImage,
    outcome: &Result<Artifact, AcquireError>,
) {
    let instance_id = instance.map(tracing::field::display);
    let resolved_digest = image.resolved_digest;
    match outcome {
        Ok(artifact) => tracing::info!(
            instance_id, %resolved_digest, rootdisk_key = artifact.key, cached = artifact.cached,
            "root disk is there"
        ),
        Err(error) if error.is_cancelled() => {
            tracing::info!(instance_id, %resolved_digest, "root disk is not wanted any more");
        }
        Err(error) => tracing::warn!(
            instance_id, %resolved_digest, reason = %error.reason(),
            error = error as &dyn std::error::Error,
            "no root disk"
        ),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::poll;
    use portolan_core::Digest;

    use super::super::documents::tests::with_an_image;
    use super::*;
    use crate::config::{CacheConfig, Size};

    /// One flight for all who want the same, and not the narrowest of their rights.
    #[tokio::test]
    async fn a_start_that_waits_for_what_is_fetched_ahead_has_room_made_for_it() {
        let cache = CacheConfig { target_bytes: Some(Size(50_000)), ..CacheConfig::default() };
        let (_root, artifacts, image) = with_an_image(cache);
        let unused = vec![7; 100_000];
        let name = Digest::sha256(&unused);
        artifacts.0.store.put_small_blob(&name, &unused).unwrap();
        let documents = artifacts.documents(&image, Purpose::Ahead).await.unwrap();
        let id = DiskId::new(image.resolved_digest, ROOTDISK_FORMAT_VERSION);
        // While others build, both wait for the same.
        let turns = artifacts.0.config.pull.concurrency.get();
        let turns = artifacts.0.builds.acquire_many(u32::try_from(turns).unwrap()).await.unwrap();
        let mut ahead = Box::pin(artifacts.fly(&id, &image, &documents, Purpose::Ahead));
        let mut start = Box::pin(artifacts.fly(&id, &image, &documents, Purpose::Start));
        assert!(poll!(&mut ahead).is_pending() && poll!(&mut start).is_pending());
        assert_eq!(artifacts.0.disks.waiting(&id), 2);
        drop(turns);
        let (ahead, start) = tokio::join!(ahead, start);
        let ahead = ahead.unwrap_err();
        assert!(ahead.waits_for_room(), "{ahead}");
        start.unwrap();
        assert!(artifacts.0.store.usage().cache_bytes < 100_000, "it went");
    }
}
