//! A layer's data as one stream of blocks through its areas of the disk.

use super::PlaceError;
use crate::checksum::CHUNK;
use crate::disk::{Aligned, CHUNK_BLOCKS, Writers};
use crate::region::{Area, Plan};
use crate::tree::BLOCK;

/// Who is asked before a layer takes more of the disk.
pub(crate) trait Room: Sync {
    /// The disk must reach this block.
    fn reach(&self, end: u32) -> Result<(), PlaceError>;

    /// A layer takes so many more bytes, and this many in all.
    fn take(&self, layer: usize, bytes: u64, of_layer: u64) -> Result<(), PlaceError>;
}

/// Where the next block of a layer goes, and what of its chunk is already there.
pub(super) struct Stream<'a> {
    plan: &'a Plan,
    layer: usize,
    writers: &'a Writers<'a>,
    room: &'a dyn Room,
    /// How many areas were begun.
    areas: u32,
    area: Option<Area>,
    /// The chunk being filled, which lies in the area.
    chunk: Option<(u32, Aligned)>,
    /// Bytes of it that are filled.
    filled: usize,
    /// The first block behind the last chunk that was handed over.
    end: u32,
    /// Bytes that were handed over.
    taken: u64,
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        plan: &'a Plan,
        layer: usize,
        writers: &'a Writers<'a>,
        room: &'a dyn Room,
    ) -> Self {
        Self {
            plan,
            layer,
            writers,
            room,
            areas: 0,
            area: None,
            chunk: None,
            filled: 0,
            end: 0,
            taken: 0,
        }
    }

    /// The block that the next byte begins, and how many blocks follow each other from there.
    pub(super) fn place(&mut self) -> Result<Area, PlaceError> {
        debug_assert!(self.chunk.is_none() || self.filled.is_multiple_of(BLOCK));
        self.open()?;
        let (chunk, _) = self.chunk.as_ref().expect("it was just opened");
        let base = chunk * CHUNK_BLOCKS + blocks(self.filled);
        let area = self.area.expect("a chunk lies in an area");
        Ok(Area { base, blocks: area.end() - base })
    }

    /// The first block of the area that was last written to.
    pub(super) fn area_base(&self) -> u32 {
        self.area.expect("something was written").base
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) -> Result<(), PlaceError> {
        while !bytes.is_empty() {
            let space = self.space(bytes.len())?;
            let (now, later) = bytes.split_at(space.len());
            space.copy_from_slice(now);
            bytes = later;
            self.advance(now.len())?;
        }
        Ok(())
    }

    pub(super) fn zeros(&mut self, mut count: usize) -> Result<(), PlaceError> {
        while count > 0 {
            let space = self.space(count)?;
            space.fill(0);
            let filled = space.len();
            count -= filled;
            self.advance(filled)?;
        }
        Ok(())
    }

    /// Zeros up to the end of the block.
    pub(super) fn pad(&mut self) -> Result<(), PlaceError> {
        let over = if self.chunk.is_some() { self.filled % BLOCK } else { 0 };
        if over == 0 { Ok(()) } else { self.zeros(BLOCK - over) }
    }

    /// The layer has ended: hands over what is left and says which block is the first behind all
    /// of the layer.
    pub(super) fn finish(mut self) -> Result<u32, PlaceError> {
        self.pad()?;
        self.hand_over()?;
        Ok(self.end)
    }

    /// The next bytes to fill, at least one and at most `most`.
    fn space(&mut self, most: usize) -> Result<&mut [u8], PlaceError> {
        self.open()?;
        let (_, buffer) = self.chunk.as_mut().expect("it was just opened");
        let stop = CHUNK.min(self.filled + most);
        Ok(&mut buffer.as_mut()[self.filled..stop])
    }

    fn advance(&mut self, bytes: usize) -> Result<(), PlaceError> {
        self.filled += bytes;
        if self.filled == CHUNK { self.hand_over() } else { Ok(()) }
    }

    fn open(&mut self) -> Result<(), PlaceError> {
        if self.chunk.is_some() {
            return Ok(());
        }
        let next = match self.area {
            Some(area) if self.end < area.end() => self.end,
            _ => self.next_area()?.base,
        };
        self.chunk = Some((next / CHUNK_BLOCKS, self.writers.buffer()?));
        self.filled = 0;
        Ok(())
    }

    fn next_area(&mut self) -> Result<Area, PlaceError> {
        let area = self.plan.area(self.layer, self.areas)?;
        self.room.reach(area.end())?;
        self.areas += 1;
        self.area = Some(area);
        Ok(area)
    }

    /// Gives the current chunk, as far as it is filled, to those who write.
    fn hand_over(&mut self) -> Result<(), PlaceError> {
        let Some((chunk, buffer)) = self.chunk.take() else { return Ok(()) };
        self.taken += self.filled as u64;
        self.room.take(self.layer, self.filled as u64, self.taken)?;
        self.end = chunk * CHUNK_BLOCKS + blocks(self.filled);
        self.writers.submit(chunk, self.filled, buffer);
        Ok(())
    }
}

/// How many whole blocks there are in a part of a chunk.
fn blocks(bytes: usize) -> u32 {
    u32::try_from(bytes / BLOCK).expect("a chunk has few blocks")
}
