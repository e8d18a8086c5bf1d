//! The content of files and links.

use std::io::{self, Write};
use std::ops::Range;

use super::inode::INLINE_DATA;
use super::map::Budget;
use super::xattr::INLINE_REST;
use super::{FileKind, Filesystem, Inode, ReadAt, ReadError};

/// How much is read at a time: fits a core's cache and makes system calls rare.
const BUFFER: u64 = 256 * 1024;
/// A link's text is at most a path; the kernel's are below 4096 bytes.
const MAX_LINK: u64 = 4096;
/// A text this short lies in the inode.
const SHORT_LINK: u64 = 60;

/// What takes content: a place in the file and the bytes there. Holes are never offered.
pub type Sink<'a> = &'a mut dyn FnMut(u64, &[u8]) -> io::Result<()>;

impl<R: ReadAt> Filesystem<R> {
    /// Gives the content of a part of a file to `sink`, in order, without its holes.
    ///
    /// A hole costs nothing however large it is, and what is given is never more than the disk
    /// has: a file that claims the same blocks again and again is an error.
    pub fn read_file(
        &self,
        inode: &Inode,
        range: Range<u64>,
        sink: Sink<'_>,
    ) -> Result<(), ReadError> {
        self.read_file_within(inode, range, &mut self.budget(), sink)
    }

    /// [`read_file`](Self::read_file) for one file of many, which share a budget: files that have
    /// their blocks in common are an error, too.
    pub fn read_file_within(
        &self,
        inode: &Inode,
        range: Range<u64>,
        budget: &mut Budget,
        sink: Sink<'_>,
    ) -> Result<(), ReadError> {
        inode.expect_kind(FileKind::File)?;
        self.content(inode, range, budget, sink)
    }

    /// Fills `bytes` with a file's content from `offset` on; less where the file ends. Holes are
    /// zeros.
    pub fn read_file_at(
        &self,
        inode: &Inode,
        offset: u64,
        bytes: &mut [u8],
    ) -> Result<usize, ReadError> {
        let wanted = inode.size.saturating_sub(offset).min(bytes.len() as u64);
        let length = usize::try_from(wanted).expect("no more than the slice has");
        let bytes = &mut bytes[..length];
        bytes.fill(0);
        self.read_file(inode, offset..offset.saturating_add(wanted), &mut |at, data| {
            let start = usize::try_from(at - offset).map_err(io::Error::other)?;
            bytes[start..start + data.len()].copy_from_slice(data);
            Ok(())
        })?;
        Ok(length)
    }

    /// Writes a file's content, holes as zeros.
    pub fn copy_file(&self, inode: &Inode, to: &mut dyn Write) -> Result<(), ReadError> {
        let mut written = 0;
        self.read_file(inode, 0..inode.size, &mut |at, data| {
            io::copy(&mut io::Read::take(io::repeat(0), at - written), to)?;
            written = at + data.len() as u64;
            to.write_all(data)
        })?;
        io::copy(&mut io::Read::take(io::repeat(0), inode.size - written), to)
            .map_err(|source| ReadError::Sink { source })?;
        Ok(())
    }

    /// What a symbolic link says.
    pub fn read_link(&self, inode: &Inode) -> Result<Vec<u8>, ReadError> {
        inode.expect_kind(FileKind::Symlink)?;
        if inode.size > MAX_LINK {
            return Err(inode.damaged("it is a longer link than there can be"));
        }
        let short = inode.size < SHORT_LINK && self.has_no_blocks(inode);
        if short && !inode.has(INLINE_DATA) {
            let length = usize::try_from(inode.size).unwrap_or(0);
            return Ok(inode.body[..length].to_vec());
        }
        self.small(inode, MAX_LINK)
    }

    /// Whether a link's inode has no block of its own; one for attributes does not count.
    fn has_no_blocks(&self, inode: &Inode) -> bool {
        let attributes = if inode.xattr_block == 0 { 0 } else { self.superblock.block_bytes() };
        inode.allocated <= attributes
    }

    /// The whole content of something that must be small, holes as zeros.
    pub(super) fn small(&self, inode: &Inode, limit: u64) -> Result<Vec<u8>, ReadError> {
        if inode.size > limit {
            return Err(inode.damaged("it is larger than it may be"));
        }
        let mut bytes = vec![0; usize::try_from(inode.size).unwrap_or(0)];
        self.content(inode, 0..inode.size, &mut self.budget(), &mut |at, data| {
            let start = usize::try_from(at).map_err(io::Error::other)?;
            bytes[start..start + data.len()].copy_from_slice(data);
            Ok(())
        })?;
        Ok(bytes)
    }

    /// [`Filesystem::read_file`] for any kind of inode.
    fn content(
        &self,
        inode: &Inode,
        range: Range<u64>,
        budget: &mut Budget,
        sink: Sink<'_>,
    ) -> Result<(), ReadError> {
        let wanted = range.start..range.end.min(inode.size);
        if wanted.is_empty() {
            return Ok(());
        }
        if inode.has(INLINE_DATA) {
            return self.inline(inode, wanted, sink);
        }
        let block = self.superblock.block_bytes();
        let mut spans = self.spans(inode, wanted.start / block)?;
        let mut buffer = Vec::new();
        while let Some(span) = spans.next(budget)? {
            let start = span.logical * block;
            if start >= wanted.end {
                break;
            }
            if !span.written {
                continue;
            }
            let end = (start + span.blocks * block).min(wanted.end);
            let mut at = start.max(wanted.start);
            while at < end {
                let length = usize::try_from((end - at).min(BUFFER)).unwrap_or(0);
                if buffer.len() < length {
                    buffer.resize(length, 0);
                }
                self.read_exact(span.physical * block + (at - start), &mut buffer[..length])?;
                sink(at, &buffer[..length]).map_err(|source| ReadError::Sink { source })?;
                at += length as u64;
            }
        }
        Ok(())
    }

    /// Content that lies in the inode: first where block numbers would be, then in an attribute.
    fn inline(&self, inode: &Inode, wanted: Range<u64>, sink: Sink<'_>) -> Result<(), ReadError> {
        let mut bytes = inode.body.to_vec();
        bytes.extend(self.internal_xattr(inode, INLINE_REST)?.unwrap_or_default());
        if wanted.end > bytes.len() as u64 {
            return Err(inode.damaged("its content does not fit in it"));
        }
        let place = |at: u64| usize::try_from(at).unwrap_or(bytes.len());
        let part = &bytes[place(wanted.start)..place(wanted.end)];
        sink(wanted.start, part).map_err(|source| ReadError::Sink { source })
    }
}
