//! Taking out what upper layers replaced or removed.
//!
//! Its blocks become zeros, so that the disk depends on what is in the image and not on how it
//! was written. Long stretches are given back to the host's file system, which costs a journal
//! entry and, on a host that discards, a command to its disk each: short ones are overwritten.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::{Aligned, CHUNK_BLOCKS, Disk};
use crate::build::BuildError;
use crate::checksum::hash_chunk;
use crate::tree::{BLOCK, Run};

/// Blocks from which on a stretch is given back.
const PUNCH: u32 = 64;

/// How many threads take part. They wait for the disk most of the time.
const THREADS: usize = 4;

/// Blocks on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stretch {
    block: u32,
    blocks: u32,
}

/// What to do, decided before anything is done.
#[derive(Debug, Default, PartialEq, Eq)]
struct Work {
    punch: Vec<Stretch>,
    /// Chunks that change but keep something, each with what to overwrite in it, and whether it
    /// is to be overwritten in the file too.
    chunks: Vec<(u32, Vec<Stretch>)>,
    /// Chunks of which nothing stays.
    empty: Vec<u32>,
}

/// The runs without their order and without seams.
fn merged(runs: &[Run]) -> Vec<Stretch> {
    let mut sorted: Vec<_> =
        runs.iter().map(|run| Stretch { block: run.physical, blocks: run.blocks }).collect();
    sorted.sort_unstable_by_key(|stretch| stretch.block);
    let mut merged: Vec<Stretch> = Vec::with_capacity(sorted.len());
    for next in sorted {
        match merged.last_mut() {
            Some(last) if last.block + last.blocks >= next.block => {
                let end = (next.block + next.blocks).max(last.block + last.blocks);
                last.blocks = end - last.block;
            }
            _ => merged.push(next),
        }
    }
    merged
}

fn decide(runs: &[Run]) -> Work {
    let mut work = Work::default();
    for stretch in merged(runs) {
        let punched = stretch.blocks >= PUNCH;
        if punched {
            work.punch.push(stretch);
        }
        let end = stretch.block + stretch.blocks;
        let mut block = stretch.block;
        while block < end {
            let chunk = block / CHUNK_BLOCKS;
            let stop = end.min((chunk + 1) * CHUNK_BLOCKS);
            let part = Stretch { block, blocks: stop - block };
            block = stop;
            if part.blocks == CHUNK_BLOCKS {
                work.empty.push(chunk);
                continue;
            }
            if work.chunks.last().is_none_or(|(last, _)| *last != chunk) {
                work.chunks.push((chunk, Vec::new()));
            }
            let (_, parts) = work.chunks.last_mut().expect("one was just pushed");
            if !punched {
                parts.push(part);
            }
        }
    }
    work
}

impl Disk {
    /// Makes zeros of these runs; `cancelled` is asked now and then.
    pub(crate) fn lose(
        &self,
        runs: &[Run],
        cancelled: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), BuildError> {
        let Work { punch, chunks, empty } = decide(runs);
        let mut zeros = None;
        for stretch in punch {
            if cancelled() {
                return Err(BuildError::Cancelled);
            }
            if !self.punch(stretch.block, stretch.blocks)? {
                self.overwrite(stretch, zeros.get_or_insert_with(Aligned::new))?;
            }
        }
        empty.iter().for_each(|chunk| self.set_hash(*chunk, None));
        let next = AtomicUsize::new(0);
        let work = || {
            let mut buffer = Aligned::new();
            while let Some((chunk, parts)) = chunks.get(next.fetch_add(1, Ordering::Relaxed)) {
                if cancelled() {
                    return Err(BuildError::Cancelled);
                }
                self.blank(*chunk, parts, &mut buffer)?;
            }
            Ok(())
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..THREADS.min(chunks.len())).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panics"))
        })
    }

    /// Overwrites parts of a chunk and takes its hash again.
    fn blank(&self, chunk: u32, parts: &[Stretch], buffer: &mut Aligned) -> Result<(), BuildError> {
        self.read_chunk(chunk, buffer)?;
        for part in parts {
            let start = (part.block % CHUNK_BLOCKS) as usize * BLOCK;
            let bytes = &mut buffer.as_mut()[start..start + part.blocks as usize * BLOCK];
            bytes.fill(0);
            self.write(super::bytes_of(part.block), bytes)?;
        }
        self.set_hash(chunk, hash_chunk(buffer.as_ref()));
        Ok(())
    }

    fn overwrite(&self, stretch: Stretch, zeros: &Aligned) -> Result<(), BuildError> {
        let mut left = stretch;
        while left.blocks > 0 {
            let blocks = left.blocks.min(CHUNK_BLOCKS);
            let bytes = &zeros.as_ref()[..blocks as usize * BLOCK];
            self.write(super::bytes_of(left.block), bytes)?;
            left = Stretch { block: left.block + blocks, blocks: left.blocks - blocks };
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum::{self, CHUNK};

    fn run(physical: u32, blocks: u32) -> Run {
        Run { logical: 0, physical, blocks }
    }

    #[test]
    fn neighbours_become_one_and_only_long_ones_are_punched() {
        let work = decide(&[run(70, 40), run(10, 5), run(40, 30), run(300, 1)]);
        let stretch = |block, blocks| Stretch { block, blocks };
        assert_eq!(work.punch, [stretch(40, 70)]);
        assert_eq!(work.chunks, [(0, vec![stretch(10, 5)]), (1, vec![stretch(300, 1)])]);
        let long = decide(&[run(200, 400)]);
        assert_eq!(long.empty, [1]);
        assert_eq!(long.chunks, [(0, vec![]), (2, vec![])], "both ends are hashed again");
    }

    #[test]
    fn what_is_lost_is_zeros_and_the_checksum_knows() {
        let dir = tempfile::tempdir().unwrap();
        let disk = Disk::create(dir.path(), true).unwrap();
        disk.reach(4 * CHUNK as u64).unwrap();
        let mut buffer = Aligned::new();
        buffer.as_mut().fill(1);
        for chunk in 0..4 {
            disk.write_chunk(chunk, buffer.as_ref()).unwrap();
        }
        let lost = [run(3, 2), run(100, 700), run(900, 1), run(901, 10)];
        disk.lose(&lost, &|| false).unwrap();
        let (temp, sum, _) = disk.finish().unwrap();
        let bytes = std::fs::read(temp.path()).unwrap();
        for (number, block) in bytes.chunks(BLOCK).enumerate() {
            let number = u32::try_from(number).unwrap();
            let is_lost =
                lost.iter().any(|r| (r.physical..r.physical + r.blocks).contains(&number));
            assert_eq!(block, [u8::from(!is_lost); BLOCK], "block {number}");
        }
        assert_eq!(checksum::of_file(temp.path()).unwrap(), sum);
    }
}
