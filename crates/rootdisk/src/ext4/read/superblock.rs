//! The superblock: what a file system says of itself.

use super::features::{self, Features};
use super::field::{array, byte, halves, le16, le32, text};
use super::{ReadAt, ReadError};
use crate::tree::Time;

/// Where it lies, whatever the block size.
const OFFSET: u64 = 1024;
const SIZE: usize = 1024;
const MAGIC: u16 = 0xef53;
/// 64 KiB, the largest block there is.
const MAX_LOG_BLOCK_SIZE: u32 = 6;

/// What a file system says of itself. The checksums in it are not verified.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Superblock {
    /// Names the file system.
    pub uuid: [u8; 16],
    /// A name for people; often empty.
    pub label: Vec<u8>,
    /// What it uses beyond plain ext2.
    pub features: Features,
    /// Bytes of a block.
    pub block_size: u32,
    /// All blocks.
    pub blocks: u64,
    /// Blocks that nothing uses.
    pub free_blocks: u64,
    /// Blocks kept for root.
    pub reserved_blocks: u64,
    /// All inodes.
    pub inodes: u32,
    /// Inodes that nothing uses.
    pub free_inodes: u32,
    /// Bytes of an inode.
    pub inode_size: u16,
    /// Blocks of a group.
    pub blocks_per_group: u32,
    /// Inodes of a group.
    pub inodes_per_group: u32,
    /// Groups.
    pub groups: u32,
    /// 0 for the oldest ext2, 1 since.
    pub revision: u32,
    /// Whether it was unmounted properly.
    pub clean: bool,
    /// Whether the kernel found errors in it.
    pub errors: bool,
    /// Keeps the order of names in large directories secret.
    pub hash_seed: [u8; 16],
    /// When it was made.
    pub created: Time,
    /// When it was last mounted.
    pub mounted: Time,
    /// When it was last written.
    pub written: Time,
    /// When it was last checked.
    pub checked: Time,
    /// Where it was last mounted.
    pub last_mounted_on: Vec<u8>,
    pub(super) first_data_block: u32,
    pub(super) descriptor_size: u16,
    pub(super) incompatible: u32,
    pub(super) copies: Copies,
    pub(super) first_meta_bg: u32,
}

/// Which groups begin with a copy of the superblock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Copies {
    /// All of them.
    Everywhere,
    /// 0, 1 and the powers of 3, 5 and 7.
    Powers,
    /// The first and these.
    In([u32; 2]),
}

impl Copies {
    pub(super) fn in_group(self, group: u32) -> bool {
        let power = |base: u32| {
            let mut rest = group;
            while rest > 1 && rest.is_multiple_of(base) {
                rest /= base;
            }
            rest == 1
        };
        match self {
            Self::Everywhere => true,
            Self::Powers => group <= 1 || power(3) || power(5) || power(7),
            Self::In(groups) => group == 0 || groups.contains(&group),
        }
    }
}

impl Superblock {
    /// Bytes of the whole file system.
    pub fn size_bytes(&self) -> u64 {
        self.blocks.saturating_mul(u64::from(self.block_size))
    }

    /// Whether a journal holds changes that are not in place yet: what is read may be stale.
    pub fn needs_recovery(&self) -> bool {
        self.incompatible & features::NEEDS_RECOVERY != 0
    }

    /// Whether metadata carries checksums; they are not verified here.
    pub fn has_checksums(&self) -> bool {
        self.features.has("metadata_csum") || self.features.has("uninit_bg")
    }

    /// The UUID as it is written everywhere.
    pub fn uuid_text(&self) -> String {
        let hex = portolan_core::hex(&self.uuid);
        [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
    }

    pub(super) fn block_bytes(&self) -> u64 {
        u64::from(self.block_size)
    }

    pub(super) fn read(source: &impl ReadAt, size: u64) -> Result<Self, ReadError> {
        if size < OFFSET + SIZE as u64 {
            return Err(ReadError::NotExt4);
        }
        let mut bytes = [0; SIZE];
        source.read_exact_at(&mut bytes, OFFSET).map_err(|source| ReadError::Source {
            offset: OFFSET,
            length: SIZE,
            source,
        })?;
        parse(&bytes)
    }
}

fn parse(bytes: &[u8; SIZE]) -> Result<Superblock, ReadError> {
    let damaged = |what| ReadError::Superblock { what };
    if le16(bytes, 0x38) != MAGIC {
        return Err(ReadError::NotExt4);
    }
    let incompatible = le32(bytes, 0x60);
    let (compatible, read_only) = (le32(bytes, 0x5c), le32(bytes, 0x64));
    features::check(incompatible)?;

    let log_block_size = le32(bytes, 0x18);
    if log_block_size > MAX_LOG_BLOCK_SIZE {
        return Err(damaged("blocks are larger than 64 KiB"));
    }
    let block_size = 1024_u32 << log_block_size;
    let first_data_block = le32(bytes, 0x14);
    if first_data_block > 1 {
        return Err(damaged("the first data block is neither 0 nor 1"));
    }
    let wide = incompatible & features::SIXTY_FOUR_BIT != 0;
    let high = |at| if wide { le32(bytes, at) } else { 0 };
    let blocks = halves(le32(bytes, 0x4), high(0x150));
    let (blocks_per_group, inodes_per_group) = (le32(bytes, 0x20), le32(bytes, 0x28));
    if blocks_per_group == 0 || inodes_per_group == 0 || inodes_per_group > block_size * 8 {
        return Err(damaged("the size of a group is impossible"));
    }
    let groups = blocks
        .checked_sub(u64::from(first_data_block))
        .map(|blocks| blocks.div_ceil(u64::from(blocks_per_group)))
        .and_then(|groups| u32::try_from(groups).ok())
        .ok_or_else(|| damaged("the number of blocks is impossible"))?;
    let revision = le32(bytes, 0x4c);
    let inode_size = if revision == 0 { 128 } else { le16(bytes, 0x58) };
    if inode_size < 128 || !inode_size.is_power_of_two() || u32::from(inode_size) > block_size {
        return Err(damaged("the size of an inode is impossible"));
    }
    let descriptor_size = if wide { le16(bytes, 0xfe) } else { 32 };
    if wide && !(descriptor_size.is_power_of_two() && (64..=1024).contains(&descriptor_size)) {
        return Err(damaged("the size of a group descriptor is impossible"));
    }
    let state = le16(bytes, 0x3a);
    let time = |at, high| Time {
        seconds: i64::from(le32(bytes, at)) | i64::from(byte(bytes, high)) << 32,
        nanoseconds: 0,
    };
    Ok(Superblock {
        uuid: array(bytes, 0x68),
        label: text(&bytes[0x78..0x88]),
        features: features::named(compatible, incompatible, read_only),
        block_size,
        blocks,
        free_blocks: halves(le32(bytes, 0xc), high(0x158)),
        reserved_blocks: halves(le32(bytes, 0x8), high(0x154)),
        inodes: le32(bytes, 0x0),
        free_inodes: le32(bytes, 0x10),
        inode_size,
        blocks_per_group,
        inodes_per_group,
        groups,
        revision,
        clean: state & 1 != 0,
        errors: state & 2 != 0,
        hash_seed: array(bytes, 0xec),
        created: time(0x108, 0x276),
        mounted: time(0x2c, 0x275),
        written: time(0x30, 0x274),
        checked: time(0x40, 0x277),
        last_mounted_on: text(&bytes[0x88..0xc8]),
        first_data_block,
        descriptor_size,
        incompatible,
        copies: if compatible & features::SPARSE_SUPER2 != 0 {
            Copies::In([le32(bytes, 0x24c), le32(bytes, 0x250)])
        } else if read_only & features::SPARSE_SUPER != 0 {
            Copies::Powers
        } else {
            Copies::Everywhere
        },
        first_meta_bg: le32(bytes, 0x104),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_where_sparse_super_puts_them() {
        let held = |copies: Copies| (0..130).filter(|group| copies.in_group(*group)).collect();
        let powers: Vec<u32> = held(Copies::Powers);
        assert_eq!(powers, [0, 1, 3, 5, 7, 9, 25, 27, 49, 81, 125]);
        let given: Vec<u32> = held(Copies::In([1, 77]));
        assert_eq!(given, [0, 1, 77]);
    }
}
