//! Layers from a registry or a layout, each in a task of its own, to threads that wait for them.

use std::fs::File;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use futures_util::StreamExt as _;
use portolan_core::Descriptor;
use portolan_registry::images::{ImageError, Place};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::FileChunks;
use crate::build::{Chunks, LayerSource, SourceError};

/// Bytes of a layer that may have come and not yet been inflated. Enough to smooth the network,
/// little enough that many layers at a time stay far below the memory promise.
const AHEAD: usize = 4 * 1024 * 1024;

/// Keeps blobs as they pass by.
pub trait Keep: Send + Sync {
    /// A blob that was kept before: it is read, and hashed again, instead of being fetched.
    fn stored(&self, blob: &Descriptor) -> io::Result<Option<File>> {
        let _ = blob;
        Ok(None)
    }

    /// A blob begins; none when it need not be kept.
    fn begin(&self, blob: &Descriptor) -> io::Result<Option<Box<dyn Keeping>>>;
}

/// A blob that is being kept. Dropped before [`commit`](Self::commit), nothing of it may stay.
pub trait Keeping: Send {
    /// The next piece. Called on a thread that serves the network: writing into the page cache is
    /// right here, flushing is not.
    fn piece(&mut self, bytes: &Bytes) -> io::Result<()>;

    /// All came, and size and digest are right. Called where waiting disturbs nobody.
    fn commit(self: Box<Self>) -> io::Result<()>;
}

/// The layers of one image at a [`Place`].
#[derive(Clone)]
pub struct PlaceLayers(Arc<Inner>);

struct Inner {
    place: Place,
    layers: Vec<Descriptor>,
    keep: Option<Arc<dyn Keep>>,
    cancel: CancellationToken,
    runtime: Handle,
    tasks: TaskTracker,
    /// The first blob that came but could not be kept.
    lost: Mutex<Option<io::Error>>,
}

impl std::fmt::Debug for PlaceLayers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PlaceLayers").field("place", &self.0.place).finish_non_exhaustive()
    }
}

impl PlaceLayers {
    /// Nothing is read before the builder asks. `cancel` ends every transfer; so does a build
    /// that fails.
    ///
    /// # Panics
    /// Outside of a tokio runtime: transfers are its tasks.
    pub fn new(
        place: Place,
        layers: Vec<Descriptor>,
        keep: Option<Arc<dyn Keep>>,
        cancel: &CancellationToken,
    ) -> Self {
        Self(Arc::new(Inner {
            place,
            layers,
            keep,
            cancel: cancel.child_token(),
            runtime: Handle::current(),
            tasks: TaskTracker::new(),
            lost: Mutex::new(None),
        }))
    }

    /// Waits until every blob that came is kept, or until what was begun is gone. Blobs are
    /// flushed while the disk is being built, so there is little to wait for.
    pub async fn settled(&self) -> Result<(), io::Error> {
        self.0.tasks.close();
        self.0.tasks.wait().await;
        match self.0.lost.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }
}

impl PlaceLayers {
    /// The blob's file on this machine, if it can be read where it is.
    fn local(&self, blob: &Descriptor) -> Result<Option<File>, SourceError> {
        if let Some(keep) = &self.0.keep {
            return keep.stored(blob).map_err(SourceError::local);
        }
        let Place::Layout(layout) = &self.0.place else { return Ok(None) };
        match layout.open_blob(&blob.digest) {
            Ok((file, _)) => Ok(Some(file)),
            Err(error) => Err(SourceError::new(error.class(), error)),
        }
    }
}

impl LayerSource for PlaceLayers {
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError> {
        let blob = &self.0.layers[layer];
        if let Some(file) = self.local(blob)? {
            return Ok(Box::new(FileChunks::new(file, blob)));
        }
        let (pieces, received) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(AHEAD));
        let transfer = Transfer {
            inner: Arc::clone(&self.0),
            blob: blob.clone(),
            pieces,
            room: Arc::clone(&room),
        };
        self.0.tasks.spawn_on(transfer.run(), &self.0.runtime);
        Ok(Box::new(Received { pieces: received, room, ended: false }))
    }

    fn stop(&self) {
        self.0.cancel.cancel();
    }
}

/// What goes from a transfer to whoever inflates.
enum Piece {
    Bytes(Bytes),
    /// Size and digest are right.
    End,
    Failed(SourceError),
}

struct Transfer {
    inner: Arc<Inner>,
    blob: Descriptor,
    pieces: mpsc::UnboundedSender<Piece>,
    room: Arc<Semaphore>,
}

impl Transfer {
    async fn run(self) {
        let outcome = tokio::select! {
            outcome = self.pieces() => outcome,
            () = self.inner.cancel.cancelled() => Err(SourceError::cancelled()),
        };
        // Who no longer listens need not be told.
        let keeping = match outcome {
            Ok(keeping) => {
                let _ = self.pieces.send(Piece::End);
                keeping
            }
            Err(error) => {
                let _ = self.pieces.send(Piece::Failed(error));
                None
            }
        };
        let Some(keeping) = keeping else { return };
        let kept = tokio::task::spawn_blocking(move || keeping.commit()).await;
        if let Err(error) = kept.unwrap_or_else(|panic| Err(io::Error::other(panic))) {
            let mut lost = self.inner.lost.lock().unwrap_or_else(PoisonError::into_inner);
            lost.get_or_insert(error);
        }
    }

    /// All pieces, in order; the stream ends only when they are right.
    async fn pieces(&self) -> Result<Option<Box<dyn Keeping>>, SourceError> {
        let came = |error: ImageError| SourceError::new(error.class(), error);
        let mut stream = self.inner.place.blob(&self.blob).await.map_err(came)?;
        let mut keeping = match &self.inner.keep {
            Some(keep) => keep.begin(&self.blob).map_err(SourceError::local)?,
            None => None,
        };
        while let Some(bytes) = stream.next().await {
            let bytes = bytes.map_err(came)?;
            if bytes.is_empty() {
                continue;
            }
            if let Some(keeping) = &mut keeping {
                keeping.piece(&bytes).map_err(SourceError::local)?;
            }
            let size = u32::try_from(bytes.len().min(AHEAD)).expect("a few MiB");
            let room = self.room.acquire_many(size).await.expect("the room is never closed");
            // Given back when the piece was taken.
            room.forget();
            if self.pieces.send(Piece::Bytes(bytes)).is_err() {
                return Err(SourceError::cancelled());
            }
        }
        Ok(keeping)
    }
}

struct Received {
    pieces: mpsc::UnboundedReceiver<Piece>,
    room: Arc<Semaphore>,
    ended: bool,
}

impl Chunks for Received {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        if self.ended {
            return Ok(None);
        }
        match self.pieces.blocking_recv() {
            Some(Piece::Bytes(bytes)) => {
                self.room.add_permits(bytes.len().min(AHEAD));
                Ok(Some(bytes))
            }
            Some(Piece::End) => {
                self.ended = true;
                Ok(None)
            }
            Some(Piece::Failed(error)) => Err(error),
            // The runtime was shut down.
            None => Err(SourceError::cancelled()),
        }
    }
}
