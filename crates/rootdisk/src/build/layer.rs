//! One layer from its blob to the disk.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use super::diff::{DiffHasher, Feed};
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
    /// Layers that are being unpacked.
    pub(super) busy: AtomicUsize,
    pub(super) processors: usize,
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

    fn take(&self, layer: usize, bytes: u64, of_layer: u64) -> Result<(), PlaceError> {
        let limits = self.budget.limits();
        let max = limits.max_allocated_bytes;
        let before = self.data.fetch_add(bytes, Ordering::Relaxed);
        if before.saturating_add(bytes) > max {
            return Err(PlaceError::TooMuchData { max });
        }
        // A map of holes can put each byte of a file into a group of its own: such a layer is a
        // bomb on the disk, though not in its tar.
        let what = "the ratio of what a layer takes on the disk to its packed bytes";
        let packed = self.layers[layer].descriptor.size;
        limits.check_ratio(what, of_layer, packed).map_err(PlaceError::Ratio)
    }
}

impl Shared<'_> {
    /// Reads a layer to its end, with a second thread for its diff_id.
    pub(super) fn layer(&self, layer: usize) -> Result<Done, BuildError> {
        let expected = self.layers[layer].diff_id;
        let digest = DiffHasher::new(expected.algorithm());
        self.busy.fetch_add(1, Ordering::Relaxed);
        let unpacked = std::thread::scope(|scope| {
            let (feed, beside) = digest.sides();
            scope.spawn(|| beside.run());
            self.unpack(layer, feed)
        });
        self.busy.fetch_sub(1, Ordering::Relaxed);
        let (tar, finished) = unpacked?;
        let actual = digest.finish();
        if actual != expected {
            return Err(BuildError::DiffIdMismatch { layer, expected, actual });
        }
        let (placer, _) = tar.finish().map_err(|source| BuildError::Tar { layer, source })?;
        let (index, end) = placer.finish().map_err(|error| self.unplaced(layer, error))?;
        self.watch.layer_done(layer);
        Ok(Done { index, end, blob_bytes: finished.packed, tar_bytes: finished.unpacked })
    }

    /// Brings all bytes of a layer to the reader of tars, which may still want more.
    fn unpack(
        &self,
        layer: usize,
        mut diff: Feed<'_>,
    ) -> Result<(tar::Reader<Placer<'_>>, codec::Finished), BuildError> {
        let input = &self.layers[layer];
        let mut chunks = self.source.open(layer).map_err(|source| self.lost(layer, source))?;
        let mut decoder = Decoder::new(&input.descriptor.media_type, Arc::clone(&self.budget))
            .map_err(|source| BuildError::Unpack { layer, source })?;
        let placer = Placer::new(self.plan, layer, self.writers, self);
        let mut tar = tar::Reader::new(Arc::clone(&self.budget), placer);
        let mut told = 0;
        let mut unpacked = |bytes: &[u8]| {
            diff.update(bytes, self.busy.load(Ordering::Relaxed) < self.processors);
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
        if let Some(mismatch) = decoder.mismatch() {
            tracing::warn!(layer, ?mismatch, "the layer's media type lies; its content decided");
        }
        Ok((tar, finished))
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
            PlaceError::Ratio(exceeded) => {
                BuildError::Unpack { layer, source: codec::CodecError::Limit(exceeded) }
            }
            PlaceError::FileTooLarge { size } => BuildError::FileTooLarge { layer, size },
            PlaceError::Disorder { offset, end, size } => {
                BuildError::Disorder { layer, offset, end, size }
            }
            PlaceError::Disk(error) => error,
            // Why is told once, when all layers have ended: whoever took it here could be
            // overtaken by another layer that then knows nothing.
            PlaceError::Write => BuildError::Cancelled,
        }
    }
}
