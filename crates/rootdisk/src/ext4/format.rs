//! Numbers of the ext4 format that more than one part needs, and how they are put into bytes.

/// Bytes of an inode.
pub(super) const INODE_SIZE: usize = 256;
/// Inodes in a block.
pub(super) const INODES_PER_BLOCK: u32 = 16;
/// Blocks in a group: what the bits of one bitmap block can tell.
pub(super) const BLOCKS_PER_GROUP: u32 = 32768;
/// Inodes in a group at most: again the bits of one block.
pub(super) const MAX_INODES_PER_GROUP: u32 = 32768;
/// Bytes of a group descriptor (without the 64bit feature).
pub(super) const DESCRIPTOR_SIZE: usize = 32;
/// Group descriptors in a block.
pub(super) const DESCRIPTORS_PER_BLOCK: u32 = 128;
/// The root directory's inode.
pub(super) const ROOT_INODE: u32 = 2;
/// The first inode that is not reserved.
pub(super) const FIRST_INODE: u32 = 11;

/// `i_flags`: the directory has a hash index.
pub(super) const FLAG_INDEX: u32 = 0x1000;
/// `i_flags`: the content is mapped by extents.
pub(super) const FLAG_EXTENTS: u32 = 0x8_0000;

pub(super) fn put16(bytes: &mut [u8], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
}

pub(super) fn put32(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The low half.
pub(super) fn low16(value: u32) -> u16 {
    (value & 0xffff) as u16
}

/// The low half.
pub(super) fn low32(value: u64) -> u32 {
    (value & 0xffff_ffff) as u32
}

/// The high half.
pub(super) fn high32(value: u64) -> u32 {
    (value >> 32) as u32
}

/// Lengths and positions inside a block.
pub(super) fn in_block(length: usize) -> u16 {
    u16::try_from(length).expect("nothing inside a block is longer than the block")
}
