//! The superblock.

use super::format::{BLOCKS_PER_GROUP, FIRST_INODE, INODE_SIZE, in_block, put16, put32};
use crate::tree::BLOCK;

/// Bytes before the superblock, for a boot loader.
const OFFSET: usize = 1024;

const COMPAT_EXT_ATTR: u32 = 0x8;
const COMPAT_DIR_INDEX: u32 = 0x20;
const COMPAT_SPARSE_SUPER2: u32 = 0x200;
const INCOMPAT_FILETYPE: u32 = 0x2;
const INCOMPAT_EXTENTS: u32 = 0x40;
const INCOMPAT_FLEX_BG: u32 = 0x200;
const RO_COMPAT_LARGE_FILE: u32 = 0x2;
const RO_COMPAT_HUGE_FILE: u32 = 0x8;
const RO_COMPAT_DIR_NLINK: u32 = 0x20;
const RO_COMPAT_EXTRA_ISIZE: u32 = 0x40;
/// Descriptors have checksums, and groups that nothing was put into need not be written.
pub(super) const RO_COMPAT_GDT_CSUM: u32 = 0x10;
/// The kernel refuses to mount it for writing.
pub(super) const RO_COMPAT_READONLY: u32 = 0x1000;

const CLEAN: u16 = 1;
/// What the kernel does about errors: goes on; on a disk that is only read there is nothing to
/// protect.
pub(super) const CONTINUE: u16 = 1;
/// What it does about errors where they could spread: writes no more.
pub(super) const REMOUNT_READ_ONLY: u16 = 2;
/// Hash names by half-MD4, their bytes unsigned on every processor.
const HALF_MD4: u8 = 1;
const UNSIGNED_HASH: u32 = 2;
/// Extended attributes and lists are on without a mount option.
const XATTR_AND_ACL: u32 = 0x4 | 0x8;

/// What differs between disks.
pub(super) struct Superblock {
    pub(super) blocks: u32,
    pub(super) free_blocks: u32,
    pub(super) inodes: u32,
    pub(super) free_inodes: u32,
    pub(super) inodes_per_group: u32,
    pub(super) uuid: [u8; 16],
    pub(super) hash_seed: [u8; 16],
    pub(super) label: [u8; 16],
    /// Beside those that all disks have.
    pub(super) ro_compat: u32,
    /// What the kernel does about errors.
    pub(super) errors: u16,
    /// Bytes that the kernel keeps of each inode behind the first 128.
    pub(super) extra_isize: u16,
    /// Groups whose tables lie together, as a power of two.
    pub(super) log_groups_per_flex: u8,
}

impl Superblock {
    /// Puts it into the first block. All times are 0, and no copy of it exists elsewhere:
    /// `sparse_super2` without backup groups.
    pub(super) fn put(&self, block: &mut [u8]) {
        let out = &mut block[OFFSET..OFFSET + 1024];
        put32(out, 0x00, self.inodes);
        put32(out, 0x04, self.blocks);
        put32(out, 0x0c, self.free_blocks);
        put32(out, 0x10, self.free_inodes);
        let log_block_size = (BLOCK / 1024).trailing_zeros();
        put32(out, 0x18, log_block_size);
        put32(out, 0x1c, log_block_size);
        put32(out, 0x20, BLOCKS_PER_GROUP);
        put32(out, 0x24, BLOCKS_PER_GROUP);
        put32(out, 0x28, self.inodes_per_group);
        put16(out, 0x36, u16::MAX); // never checked because of how often it was mounted
        put16(out, 0x38, 0xef53);
        put16(out, 0x3a, CLEAN);
        put16(out, 0x3c, self.errors);
        put32(out, 0x4c, 1); // the revision with sizes that can be chosen
        put32(out, 0x54, FIRST_INODE);
        put16(out, 0x58, in_block(INODE_SIZE));
        put32(out, 0x5c, COMPAT_EXT_ATTR | COMPAT_DIR_INDEX | COMPAT_SPARSE_SUPER2);
        put32(out, 0x60, INCOMPAT_FILETYPE | INCOMPAT_EXTENTS | INCOMPAT_FLEX_BG);
        let ro_compat = RO_COMPAT_LARGE_FILE
            | RO_COMPAT_HUGE_FILE
            | RO_COMPAT_DIR_NLINK
            | RO_COMPAT_EXTRA_ISIZE
            | self.ro_compat;
        put32(out, 0x64, ro_compat);
        out[0x68..0x78].copy_from_slice(&self.uuid);
        out[0x78..0x88].copy_from_slice(&self.label);
        out[0xec..0xfc].copy_from_slice(&self.hash_seed);
        out[0xfc] = HALF_MD4;
        put32(out, 0x100, XATTR_AND_ACL);
        put16(out, 0x15c, self.extra_isize);
        put16(out, 0x15e, self.extra_isize);
        put32(out, 0x160, UNSIGNED_HASH);
        out[0x174] = self.log_groups_per_flex;
    }
}
