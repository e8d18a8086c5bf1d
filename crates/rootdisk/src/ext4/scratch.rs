//! An empty disk for what an instance writes: `upper` and `work` of an overlay.
//!
//! Only what differs from zeros is written, a few kilobytes whatever the size: descriptors have
//! checksums (`uninit_bg`), so the kernel makes up the bitmaps of untouched groups itself. There is
//! no journal: the disk lives no longer than its instance.

use super::directory::{self, Entry, Shape};
use super::extents;
use super::format::{
    BLOCKS_PER_GROUP, DESCRIPTOR_SIZE, DESCRIPTORS_PER_BLOCK, FIRST_INODE, FLAG_EXTENTS,
    INODE_SIZE, INODES_PER_BLOCK, ROOT_INODE, low16, put16, put32,
};
use super::groups::set_bits;
use super::inode::{self, Inode};
use super::stream::Stream;
use super::superblock::{REMOUNT_READ_ONLY, RO_COMPAT_GDT_CSUM, Superblock};
use super::{BlockSink, Geometry, MAX_BYTES, WriteError};
use crate::tree::{BLOCK, Run, Time};

/// The smallest scratch disk, 8 MiB: below it, tables would be a good part of it.
pub const MIN_SCRATCH_BYTES: u64 = SHORTEST_GROUP as u64 * BLOCK as u64;

/// The last group has at least so many blocks, enough for its own tables; a shorter rest of the
/// disk is not used.
const SHORTEST_GROUP: u32 = 2048;
/// Groups whose tables lie together, as a power of two: the usual 16. All their tables fit into
/// the first of them.
const LOG_GROUPS_PER_FLEX: u8 = 4;
const GROUPS_PER_FLEX: u32 = 1 << LOG_GROUPS_PER_FLEX;

/// Bytes for each inode: small disks fill with small files sooner.
const SMALL_RATIO: u64 = 8 << 10;
const LARGE_RATIO: u64 = 16 << 10;
const SMALL_DISK: u64 = 512 << 20;

const LABEL: [u8; 16] = *b"portolan-scratch";
const DIRECTORIES: [&[u8]; 2] = [b"upper", b"work"];
/// The root and the two in it, a block each.
const DIRECTORY_BLOCKS: u32 = 3;
/// Reserved inodes and the two directories.
const USED_INODES: u32 = FIRST_INODE + 1;

const INODE_UNINIT: u16 = 1;
const BLOCK_UNINIT: u16 = 2;
const INODE_ZEROED: u16 = 4;

/// Why a scratch disk could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ScratchError {
    /// It cannot have this size.
    #[error("a scratch disk cannot have {size} bytes; ask for {min} to {max}")]
    Size {
        /// What was asked for.
        size: u64,
        /// At least.
        min: u64,
        /// At most.
        max: u64,
    },
    /// It could not be written.
    #[error("the scratch disk could not be made")]
    Write(#[source] WriteError),
}

/// Writes an empty ext4 that can be mounted for writing, with the directories `upper` and `work`
/// (0755, root's). The same size and id give the same bytes.
///
/// The file must be made [`Geometry::size_bytes`] long, which is the size asked for less up to
/// 8 MiB that would make too short a group.
///
/// # Errors
/// When the size is none a scratch disk can have, and when the sink refuses.
pub fn scratch(
    size_bytes: u64,
    uuid: [u8; 16],
    sink: &mut dyn BlockSink,
) -> Result<Geometry, ScratchError> {
    if !(MIN_SCRATCH_BYTES..=MAX_BYTES).contains(&size_bytes) {
        let (min, max) = (MIN_SCRATCH_BYTES, MAX_BYTES);
        return Err(ScratchError::Size { size: size_bytes, min, max });
    }
    let plan = Plan::new(size_bytes);
    plan.write(uuid, &mut Stream::new(sink, 0)).map_err(ScratchError::Write)?;
    Ok(Geometry {
        blocks: plan.blocks,
        size_bytes: u64::from(plan.blocks) * BLOCK as u64,
        used_blocks: plan.used(),
        metadata_blocks: plan.used(),
        groups: plan.groups,
        inodes: plan.groups * plan.inodes_per_group,
        used_inodes: USED_INODES,
        dropped_xattrs: 0,
    })
}

struct Plan {
    blocks: u32,
    groups: u32,
    inodes_per_group: u32,
}

impl Plan {
    fn new(size_bytes: u64) -> Self {
        let mut blocks =
            u32::try_from(size_bytes / BLOCK as u64).expect("MAX_BYTES are fewer than 2^32 blocks");
        let rest = blocks % BLOCKS_PER_GROUP;
        if rest < SHORTEST_GROUP && blocks > BLOCKS_PER_GROUP {
            blocks -= rest;
        }
        let ratio = if size_bytes < SMALL_DISK { SMALL_RATIO } else { LARGE_RATIO };
        let group = u64::from(blocks.min(BLOCKS_PER_GROUP)) * BLOCK as u64;
        let inodes = u32::try_from(group / ratio).expect("a group is 128 MiB");
        Self {
            blocks,
            groups: blocks.div_ceil(BLOCKS_PER_GROUP),
            inodes_per_group: inodes.next_multiple_of(INODES_PER_BLOCK),
        }
    }

    fn descriptor_blocks(&self) -> u32 {
        self.groups.div_ceil(DESCRIPTORS_PER_BLOCK)
    }

    fn table_blocks(&self) -> u32 {
        self.inodes_per_group / INODES_PER_BLOCK
    }

    /// The first group of those whose tables lie with this group's, and how many they are.
    fn flex(&self, group: u32) -> (u32, u32) {
        let first = group / GROUPS_PER_FLEX * GROUPS_PER_FLEX;
        (first, (self.groups - first).min(GROUPS_PER_FLEX))
    }

    /// Where the tables of a group's flex group begin.
    fn tables(&self, group: u32) -> u32 {
        match self.flex(group).0 {
            0 => 1 + self.descriptor_blocks(),
            first => first * BLOCKS_PER_GROUP,
        }
    }

    fn block_bitmap(&self, group: u32) -> u32 {
        self.tables(group) + group % GROUPS_PER_FLEX
    }

    fn inode_bitmap(&self, group: u32) -> u32 {
        self.block_bitmap(group) + self.flex(group).1
    }

    fn inode_table(&self, group: u32) -> u32 {
        let (_, groups) = self.flex(group);
        self.tables(group) + 2 * groups + group % GROUPS_PER_FLEX * self.table_blocks()
    }

    /// Where the three directories are: behind the tables of the first groups.
    fn directories(&self) -> u32 {
        self.tables(0) + self.flex(0).1 * (2 + self.table_blocks())
    }

    fn length(&self, group: u32) -> u32 {
        (self.blocks - group * BLOCKS_PER_GROUP).min(BLOCKS_PER_GROUP)
    }

    /// Blocks at the start of a group that are taken.
    fn used_in(&self, group: u32) -> u32 {
        match self.flex(group) {
            (0, _) if group == 0 => self.directories() + DIRECTORY_BLOCKS,
            (first, groups) if first == group => groups * (2 + self.table_blocks()),
            _ => 0,
        }
    }

    fn used(&self) -> u32 {
        let flexes = (0..self.groups).step_by(GROUPS_PER_FLEX as usize);
        flexes.map(|group| self.used_in(group)).sum()
    }

    /// Whether the kernel may make up this group's block bitmap: nothing in it is taken, and it is
    /// not the last, which may end before its bitmap does.
    fn is_untouched(&self, group: u32) -> bool {
        self.used_in(group) == 0 && group + 1 < self.groups
    }

    fn write(&self, uuid: [u8; 16], stream: &mut Stream<'_>) -> Result<(), WriteError> {
        Superblock {
            blocks: self.blocks,
            free_blocks: self.blocks - self.used(),
            inodes: self.groups * self.inodes_per_group,
            free_inodes: self.groups * self.inodes_per_group - USED_INODES,
            inodes_per_group: self.inodes_per_group,
            uuid,
            hash_seed: uuid,
            label: LABEL,
            ro_compat: RO_COMPAT_GDT_CSUM,
            errors: REMOUNT_READ_ONLY,
            extra_isize: inode::EXTRA,
            log_groups_per_flex: LOG_GROUPS_PER_FLEX,
        }
        .put(stream.block()?);
        self.write_descriptors(&uuid, stream)?;
        for group in (0..self.groups).filter(|group| !self.is_untouched(*group)) {
            stream.seek(self.block_bitmap(group))?;
            let bitmap = stream.block()?;
            set_bits(bitmap, 0, self.used_in(group));
            set_bits(bitmap, self.length(group), BLOCKS_PER_GROUP);
        }
        stream.seek(self.inode_bitmap(0))?;
        let bitmap = stream.block()?;
        set_bits(bitmap, 0, USED_INODES);
        set_bits(bitmap, self.inodes_per_group, BLOCKS_PER_GROUP);
        self.write_directories(stream)
    }

    fn write_descriptors(
        &self,
        uuid: &[u8; 16],
        stream: &mut Stream<'_>,
    ) -> Result<(), WriteError> {
        let mut groups = 0..self.groups;
        for _ in 0..self.descriptor_blocks() {
            let block = stream.block()?;
            for (out, group) in block.chunks_exact_mut(DESCRIPTOR_SIZE).zip(&mut groups) {
                let first = group == 0;
                let used_inodes = if first { USED_INODES } else { 0 };
                let mut flags = INODE_ZEROED;
                flags |= if first { 0 } else { INODE_UNINIT };
                flags |= if self.is_untouched(group) { BLOCK_UNINIT } else { 0 };
                put32(out, 0, self.block_bitmap(group));
                put32(out, 4, self.inode_bitmap(group));
                put32(out, 8, self.inode_table(group));
                put16(out, 12, low16(self.length(group) - self.used_in(group)));
                put16(out, 14, low16(self.inodes_per_group - used_inodes));
                put16(out, 16, if first { low16(DIRECTORY_BLOCKS) } else { 0 });
                put16(out, 18, flags);
                put16(out, 28, low16(self.inodes_per_group - used_inodes));
                let sum = crc16(crc16(crc16(!0, uuid), &group.to_le_bytes()), &out[..30]);
                put16(out, 30, sum);
            }
        }
        Ok(())
    }

    fn write_directories(&self, stream: &mut Stream<'_>) -> Result<(), WriteError> {
        let entries = DIRECTORIES
            .into_iter()
            .zip(FIRST_INODE..)
            .map(|(name, inode)| Entry { name, inode, kind: inode::DIRECTORY })
            .collect::<Vec<_>>();
        stream.seek(self.directories())?;
        directory::write(&Shape::Linear(1), &entries, ROOT_INODE, ROOT_INODE, stream)?;
        for entry in &entries {
            directory::write(&Shape::Linear(1), &[], entry.inode, ROOT_INODE, stream)?;
        }
        stream.seek(self.inode_table(0))?;
        let block = stream.block()?;
        // All three are among the first sixteen inodes: one block of the table.
        let inodes = [(ROOT_INODE, 4), (FIRST_INODE, 2), (FIRST_INODE + 1, 2)];
        for ((number, links), physical) in inodes.into_iter().zip(self.directories()..) {
            let at = (number as usize - 1) * INODE_SIZE;
            let extent = Run { logical: 0, physical, blocks: 1 };
            let inode = Inode {
                mode: 0o040_755,
                uid: 0,
                gid: 0,
                size: BLOCK as u64,
                time: Time::default(),
                links,
                blocks: 1,
                flags: FLAG_EXTENTS,
                block: extents::root(&[extent], 0),
                xattr_block: 0,
            };
            inode.put(&[], &mut block[at..at + INODE_SIZE]);
        }
        stream.flush()
    }
}

/// The checksum of descriptors: CRC-16 of the polynomial 0x8005, lowest bit first.
fn crc16(start: u16, bytes: &[u8]) -> u16 {
    bytes.iter().fold(start, |crc, &byte| {
        (0..8).fold(crc ^ u16::from(byte), |crc, _| {
            let carry = if crc & 1 == 1 { 0xa001 } else { 0 };
            crc >> 1 ^ carry
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_usual_one() {
        assert_eq!(crc16(0, b"123456789"), 0xbb3d);
    }
}
