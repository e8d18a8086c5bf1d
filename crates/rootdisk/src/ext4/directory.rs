//! The blocks of a directory: entries in a row while they fit in two blocks, else a hash index.

use super::WriteError;
use super::format::{in_block, put16, put32};
use super::hash::{self, NameHash};
use super::stream::Stream;
use crate::tree::BLOCK;

/// Blocks a directory may have before it gets an index: with two, looking is still as fast.
const LINEAR_BLOCKS: usize = 2;
/// Bytes that `.` and `..` take.
const DOTS: usize = 24;
/// Where the index entries begin in the first block of an indexed directory.
const ROOT_ENTRIES: usize = 32;
/// Where they begin in every other block of the index, behind an empty entry.
const NODE_ENTRIES: usize = 8;
/// Index entries in the first block; the first is the count and the block for all lower hashes.
const ROOT_LIMIT: usize = (BLOCK - ROOT_ENTRIES) / 8;
/// The same for every other block of the index.
const NODE_LIMIT: usize = (BLOCK - NODE_ENTRIES) / 8;
/// `dx_root_info.hash_version`; the superblock adds that bytes are unsigned.
const HALF_MD4: u8 = 1;

/// A name, and what it leads to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Entry<'n> {
    pub(super) name: &'n [u8],
    /// Not yet known while inodes are numbered.
    pub(super) inode: u32,
    /// The `file_type` of the format.
    pub(super) kind: u8,
}

impl Entry<'_> {
    /// The shortest record for it.
    fn length(&self) -> usize {
        8 + self.name.len().next_multiple_of(4)
    }
}

/// A directory may have no more leaves than two levels of index lead to.
#[derive(Debug)]
pub(super) struct TooLarge;

/// What a directory will look like.
pub(super) enum Shape {
    /// As many blocks, entries in the order given.
    Linear(usize),
    /// Entries were sorted by hash, and this is the index over them.
    Indexed(Index),
}

pub(super) struct Index {
    leaves: Vec<Leaf>,
    /// Index blocks between the first block and the leaves.
    nodes: usize,
}

struct Leaf {
    /// As the index has it: odd when the leaf before ends with the same hash.
    hash: u32,
    /// How many entries.
    entries: usize,
}

impl Shape {
    /// Blocks on the disk.
    pub(super) fn blocks(&self) -> u32 {
        let blocks = match self {
            Self::Linear(blocks) => *blocks,
            Self::Indexed(index) => 1 + index.nodes + index.leaves.len(),
        };
        u32::try_from(blocks).expect("two levels of index lead to 260,000 blocks")
    }
}

/// Whether a directory of so many blocks has an index: the first block and at least two leaves.
pub(super) fn is_indexed(blocks: u32) -> bool {
    blocks as usize > LINEAR_BLOCKS
}

/// Decides on the shape and brings the entries, which come in the order of their names, into the
/// order of the disk.
pub(super) fn arrange(entries: &mut [Entry<'_>], seed: [u32; 4]) -> Result<Shape, TooLarge> {
    let blocks = pack(entries, DOTS).count();
    if blocks <= LINEAR_BLOCKS {
        return Ok(Shape::Linear(blocks));
    }
    entries.sort_by_cached_key(|entry| (hash::of_name(seed, entry.name), entry.name));
    let mut leaves = Vec::new();
    let mut before: Option<NameHash> = None;
    let mut at = 0;
    for count in pack(entries, 0) {
        let first = hash::of_name(seed, entries[at].name).major;
        let continued = before.is_some_and(|before| before.major == first);
        leaves.push(Leaf { hash: first | u32::from(continued), entries: count });
        at += count;
        before = Some(hash::of_name(seed, entries[at - 1].name));
    }
    let nodes = if leaves.len() <= ROOT_LIMIT { 0 } else { leaves.len().div_ceil(NODE_LIMIT) };
    if nodes > ROOT_LIMIT {
        return Err(TooLarge);
    }
    Ok(Shape::Indexed(Index { leaves, nodes }))
}

/// How many entries go into each block, when `taken` bytes of the first are not free.
fn pack(entries: &[Entry<'_>], taken: usize) -> impl Iterator<Item = usize> {
    let mut rest = entries;
    let mut taken = taken;
    let mut done = false;
    std::iter::from_fn(move || {
        if done {
            return None;
        }
        let mut count = 0;
        while let Some(entry) = rest.get(count)
            && taken + entry.length() <= BLOCK
        {
            taken += entry.length();
            count += 1;
        }
        rest = &rest[count..];
        done = rest.is_empty();
        taken = 0;
        Some(count)
    })
}

/// Writes what [`arrange`] arranged; `parent` is the inode of `..`.
pub(super) fn write(
    shape: &Shape,
    entries: &[Entry<'_>],
    inode: u32,
    parent: u32,
    stream: &mut Stream<'_>,
) -> Result<(), WriteError> {
    let dots = [
        Entry { name: b".", inode, kind: super::inode::DIRECTORY },
        Entry { name: b"..", inode: parent, kind: super::inode::DIRECTORY },
    ];
    match shape {
        Shape::Linear(_) => {
            let mut rest = entries;
            let mut dots: &[Entry<'_>] = &dots;
            for count in pack(entries, DOTS) {
                let (here, behind) = rest.split_at(count);
                put_entries(dots.iter().chain(here), stream.block()?);
                dots = &[];
                rest = behind;
            }
        }
        Shape::Indexed(index) => {
            index.put_root(&dots, stream.block()?);
            if index.nodes > 0 {
                let first_leaf = 1 + index.nodes;
                for (node, leaves) in index.leaves.chunks(NODE_LIMIT).enumerate() {
                    let out = stream.block()?;
                    put16(out, 4, in_block(BLOCK));
                    let first = first_leaf + node * NODE_LIMIT;
                    put_index(
                        leaves.iter().map(|leaf| leaf.hash),
                        first,
                        NODE_LIMIT,
                        &mut out[8..],
                    );
                }
            }
            let mut rest = entries;
            for leaf in &index.leaves {
                let (here, behind) = rest.split_at(leaf.entries);
                put_entries(here.iter(), stream.block()?);
                rest = behind;
            }
        }
    }
    Ok(())
}

impl Index {
    fn put_root(&self, dots: &[Entry<'_>; 2], out: &mut [u8]) {
        put_entries(dots.iter(), out);
        out[28] = HALF_MD4;
        out[29] = 8; // the length of this information
        let (step, levels) = if self.nodes == 0 { (1, 0) } else { (NODE_LIMIT, 1) };
        out[30] = levels;
        let hashes = self.leaves.iter().step_by(step).map(|leaf| leaf.hash);
        put_index(hashes, 1, ROOT_LIMIT, &mut out[ROOT_ENTRIES..]);
    }
}

/// One entry for each block from `first` on. The first entry's hash is not kept: the limit and the
/// count are in its place.
fn put_index(hashes: impl Iterator<Item = u32>, first: usize, limit: usize, out: &mut [u8]) {
    let mut count = 0;
    for (hash, out) in hashes.zip(out.chunks_exact_mut(8)) {
        put32(out, 0, hash);
        put32(out, 4, u32::try_from(first + count).expect("two levels lead to 260,000 blocks"));
        count += 1;
    }
    put16(out, 0, in_block(limit));
    put16(out, 2, in_block(count));
}

/// Entries in a row; the last one's record reaches to the end of the block.
fn put_entries<'e>(entries: impl Iterator<Item = &'e Entry<'e>>, out: &mut [u8]) {
    let mut last = 0;
    let mut at = 0;
    for entry in entries {
        put32(out, at, entry.inode);
        put16(out, at + 4, in_block(entry.length()));
        out[at + 6] = u8::try_from(entry.name.len()).expect("names were checked");
        out[at + 7] = entry.kind;
        out[at + 8..at + 8 + entry.name.len()].copy_from_slice(entry.name);
        last = at;
        at += entry.length();
    }
    put16(out, last + 4, in_block(BLOCK - last));
}
