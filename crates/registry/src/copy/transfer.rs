//! One blob from one place to another, the quickest honest way: nothing when it is there, a
//! mount or a link where both ends share a roof, its bytes otherwise.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use futures_util::stream::StreamExt as _;
use portolan_core::Descriptor;
use tokio::sync::mpsc;

use super::CopyError;
use crate::client::{BlobSource, BlobStream, Remote, RemoteSource, SourceStream, Upload};
use crate::images::{ImageError, LayoutSource, Place, blocking};
use crate::layout::{Layout, LayoutError};
use crate::progress::{BlobOutcome, Progress};

/// What all transfers of one copy share.
#[derive(Clone)]
pub(super) struct Transfer {
    pub(super) from: Place,
    pub(super) to: Place,
    pub(super) progress: Arc<dyn Progress>,
    /// Held by every transfer, and by its work on other threads, so that a copy that fails can
    /// wait until all have removed what they began.
    pub(super) under_way: mpsc::Sender<()>,
}

impl Transfer {
    /// Brings one blob over.
    pub(super) async fn blob(self, blob: Descriptor) -> Result<BlobOutcome, CopyError> {
        self.progress.started(&blob);
        let outcome = match (&self.from, &self.to) {
            (Place::Remote(from), Place::Remote(to)) => self.between(from, to, &blob).await?,
            (Place::Layout(from), Place::Remote(to)) => {
                let source = LayoutSource { layout: from.clone(), digest: blob.digest };
                self.upload(to, source, &blob).await?
            }
            (Place::Remote(from), Place::Layout(to)) => self.download(from, to, &blob).await?,
            (Place::Layout(from), Place::Layout(to)) => self.link(from, to, &blob).await?,
        };
        self.progress.finished(&blob, outcome);
        Ok(outcome)
    }

    /// An error that names the blob and both ends.
    fn failed<E: Into<ImageError>>(&self, blob: &Descriptor) -> impl FnOnce(E) -> CopyError {
        |source| CopyError::Blob {
            digest: blob.digest,
            from: self.from.to_string(),
            to: self.to.to_string(),
            source: source.into(),
        }
    }

    async fn between(
        &self,
        from: &Remote,
        to: &Remote,
        blob: &Descriptor,
    ) -> Result<BlobOutcome, CopyError> {
        let neighbours = from.registry() == to.registry() && from.repository() != to.repository();
        // A registry that refuses a mount, for want of rights on the other repository or for no
        // reason at all, may still take the bytes.
        if neighbours && matches!(to.mount_blob(&blob.digest, from.repository()).await, Ok(true)) {
            return Ok(BlobOutcome::Mounted);
        }
        let source = RemoteSource { remote: from.clone(), descriptor: blob.clone() };
        self.upload(to, source, blob).await
    }

    async fn upload(
        &self,
        to: &Remote,
        source: impl BlobSource,
        blob: &Descriptor,
    ) -> Result<BlobOutcome, CopyError> {
        let source = Counted { source, blob: blob.clone(), progress: Arc::clone(&self.progress) };
        match to.push_blob(blob, &source).await.map_err(self.failed(blob))? {
            Upload::Present => Ok(BlobOutcome::Present),
            Upload::Mounted => Ok(BlobOutcome::Mounted),
            Upload::Uploaded => Ok(BlobOutcome::Copied),
        }
    }

    /// The writer hashes what it writes and gives the file its name only if the digest is right,
    /// so the client need not hash the same bytes.
    async fn download(
        &self,
        from: &Remote,
        to: &Layout,
        blob: &Descriptor,
    ) -> Result<BlobOutcome, CopyError> {
        if is_present(to, blob).map_err(self.failed(blob))? {
            return Ok(BlobOutcome::Present);
        }
        let bytes = from.blob_unhashed(blob).await.map_err(self.failed(blob))?;
        self.write(to, bytes, blob).await?;
        Ok(BlobOutcome::Copied)
    }

    async fn link(
        &self,
        from: &Layout,
        to: &Layout,
        blob: &Descriptor,
    ) -> Result<BlobOutcome, CopyError> {
        if is_present(to, blob).map_err(self.failed(blob))? {
            return Ok(BlobOutcome::Present);
        }
        // A link moves no bytes but makes the promise that they are right, so they are read and
        // hashed all the same.
        let mut bytes = self.from.blob(blob).await.map_err(self.failed(blob))?;
        let mut position = 0;
        while let Some(chunk) = bytes.next().await {
            position += chunk.map_err(self.failed(blob))?.len() as u64;
            self.progress.advanced(blob, position);
        }
        let dir = from.dir().to_owned();
        let (from, to, digest) = (from.clone(), to.clone(), blob.digest);
        match blocking(move || to.mount_blob(&digest, &from)).await {
            Ok(true) => Ok(BlobOutcome::Linked),
            Ok(false) => Err(self.failed(blob)(LayoutError::BlobNotFound { dir, digest })),
            Err(error) => Err(self.failed(blob)(error)),
        }
    }

    /// Writes what comes into the layout. Hashing and writing happen where the bytes arrived,
    /// while they are warm in that processor's cache: handing them to another thread costs more
    /// than it hides, for a write only reaches the page cache. What really waits for the disk,
    /// the end of each file, waits on a thread where waiting disturbs nobody.
    async fn write(
        &self,
        to: &Layout,
        mut bytes: BlobStream,
        blob: &Descriptor,
    ) -> Result<(), CopyError> {
        let (layout, digest, size) = (to.clone(), blob.digest, blob.size);
        let held = self.under_way.clone();
        let begun = blocking(move || (layout.blob_writer(digest, Some(size)), held)).await;
        // In this order: given up in between, the file goes before the hold on the copy does.
        let (writer, held) = begun;
        let mut writer = writer.map_err(self.failed(blob))?;
        while let Some(chunk) = bytes.next().await {
            let chunk = chunk.map_err(self.failed(blob))?;
            writer.write(&chunk).map_err(self.failed(blob))?;
            self.progress.advanced(blob, writer.written());
        }
        let commit = move || {
            let result = writer.commit();
            drop(held);
            result
        };
        match blocking(commit).await {
            Err(LayoutError::DigestMismatch { expected, actual }) => {
                Err(CopyError::WrongDigest { expected, actual, from: self.from.to_string() })
            }
            result => result.map_err(self.failed(blob)),
        }
    }
}

/// Whether the layout has the blob, at its full size. A file of another size was damaged after
/// it was written and is replaced.
fn is_present(layout: &Layout, blob: &Descriptor) -> Result<bool, LayoutError> {
    if layout.blob_size(&blob.digest)? != Some(blob.size) {
        return Ok(false);
    }
    layout.touch_blob(&blob.digest).map(|()| true)
}

/// A source that tells how far it was read.
struct Counted<S> {
    source: S,
    blob: Descriptor,
    progress: Arc<dyn Progress>,
}

impl<S: BlobSource> BlobSource for Counted<S> {
    fn open(&self, offset: u64) -> BoxFuture<'_, std::io::Result<SourceStream>> {
        Box::pin(async move {
            let (blob, progress) = (self.blob.clone(), Arc::clone(&self.progress));
            let mut position = offset;
            let counted = self.source.open(offset).await?.inspect(move |item| {
                if let Ok(bytes) = item {
                    position += bytes.len() as u64;
                    progress.advanced(&blob, position);
                }
            });
            Ok(counted.boxed())
        })
    }
}
