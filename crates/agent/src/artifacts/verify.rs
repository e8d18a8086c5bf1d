//! A cached disk compared with its checksum, and built again when it is not what was built.

use portolan_core::{HostPlatform, RegistryReference};
use portolan_rootdisk::checksum::{self, ChecksumError};
use portolan_rootdisk::meta::ROOTDISK_FORMAT_VERSION;
use tokio_util::sync::CancellationToken;

use super::pin::Hold;
use super::{AcquireError, Artifacts, Purpose};
use crate::api::{VerifyOutcome, VerifyReport};
use crate::image::ResolvedImage;
use crate::metrics::VerifyResult;
use crate::pins::DiskId;
use crate::store::Disk;

/// Why a disk could not be compared.
#[derive(Debug, thiserror::Error)]
pub enum VerifyError {
    /// Nothing is cached under that key.
    #[error("no root disk is cached under {key}")]
    Unknown {
        /// The key.
        key: String,
    },
    /// The file cannot be read to its end.
    #[error("the root disk {key} cannot be read")]
    Read {
        /// The key.
        key: String,
        /// Why.
        #[source]
        source: ChecksumError,
    },
    /// Whoever asked does not want to know any more.
    #[error("the check was cancelled")]
    Cancelled,
}

impl Artifacts {
    /// Reads a disk and compares it with its checksum. One that differs is no longer given to
    /// anybody, and is built again from cached layers or from where it came from; machines that
    /// run from it keep the file that they have open.
    pub async fn verify(
        &self,
        key: &str,
        cancel: &CancellationToken,
    ) -> Result<VerifyReport, VerifyError> {
        let (id, disk) = self.find(key)?;
        let hold = Hold::new(&self.0.store, &id);
        let actual = {
            let (path, cancel) = (disk.path.clone(), cancel.clone());
            tokio::task::spawn_blocking(move || {
                checksum::of_file_unless(&path, &|| cancel.is_cancelled())
            })
            .await
        };
        let report = |outcome, message: Option<String>| VerifyReport {
            key: key.to_owned(),
            outcome,
            message,
        };
        let actual = match actual {
            Ok(Ok(actual)) => actual,
            Ok(Err(ChecksumError::Cancelled)) | Err(_) => return Err(VerifyError::Cancelled),
            Ok(Err(source)) => {
                self.0.metrics.verified(VerifyResult::Error);
                return Err(VerifyError::Read { key: key.to_owned(), source });
            }
        };
        if actual == disk.metadata.checksum {
            self.0.metrics.verified(VerifyResult::Ok);
            return Ok(report(VerifyOutcome::Ok, None));
        }
        self.0.metrics.verified(VerifyResult::Corrupt);
        tracing::error!(
            resolved_digest = %id.resolved_digest, rootdisk_key = key,
            expected = %disk.metadata.checksum, %actual, "a cached root disk is damaged"
        );
        self.0.store.disown(&id);
        let message = match self.rebuild(&id, cancel).await {
            Ok(()) => return Ok(report(VerifyOutcome::Rebuilt, None)),
            Err(why) => why,
        };
        // Ours would keep it, too.
        drop(hold);
        let outcome = match self.0.store.drop_disowned(&id) {
            true => VerifyOutcome::Removed,
            false => VerifyOutcome::CorruptInUse,
        };
        self.update_metrics();
        Ok(report(outcome, Some(message)))
    }

    fn find(&self, key: &str) -> Result<(DiskId, Disk), VerifyError> {
        let state = self.0.store.state();
        let found = state.disks().find(|(_, disk)| disk.metadata.rootdisk_key == key);
        let found = found.map(|(id, disk)| (id.clone(), disk.clone()));
        found.ok_or_else(|| VerifyError::Unknown { key: key.to_owned() })
    }

    /// Builds a disk again; an error says in a sentence why not.
    async fn rebuild(&self, id: &DiskId, cancel: &CancellationToken) -> Result<(), String> {
        if id.format_version != ROOTDISK_FORMAT_VERSION {
            return Err(format!(
                "this agent builds format version {ROOTDISK_FORMAT_VERSION} and not {}",
                id.format_version
            ));
        }
        let origin = self.0.store.state().pins().origin(&id.resolved_digest).map(str::to_owned);
        let origin: Option<RegistryReference> = origin.and_then(|text| text.parse().ok());
        let Some(origin) = origin else {
            return Err("it is not known where the image came from; start it again".to_owned());
        };
        let image = ResolvedImage {
            registry: origin.registry,
            repository: origin.repository,
            resolved_digest: id.resolved_digest,
            index_digest: None,
            platform: platform_of(&self.0.host),
        };
        let rebuilt = async {
            let documents = self.documents(&image, Purpose::Request).await?;
            self.fly(id, &image, &documents, Purpose::Request).await
        };
        let rebuilt = tokio::select! {
            () = cancel.cancelled() => Err(AcquireError::Cancelled),
            rebuilt = rebuilt => rebuilt,
        };
        match rebuilt {
            Ok(_) => Ok(()),
            Err(error) => {
                tracing::warn!(
                    resolved_digest = %id.resolved_digest,
                    error = &error as &dyn std::error::Error,
                    "a damaged root disk cannot be built again"
                );
                Err(error.to_string())
            }
        }
    }
}

/// Gates do not run for a rebuild: whoever starts the image passes them again.
fn platform_of(host: &HostPlatform) -> portolan_core::Platform {
    host.platform.clone()
}
