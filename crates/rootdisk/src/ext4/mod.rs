//! A tree to ext4: everything but the data, which is in its place already.
//!
//! [`write()`] is a pure function of the tree and the options: it reads no clock and no disk, and
//! hands whole blocks to a [`BlockSink`]. The format is described in `docs/rootdisk-format.md`, and
//! [`mod@read`] is our own reader of it.
//!
//! | block | what |
//! |---|---|
//! | 0 | superblock |
//! | 1 … | group descriptors, as many as the size needs; the rest up to [`FIRST_DATA_BLOCK`] is free |
//! | [`FIRST_DATA_BLOCK`] … | file data, where the builder put it |
//! | [`Options::first_free`] … | attribute blocks, then directories, long links and extent trees in the order of inodes |
//! | after these | inode table, block bitmaps, inode bitmaps, each of all groups in one piece |

use std::io;

use crate::tree::{BLOCK, Device, Kind, Tree};

mod acl;
mod content;
mod directory;
mod extents;
mod format;
mod groups;
mod hash;
mod inode;
mod layout;
mod number;
pub mod read;
mod scratch;
mod stream;
mod superblock;
mod xattr;

pub use scratch::{MIN_SCRATCH_BYTES, ScratchError, scratch};

use format::INODE_SIZE;
use groups::Counts;
use layout::{Layout, Needs};
use number::Numbering;
use stream::Stream;
use superblock::Superblock;

/// The first block that file data may use. Before it is room for the superblock and for the
/// descriptors of the largest disk; what a smaller disk does not need of it stays a hole.
pub const FIRST_DATA_BLOCK: u32 = 1024;

/// Blocks of the largest disk: as many groups as have a descriptor before [`FIRST_DATA_BLOCK`].
const MAX_BLOCKS: u32 =
    (FIRST_DATA_BLOCK - 1) * format::DESCRIPTORS_PER_BLOCK * format::BLOCKS_PER_GROUP;

/// Bytes of the largest disk that can be written, a little less than 16 TiB.
pub const MAX_BYTES: u64 = MAX_BLOCKS as u64 * BLOCK as u64;

/// Groups whose tables lie together, as a power of two: all of them.
const ALL_GROUPS: u8 = 31;

/// Where blocks go.
pub trait BlockSink {
    /// Writes whole blocks from `block` on. Blocks come in runs as long as can be had, but not in
    /// order; none is written twice. What is never written must read as zeros.
    ///
    /// # Errors
    /// What the disk says.
    fn write(&mut self, block: u32, bytes: &[u8]) -> io::Result<()>;
}

/// What a disk is beside its tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// The file system's id.
    pub uuid: [u8; 16],
    /// What the hashes of names depend on beside the names.
    pub hash_seed: [u8; 16],
    /// Whether the kernel shall refuse to mount it for writing.
    pub read_only: bool,
    /// The first block after all data: what is written goes there, superblock and descriptors
    /// aside. At least [`FIRST_DATA_BLOCK`].
    pub first_free: u32,
    /// The disk is no smaller than this.
    pub min_bytes: u64,
    /// Nor smaller than this many percent of what is used; below 100 counts as 100.
    pub headroom_percent: u32,
    /// A disk that would be larger is refused.
    pub max_bytes: u64,
    /// There are at least so many inodes; 0 for what the tree needs.
    pub min_inodes: u32,
}

/// What was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Geometry {
    /// Blocks of the file system.
    pub blocks: u32,
    /// The length that the file must have: blocks in bytes.
    pub size_bytes: u64,
    /// Blocks that something is in.
    pub used_blocks: u32,
    /// Of these, what is not file data.
    pub metadata_blocks: u32,
    /// Block groups.
    pub groups: u32,
    /// Inodes there are.
    pub inodes: u32,
    /// Inodes that are taken, the ten reserved ones among them.
    pub used_inodes: u32,
    /// Extended attributes that were left out because Linux has no such namespace.
    pub dropped_xattrs: u32,
}

/// Why a disk could not be written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A name that no directory can have.
    #[error(
        "{directory} has an entry called \"{name}\", which is no name: names have 1 to 255 bytes, no slash and no NUL"
    )]
    Name {
        /// Where.
        directory: String,
        /// Escaped.
        name: String,
    },
    /// A directory that two names lead to.
    #[error("the directory {path} has two names, and a directory may have but one")]
    DirectoryTwice {
        /// One of them.
        path: String,
    },
    /// More entries than an index leads to.
    #[error(
        "the directory {path} has {entries} entries, more than ext4 can index; spread them over subdirectories"
    )]
    Directory {
        /// Which.
        path: String,
        /// How many.
        entries: usize,
    },
    /// A file that is too large.
    #[error("{path} has {size} bytes, more than the 16 TiB of a file in ext4")]
    File {
        /// Which.
        path: String,
        /// Its size.
        size: u64,
    },
    /// Data that is not where it can be.
    #[error("the blocks of {path} cannot be mapped: {why}; this is a mistake of the builder")]
    Runs {
        /// Which file.
        path: String,
        /// What is wrong with them.
        why: &'static str,
    },
    /// Data of two files in one place.
    #[error("block {block} belongs to two files; this is a mistake of the builder")]
    Shared {
        /// Which block.
        block: u32,
    },
    /// A symbolic link that leads nowhere.
    #[error(
        "the symbolic link {path} has a target of {length} bytes; a target has 1 to 4095 and no NUL"
    )]
    Symlink {
        /// Which.
        path: String,
        /// Of the target.
        length: usize,
    },
    /// A device that Linux cannot have.
    #[error(
        "the device {path} has the number {}:{}, but Linux has majors below 4096 and minors below 1048576",
        device.major, device.minor
    )]
    Device {
        /// Which.
        path: String,
        /// Its number.
        device: Device,
    },
    /// Too many hard links.
    #[error(
        "{path} has more than {max} names (hard links), and ext4 counts no further; copy the file instead"
    )]
    Links {
        /// One of the names.
        path: String,
        /// How many there may be.
        max: u32,
    },
    /// Extended attributes that do not fit.
    #[error(
        "the extended attributes of {path} need {bytes} bytes, but ext4 has one block of 4096 and a little room in the inode for them; make them smaller or fewer"
    )]
    Xattrs {
        /// Which file.
        path: String,
        /// Entries and values.
        bytes: usize,
    },
    /// An access control list that is none.
    #[error(
        "the access control list of {path} is none that Linux would accept; remove it or set it anew"
    )]
    Acl {
        /// Which file.
        path: String,
    },
    /// The disk would be too large.
    #[error(
        "the disk needs {needed} bytes, but `max_virtual_bytes` allows {max}; raise it or make the image smaller"
    )]
    TooLarge {
        /// Bytes, or as far as was counted.
        needed: u64,
        /// The setting, or what the format allows where that is less.
        max: u64,
    },
    /// The sink refused.
    #[error(
        "the disk could not be written from block {block} on; is there room, and is it writable?"
    )]
    Sink {
        /// Where.
        block: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl WriteError {
    fn out_of_blocks(blocks: u64) -> Self {
        Self::TooLarge { needed: blocks.saturating_add(1) * BLOCK as u64, max: MAX_BYTES }
    }
}

/// Writes all metadata of a tree whose file data is in its place.
///
/// The same tree and options give the same blocks, whatever ids the nodes have; nodes that no name
/// leads to are not written. The caller makes the file as long as [`Geometry::size_bytes`] says.
///
/// Times that an inode cannot tell (before 1901-12-13, after 2446-05-10) become the nearest that
/// it can. Attributes in namespaces that Linux does not have are left out and counted.
///
/// # Errors
/// When the tree cannot be told in ext4, when the disk would be larger than it may be, and when
/// the sink refuses. What was written by then is of no use.
pub fn write(
    tree: &Tree,
    options: &Options,
    sink: &mut dyn BlockSink,
) -> Result<Geometry, WriteError> {
    let options =
        &Options { first_free: options.first_free.max(FIRST_DATA_BLOCK), ..options.clone() };
    let numbering = number::number(tree, hash::seed_words(&options.hash_seed))?;
    let mut stream = Stream::new(sink, options.first_free);
    let content = content::write(tree, &numbering, options, &mut stream)?;

    let content_end = stream.position();
    let data_blocks = content.data.iter().map(|(from, to)| u64::from(to - from)).sum::<u64>();
    let content_blocks = data_blocks + u64::from(content_end - options.first_free);
    let inodes = numbering.used();
    let layout = layout::plan(Needs { content_end, content_blocks, inodes }, options)?;

    write_inodes(tree, &numbering, &content, &mut stream)?;
    let front = (0, 1 + layout.descriptor_blocks());
    let metadata = (options.first_free, layout.end);
    let used = [front].into_iter().chain(content.data).chain([metadata]);
    stream.seek(layout.block_bitmaps)?;
    let counts = Counts {
        free_blocks: groups::write_block_bitmaps(&layout, used, &mut stream)?,
        directories: count_directories(tree, &numbering, &layout),
        used_inodes: inodes,
    };
    groups::write_inode_bitmaps(&layout, &counts, &mut stream)?;
    stream.seek(0)?;
    Superblock {
        blocks: layout.blocks,
        free_blocks: layout.blocks - layout.used_blocks,
        inodes: layout.inodes(),
        free_inodes: layout.inodes() - inodes,
        inodes_per_group: layout.inodes_per_group,
        uuid: options.uuid,
        hash_seed: options.hash_seed,
        label: [0; 16],
        ro_compat: if options.read_only { superblock::RO_COMPAT_READONLY } else { 0 },
        errors: superblock::CONTINUE,
        extra_isize: inode::EXTRA,
        log_groups_per_flex: ALL_GROUPS,
    }
    .put(stream.block()?);
    groups::write_descriptors(&layout, &counts, &mut stream)?;
    Ok(Geometry {
        blocks: layout.blocks,
        size_bytes: u64::from(layout.blocks) * BLOCK as u64,
        used_blocks: layout.used_blocks,
        metadata_blocks: layout.used_blocks
            - u32::try_from(data_blocks).expect("data is part of what is used"),
        groups: layout.groups,
        inodes: layout.inodes(),
        used_inodes: inodes,
        dropped_xattrs: content.dropped_xattrs,
    })
}

/// Writes the inode table of all groups up to the last inode that is taken.
fn write_inodes(
    tree: &Tree,
    numbering: &Numbering,
    content: &content::Content,
    stream: &mut Stream<'_>,
) -> Result<(), WriteError> {
    let mut inodes = numbering.order.iter().zip(&content.places).enumerate().peekable();
    let mut next = 1;
    while inodes.peek().is_some() {
        let block = stream.block()?;
        for out in block.chunks_exact_mut(INODE_SIZE) {
            if inodes.peek().is_some_and(|(index, _)| Numbering::at(*index) == next)
                && let Some((_, (&id, place))) = inodes.next()
            {
                let (inode, xattrs) = place.inode(tree, numbering, id)?;
                inode.put(&xattrs.in_inode, out);
            }
            next += 1;
        }
    }
    stream.flush()
}

/// How many directories each group has.
fn count_directories(tree: &Tree, numbering: &Numbering, layout: &Layout) -> Vec<u32> {
    let mut counts = vec![0; layout.groups as usize];
    for (index, &id) in numbering.order.iter().enumerate() {
        if matches!(tree.node(id).kind, Kind::Directory(_)) {
            counts[((Numbering::at(index) - 1) / layout.inodes_per_group) as usize] += 1;
        }
    }
    counts
}
