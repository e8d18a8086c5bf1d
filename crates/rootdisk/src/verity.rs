//! A dm-verity hash tree behind a file system: format 1, SHA-256, blocks of 4096 bytes.
//!
//! `veritysetup verify FILE FILE ROOT_HASH --hash-offset …` reads it, and so does the kernel. What
//! is behind the data:
//!
//! | block | what |
//! |---|---|
//! | `data_blocks` | the superblock of `veritysetup`, 512 bytes |
//! | after it | the tree's levels from the top down; a block of a level holds the hashes of 128 blocks of the level below, and the lowest those of the data |
//!
//! Levels are written while data is pushed, so memory does not grow with the disk. A hole costs no
//! hashing: a block of zeros is hashed once, and so is a block of its hashes.

use std::io;

use sha2::{Digest as _, Sha256};

use crate::ext4::BlockSink;
use crate::tree::BLOCK;

/// Hashes in a block.
const PER_BLOCK: u64 = (BLOCK / HASH) as u64;
const HASH: usize = 32;
/// The longest salt that the superblock has room for.
pub const MAX_SALT: usize = 256;

/// A SHA-256 value.
pub type Hash = [u8; HASH];

/// What a tree depends on beside the data.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Params {
    /// Blocks of data; the tree follows them.
    pub data_blocks: u32,
    /// The tree's id.
    pub uuid: [u8; 16],
    /// Hashed before every block; at most [`MAX_SALT`] bytes.
    pub salt: Vec<u8>,
}

/// What is needed to check a disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verity {
    /// The hash that vouches for all the rest.
    pub root_hash: Hash,
    /// Hashed before every block.
    pub salt: Vec<u8>,
    /// Where the superblock is: the length of the data.
    pub hash_offset: u64,
    /// Data, superblock and tree: the length that the file must have.
    pub size_bytes: u64,
}

/// Why there is no tree.
#[derive(Debug, thiserror::Error)]
pub enum VerityError {
    /// The salt is too long.
    #[error("the salt has {length} bytes, but dm-verity takes at most {MAX_SALT}")]
    Salt {
        /// Of the salt.
        length: usize,
    },
    /// Nothing to hash.
    #[error("a disk without blocks cannot have a hash tree")]
    Empty,
    /// The tree would lie too far out.
    #[error("{data_blocks} blocks of data leave no room for their hash tree below 16 TiB")]
    TooLarge {
        /// Of the disk.
        data_blocks: u32,
    },
    /// Other data than was announced.
    #[error("{announced} blocks of data were announced, but {pushed} came")]
    Blocks {
        /// In the parameters.
        announced: u64,
        /// So far.
        pushed: u64,
    },
    /// The sink refused.
    #[error("the hash tree could not be written at block {block}; is there room?")]
    Sink {
        /// Where.
        block: u32,
        /// Why.
        #[source]
        source: io::Error,
    },
}

/// Hashes blocks behind a salt. Cheap to clone, so that threads can hash parts of a disk and
/// hand the results to [`Writer::push_hashes`] in order.
#[derive(Debug, Clone)]
pub struct Salted(Sha256);

impl Salted {
    /// Of a salt.
    pub fn new(salt: &[u8]) -> Self {
        Self(Sha256::new_with_prefix(salt))
    }

    /// The hash of one block.
    pub fn hash(&self, block: &[u8]) -> Hash {
        let mut hasher = self.0.clone();
        hasher.update(block);
        hasher.finalize().into()
    }
}

/// One level while it is written.
#[derive(Debug)]
struct Level {
    /// The block that is being filled.
    block: u32,
    /// Hashes so far.
    bytes: Vec<u8>,
    /// The hash of what this level hashes when all of it, down to the data, is zeros.
    zeros: Hash,
    /// A block full of `zeros`.
    full_of_zeros: Vec<u8>,
}

/// Makes the tree while data goes by.
pub struct Writer<'s> {
    sink: &'s mut dyn BlockSink,
    salted: Salted,
    params: Params,
    /// The lowest first; none for a disk of one block, whose hash is the root.
    levels: Vec<Level>,
    pushed: u64,
    end: u32,
    root: Hash,
}

impl std::fmt::Debug for Writer<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Writer")
            .field("params", &self.params)
            .field("pushed", &self.pushed)
            .finish_non_exhaustive()
    }
}

/// How many blocks each level has, the lowest first.
fn level_blocks(data_blocks: u64) -> Vec<u64> {
    let mut levels = Vec::new();
    let mut blocks = data_blocks;
    while blocks > 1 {
        blocks = blocks.div_ceil(PER_BLOCK);
        levels.push(blocks);
    }
    levels
}

/// The length of a file with so many blocks of data and their tree.
pub fn size_with_tree(data_blocks: u32) -> u64 {
    let blocks = u64::from(data_blocks);
    (blocks + 1 + level_blocks(blocks).iter().sum::<u64>()) * BLOCK as u64
}

impl<'s> Writer<'s> {
    /// Writes the superblock and is ready for data. The sink's blocks are those of the file: the
    /// tree goes to the blocks behind the data.
    ///
    /// # Errors
    /// When the parameters make no tree, and when the sink refuses.
    pub fn new(params: Params, sink: &'s mut dyn BlockSink) -> Result<Self, VerityError> {
        let Params { data_blocks, salt, .. } = &params;
        if salt.len() > MAX_SALT {
            return Err(VerityError::Salt { length: salt.len() });
        }
        if *data_blocks == 0 {
            return Err(VerityError::Empty);
        }
        let end = u32::try_from(size_with_tree(*data_blocks) / BLOCK as u64)
            .map_err(|_| VerityError::TooLarge { data_blocks: *data_blocks })?;
        let salted = Salted::new(salt);
        let mut levels = Vec::new();
        // The lowest level is last on the disk.
        let mut after = end;
        let mut zeros = salted.hash(&[0; BLOCK]);
        for blocks in level_blocks(u64::from(*data_blocks)) {
            after -= u32::try_from(blocks).expect("a level is a part of the tree");
            let full_of_zeros = zeros.repeat(BLOCK / HASH);
            let above = salted.hash(&full_of_zeros);
            levels.push(Level {
                block: after,
                bytes: Vec::with_capacity(BLOCK),
                zeros,
                full_of_zeros,
            });
            zeros = above;
        }
        let root = [0; HASH];
        let mut writer = Self { sink, salted, params, levels, pushed: 0, end, root };
        let superblock = writer.superblock();
        writer.put(writer.params.data_blocks, &superblock)?;
        Ok(writer)
    }

    /// The next blocks of data, whole.
    ///
    /// # Errors
    /// When more comes than was announced, and when the sink refuses.
    ///
    /// # Panics
    /// When the bytes are not whole blocks.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), VerityError> {
        let blocks = bytes.chunks_exact(BLOCK);
        assert!(blocks.remainder().is_empty(), "data comes in whole blocks");
        for block in blocks {
            let hash = self.salted.hash(block);
            self.push_hashes(&[hash])?;
        }
        Ok(())
    }

    /// The next blocks of data, already hashed by [`Salted`] of the same salt.
    ///
    /// # Errors
    /// When more comes than was announced, and when the sink refuses.
    pub fn push_hashes(&mut self, hashes: &[Hash]) -> Result<(), VerityError> {
        self.count(hashes.len() as u64)?;
        hashes.iter().try_for_each(|hash| self.add(0, hash))
    }

    /// So many blocks of zeros come next.
    ///
    /// # Errors
    /// When more comes than was announced, and when the sink refuses.
    pub fn push_zeros(&mut self, mut blocks: u64) -> Result<(), VerityError> {
        self.count(blocks)?;
        while blocks > 0 {
            let Some(lowest) = self.levels.first() else {
                self.root = self.salted.hash(&[0; BLOCK]);
                return Ok(());
            };
            let zeros = lowest.zeros;
            if !lowest.bytes.is_empty() || blocks < PER_BLOCK {
                self.add(0, &zeros)?;
                blocks -= 1;
                continue;
            }
            self.add_zeros(0)?;
            blocks -= PER_BLOCK;
        }
        Ok(())
    }

    /// Writes what is left and gives the root hash.
    ///
    /// # Errors
    /// When less came than was announced, and when the sink refuses.
    pub fn finish(mut self) -> Result<Verity, VerityError> {
        let announced = u64::from(self.params.data_blocks);
        if self.pushed != announced {
            return Err(VerityError::Blocks { announced, pushed: self.pushed });
        }
        for level in 0..self.levels.len() {
            if !self.levels[level].bytes.is_empty() {
                self.close(level)?;
            }
        }
        Ok(Verity {
            root_hash: self.root,
            salt: self.params.salt,
            hash_offset: announced * BLOCK as u64,
            size_bytes: u64::from(self.end) * BLOCK as u64,
        })
    }

    fn count(&mut self, blocks: u64) -> Result<(), VerityError> {
        let announced = u64::from(self.params.data_blocks);
        let pushed = self.pushed.saturating_add(blocks);
        if pushed > announced {
            return Err(VerityError::Blocks { announced, pushed });
        }
        self.pushed = pushed;
        Ok(())
    }

    /// Adds a hash to a level; above the highest there is only the root.
    fn add(&mut self, level: usize, hash: &Hash) -> Result<(), VerityError> {
        let Some(at) = self.levels.get_mut(level) else {
            self.root = *hash;
            return Ok(());
        };
        at.bytes.extend_from_slice(hash);
        if at.bytes.len() == BLOCK { self.close(level) } else { Ok(()) }
    }

    /// A whole block of a level is hashes of zeros. Levels are few, so this may call itself.
    fn add_zeros(&mut self, level: usize) -> Result<(), VerityError> {
        let at = &mut self.levels[level];
        let block = at.block;
        at.block += 1;
        let full = std::mem::take(&mut at.full_of_zeros);
        let written = self.put(block, &full);
        self.levels[level].full_of_zeros = full;
        written?;
        let above = match self.levels.get(level + 1) {
            Some(above) => above.zeros,
            None => self.salted.hash(&self.levels[level].full_of_zeros),
        };
        self.add(level + 1, &above)
    }

    /// Writes the block of a level that is being filled, and hashes it into the next.
    fn close(&mut self, level: usize) -> Result<(), VerityError> {
        let at = &mut self.levels[level];
        let mut bytes = std::mem::take(&mut at.bytes);
        bytes.resize(BLOCK, 0);
        let block = at.block;
        at.block += 1;
        self.put(block, &bytes)?;
        let hash = self.salted.hash(&bytes);
        bytes.clear();
        self.levels[level].bytes = bytes;
        self.add(level + 1, &hash)
    }

    fn put(&mut self, block: u32, bytes: &[u8]) -> Result<(), VerityError> {
        self.sink.write(block, bytes).map_err(|source| VerityError::Sink { block, source })
    }

    /// The superblock of `veritysetup`, in a block of its own.
    fn superblock(&self) -> Vec<u8> {
        let Params { data_blocks, uuid, salt } = &self.params;
        let size = u32::try_from(BLOCK).expect("4096").to_le_bytes();
        let mut out = vec![0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"verity");
        put(8, &1u32.to_le_bytes()); // the version of this superblock
        put(12, &1u32.to_le_bytes()); // the format: salt before data, blocks of 2^n hashes
        put(16, uuid);
        put(32, b"sha256");
        put(64, &size);
        put(68, &size);
        put(72, &u64::from(*data_blocks).to_le_bytes());
        put(80, &u16::try_from(salt.len()).expect("at most 256").to_le_bytes());
        put(88, salt);
        out
    }
}
