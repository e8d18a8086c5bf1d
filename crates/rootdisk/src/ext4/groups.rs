//! Bitmaps and group descriptors.

use super::WriteError;
use super::format::{BLOCKS_PER_GROUP, DESCRIPTOR_SIZE, INODES_PER_BLOCK, low16, put16, put32};
use super::layout::Layout;
use super::stream::Stream;
use crate::tree::BLOCK;

/// What the descriptors say beside places.
pub(super) struct Counts {
    /// By group.
    pub(super) free_blocks: Vec<u32>,
    /// By group.
    pub(super) directories: Vec<u32>,
    /// Inodes that are taken: all up to this one.
    pub(super) used_inodes: u32,
}

impl Counts {
    fn free_inodes(&self, group: u32, per_group: u32) -> u32 {
        per_group - self.used_inodes.saturating_sub(group * per_group).min(per_group)
    }
}

/// Sets the bits `from..to` of a bitmap.
pub(super) fn set_bits(bitmap: &mut [u8], from: u32, to: u32) {
    let (mut at, to) = (from as usize, to as usize);
    while at < to && at % 8 != 0 {
        bitmap[at / 8] |= 1 << (at % 8);
        at += 1;
    }
    if to - at >= 8 {
        bitmap[at / 8..to / 8].fill(0xff);
        at = to / 8 * 8;
    }
    while at < to {
        bitmap[at / 8] |= 1 << (at % 8);
        at += 1;
    }
}

/// Writes the block bitmap of every group from the used pieces of the disk, which come in order
/// and do not overlap, and tells how many blocks of each group are free. A group without any used
/// block has a bitmap of zeros, which is not written.
pub(super) fn write_block_bitmaps(
    layout: &Layout,
    used: impl Iterator<Item = (u32, u32)>,
    stream: &mut Stream<'_>,
) -> Result<Vec<u32>, WriteError> {
    let mut used = used.peekable();
    let mut free = Vec::with_capacity(layout.groups as usize);
    for group in 0..layout.groups {
        let start = group * BLOCKS_PER_GROUP;
        let length = (layout.blocks - start).min(BLOCKS_PER_GROUP);
        let end = start + length;
        if length == BLOCKS_PER_GROUP && used.peek().is_none_or(|&(from, _)| from >= end) {
            stream.skip(1)?;
            free.push(length);
            continue;
        }
        let bitmap = stream.block()?;
        // What lies behind the end of the disk counts as used.
        set_bits(bitmap, length, BLOCKS_PER_GROUP);
        let mut taken = 0;
        while let Some(&(from, to)) = used.peek()
            && from < end
        {
            let (from, here) = (from.max(start), to.min(end));
            set_bits(bitmap, from - start, here - start);
            taken += here - from;
            if to > end {
                break;
            }
            used.next();
        }
        free.push(length - taken);
    }
    stream.flush()?;
    Ok(free)
}

/// Writes the inode bitmap of every group. Inodes are taken from the first on; what a group does
/// not have counts as used, or e2fsck complains.
pub(super) fn write_inode_bitmaps(
    layout: &Layout,
    counts: &Counts,
    stream: &mut Stream<'_>,
) -> Result<(), WriteError> {
    let per_group = layout.inodes_per_group;
    for group in 0..layout.groups {
        let bitmap = stream.block()?;
        set_bits(bitmap, 0, per_group - counts.free_inodes(group, per_group));
        set_bits(bitmap, per_group, BLOCKS_PER_GROUP);
    }
    stream.flush()
}

/// Writes the descriptors of all groups.
pub(super) fn write_descriptors(
    layout: &Layout,
    counts: &Counts,
    stream: &mut Stream<'_>,
) -> Result<(), WriteError> {
    let per_group = layout.inodes_per_group;
    let table = per_group / INODES_PER_BLOCK;
    let mut group = 0;
    for _ in 0..layout.descriptor_blocks() {
        let block = stream.block()?;
        for out in block.chunks_exact_mut(DESCRIPTOR_SIZE).take((layout.groups - group) as usize) {
            put32(out, 0, layout.block_bitmaps + group);
            put32(out, 4, layout.inode_bitmaps + group);
            put32(out, 8, layout.inode_table + group * table);
            put16(out, 12, low16(counts.free_blocks[group as usize]));
            put16(out, 14, low16(counts.free_inodes(group, per_group)));
            put16(out, 16, low16(counts.directories[group as usize]));
            group += 1;
        }
    }
    debug_assert_eq!(
        layout.descriptor_blocks() as usize,
        (group as usize * DESCRIPTOR_SIZE).div_ceil(BLOCK)
    );
    stream.flush()
}
