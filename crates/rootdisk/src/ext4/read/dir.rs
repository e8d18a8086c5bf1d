//! Directories, read from the first block to the last: an index over them is passed over.

use std::ops::ControlFlow;

use super::field::{byte, le16, le32};
use super::inode::INLINE_DATA;
use super::map::Budget;
use super::xattr::INLINE_REST;
use super::{FileKind, Filesystem, Inode, ReadAt, ReadError, features};

/// A name in memory costs some 40 bytes; this many of them are more than any image has.
pub(super) const MAX_ENTRIES: usize = 16_000_000;
const HEADER: usize = 8;

/// A name and what it leads to.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct DirEntry {
    /// Neither empty nor `.` nor `..`, without slash and zero byte.
    pub name: Box<[u8]>,
    /// The number of its inode.
    pub inode: u32,
}

/// What is called for each name; it may break off.
pub(super) type Visit<'a> = &'a mut dyn FnMut(&[u8], u32) -> ControlFlow<()>;

impl<R: ReadAt> Filesystem<R> {
    /// All names of a directory, sorted, without `.` and `..`.
    pub fn read_dir(&self, directory: &Inode) -> Result<Vec<DirEntry>, ReadError> {
        self.list(directory, &mut self.budget())
    }

    pub(super) fn list(
        &self,
        directory: &Inode,
        budget: &mut Budget,
    ) -> Result<Vec<DirEntry>, ReadError> {
        let mut entries = Vec::new();
        let mut too_many = false;
        self.each_entry(directory, budget, &mut |name, inode| {
            too_many = entries.len() == MAX_ENTRIES;
            if too_many {
                return ControlFlow::Break(());
            }
            entries.push(DirEntry { name: name.into(), inode });
            ControlFlow::Continue(())
        })?;
        if too_many {
            return Err(ReadError::TooMany { limit: MAX_ENTRIES });
        }
        entries.sort_unstable();
        Ok(entries)
    }

    pub(super) fn each_entry(
        &self,
        directory: &Inode,
        budget: &mut Budget,
        visit: Visit<'_>,
    ) -> Result<(), ReadError> {
        directory.expect_kind(FileKind::Directory)?;
        let typed = self.superblock.incompatible & features::FILETYPE != 0;
        if directory.has(INLINE_DATA) {
            budget.charge(directory, u64::from(self.superblock.inode_size))?;
            let rest = self.internal_xattr(directory, INLINE_REST)?.unwrap_or_default();
            // The parent's number comes first; there are no entries for `.` and `..`.
            for part in [&directory.body[4..], &rest] {
                if entries(directory, part, typed, visit)?.is_break() {
                    break;
                }
            }
            return Ok(());
        }
        let block_size = self.superblock.block_bytes();
        let end = directory.size / block_size;
        let mut spans = self.spans(directory, 0)?;
        while let Some(span) = spans.next(budget)? {
            if span.logical >= end {
                break;
            }
            if !span.written {
                continue;
            }
            for block in 0..span.blocks.min(end - span.logical) {
                let block = self.block(span.physical + block)?;
                if entries(directory, &block, typed, visit)?.is_break() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }
}

/// The entries of one block, or of what stands for one.
fn entries(
    directory: &Inode,
    block: &[u8],
    typed: bool,
    visit: Visit<'_>,
) -> Result<ControlFlow<()>, ReadError> {
    let mut at = 0;
    while at + HEADER <= block.len() {
        let inode = le32(block, at);
        // Where a byte says the type, a name's length has one, too.
        let name_length = match typed {
            true => usize::from(byte(block, at + 6)),
            false => usize::from(le16(block, at + 6)),
        };
        let length = match usize::from(le16(block, at + 4)) {
            // 64 KiB do not fit in the field.
            0 | 0xffff if block.len() == 1 << 16 => block.len() - at,
            length => length,
        };
        let fits = length >= HEADER && length % 4 == 0 && at + length <= block.len();
        if !fits || (inode != 0 && name_length + HEADER > length) {
            return Err(directory.damaged("an entry of the directory does not fit in its block"));
        }
        let name = block.get(at + HEADER..at + HEADER + name_length).unwrap_or_default();
        at += length;
        if inode == 0 || name == b"." || name == b".." {
            continue;
        }
        if name.is_empty() || name.contains(&b'/') || name.contains(&0) {
            return Err(directory.damaged("a name in the directory is impossible"));
        }
        if visit(name, inode).is_break() {
            return Ok(ControlFlow::Break(()));
        }
    }
    Ok(ControlFlow::Continue(()))
}
