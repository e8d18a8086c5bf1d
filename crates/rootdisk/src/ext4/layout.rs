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
        // Absurd options may ask for more than can be counted.
        let size = blocks.saturating_mul(BLOCK as u64);
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

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn options(min_bytes: u64, headroom_percent: u32) -> Options {
        Options {
            uuid: [0; 16],
            hash_seed: [0; 16],
            read_only: true,
            first_free: 0,
            min_bytes,
            headroom_percent,
            max_bytes: u64::MAX,
            min_inodes: 0,
        }
    }

    proptest! {
        #[test]
        fn a_layout_has_room_for_all_and_is_no_larger_than_it_must_be(
            content_end in 1024u32..1 << 30,
            sparse in 1u64..20,
            inodes in 10u32..5_000_000,
            min_bytes in 0u64..1 << 40,
            percent in 0u32..300,
        ) {
            let needs =
                Needs { content_end, content_blocks: u64::from(content_end) / sparse, inodes };
            let layout = plan(needs, &options(min_bytes, percent)).unwrap();
            prop_assert!(layout.inodes() >= inodes);
            prop_assert!(layout.inodes_per_group <= MAX_INODES_PER_GROUP);
            prop_assert_eq!(layout.groups, layout.blocks.div_ceil(BLOCKS_PER_GROUP));
            prop_assert_eq!(layout.end, layout.inode_bitmaps + layout.groups);
            prop_assert_eq!(layout.inode_bitmaps, layout.block_bitmaps + layout.groups);
            let size = u64::from(layout.blocks) * BLOCK as u64;
            prop_assert!(size >= min_bytes && layout.end <= layout.blocks);
            prop_assert!(
                u64::from(layout.blocks) * 100
                    >= u64::from(layout.used_blocks) * u64::from(percent)
            );
        }
    }

    #[test]
    fn a_disk_over_the_cap_is_refused_by_the_name_of_the_setting() {
        let needs = Needs { content_end: 300_000, content_blocks: 300_000, inodes: 100 };
        let options = Options { max_bytes: 1 << 30, ..options(0, 100) };
        let message = plan(needs, &options).unwrap_err().to_string();
        assert!(message.contains("`max_virtual_bytes` allows 1073741824"), "{message}");
    }

    #[test]
    fn inodes_alone_can_make_a_disk_grow() {
        let needs = Needs { content_end: 1024, content_blocks: 0, inodes: 4_000_000 };
        let layout = plan(needs, &options(0, 100)).unwrap();
        assert_eq!(layout.groups, 4_000_000u32.div_ceil(MAX_INODES_PER_GROUP));
        assert_eq!(layout.blocks.div_ceil(BLOCKS_PER_GROUP), layout.groups);
    }
}
