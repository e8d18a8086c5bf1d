//! One file's content: what is written, what is left a hole, and where it is.
//!
//! The content is looked at in groups of [`GROUP`] bytes from the file's beginning. A whole group
//! of zeros is a hole; all else is written. So it does not matter whether the tar had a stretch
//! of zeros as zeros or as a hole, nor where its bytes were cut on their way here.

use super::PlaceError;
use super::stream::Stream;
use crate::checksum::is_zero;
use crate::tree::{BLOCK, FileData, Run};

/// Bytes of a group: a hole shorter than this is not worth an extent. Part of the format version.
pub(super) const GROUP: usize = 32 * 1024;

const GROUP_BLOCKS: u32 = 8;
const _: () = assert!(GROUP_BLOCKS as usize * BLOCK == GROUP);

/// A file while its content comes.
pub(super) struct Content {
    size: u64,
    /// Bytes that were seen, holes included.
    position: u64,
    /// The current group is being written: it holds something.
    open: Option<Group>,
    runs: Vec<Run>,
}

/// A group that is being written.
struct Group {
    logical: u32,
    physical: u32,
    /// Blocks that follow each other from there.
    room: u32,
}

impl Content {
    /// A file of this size, of which nothing came yet.
    pub(super) fn new(size: u64) -> Result<Self, PlaceError> {
        // Block numbers inside a file have 32 bits, and the last is not used.
        if size.div_ceil(BLOCK as u64) >= u64::from(u32::MAX) {
            return Err(PlaceError::FileTooLarge { size });
        }
        Ok(Self { size, position: 0, open: None, runs: Vec::new() })
    }

    /// Bytes at `offset`. What lies between the last ones and these is zeros.
    pub(super) fn data(
        &mut self,
        offset: u64,
        mut bytes: &[u8],
        stream: &mut Stream<'_>,
    ) -> Result<(), PlaceError> {
        let end = offset.saturating_add(bytes.len() as u64);
        if offset < self.position || end > self.size {
            return Err(PlaceError::Disorder { offset, end, size: self.size });
        }
        self.skip_to(offset, stream)?;
        while !bytes.is_empty() {
            let inside = self.inside_group();
            let (now, later) = bytes.split_at(bytes.len().min(GROUP - inside));
            bytes = later;
            if self.open.is_some() || !is_zero(now) {
                self.begin_group(inside, stream)?;
                stream.write(now)?;
            }
            self.position += now.len() as u64;
            if inside + now.len() == GROUP {
                self.end_group(GROUP_BLOCKS, stream);
            }
        }
        Ok(())
    }

    /// All came: what is missing at the end is zeros.
    pub(super) fn finish(mut self, stream: &mut Stream<'_>) -> Result<FileData, PlaceError> {
        self.skip_to(self.size, stream)?;
        let inside = self.inside_group();
        if inside > 0 {
            self.begin_group(inside, stream)?;
            stream.pad()?;
            let blocks = inside.div_ceil(BLOCK);
            self.end_group(u32::try_from(blocks).expect("a group has few blocks"), stream);
        }
        Ok(FileData { size: self.size, runs: self.runs.into() })
    }

    fn inside_group(&self) -> usize {
        usize::try_from(self.position % GROUP as u64).expect("below the size of a group")
    }

    /// Zeros up to `offset`: they end the group that was begun, and further groups are holes.
    fn skip_to(&mut self, offset: u64, stream: &mut Stream<'_>) -> Result<(), PlaceError> {
        if self.open.is_some() && offset > self.position {
            let rest = GROUP - self.inside_group();
            let zeros = usize::try_from(offset - self.position).map_or(rest, |gap| gap.min(rest));
            stream.zeros(zeros)?;
            self.position += zeros as u64;
            if zeros == rest {
                self.end_group(GROUP_BLOCKS, stream);
            }
        }
        self.position = offset;
        Ok(())
    }

    /// From here on the group is written, and so are the zeros it began with.
    fn begin_group(&mut self, inside: usize, stream: &mut Stream<'_>) -> Result<(), PlaceError> {
        if self.open.is_none() {
            let place = stream.place()?;
            let start = (self.position - inside as u64) / BLOCK as u64;
            let logical = u32::try_from(start).expect("the size was checked");
            self.open = Some(Group { logical, physical: place.base, room: place.blocks });
            stream.zeros(inside)?;
        }
        Ok(())
    }

    /// The group has ended after so many blocks.
    fn end_group(&mut self, blocks: u32, stream: &Stream<'_>) {
        let Some(Group { logical, physical, room }) = self.open.take() else { return };
        let here = blocks.min(room);
        self.push(Run { logical, physical, blocks: here });
        if blocks > here {
            // The area ended inside the group; an area is larger than a group.
            let physical = stream.area_base();
            self.push(Run { logical: logical + here, physical, blocks: blocks - here });
        }
    }

    fn push(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some(last)
                if last.logical + last.blocks == run.logical
                    && last.physical + last.blocks == run.physical =>
            {
                last.blocks += run.blocks;
            }
            _ => self.runs.push(run),
        }
    }
}
