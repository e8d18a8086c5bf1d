//! Inodes: everything about a file but its names.

use std::fmt;

use super::field::{array, halves, le16, le32};
use super::{Filesystem, ReadAt, ReadError, features};
use crate::tree::{Device, Time};

/// The part every inode has; a larger one goes on with more precise times and attributes.
const OLD_SIZE: usize = 128;
pub(super) const ROOT: u32 = 2;
pub(super) const EXTENTS: u32 = 0x8_0000;
pub(super) const INLINE_DATA: u32 = 0x1000_0000;
pub(super) const EA_INODE: u32 = 0x20_0000;
const HUGE_FILE: u32 = 0x4_0000;
const ENCRYPTED: u32 = 0x800;
/// Blocks of a file are counted with 32 bits.
const MAX_FILE_BLOCKS: u64 = 1 << 32;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket's name.
    Socket,
}

impl FileKind {
    fn of_mode(mode: u16) -> Option<Self> {
        match mode >> 12 {
            0x1 => Some(Self::Fifo),
            0x2 => Some(Self::CharDevice),
            0x4 => Some(Self::Directory),
            0x6 => Some(Self::BlockDevice),
            0x8 => Some(Self::File),
            0xa => Some(Self::Symlink),
            0xc => Some(Self::Socket),
            _ => None,
        }
    }
}

impl fmt::Display for FileKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::CharDevice => "character device",
            Self::BlockDevice => "block device",
            Self::Fifo => "fifo",
            Self::Socket => "socket",
        })
    }
}

/// Everything about a file but its names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inode {
    /// Its number; two names with one number are hard links.
    pub number: u32,
    /// What it is.
    pub kind: FileKind,
    /// Permission bits, setuid, setgid and sticky: the low twelve bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Bytes of content, as claimed: no allocation may trust it.
    pub size: u64,
    /// How many names it claims to have.
    pub links: u16,
    /// When it was last read.
    pub accessed: Time,
    /// When the content last changed.
    pub modified: Time,
    /// When anything of it last changed.
    pub changed: Time,
    /// When it was made, where the inode is large enough to say so.
    pub created: Option<Time>,
    /// Which device it is, for devices.
    pub device: Option<Device>,
    /// Bytes it claims to take up on the disk.
    pub allocated: u64,
    pub(super) flags: u32,
    /// Extents, block numbers, a short link's text or inline data.
    pub(super) body: [u8; 60],
    /// What follows the fixed fields: attributes, if they begin with their magic.
    pub(super) tail: Box<[u8]>,
    pub(super) xattr_block: u64,
}

impl Inode {
    pub(super) fn has(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    pub(super) fn damaged(&self, what: &'static str) -> ReadError {
        ReadError::Damaged { inode: self.number, what }
    }

    pub(super) fn expect_kind(&self, wanted: FileKind) -> Result<(), ReadError> {
        if self.kind == wanted {
            Ok(())
        } else {
            Err(ReadError::WrongKind { inode: self.number, kind: self.kind, wanted })
        }
    }
}

impl<R: ReadAt> Filesystem<R> {
    /// The root directory.
    pub fn root(&self) -> Result<Inode, ReadError> {
        let root = self.inode(ROOT)?;
        root.expect_kind(FileKind::Directory)?;
        Ok(root)
    }

    /// The inode of a number, as [`DirEntry`](super::DirEntry) has it.
    pub fn inode(&self, number: u32) -> Result<Inode, ReadError> {
        let damaged = |what| ReadError::Damaged { inode: number, what };
        let superblock = &self.superblock;
        if number == 0 || number > superblock.inodes {
            return Err(damaged("there are fewer inodes"));
        }
        let group = (number - 1) / superblock.inodes_per_group;
        let index = (number - 1) % superblock.inodes_per_group;
        if group >= superblock.groups {
            return Err(damaged("its group is past the last one"));
        }
        let table = self.inode_table(group)?;
        let offset = u64::from(index) * u64::from(superblock.inode_size);
        // Inodes never cross a block, so that the last one's block being there is enough.
        self.check_block(table.saturating_add(offset / superblock.block_bytes()))?;
        let mut bytes = vec![0; usize::from(superblock.inode_size)];
        self.read_exact(table * superblock.block_bytes() + offset, &mut bytes)?;
        parse(number, &bytes, superblock.incompatible, superblock.block_bytes())
    }

    /// The first block of a group's inodes.
    fn inode_table(&self, group: u32) -> Result<u64, ReadError> {
        let superblock = &self.superblock;
        let per_block = superblock.block_size / u32::from(superblock.descriptor_size);
        let block_of_descriptors = group / per_block;
        let meta = superblock.incompatible & features::META_BG != 0;
        let block = if meta && block_of_descriptors >= superblock.first_meta_bg {
            // The first group of each meta group holds its descriptors, after the superblock's
            // copy if that group has one.
            let first = block_of_descriptors * per_block;
            let copy = u64::from(superblock.copies.in_group(first));
            u64::from(superblock.first_data_block)
                + u64::from(first) * u64::from(superblock.blocks_per_group)
                + copy
        } else {
            u64::from(superblock.first_data_block) + 1 + u64::from(block_of_descriptors)
        };
        self.check_block(block)?;
        let size = usize::from(superblock.descriptor_size);
        let mut descriptor = vec![0; size];
        let offset = (group % per_block) as usize * size;
        self.read_exact(block * superblock.block_bytes() + offset as u64, &mut descriptor)?;
        // A descriptor of 32 bytes has no high half: it reads as zero.
        Ok(halves(le32(&descriptor, 0x8), le32(&descriptor, 0x28)))
    }
}

fn parse(
    number: u32,
    bytes: &[u8],
    incompatible: u32,
    block_size: u64,
) -> Result<Inode, ReadError> {
    let damaged = |what| ReadError::Damaged { inode: number, what };
    let mode = le16(bytes, 0x0);
    let kind =
        FileKind::of_mode(mode).ok_or_else(|| damaged("it is no kind of file, or deleted"))?;
    let flags = le32(bytes, 0x20);
    if flags & ENCRYPTED != 0 {
        return Err(damaged("it is encrypted, which is not read here"));
    }
    let has_high_size = kind == FileKind::File
        || (kind == FileKind::Directory && incompatible & features::LARGE_DIR != 0);
    let size = halves(le32(bytes, 0x4), if has_high_size { le32(bytes, 0x6c) } else { 0 });
    if size.div_ceil(block_size) > MAX_FILE_BLOCKS {
        return Err(damaged("it is larger than a file can be"));
    }
    let extra = if bytes.len() > OLD_SIZE { usize::from(le16(bytes, 0x80)) } else { 0 };
    let fixed = OLD_SIZE + extra;
    if fixed > bytes.len() || extra % 4 != 0 {
        return Err(damaged("its fields do not fit in it"));
    }
    let time = |seconds, extra| {
        let more = if extra + 4 <= fixed { le32(bytes, extra) } else { 0 };
        time_of(le32(bytes, seconds), more)
    };
    let blocks = u64::from(le32(bytes, 0x1c)) | u64::from(le16(bytes, 0x74)) << 32;
    let unit = if flags & HUGE_FILE != 0 { block_size } else { 512 };
    let body: [u8; 60] = array(bytes, 0x28);
    let device = matches!(kind, FileKind::CharDevice | FileKind::BlockDevice);
    Ok(Inode {
        number,
        kind,
        mode: mode & 0o7777,
        uid: u32::from(le16(bytes, 0x2)) | u32::from(le16(bytes, 0x78)) << 16,
        gid: u32::from(le16(bytes, 0x18)) | u32::from(le16(bytes, 0x7a)) << 16,
        size,
        links: le16(bytes, 0x1a),
        accessed: time(0x8, 0x8c),
        modified: time(0x10, 0x88),
        changed: time(0xc, 0x84),
        created: (0x98 <= fixed).then(|| time(0x90, 0x94)),
        device: device.then(|| device_of(&body)),
        allocated: blocks.saturating_mul(unit),
        flags,
        body,
        tail: bytes.get(fixed..).unwrap_or_default().into(),
        xattr_block: halves(le32(bytes, 0x68), u32::from(le16(bytes, 0x76))),
    })
}

/// The extra field has two more bits of seconds, which lengthen the signed number to 2446, and
/// the nanoseconds.
fn time_of(seconds: u32, extra: u32) -> Time {
    Time {
        seconds: i64::from(seconds.cast_signed()) + (i64::from(extra & 3) << 32),
        nanoseconds: (extra >> 2).min(999_999_999),
    }
}

/// Small numbers are kept in the old way, 8 bits each, in the first word; others in the second.
fn device_of(body: &[u8; 60]) -> Device {
    match (le32(body, 0), le32(body, 4)) {
        (0, new) => {
            Device { major: (new & 0xf_ff00) >> 8, minor: (new & 0xff) | ((new >> 12) & 0xf_ff00) }
        }
        (old, _) => Device { major: (old >> 8) & 0xff, minor: old & 0xff },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_and_after_2038() {
        let time = |seconds, extra| time_of(seconds, extra);
        assert_eq!(time(0xffff_ffff, 0), Time { seconds: -1, nanoseconds: 0 });
        assert_eq!(time(0x8000_0000, 1), Time { seconds: 1 << 31, nanoseconds: 0 });
        assert_eq!(time(5, 7 << 2 | 2), Time { seconds: 5 + (2 << 32), nanoseconds: 7 });
        assert_eq!(time(0, u32::MAX).nanoseconds, 999_999_999);
    }
}
