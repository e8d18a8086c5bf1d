//! What inodes own beside the data that is already there: attribute blocks, directories, long
//! links, trees of extents. Written in one row; where each went is remembered for the inodes.

use super::extents::{self, BadRuns};
use super::inode::{self, Inode};
use super::number::{Numbering, path_of};
use super::stream::Stream;
use super::xattr::{self, BadXattrs, Placed, SharedBlocks};
use super::{Options, WriteError, directory, format};
use crate::tree::{BLOCK, Kind, Node, NodeId, Run, Tree};

/// Targets up to here are kept in the inode.
const SHORT_LINK: usize = 60;
/// Longer than this no Linux path is.
const LONGEST_LINK: usize = 4095;

/// Where an inode's blocks are. They follow each other: a directory's or a link's content, then
/// the blocks of the extent tree.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Place {
    start: u32,
    /// Blocks of content that were written here; a file's are elsewhere.
    content: u32,
    /// 0 for none.
    xattrs: u32,
}

/// All that was written.
pub(super) struct Content {
    /// In the order of inodes.
    pub(super) places: Vec<Place>,
    /// Blocks of file data, first and one past the last, in the order of the disk.
    pub(super) data: Vec<(u32, u32)>,
    /// Attributes that were left out.
    pub(super) dropped_xattrs: u32,
}

/// Writes the content of every inode.
pub(super) fn write(
    tree: &Tree,
    numbering: &Numbering,
    options: &Options,
    stream: &mut Stream<'_>,
) -> Result<Content, WriteError> {
    let mut content = Content {
        places: vec![Place::default(); numbering.order.len()],
        data: Vec::new(),
        dropped_xattrs: 0,
    };
    write_xattrs(tree, numbering, &mut content, stream)?;
    let seed = super::hash::seed_words(&options.hash_seed);
    for (place, &id) in content.places.iter_mut().zip(&numbering.order) {
        place.start = stream.position();
        match &tree.node(id).kind {
            Kind::Directory(_) => {
                let mut entries = numbering.entries(tree, id);
                let shape = directory::arrange(&mut entries, seed)
                    .expect("it was arranged when inodes were numbered");
                let (inode, parent) = (numbering.inode(id), numbering.parent(id));
                directory::write(&shape, &entries, inode, parent, stream)?;
                place.content = shape.blocks();
                extents::write_tree(&place.extents(), stream)?;
            }
            Kind::Symlink(target) => {
                if target.is_empty() || target.len() > LONGEST_LINK || target.contains(&0) {
                    let path = path_of(tree, id);
                    return Err(WriteError::Symlink { path, length: target.len() });
                }
                if target.len() >= SHORT_LINK {
                    stream.block()?[..target.len()].copy_from_slice(target);
                    place.content = 1;
                }
            }
            Kind::File(file) => {
                let too_large = file.size > u64::from(u32::MAX) * BLOCK as u64;
                if too_large {
                    return Err(WriteError::File { path: path_of(tree, id), size: file.size });
                }
                extents::check(file, options.first_free).map_err(|why| bad_runs(tree, id, why))?;
                extents::write_tree(&extents::of_runs(&file.runs), stream)?;
                for run in &file.runs {
                    add(&mut content.data, run);
                }
            }
            Kind::CharDevice(_) | Kind::BlockDevice(_) | Kind::Fifo => {}
        }
    }
    stream.flush()?;
    content.data.sort_unstable();
    match content.data.windows(2).find(|pair| pair[0].1 > pair[1].0) {
        Some(pair) => Err(WriteError::Shared { block: pair[1].0 }),
        None => Ok(content),
    }
}

/// Writes the attribute blocks, each once however many files have it.
fn write_xattrs(
    tree: &Tree,
    numbering: &Numbering,
    content: &mut Content,
    stream: &mut Stream<'_>,
) -> Result<(), WriteError> {
    let first = stream.position();
    let mut shared = SharedBlocks::default();
    for (place, &id) in content.places.iter_mut().zip(&numbering.order) {
        let placed = place_xattrs(tree, id)?;
        content.dropped_xattrs += placed.dropped;
        if !placed.in_block.is_empty() {
            let block = shared.find(&placed.in_block, id);
            place.xattrs = first + u32::try_from(block).expect("fewer than inodes");
        }
    }
    for (id, references) in shared.blocks {
        let placed = place_xattrs(tree, id)?;
        xattr::put_in_block(&placed.in_block, references, stream.block()?);
    }
    Ok(())
}

fn place_xattrs(tree: &Tree, id: NodeId) -> Result<Placed<'_>, WriteError> {
    let node = tree.node(id);
    if node.attributes.xattrs.is_empty() {
        return Ok(Placed::default());
    }
    xattr::place(&node.attributes.xattrs, &node.kind).map_err(|why| {
        let path = path_of(tree, id);
        match why {
            BadXattrs::TooLarge(bytes) => WriteError::Xattrs { path, bytes },
            BadXattrs::Acl => WriteError::Acl { path },
        }
    })
}

fn bad_runs(tree: &Tree, id: NodeId, why: BadRuns) -> WriteError {
    let why = match why {
        BadRuns::Order => "they are empty, overlap or are out of order",
        BadRuns::PastTheEnd => "they go past the end of the file",
        BadRuns::OutsideTheRegions => "they leave the data regions",
    };
    WriteError::Runs { path: path_of(tree, id), why }
}

/// Adds a run, joined to the last one where it can be.
fn add(data: &mut Vec<(u32, u32)>, run: &Run) {
    let end = run.physical + run.blocks;
    match data.last_mut() {
        Some(last) if last.1 == run.physical => last.1 = end,
        _ => data.push((run.physical, end)),
    }
}

impl Place {
    /// The extents of content that was written here.
    fn extents(&self) -> Vec<Run> {
        if self.content == 0 {
            return Vec::new();
        }
        extents::of_runs(&[Run { logical: 0, physical: self.start, blocks: self.content }])
    }

    /// The inode that leads to all this, and the attributes that go into it.
    pub(super) fn inode<'t>(
        &self,
        tree: &'t Tree,
        numbering: &Numbering,
        id: NodeId,
    ) -> Result<(Inode, Placed<'t>), WriteError> {
        let node = tree.node(id);
        let Node { attributes, kind } = node;
        let mut inode = Inode {
            mode: attributes.mode & 0o7777 | inode::mode_type(kind),
            uid: attributes.uid,
            gid: attributes.gid,
            size: 0,
            time: attributes.mtime,
            links: numbering.links(id, kind),
            blocks: u32::from(self.xattrs != 0),
            flags: 0,
            block: [0; 60],
            xattr_block: self.xattrs,
        };
        match kind {
            Kind::Directory(_) => {
                inode.size = u64::from(self.content) * BLOCK as u64;
                inode.map(&self.extents(), self.start + self.content);
                if directory::is_indexed(self.content) {
                    inode.flags |= format::FLAG_INDEX;
                }
            }
            Kind::File(file) => {
                inode.size = file.size;
                inode.map(&extents::of_runs(&file.runs), self.start);
            }
            Kind::Symlink(target) => {
                inode.size = target.len() as u64;
                if self.content == 0 {
                    inode.block[..target.len()].copy_from_slice(target);
                } else {
                    inode.map(&self.extents(), self.start + self.content);
                }
            }
            Kind::CharDevice(device) | Kind::BlockDevice(device) => {
                inode.block = inode::device(*device).ok_or_else(|| WriteError::Device {
                    path: path_of(tree, id),
                    device: *device,
                })?;
            }
            Kind::Fifo => {}
        }
        Ok((inode, place_xattrs(tree, id)?))
    }
}

impl Inode {
    /// Maps content by extents whose tree was written at `tree`.
    fn map(&mut self, extents: &[Run], tree: u32) {
        self.flags |= format::FLAG_EXTENTS;
        self.block = extents::root(extents, tree);
        self.blocks += extents::tree_blocks(extents.len());
        self.blocks += extents.iter().map(|extent| extent.blocks).sum::<u32>();
    }
}
