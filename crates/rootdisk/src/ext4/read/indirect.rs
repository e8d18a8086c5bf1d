//! Block numbers in blocks of block numbers: a file's blocks in ext2 and ext3.

use super::field::le32;
use super::map::{Budget, Span};
use super::{Filesystem, Inode, ReadAt, ReadError};

const DIRECT: u64 = 12;

/// Walks the numbers in the order of the file; a zero anywhere skips all that it stands for.
pub(super) struct Indirect<'a, R> {
    fs: &'a Filesystem<R>,
    inode: &'a Inode,
    /// The next block of the file.
    at: u64,
    end: u64,
    /// The block of numbers last read on each level, from the one that names data up.
    cached: [Option<Cached>; 3],
}

/// A block of numbers in the place that it has in the file. A block that a second place names, which
/// no sound file system has, is read and charged again: else one block of zeros, named by all
/// places of another, would stand for more than anyone can walk through.
struct Cached {
    block: u64,
    /// The first block of the file that it stands for.
    first: u64,
    numbers: Vec<u8>,
}

/// What stands for a block of the file.
enum Found {
    Data(u64),
    /// This many blocks from here on are not there.
    Hole(u64),
}

impl<'a, R: ReadAt> Indirect<'a, R> {
    pub(super) fn new(fs: &'a Filesystem<R>, inode: &'a Inode, from: u64) -> Self {
        let end = inode.size.div_ceil(fs.superblock.block_bytes());
        Self { fs, inode, at: from, end, cached: Default::default() }
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Span>, ReadError> {
        let mut span: Option<Span> = None;
        while self.at < self.end {
            match (self.find(self.at, budget)?, &mut span) {
                (Found::Hole(blocks), None) => self.at = self.at.saturating_add(blocks),
                (Found::Hole(_), Some(_)) => break,
                (Found::Data(physical), None) => {
                    self.take(physical, budget)?;
                    span = Some(Span { logical: self.at - 1, physical, blocks: 1, written: true });
                }
                (Found::Data(physical), Some(span)) => {
                    if physical != span.physical + span.blocks {
                        break;
                    }
                    self.take(physical, budget)?;
                    span.blocks += 1;
                }
            }
        }
        Ok(span)
    }

    fn take(&mut self, physical: u64, budget: &mut Budget) -> Result<(), ReadError> {
        self.fs.check_block(physical)?;
        budget.charge(self.inode, self.fs.superblock.block_bytes())?;
        self.at += 1;
        Ok(())
    }

    fn find(&mut self, at: u64, budget: &mut Budget) -> Result<Found, ReadError> {
        let per_block = self.fs.superblock.block_bytes() / 4;
        let (mut level, mut index, mut covers) = (0, at, 1);
        if at >= DIRECT {
            index -= DIRECT;
            covers = per_block;
            level = 1;
            while index >= covers {
                index -= covers;
                covers = covers.saturating_mul(per_block);
                level += 1;
            }
        }
        let slot = match level {
            0 => at,
            1..=3 => DIRECT + level - 1,
            _ => return Err(self.inode.damaged("it is larger than its block numbers reach")),
        };
        let mut number = u64::from(numbered(&self.inode.body, slot));
        if number == 0 {
            return Ok(Found::Hole(if level == 0 { 1 } else { covers - index }));
        }
        for level in (0..level).rev() {
            covers /= per_block;
            let numbers = self.numbers(level, number, at - index, budget)?;
            let place = index / covers;
            index %= covers;
            number = u64::from(numbered(numbers, place));
            if number == 0 {
                let zeros = (place..per_block).take_while(|place| numbered(numbers, *place) == 0);
                return Ok(Found::Hole(zeros.count() as u64 * covers - index));
            }
        }
        Ok(Found::Data(number))
    }

    /// The block of numbers that stands for the file from its block `first` on.
    fn numbers(
        &mut self,
        level: u64,
        block: u64,
        first: u64,
        budget: &mut Budget,
    ) -> Result<&[u8], ReadError> {
        let cached = &mut self.cached[usize::try_from(level).unwrap_or(2)];
        let known = cached.take().filter(|known| (known.block, known.first) == (block, first));
        let known = match known {
            Some(known) => known,
            None => {
                budget.charge(self.inode, self.fs.superblock.block_bytes())?;
                Cached { block, first, numbers: self.fs.block(block)? }
            }
        };
        Ok(&cached.insert(known).numbers)
    }
}

fn numbered(numbers: &[u8], place: u64) -> u32 {
    usize::try_from(place).map_or(0, |place| le32(numbers, place.saturating_mul(4)))
}
