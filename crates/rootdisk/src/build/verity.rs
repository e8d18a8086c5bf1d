//! The hash tree behind the file system.

use std::num::NonZeroUsize;

use super::BuildError;
use super::sink::MetadataSink;
use crate::disk::{Aligned, CHUNK_BLOCKS, Disk};
use crate::meta;
use crate::tree::BLOCK;
use crate::verity::{Hash, Params, Salted, Verity, VerityError, Writer, size_with_tree};

/// Chunks that each thread hashes before their hashes are written.
const BATCH: usize = 8;

/// Hashes the disk as far as it has data, and writes the tree behind it.
pub(super) fn append(
    params: Params,
    disk: &Disk,
    cancelled: &(dyn Fn() -> bool + Sync),
) -> Result<Verity, BuildError> {
    let data_blocks = params.data_blocks;
    let salted = Salted::new(&params.salt);
    let chunks = disk.chunks_with_data(data_blocks.div_ceil(CHUNK_BLOCKS));
    disk.set_size(size_with_tree(data_blocks))?;
    let ask = || cancelled();
    let mut sink = MetadataSink::new(disk, &ask);
    let written = (|| {
        let mut writer = Writer::new(params, &mut sink).map_err(Stopped::Tree)?;
        let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let mut next = 0;
        for batch in chunks.chunks(threads * BATCH) {
            if cancelled() {
                return Err(Stopped::Build(BuildError::Cancelled));
            }
            let hashed = hash(batch, threads, disk, &salted).map_err(Stopped::Build)?;
            for (chunk, hashes) in batch.iter().zip(hashed) {
                let first = chunk * CHUNK_BLOCKS;
                writer.push_zeros(u64::from(first - next)).map_err(Stopped::Tree)?;
                let blocks = CHUNK_BLOCKS.min(data_blocks - first);
                writer.push_hashes(&hashes[..blocks as usize]).map_err(Stopped::Tree)?;
                next = first + blocks;
            }
        }
        writer.push_zeros(u64::from(data_blocks - next)).map_err(Stopped::Tree)?;
        writer.finish().map_err(Stopped::Tree)
    })();
    match written {
        Ok(verity) => sink.finish().map(|()| verity),
        Err(Stopped::Build(error)) => Err(error),
        // The sink knows better than the tree why it refused.
        Err(Stopped::Tree(source)) => Err(sink.failure().unwrap_or(BuildError::Verity { source })),
    }
}

enum Stopped {
    Build(BuildError),
    Tree(VerityError),
}

/// The hashes of the blocks of chunks, in their order.
fn hash(
    chunks: &[u32],
    threads: usize,
    disk: &Disk,
    salted: &Salted,
) -> Result<Vec<Vec<Hash>>, BuildError> {
    let share = chunks.len().div_ceil(threads).max(1);
    std::thread::scope(|scope| {
        let work = |chunks: &[u32]| -> Result<Vec<Vec<Hash>>, BuildError> {
            let mut buffer = Aligned::new();
            let hash = |chunk: &u32| {
                disk.read_chunk(*chunk, &mut buffer)?;
                Ok(buffer.as_ref().chunks(BLOCK).map(|block| salted.hash(block)).collect())
            };
            chunks.iter().map(hash).collect()
        };
        let parts: Vec<_> =
            chunks.chunks(share).map(|part| scope.spawn(move || work(part))).collect();
        let mut hashes = Vec::with_capacity(chunks.len());
        for part in parts {
            hashes.extend(part.join().expect("hashing does not panic")?);
        }
        Ok(hashes)
    })
}

/// As the metadata tells it.
pub(super) fn described(tree: &Verity) -> meta::Verity {
    let block = u32::try_from(BLOCK).expect("4096");
    meta::Verity {
        root_hash: portolan_core::hex(&tree.root_hash),
        salt: portolan_core::hex(&tree.salt),
        hash_algorithm: "sha256".to_owned(),
        data_block_size: block,
        hash_block_size: block,
        data_blocks: tree.hash_offset / BLOCK as u64,
        hash_offset: tree.hash_offset,
    }
}
