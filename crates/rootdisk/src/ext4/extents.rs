//! Which blocks of a file are where: extents, in the inode or in a tree of any depth.

use super::format::{in_block, put16, put32};
use super::stream::Stream;
use super::{FIRST_DATA_BLOCK, WriteError};
use crate::tree::{BLOCK, FileData, Run};

/// Blocks one extent can cover; a longer length would mean "allocated but not written".
const MAX_EXTENT: u32 = 32768;
/// Entries beside the header in the inode's 60 bytes.
const IN_INODE: usize = 4;
/// Entries beside the header in a block.
const IN_BLOCK: usize = (BLOCK - ENTRY) / ENTRY;
/// Bytes of a header and of an entry.
const ENTRY: usize = 12;
const MAGIC: u16 = 0xf30a;

/// What is wrong with a file's runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BadRuns {
    Order,
    PastTheEnd,
    OutsideTheRegions,
}

/// Checks that runs lie in the file and in the data regions, each behind the one before.
pub(super) fn check(data: &FileData, first_free: u32) -> Result<(), BadRuns> {
    let blocks = data.size.div_ceil(BLOCK as u64);
    let mut next = 0u64;
    for run in &data.runs {
        if run.blocks == 0 || u64::from(run.logical) < next {
            return Err(BadRuns::Order);
        }
        next = u64::from(run.logical) + u64::from(run.blocks);
        if next > blocks {
            return Err(BadRuns::PastTheEnd);
        }
        let end = u64::from(run.physical) + u64::from(run.blocks);
        if run.physical < FIRST_DATA_BLOCK || end > u64::from(first_free) {
            return Err(BadRuns::OutsideTheRegions);
        }
    }
    Ok(())
}

/// Joins runs that touch and cuts them to what an extent can cover: how the runs were cut before
/// makes no difference to the disk.
pub(super) fn of_runs(runs: &[Run]) -> Vec<Run> {
    let mut extents: Vec<Run> = Vec::with_capacity(runs.len());
    for run in runs {
        let mut rest = *run;
        while rest.blocks > 0 {
            let mut room = MAX_EXTENT;
            if let Some(last) = extents.last_mut()
                && last.blocks < MAX_EXTENT
                && last.logical + last.blocks == rest.logical
                && last.physical + last.blocks == rest.physical
            {
                room = (MAX_EXTENT - last.blocks).min(rest.blocks);
                last.blocks += room;
            } else {
                room = room.min(rest.blocks);
                extents.push(Run { blocks: room, ..rest });
            }
            // A run may end at the last block there can be: nothing is left of it then.
            rest.blocks -= room;
            if rest.blocks > 0 {
                rest.logical += room;
                rest.physical += room;
            }
        }
    }
    extents
}

/// How many blocks the tree over this many extents takes beside the inode.
pub(super) fn tree_blocks(extents: usize) -> u32 {
    let mut blocks = 0;
    let mut entries = extents;
    while entries > IN_INODE {
        entries = entries.div_ceil(IN_BLOCK);
        blocks += entries;
    }
    u32::try_from(blocks).expect("fewer than extents, and those are counted in blocks")
}

/// Writes the blocks of the tree: all leaves, then each level above them.
pub(super) fn write_tree(extents: &[Run], stream: &mut Stream<'_>) -> Result<(), WriteError> {
    let mut level = Level::leaves(extents);
    while level.entries.len() > IN_INODE {
        let first = stream.position();
        for entries in level.entries.chunks(IN_BLOCK) {
            level.put(entries, IN_BLOCK, stream.block()?);
        }
        level = level.above(first);
    }
    Ok(())
}

/// The inode's 60 bytes over a tree whose blocks were written at `tree`.
pub(super) fn root(extents: &[Run], tree: u32) -> [u8; 60] {
    let mut level = Level::leaves(extents);
    let mut first = tree;
    while level.entries.len() > IN_INODE {
        let above = level.above(first);
        first += u32::try_from(above.entries.len()).expect("as in tree_blocks");
        level = above;
    }
    let mut root = [0; 60];
    level.put(&level.entries, IN_INODE, &mut root);
    root
}

/// One level of a tree. In levels above the leaves `physical` is the block below, and `blocks`
/// means nothing.
struct Level<'e> {
    depth: u16,
    entries: std::borrow::Cow<'e, [Run]>,
}

impl<'e> Level<'e> {
    fn leaves(extents: &'e [Run]) -> Self {
        Self { depth: 0, entries: extents.into() }
    }

    /// The level that leads to this one, whose blocks begin at `first`.
    fn above(&self, first: u32) -> Level<'static> {
        let chunks = self.entries.chunks(IN_BLOCK).zip(first..);
        Level {
            depth: self.depth + 1,
            entries: chunks
                .map(|(entries, physical)| Run { logical: entries[0].logical, physical, blocks: 0 })
                .collect(),
        }
    }

    fn put(&self, entries: &[Run], room: usize, out: &mut [u8]) {
        put16(out, 0, MAGIC);
        put16(out, 2, in_block(entries.len()));
        put16(out, 4, in_block(room));
        put16(out, 6, self.depth);
        for (entry, out) in entries.iter().zip(out[ENTRY..].chunks_exact_mut(ENTRY)) {
            put32(out, 0, entry.logical);
            if self.depth == 0 {
                put16(out, 4, u16::try_from(entry.blocks).expect("cut to what an extent covers"));
                put32(out, 8, entry.physical);
            } else {
                put32(out, 4, entry.physical);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(logical: u32, physical: u32, blocks: u32) -> Run {
        Run { logical, physical, blocks }
    }

    #[test]
    fn runs_that_touch_are_one_and_long_ones_are_cut() {
        let joined = of_runs(&[run(0, 5000, 10), run(10, 5010, 5), run(15, 6000, 1)]);
        assert_eq!(joined, [run(0, 5000, 15), run(15, 6000, 1)]);
        let cut = of_runs(&[run(7, 5000, 70_000)]);
        let full = MAX_EXTENT;
        assert_eq!(
            cut,
            [
                run(7, 5000, full),
                run(7 + full, 5000 + full, full),
                run(7 + 2 * full, 5000 + 2 * full, 70_000 - 2 * full)
            ]
        );
        // However it comes, it ends up the same.
        assert_eq!(of_runs(&[run(7, 5000, 40_000), run(40_007, 45_000, 30_000)]), cut);
    }

    #[test]
    fn trees_take_as_many_blocks_as_their_levels() {
        let full = IN_BLOCK;
        for (extents, blocks) in [
            (0, 0),
            (4, 0),
            (5, 1),
            (full, 1),
            (full + 1, 2),
            (4 * full, 4),
            (4 * full + 1, 5 + 1),
            (full * full + 1, full + 1 + 2),
        ] {
            assert_eq!(tree_blocks(extents) as usize, blocks, "{extents}");
        }
    }

    #[test]
    fn runs_are_checked() {
        let check = |size, runs: &[Run]| check(&FileData { size, runs: runs.into() }, 9000);
        assert_eq!(check(8192, &[run(0, 5000, 2)]), Ok(()));
        assert_eq!(check(8193, &[run(2, 5000, 1)]), Ok(()));
        assert_eq!(check(8192, &[run(0, 5000, 3)]), Err(BadRuns::PastTheEnd));
        assert_eq!(check(8192, &[run(0, 5000, 0)]), Err(BadRuns::Order));
        assert_eq!(check(8192, &[run(0, 5000, 1), run(0, 5001, 1)]), Err(BadRuns::Order));
        assert_eq!(check(8192, &[run(0, 8999, 2)]), Err(BadRuns::OutsideTheRegions));
        assert_eq!(check(8192, &[run(0, 1, 2)]), Err(BadRuns::OutsideTheRegions));
    }
}
