//! The output file: written in whole chunks, past the page cache where that works, each chunk
//! hashed on its way, and nothing left of it unless it was finished.

mod aligned;
mod lose;
mod writers;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use portolan_registry::durable::{DurableError, TempFile};
use rustix::fs::{Advice, FallocateFlags, OFlags, fadvise, fallocate};

use crate::build::BuildError;
use crate::checksum::{CHUNK, Checksum, Chunks, hash_chunk};
use crate::tree::BLOCK;

pub(crate) use aligned::Aligned;
pub(crate) use writers::{WriteFailed, Writers};

/// Blocks of a chunk.
pub(crate) const CHUNK_BLOCKS: u32 = 256;
const _: () = assert!(CHUNK_BLOCKS as usize * BLOCK == CHUNK);

/// A disk under construction. Any number of threads may write to different chunks of it.
pub(crate) struct Disk {
    temp: TempFile,
    /// A second handle on the file that passes the page cache by.
    direct: Option<File>,
    length: AtomicU64,
    chunks: Mutex<Chunks>,
}

impl Disk {
    /// A new file in `dir`.
    pub(crate) fn create(dir: &Path, direct: bool) -> Result<Self, BuildError> {
        let temp = TempFile::create(dir).map_err(|error| match error {
            DurableError::Io { step, path, source } => BuildError::io(step, &path, source),
            other => BuildError::io("create a temp file in", dir, io::Error::other(other)),
        })?;
        let direct = if direct { open_direct(&temp) } else { None };
        let chunks = Mutex::default();
        Ok(Self { temp, direct, length: AtomicU64::new(0), chunks })
    }

    /// Whether writes pass the page cache by.
    pub(crate) fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    pub(crate) fn failed(&self, step: &'static str, source: io::Error) -> BuildError {
        BuildError::io(step, self.temp.path(), source)
    }

    /// Makes the file at least so long. Writing inside a file of known length spares the kernel
    /// from serialising writers, which it must where each write moves the end.
    pub(crate) fn reach(&self, bytes: u64) -> Result<(), BuildError> {
        if self.length.fetch_max(bytes, Ordering::Relaxed) < bytes {
            // Two threads may come here in either order; the later one must not shorten it.
            let _guard = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
            let length = self.length.load(Ordering::Relaxed);
            self.temp.file().set_len(length).map_err(|e| self.failed("extend", e))?;
        }
        Ok(())
    }

    /// Writes a chunk from its beginning, as far as `bytes` go, and takes its hash. Nothing else
    /// may be in the chunk.
    pub(crate) fn write_chunk(&self, chunk: u32, bytes: &[u8]) -> Result<(), BuildError> {
        let hash = hash_chunk(bytes);
        if hash.is_some() {
            self.write(u64::from(chunk) * CHUNK as u64, bytes)?;
        }
        self.set_hash(chunk, hash);
        Ok(())
    }

    fn set_hash(&self, chunk: u32, hash: Option<[u8; 32]>) {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).set(chunk, hash);
    }

    /// Writes whole blocks from aligned memory.
    pub(crate) fn write(&self, offset: u64, bytes: &[u8]) -> Result<(), BuildError> {
        debug_assert!(offset.is_multiple_of(BLOCK as u64) && bytes.len().is_multiple_of(BLOCK));
        if let Some(direct) = &self.direct {
            return direct.write_all_at(bytes, offset).map_err(|e| self.failed("write", e));
        }
        let file = self.temp.file();
        file.write_all_at(bytes, offset).map_err(|e| self.failed("write", e))?;
        // The kernel begins to write back at once, so that the last fsync finds little to do. It
        // is only advice; what matters is said by the fsync.
        let length = std::num::NonZeroU64::new(bytes.len() as u64);
        let _ = fadvise(file, offset, length, Advice::DontNeed);
        Ok(())
    }

    /// Reads a chunk as far as the file goes.
    pub(crate) fn read_chunk(&self, chunk: u32, buffer: &mut Aligned) -> Result<(), BuildError> {
        let offset = u64::from(chunk) * CHUNK as u64;
        let left = self.length.load(Ordering::Relaxed).saturating_sub(offset);
        let length = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        let file = self.direct.as_ref().unwrap_or_else(|| self.temp.file());
        let (inside, outside) = buffer.as_mut().split_at_mut(length);
        file.read_exact_at(inside, offset).map_err(|e| self.failed("read", e))?;
        outside.fill(0);
        Ok(())
    }

    /// Gives blocks back to the file system, which leaves zeros. False where it cannot.
    fn punch(&self, block: u32, blocks: u32) -> Result<bool, BuildError> {
        let (offset, length) = (bytes_of(block), bytes_of(blocks));
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match fallocate(self.temp.file(), flags, offset, length) {
            Ok(()) => Ok(true),
            Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::NOSYS) => Ok(false),
            Err(error) => Err(self.failed("free blocks of", error.into())),
        }
    }

    /// Takes the hashes of chunks again, from what is in the file.
    pub(crate) fn hash_again(&self, chunks: &[u32]) -> Result<(), BuildError> {
        let mut buffer = Aligned::new();
        for chunk in chunks {
            self.read_chunk(*chunk, &mut buffer)?;
            self.set_hash(*chunk, hash_chunk(buffer.as_ref()));
        }
        Ok(())
    }

    /// The chunks before `end` that hold anything but zeros.
    pub(crate) fn chunks_with_data(&self, end: u32) -> Vec<u32> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).before(end)
    }

    /// Cuts or extends the file to its final size.
    pub(crate) fn set_size(&self, bytes: u64) -> Result<(), BuildError> {
        self.length.store(bytes, Ordering::Relaxed);
        self.temp.file().set_len(bytes).map_err(|e| self.failed("set the size of", e))
    }

    /// Makes the file durable; its checksum, and how many bytes of a disk it takes.
    pub(crate) fn finish(self) -> Result<(TempFile, Checksum, u64), BuildError> {
        let file = self.temp.file();
        file.sync_all().map_err(|e| self.failed("flush", e))?;
        let metadata = file.metadata().map_err(|e| self.failed("look at", e))?;
        let chunks = self.chunks.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok((self.temp, chunks.finish(metadata.len()), metadata.blocks() * 512))
    }
}

fn bytes_of(blocks: u32) -> u64 {
    u64::from(blocks) * BLOCK as u64
}

/// A handle that passes the page cache by, if the file system really takes it: some say so only
/// when they are written to.
fn open_direct(temp: &TempFile) -> Option<File> {
    let flag = OFlags::DIRECT.bits().cast_signed();
    let options = OpenOptions::new().read(true).write(true).custom_flags(flag).open(temp.path());
    let file = options.ok()?;
    let zeros = Aligned::new();
    file.write_all_at(&zeros.as_ref()[..BLOCK], 0).ok()?;
    Some(file)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::checksum;

    fn filled(byte: u8, blocks: usize) -> Aligned {
        let mut buffer = Aligned::new();
        buffer.as_mut()[..blocks * BLOCK].fill(byte);
        buffer
    }

    #[test]
    fn both_ways_of_writing_give_the_same_file_and_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let mut results = Vec::new();
        for direct in [true, false] {
            let disk = Disk::create(dir.path(), direct).unwrap();
            disk.reach(20 * CHUNK as u64).unwrap();
            disk.reach(10 * CHUNK as u64).unwrap();
            disk.write_chunk(3, filled(7, 256).as_ref()).unwrap();
            disk.write_chunk(12, &filled(8, 9).as_ref()[..9 * BLOCK]).unwrap();
            disk.write_chunk(11, filled(0, 0).as_ref()).unwrap();
            disk.set_size(19 * CHUNK as u64 + 4096).unwrap();
            let (temp, sum, allocated) = disk.finish().unwrap();
            assert_eq!(checksum::of_file(temp.path()).unwrap(), sum);
            assert!(allocated < 3 * CHUNK as u64, "the rest is holes: {allocated}");
            results.push((std::fs::read(temp.path()).unwrap(), sum));
        }
        assert!(results[0] == results[1]);
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "dropped is gone");
    }
}
