//! How large the disk is and where its tables are.
//!
//! With `flex_bg` a group's tables may be anywhere, so all of them follow the content: the inode
//! table of all groups in one piece, then all block bitmaps, then all inode bitmaps.

use super::format::{
    BLOCKS_PER_GROUP, DESCRIPTORS_PER_BLOCK, INODES_PER_BLOCK, MAX_INODES_PER_GROUP,
};
use super::{MAX_BLOCKS, Options, WriteError};
use crate::tree::BLOCK;

/// Sizes are a multiple of this: a virtual machine maps a disk in pieces of 2 MiB, and no group is
/// shorter.
const GRAIN: u64 = 512;

/// What the size depends on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Needs {
    /// The first block after all content.
    pub(super) content_end: u32,
    /// Blocks of data and content.
    pub(super) content_blocks: u64,
    /// Inodes, reserved ones among them.
    pub(super) inodes: u32,
}

/// Where everything is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    pub(super) blocks: u32,
    pub(super) used_blocks: u32,
    pub(super) groups: u32,
    pub(super) inodes_per_group: u32,
    pub(super) inode_table: u32,
    pub(super) block_bitmaps: u32,
    pub(super) inode_bitmaps: u32,
    /// One past the last bitmap.
    pub(super) end: u32,
}

impl Layout {
    /// Blocks that the descriptors of all groups take.
    pub(super) fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(DESCRIPTORS_PER_BLOCK)
    }

    pub(super) fn inodes(&self) -> u32 {
        self.groups * self.inodes_per_group
    }
}

/// Finds the smallest number of groups that describe themselves and all the rest.
pub(super) fn plan(needs: Needs, options: &Options) -> Result<Layout, WriteError> {
    let inodes = u64::from(needs.inodes.max(options.min_inodes));
    let mut groups = inodes.div_ceil(u64::from(MAX_INODES_PER_GROUP)).max(1);
    loop {
        // Every group takes a whole number of blocks of the inode table.
        let table = inodes.div_ceil(groups).div_ceil(u64::from(INODES_PER_BLOCK));
        let tables = groups * (table + 2);
        let descriptors = groups.div_ceil(u64::from(DESCRIPTORS_PER_BLOCK));
        let end = u64::from(needs.content_end) + tables;
        let used = needs.content_blocks + tables + 1 + descriptors;
        let with_headroom = (used * u64::from(options.headroom_percent.max(100))).div_ceil(100);
        let blocks = end
            .max(with_headroom)
            .max(options.min_bytes.div_ceil(BLOCK as u64))
            .max((groups - 1) * u64::from(BLOCKS_PER_GROUP) + 1)
            .next_multiple_of(GRAIN);
        let size = blocks * BLOCK as u64;
        if size > options.max_bytes || blocks > u64::from(MAX_BLOCKS) {
            let max = options.max_bytes.min(super::MAX_BYTES);
            return Err(WriteError::TooLarge { needed: size, max });
        }
        let needed = blocks.div_ceil(u64::from(BLOCKS_PER_GROUP));
        if needed > groups {
            groups = needed;
            continue;
        }
        let small = |value: u64| u32::try_from(value).expect("within MAX_BLOCKS");
        let block_bitmaps = u64::from(needs.content_end) + groups * table;
        return Ok(Layout {
            blocks: small(blocks),
            used_blocks: small(used),
            groups: small(groups),
            inodes_per_group: small(table) * INODES_PER_BLOCK,
            inode_table: needs.content_end,
            block_bitmaps: small(block_bitmaps),
            inode_bitmaps: small(block_bitmaps + groups),
            end: small(end),
        });
    }
}
