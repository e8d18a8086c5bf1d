//! One inode's 256 bytes.

use super::format::{INODE_SIZE, high32, low16, low32, put16, put32};
use super::xattr::{self, Attribute};
use crate::tree::{Device, Kind, Time};

/// `file_type` of a directory entry.
pub(super) const DIRECTORY: u8 = 2;

/// Bytes behind the first 128 that have a meaning: up to the second half of the creation time.
/// What follows them is left for attributes.
pub(super) const EXTRA: u16 = 24;
const XATTRS: usize = 128 + EXTRA as usize;
/// Bytes of the inode that attributes may use.
pub(super) const XATTR_ROOM: usize = INODE_SIZE - XATTRS;

/// The first second that an inode can tell: 1901-12-13.
const FIRST_SECOND: i64 = i32::MIN as i64;
/// The last one: 2446-05-10. Two more bits than 32.
const LAST_SECOND: i64 = FIRST_SECOND + (1 << 34) - 1;

/// What goes into an inode, already in the format's terms.
#[derive(Debug)]
pub(super) struct Inode {
    pub(super) mode: u16,
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) size: u64,
    /// When anything about it last happened.
    pub(super) time: Time,
    pub(super) links: u16,
    /// Blocks that belong to it: content, tree, attributes.
    pub(super) blocks: u32,
    pub(super) flags: u32,
    /// Extents, a short link's target or a device's number.
    pub(super) block: [u8; 60],
    /// 0 for none.
    pub(super) xattr_block: u32,
}

impl Inode {
    /// Writes it into its place.
    pub(super) fn put(&self, in_inode: &[Attribute<'_>], out: &mut [u8]) {
        put16(out, 0x00, self.mode);
        put16(out, 0x02, low16(self.uid));
        put32(out, 0x04, low32(self.size));
        let (seconds, extra) = time(self.time);
        for (low, high) in [(0x08, 0x8c), (0x0c, 0x84), (0x10, 0x88), (0x90, 0x94)] {
            put32(out, low, seconds);
            put32(out, high, extra);
        }
        put16(out, 0x18, low16(self.gid));
        put16(out, 0x1a, self.links);
        let sectors = u64::from(self.blocks) * 8;
        put32(out, 0x1c, low32(sectors));
        put32(out, 0x20, self.flags);
        out[0x28..0x64].copy_from_slice(&self.block);
        put32(out, 0x68, self.xattr_block);
        put32(out, 0x6c, high32(self.size));
        put16(out, 0x74, low16(high32(sectors)));
        put16(out, 0x78, low16(self.uid >> 16));
        put16(out, 0x7a, low16(self.gid >> 16));
        put16(out, 0x80, EXTRA);
        if !in_inode.is_empty() {
            xattr::put_in_inode(in_inode, &mut out[XATTRS..INODE_SIZE]);
        }
    }
}

/// The low 32 bits of the seconds, and two more below the nanoseconds. What an inode cannot tell
/// becomes the nearest time it can, as the kernel does it.
fn time(time: Time) -> (u32, u32) {
    let seconds = time.seconds.clamp(FIRST_SECOND, LAST_SECOND);
    let nanoseconds = if seconds == time.seconds { time.nanoseconds.min(999_999_999) } else { 0 };
    let low = low32(seconds.cast_unsigned());
    // The low bits are signed: the two high ones count what lies beyond them.
    let epoch = high32((seconds - i64::from(low.cast_signed())).cast_unsigned());
    (low, epoch | nanoseconds << 2)
}

/// `file_type` of a directory entry.
pub(super) fn file_type(kind: &Kind) -> u8 {
    match kind {
        Kind::File(_) => 1,
        Kind::Directory(_) => DIRECTORY,
        Kind::CharDevice(_) => 3,
        Kind::BlockDevice(_) => 4,
        Kind::Fifo => 5,
        Kind::Symlink(_) => 7,
    }
}

/// The type bits of `i_mode`.
pub(super) fn mode_type(kind: &Kind) -> u16 {
    match kind {
        Kind::Fifo => 0x1000,
        Kind::CharDevice(_) => 0x2000,
        Kind::Directory(_) => 0x4000,
        Kind::BlockDevice(_) => 0x6000,
        Kind::File(_) => 0x8000,
        Kind::Symlink(_) => 0xa000,
    }
}

/// A device's number in the inode: the old form where it fits, the new one in the second word.
/// None where it is larger than Linux has them.
pub(super) fn device(device: Device) -> Option<[u8; 60]> {
    let Device { major, minor } = device;
    let mut block = [0; 60];
    if major < 256 && minor < 256 {
        put32(&mut block, 0, major << 8 | minor);
    } else if major < 1 << 12 && minor < 1 << 20 {
        put32(&mut block, 4, minor & 0xff | major << 8 | (minor & !0xff) << 12);
    } else {
        return None;
    }
    Some(block)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(seconds: i64, nanoseconds: u32) -> (i64, u32) {
        let (low, extra) = time(Time { seconds, nanoseconds });
        (i64::from(low.cast_signed()) + (i64::from(extra & 3) << 32), extra >> 2)
    }

    #[test]
    fn times_from_1901_to_2446_are_kept() {
        for seconds in
            [0, -1, 1, -0x8000_0000, 0x7fff_ffff, 0x8000_0000, 0xffff_ffff, 1 << 32, LAST_SECOND]
        {
            assert_eq!(told(seconds, 999_999_999), (seconds, 999_999_999));
        }
    }

    #[test]
    fn times_beyond_are_the_nearest_that_can_be_told() {
        assert_eq!(told(i64::MIN, 5), (FIRST_SECOND, 0));
        assert_eq!(told(FIRST_SECOND - 1, 5), (FIRST_SECOND, 0));
        assert_eq!(told(LAST_SECOND + 1, 5), (LAST_SECOND, 0));
        assert_eq!(told(i64::MAX, 5), (LAST_SECOND, 0));
        assert_eq!(LAST_SECOND, 0x3_7fff_ffff);
    }

    #[test]
    fn devices_old_and_new_and_too_large() {
        let words = |major, minor| {
            device(Device { major, minor }).map(|block| {
                let word = |at: usize| u32::from_le_bytes(block[at..at + 4].try_into().unwrap());
                (word(0), word(4))
            })
        };
        assert_eq!(words(1, 3), Some((0x103, 0)));
        assert_eq!(words(0, 0), Some((0, 0)));
        assert_eq!(words(259, 3), Some((0, 0x1_0303)));
        assert_eq!(words(8, 256), Some((0, 0x10_0800)));
        assert_eq!(words(4095, 0xf_ffff), Some((0, 0xffff_ffff)));
        assert_eq!(words(4096, 0), None);
        assert_eq!(words(0, 1 << 20), None);
    }
}
