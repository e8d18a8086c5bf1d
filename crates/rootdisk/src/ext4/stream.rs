//! Blocks written one after the other, handed to the sink in long runs.

use super::{BlockSink, MAX_BLOCKS, WriteError};
use crate::tree::BLOCK;

/// Bytes that are gathered before the sink is called: large enough that a call costs nothing,
/// small enough to stay in the processor's cache.
const BATCH: usize = 64 * BLOCK;

/// A place on the disk that moves forward.
pub(super) struct Stream<'s> {
    sink: &'s mut dyn BlockSink,
    /// The block that the first byte of `gathered` belongs to.
    start: u32,
    gathered: Vec<u8>,
}

impl<'s> Stream<'s> {
    pub(super) fn new(sink: &'s mut dyn BlockSink, start: u32) -> Self {
        Self { sink, start, gathered: Vec::with_capacity(BATCH) }
    }

    /// The block that comes next.
    pub(super) fn position(&self) -> u32 {
        self.start + u32::try_from(self.gathered.len() / BLOCK).expect("a batch is small")
    }

    /// The next block, zeros, to be filled.
    pub(super) fn block(&mut self) -> Result<&mut [u8], WriteError> {
        if self.gathered.len() == BATCH {
            self.flush()?;
        }
        if self.position() >= MAX_BLOCKS {
            return Err(WriteError::out_of_blocks(u64::from(MAX_BLOCKS)));
        }
        let at = self.gathered.len();
        self.gathered.resize(at + BLOCK, 0);
        Ok(&mut self.gathered[at..])
    }

    /// Leaves blocks as they are, which is zeros.
    pub(super) fn skip(&mut self, blocks: u32) -> Result<(), WriteError> {
        self.flush()?;
        self.start += blocks;
        Ok(())
    }

    /// Goes on at another block.
    pub(super) fn seek(&mut self, block: u32) -> Result<(), WriteError> {
        self.flush()?;
        self.start = block;
        Ok(())
    }

    /// Hands over what was gathered.
    pub(super) fn flush(&mut self) -> Result<(), WriteError> {
        if self.gathered.is_empty() {
            return Ok(());
        }
        let block = self.start;
        self.sink
            .write(block, &self.gathered)
            .map_err(|source| WriteError::Sink { block, source })?;
        self.start = self.position();
        self.gathered.clear();
        Ok(())
    }
}
