//! Extent trees: a file's blocks since ext4.

use super::field::{halves, le16, le32};
use super::map::{Budget, Span};
use super::{Filesystem, Inode, ReadAt, ReadError};

const MAGIC: u16 = 0xf30a;
const MAX_DEPTH: u16 = 5;
/// A header and an entry are of one size.
const ENTRY: usize = 12;
/// Longer extents are of blocks that were set aside but never written.
const MAX_WRITTEN: u16 = 1 << 15;

/// Walks the tree in the order of the file.
///
/// It ends for any bytes: a node is one level below its parent, none but the root is empty, and
/// extents only move forward, so no node can be met twice.
pub(super) struct Extents<'a, R> {
    fs: &'a Filesystem<R>,
    inode: &'a Inode,
    /// From the root to the node in hand.
    path: Vec<Node>,
    from: u64,
    /// Where the extents so far end.
    end: u64,
}

struct Node {
    bytes: Vec<u8>,
    depth: u16,
    entries: usize,
    next: usize,
}

impl Node {
    fn parse(inode: &Inode, bytes: Vec<u8>) -> Result<Self, ReadError> {
        if le16(&bytes, 0) != MAGIC {
            return Err(inode.damaged("a node of its extent tree has no magic"));
        }
        let (entries, depth) = (usize::from(le16(&bytes, 2)), le16(&bytes, 6));
        if depth > MAX_DEPTH || entries > bytes.len() / ENTRY - 1 {
            return Err(inode.damaged("a node of its extent tree is too large or too deep"));
        }
        Ok(Self { bytes, depth, entries, next: 0 })
    }

    /// The bytes of an entry that is there.
    fn entry(&self, index: usize) -> Option<&[u8]> {
        let start = (index + 1) * ENTRY;
        (index < self.entries).then(|| self.bytes.get(start..start + ENTRY)).flatten()
    }
}

impl<'a, R: ReadAt> Extents<'a, R> {
    pub(super) fn new(
        fs: &'a Filesystem<R>,
        inode: &'a Inode,
        from: u64,
    ) -> Result<Self, ReadError> {
        let root = Node::parse(inode, inode.body.to_vec())?;
        Ok(Self { fs, inode, path: vec![root], from, end: 0 })
    }

    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Span>, ReadError> {
        while let Some(node) = self.path.last_mut() {
            let Some(entry) = node.entry(node.next).map(<[u8]>::to_vec) else {
                self.path.pop();
                continue;
            };
            node.next += 1;
            if node.depth == 0 {
                let span = self.extent(&entry)?;
                if span.logical + span.blocks > self.from {
                    budget.charge(self.inode, span.blocks * self.fs.superblock.block_bytes())?;
                    return Ok(Some(span));
                }
                continue;
            }
            // All of this subtree comes before the next one's first block.
            let next = node.entry(node.next).map(|next| u64::from(le32(next, 0)));
            if next.is_none_or(|next| next > self.from) {
                let depth = node.depth;
                let child = halves(le32(&entry, 4), u32::from(le16(&entry, 8)));
                self.descend(child, depth, budget)?;
            }
        }
        Ok(None)
    }

    fn descend(&mut self, block: u64, depth: u16, budget: &mut Budget) -> Result<(), ReadError> {
        budget.charge(self.inode, self.fs.superblock.block_bytes())?;
        let node = Node::parse(self.inode, self.fs.block(block)?)?;
        if node.depth + 1 != depth || node.entries == 0 {
            return Err(self.inode.damaged("its extent tree has a node of the wrong depth"));
        }
        self.path.push(node);
        Ok(())
    }

    fn extent(&mut self, entry: &[u8]) -> Result<Span, ReadError> {
        let logical = u64::from(le32(entry, 0));
        let length = le16(entry, 4);
        let written = length <= MAX_WRITTEN;
        let blocks = u64::from(if written { length } else { length - MAX_WRITTEN });
        let physical = halves(le32(entry, 8), u32::from(le16(entry, 6)));
        if blocks == 0 || logical < self.end {
            return Err(self.inode.damaged("its extents overlap or are out of order"));
        }
        self.end = logical + blocks;
        self.fs.check_block(physical + blocks - 1)?;
        Ok(Span { logical, physical, blocks, written })
    }
}
