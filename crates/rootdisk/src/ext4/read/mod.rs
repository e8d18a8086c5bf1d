//! Our own reader of ext2, ext3 and ext4: what was written, seen by other eyes than the writer's.
//!
//! It reads what `mke2fs` makes with any of its usual options: blocks of 1 to 64 KiB, extents or
//! block numbers, 32 or 64 bits, data in inodes, attributes in inodes, blocks or inodes of their
//! own. What it cannot read without understanding (encryption, compression, an unknown feature) it
//! refuses by name. Two things it does not do, and says so to its caller: it replays no journal
//! ([`Superblock::needs_recovery`]) and verifies no checksum ([`Superblock::has_checksums`]).
//!
//! A disk is a stranger's: no number in it is believed. Nothing is allocated by a size it claims,
//! nothing recurses, and no operation looks at more bytes than the disk has, because in a sound
//! file system every block has one owner (a path, which may lead back through links, has a hundred
//! times as many).

mod data;
mod dir;
mod extents;
mod features;
mod field;
mod indirect;
mod inode;
mod map;
mod path;
mod source;
mod superblock;
mod walk;
mod xattr;

use std::io;

use portolan_registry::ErrorClass;

pub use self::data::Sink;
pub use self::dir::DirEntry;
pub use self::features::Features;
pub use self::inode::{FileKind, Inode};
pub use self::map::Budget;
pub use self::path::Follow;
pub use self::source::ReadAt;
pub use self::superblock::Superblock;
pub use self::walk::{Entry, Walk};

/// Why a disk could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReadError {
    /// The bytes are not to be had.
    #[error("cannot read {length} bytes of the disk at {offset}")]
    Source {
        /// Where.
        offset: u64,
        /// How many.
        length: usize,
        /// Why not.
        source: io::Error,
    },
    /// The magic is missing.
    #[error(
        "this is no ext2, ext3 or ext4 file system; a disk with partitions or a compressed one must be taken apart first"
    )]
    NotExt4,
    /// It cannot be read without understanding these.
    #[error("the file system uses what cannot be read here: {features}")]
    Unsupported {
        /// By name.
        features: String,
    },
    /// The superblock contradicts itself.
    #[error("the superblock is damaged: {what}; try e2fsck on a copy")]
    Superblock {
        /// How.
        what: &'static str,
    },
    /// An inode, or what it leads to, contradicts itself.
    #[error("inode {inode} is damaged: {what}; try e2fsck on a copy")]
    Damaged {
        /// Which.
        inode: u32,
        /// How.
        what: &'static str,
    },
    /// Something points past the end.
    #[error("block {block} is past the end of the disk, which has {blocks}; is the file cut?")]
    PastTheEnd {
        /// Where it points.
        block: u64,
        /// Blocks there are.
        blocks: u64,
    },
    /// No such name.
    #[error("there is no {path} in the file system")]
    NotFound {
        /// As it was asked for.
        path: String,
    },
    /// A name before the last one is no directory.
    #[error("{path} leads through a {kind} as if it were a directory")]
    NotADirectory {
        /// As it was asked for.
        path: String,
        /// What is there.
        kind: FileKind,
    },
    /// Links lead in a circle, or through too many others.
    #[error("{path} leads through too many symbolic links")]
    TooManyLinks {
        /// As it was asked for.
        path: String,
    },
    /// The operation is for files of another kind.
    #[error("inode {inode} is a {kind}, not a {wanted}")]
    WrongKind {
        /// Which.
        inode: u32,
        /// What it is.
        kind: FileKind,
        /// What it should be.
        wanted: FileKind,
    },
    /// More names than any image has.
    #[error("there are more than {limit} names")]
    TooMany {
        /// How many are read.
        limit: usize,
    },
    /// What was read could not be put where it should go.
    #[error("cannot write what was read from the disk")]
    Sink {
        /// Why not.
        source: io::Error,
    },
}

impl ReadError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Source { .. } | Self::Sink { .. } => ErrorClass::Local,
            Self::NotFound { .. } | Self::NotADirectory { .. } => ErrorClass::NotFound,
            Self::NotExt4
            | Self::Unsupported { .. }
            | Self::Superblock { .. }
            | Self::Damaged { .. }
            | Self::PastTheEnd { .. }
            | Self::TooManyLinks { .. }
            | Self::WrongKind { .. }
            | Self::TooMany { .. } => ErrorClass::BadInput,
        }
    }
}

/// A file system on a disk that is only read.
#[derive(Debug)]
pub struct Filesystem<R> {
    source: R,
    superblock: Superblock,
    /// Bytes of the disk that are there and belong to the file system.
    size: u64,
}

impl<R: ReadAt> Filesystem<R> {
    /// Opens a disk whose file system begins at its first byte. What follows the file system, a
    /// hash tree for example, is left alone.
    pub fn open(source: R) -> Result<Self, ReadError> {
        let size =
            source.size().map_err(|source| ReadError::Source { offset: 0, length: 0, source })?;
        let superblock = Superblock::read(&source, size)?;
        let size = size.min(superblock.size_bytes());
        Ok(Self { source, superblock, size })
    }

    /// What the file system says of itself.
    pub fn superblock(&self) -> &Superblock {
        &self.superblock
    }

    /// Bytes of the file system that are there to be read.
    pub fn readable_bytes(&self) -> u64 {
        self.size
    }

    /// Whether the disk ends before the file system does: what lies there cannot be read.
    pub fn is_cut(&self) -> bool {
        self.size < self.superblock.size_bytes()
    }

    fn check_block(&self, block: u64) -> Result<(), ReadError> {
        let blocks = self.size / self.superblock.block_bytes();
        if block < blocks { Ok(()) } else { Err(ReadError::PastTheEnd { block, blocks }) }
    }

    fn block(&self, block: u64) -> Result<Vec<u8>, ReadError> {
        self.check_block(block)?;
        let mut bytes = vec![0; self.superblock.block_size as usize];
        self.read_exact(block * self.superblock.block_bytes(), &mut bytes)?;
        Ok(bytes)
    }

    fn read_exact(&self, offset: u64, bytes: &mut [u8]) -> Result<(), ReadError> {
        let length = bytes.len();
        self.source.read_exact_at(bytes, offset).map_err(|source| ReadError::Source {
            offset,
            length,
            source,
        })
    }
}
