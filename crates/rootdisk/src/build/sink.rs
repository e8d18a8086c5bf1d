//! Metadata on its way to the disk.

use std::collections::BTreeSet;
use std::io;
use std::mem;

use super::BuildError;
use crate::checksum::CHUNK;
use crate::disk::{Aligned, CHUNK_BLOCKS, Disk};
use crate::ext4::BlockSink;
use crate::tree::BLOCK;

/// Gathers blocks into as few writes as their order allows.
pub(super) struct MetadataSink<'a> {
    disk: &'a Disk,
    buffer: Aligned,
    chunk: u32,
    /// Which bytes of the chunk are in the buffer.
    filled: std::ops::Range<usize>,
    /// Chunks that were not written in one piece: what they hold is only known from the file.
    patched: BTreeSet<u32>,
    /// An error in full, for the trait can only carry the system's part of it.
    failure: Option<BuildError>,
    cancelled: &'a dyn Fn() -> bool,
}

impl<'a> MetadataSink<'a> {
    pub(super) fn new(disk: &'a Disk, cancelled: &'a dyn Fn() -> bool) -> Self {
        Self {
            disk,
            buffer: Aligned::new(),
            chunk: 0,
            filled: 0..0,
            patched: BTreeSet::new(),
            failure: None,
            cancelled,
        }
    }

    /// Writes what is gathered.
    fn flush(&mut self) -> Result<(), BuildError> {
        let filled = mem::replace(&mut self.filled, 0..0);
        if filled.is_empty() {
            return Ok(());
        }
        let offset = u64::from(self.chunk) * CHUNK as u64;
        self.disk.reach(offset + filled.end as u64)?;
        let bytes = &self.buffer.as_ref()[filled.clone()];
        if bytes.len() == CHUNK {
            self.patched.remove(&self.chunk);
            return self.disk.write_chunk(self.chunk, bytes);
        }
        self.patched.insert(self.chunk);
        self.disk.write(offset + filled.start as u64, bytes)
    }

    fn gather(&mut self, mut block: u32, mut bytes: &[u8]) -> Result<(), BuildError> {
        while !bytes.is_empty() {
            if (self.cancelled)() {
                return Err(BuildError::Cancelled);
            }
            let chunk = block / CHUNK_BLOCKS;
            let start = (block % CHUNK_BLOCKS) as usize * BLOCK;
            if chunk != self.chunk || start != self.filled.end {
                self.flush()?;
                self.chunk = chunk;
                self.filled = start..start;
            }
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - start));
            self.buffer.as_mut()[start..start + now.len()].copy_from_slice(now);
            self.filled.end = start + now.len();
            block += u32::try_from(now.len() / BLOCK).expect("a chunk has few blocks");
            bytes = later;
        }
        Ok(())
    }

    /// All came: writes the rest and takes the hashes that are missing.
    pub(super) fn finish(mut self) -> Result<(), BuildError> {
        self.flush()?;
        let patched: Vec<u32> = self.patched.into_iter().collect();
        self.disk.hash_again(&patched)
    }

    /// What went wrong, if it was here.
    pub(super) fn failure(&mut self) -> Option<BuildError> {
        self.failure.take()
    }
}

impl BlockSink for MetadataSink<'_> {
    fn write(&mut self, block: u32, bytes: &[u8]) -> io::Result<()> {
        self.gather(block, bytes).map_err(|error| {
            self.failure = Some(error);
            io::Error::other("the disk could not be written")
        })
    }
}
