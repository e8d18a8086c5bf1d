//! Which blocks of the disk are a file's.

use super::extents::Extents;
use super::indirect::Indirect;
use super::inode::EXTENTS;
use super::{Filesystem, Inode, ReadAt, ReadError};

/// Blocks that follow each other, in the file and on the disk; both ends were checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) logical: u64,
    pub(super) physical: u64,
    pub(super) blocks: u64,
    /// Blocks set aside but never written read as zeros.
    pub(super) written: bool,
}

/// How many bytes of the disk an operation, or several together, may still look at.
///
/// In a sound file system every block has one owner, so nobody needs to see more bytes than the
/// disk has. A hostile one maps the same block a million times; this is where that ends.
#[derive(Debug)]
pub struct Budget {
    left: u64,
}

impl Budget {
    pub(super) fn of(size: u64) -> Self {
        Self { left: size }
    }

    pub(super) fn charge(&mut self, inode: &Inode, bytes: u64) -> Result<(), ReadError> {
        self.left = self
            .left
            .checked_sub(bytes)
            .ok_or_else(|| inode.damaged("its blocks are used more than once"))?;
        Ok(())
    }
}

/// A file's blocks in the order of the file; holes are left out.
pub(super) enum Spans<'a, R> {
    Extents(Extents<'a, R>),
    Indirect(Indirect<'a, R>),
}

impl<R: ReadAt> Spans<'_, R> {
    pub(super) fn next(&mut self, budget: &mut Budget) -> Result<Option<Span>, ReadError> {
        match self {
            Self::Extents(extents) => extents.next(budget),
            Self::Indirect(indirect) => indirect.next(budget),
        }
    }
}

impl<R: ReadAt> Filesystem<R> {
    /// Enough to read every file once.
    pub fn budget(&self) -> Budget {
        Budget::of(self.size)
    }

    /// The blocks of a file from a block of it on; a span may begin before that.
    pub(super) fn spans<'a>(
        &'a self,
        inode: &'a Inode,
        from: u64,
    ) -> Result<Spans<'a, R>, ReadError> {
        if inode.has(EXTENTS) {
            Extents::new(self, inode, from).map(Spans::Extents)
        } else {
            Ok(Spans::Indirect(Indirect::new(self, inode, from)))
        }
    }
}
