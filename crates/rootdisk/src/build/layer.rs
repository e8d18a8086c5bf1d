//! One layer from its blob to the disk, on one thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portolan_core::Hasher;

use super::{BuildError, Chunks, LayerInput, LayerSource, SourceError, Watch};
use crate::codec::{self, Decoder};
use crate::disk::{Disk, Writers};
use crate::layer::LayerIndex;
use crate::limits::Budget;
use crate::place::{PlaceError, Placer, Room};
use crate::region::Plan;
use crate::tar;
use crate::tree::BLOCK;

/// What all layers of a build share.
pub(super) struct Shared<'a> {
    pub(super) layers: &'a [LayerInput],
    pub(super) source: &'a dyn LayerSource,
    pub(super) watch: &'a dyn Watch,
    pub(super) budget: Arc<Budget>,
    pub(super) plan: &'a Plan,
    pub(super) disk: &'a Disk,
    pub(super) writers: &'a Writers<'a>,
    /// Another layer failed, or somebody gave up.
    pub(super) stop: &'a AtomicBool,
    /// Bytes of file data so far.
    pub(super) data: AtomicU64,
}

/// A layer that is in.
pub(super) struct Done {
    pub(super) index: LayerIndex,
    /// The first block behind its data.
    pub(super) end: u32,
    pub(super) blob_bytes: u64,
    pub(super) tar_bytes: u64,
}

/// Why the stream of a layer stopped, before it is known whose fault it is.
type Stopped = codec::Stopped<tar::Stopped<PlaceError>>;

impl Room for Shared<'_> {
    fn reach(&self, end: u32) -> Result<(), PlaceError> {
        self.disk.reach(u64::from(end) * BLOCK as u64).map_err(PlaceError::Disk)
    }

    fn take(&self, bytes: u64) -> Result<(), PlaceError> {
        let max = self.budget.limits().max_allocated_bytes;
        let before = self.data.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > max {
            Err(PlaceError::TooMuchData { max })
        } else {
            Ok(())
        }
    }
}

impl Shared<'_> {
    /// Reads a layer to its end.
    pub(super) fn layer(&self, layer: usize) -> Result<Done, BuildError> {
        let input = &self.layers[layer];
        let mut chunks = self.source.open(layer).map_err(|source| self.lost(layer, source))?;
        let mut decoder = Decoder::new(&input.descriptor.media_type, Arc::clone(&self.budget))
            .map_err(|source| BuildError::Unpack { layer, source })?;
        let placer = Placer::new(self.plan, layer, self.writers, self);
        let mut tar = tar::Reader::new(Arc::clone(&self.budget), placer);
        let mut hasher = Hasher::new(input.diff_id.algorithm());
        let mut told = 0;
        let mut unpacked = |bytes: &[u8]| {
            hasher.update(bytes);
            tar.push(bytes)?;
            let entries = tar.sink().entries();
            self.watch.files((entries - told) as u64);
            told = entries;
            Ok(())
        };
        loop {
            self.check()?;
            let Some(bytes) = chunks.next().map_err(|source| self.lost(layer, source))? else {
                break;
            };
            if let Err(stopped) = decoder.push(&bytes, &mut unpacked) {
                return Err(self.stopped(layer, stopped, chunks));
            }
            self.watch.bytes(layer, bytes.len() as u64);
        }
        let finished = match decoder.finish(&mut unpacked) {
            Ok(finished) => finished,
            Err(stopped) => return Err(self.stopped(layer, stopped, chunks)),
        };
        let actual = hasher.finish();
        if actual != input.diff_id {
            return Err(BuildError::DiffIdMismatch { layer, expected: input.diff_id, actual });
        }
        let (placer, _) = tar.finish().map_err(|source| BuildError::Tar { layer, source })?;
        let (index, end) = placer.finish().map_err(|error| self.unplaced(layer, error))?;
        if let Some(mismatch) = decoder.mismatch() {
            tracing::warn!(layer, ?mismatch, "the layer's media type lies; its content decided");
        }
        self.watch.layer_done(layer);
        Ok(Done { index, end, blob_bytes: finished.packed, tar_bytes: finished.unpacked })
    }

    /// Whether to go on.
    pub(super) fn check(&self) -> Result<(), BuildError> {
        if self.stop.load(Ordering::Relaxed) || self.watch.cancelled() {
            return Err(BuildError::Cancelled);
        }
        Ok(())
    }

    fn lost(&self, layer: usize, source: SourceError) -> BuildError {
        BuildError::Source { layer, digest: self.layers[layer].descriptor.digest, source }
    }

    fn stopped(&self, layer: usize, stopped: Stopped, chunks: Box<dyn Chunks>) -> BuildError {
        match stopped {
            codec::Stopped::Codec(codec::CodecError::Cancelled) => BuildError::Cancelled,
            codec::Stopped::Codec(source) => {
                self.blamed(layer, chunks, BuildError::Unpack { layer, source })
            }
            codec::Stopped::Sink(tar::Stopped::Tar(source)) => {
                self.blamed(layer, chunks, BuildError::Tar { layer, source })
            }
            codec::Stopped::Sink(tar::Stopped::Sink(error)) => self.unplaced(layer, error),
        }
    }

    /// A stream that cannot be read may be the author's fault or may have been damaged on its
    /// way. The blob's digest tells, so the rest of it is read.
    fn blamed(&self, layer: usize, mut chunks: Box<dyn Chunks>, error: BuildError) -> BuildError {
        while self.check().is_ok() {
            match chunks.next() {
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(source) if source.cancelled => break,
                Err(source) => return self.lost(layer, source),
            }
        }
        error
    }

    fn unplaced(&self, layer: usize, error: PlaceError) -> BuildError {
        match error {
            PlaceError::TooLarge(error) => error.into(),
            PlaceError::TooMuchData { max } => BuildError::TooMuchData { max },
            PlaceError::FileTooLarge { size } => BuildError::FileTooLarge { layer, size },
            PlaceError::Disorder { offset, end, size } => {
                BuildError::Disorder { layer, offset, end, size }
            }
            PlaceError::Disk(error) => error,
            // Another layer may have told it already.
            PlaceError::Write => self.writers.failure().unwrap_or(BuildError::Cancelled),
        }
    }
}
