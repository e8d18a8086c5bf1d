//! A checksum of a disk that does not pay for its holes and can be made in any order.
//!
//! The file is cut into chunks of [`CHUNK`] bytes; each chunk that holds anything but zeros is
//! hashed by itself with BLAKE3, and the checksum is the BLAKE3 hash over the file's size and
//! the number and hash of every such chunk, in the order of the file. Zeros count as nothing, so
//! a hole and written zeros give the same checksum, and so does a copy that fills the holes.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::str::FromStr;

use rustix::fs::SeekFrom;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Bytes of a chunk. Part of what the checksum means.
pub const CHUNK: usize = 1024 * 1024;

/// What its text begins with: the algorithm and its parameters have no other name.
const PREFIX: &str = "blake3-chunks:";

/// Said first, so that this hash is never one of another kind of list.
const DOMAIN: &[u8] = b"portolan blake3-chunks 1 MiB\n";

/// A checksum, written `blake3-chunks:<64 hex digits>`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum([u8; 32]);

impl Checksum {
    /// From its 32 bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(PREFIX)?;
        f.write_str(&portolan_core::hex(&self.0))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no checksum of this kind.
#[derive(Debug, thiserror::Error)]
#[error("a checksum is written {PREFIX} and 64 digits 0-9 a-f")]
pub struct ParseChecksumError;

impl FromStr for Checksum {
    type Err = ParseChecksumError;

    fn from_str(text: &str) -> Result<Self, ParseChecksumError> {
        let hex = text.strip_prefix(PREFIX).ok_or(ParseChecksumError)?;
        if hex.len() != 64 || hex.bytes().any(|b| b.is_ascii_uppercase()) {
            return Err(ParseChecksumError);
        }
        let hash = blake3::Hash::from_hex(hex).map_err(|_| ParseChecksumError)?;
        Ok(Self(*hash.as_bytes()))
    }
}

impl Serialize for Checksum {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Checksum {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// The hashes of a file's chunks, in any order of making.
#[derive(Debug, Clone, Default)]
pub(crate) struct Chunks(BTreeMap<u32, [u8; 32]>);

impl Chunks {
    /// Says what a chunk holds now; none is zeros.
    pub(crate) fn set(&mut self, chunk: u32, hash: Option<[u8; 32]>) {
        match hash {
            Some(hash) => self.0.insert(chunk, hash),
            None => self.0.remove(&chunk),
        };
    }

    /// Those before `end`.
    pub(crate) fn before(&self, end: u32) -> Vec<u32> {
        self.0.range(..end).map(|(chunk, _)| *chunk).collect()
    }

    /// The checksum of a file of `size` bytes with these chunks.
    pub(crate) fn finish(&self, size: u64) -> Checksum {
        let mut hasher = blake3::Hasher::new();
        hasher.update(DOMAIN);
        hasher.update(&size.to_le_bytes());
        for (chunk, hash) in &self.0 {
            hasher.update(&chunk.to_le_bytes());
            hasher.update(hash);
        }
        Checksum(*hasher.finalize().as_bytes())
    }
}

/// The hash of a chunk, or none when it is all zeros. A chunk at the end of the file, or of what
/// was written of it, is hashed as if zeros followed.
pub(crate) fn hash_chunk(bytes: &[u8]) -> Option<[u8; 32]> {
    debug_assert!(bytes.len() <= CHUNK);
    if is_zero(bytes) {
        return None;
    }
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes);
    let mut missing = CHUNK - bytes.len();
    while missing > 0 {
        let part = missing.min(ZEROS.len());
        hasher.update(&ZEROS[..part]);
        missing -= part;
    }
    Some(*hasher.finalize().as_bytes())
}

static ZEROS: [u8; 64 * 1024] = [0; 64 * 1024];

/// Whether there is nothing but zeros in it. Data usually says no within the first bytes.
pub(crate) fn is_zero(bytes: &[u8]) -> bool {
    bytes.chunks(ZEROS.len()).all(|part| *part == ZEROS[..part.len()])
}

/// Why a checksum could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ChecksumError {
    /// The file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// The file.
        path: std::path::PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Nobody wants it any more.
    #[error("the check was cancelled")]
    Cancelled,
}

/// The checksum of the file at `path` as it is now. Holes are not read.
pub fn of_file(path: &Path) -> Result<Checksum, ChecksumError> {
    of_file_unless(path, &|| false)
}

/// Like [`of_file`], given up when `cancelled` says so: a large disk takes seconds.
pub fn of_file_unless(
    path: &Path,
    cancelled: &dyn Fn() -> bool,
) -> Result<Checksum, ChecksumError> {
    let failed = |source| ChecksumError::Read { path: path.to_owned(), source };
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    let mut chunks = Chunks::default();
    let mut buffer = vec![0; CHUNK];
    let mut next = 0_u64;
    while let Some(data) = next_data(&file, next).map_err(failed)?.filter(|at| *at < size) {
        if cancelled() {
            return Err(ChecksumError::Cancelled);
        }
        let number = data / CHUNK as u64;
        let start = number * CHUNK as u64;
        let length = usize::try_from(size - start).unwrap_or(CHUNK).min(CHUNK);
        file.read_exact_at(&mut buffer[..length], start).map_err(failed)?;
        // A file with more chunks than this is no disk of ours, whose blocks have 32 bits.
        let number =
            u32::try_from(number).map_err(|_| failed(std::io::ErrorKind::FileTooLarge.into()))?;
        chunks.set(number, hash_chunk(&buffer[..length]));
        next = start + CHUNK as u64;
    }
    Ok(chunks.finish(size))
}

/// The first byte at or after `from` that is not in a hole; a file system that knows no holes
/// says that all is data.
fn next_data(file: &File, from: u64) -> std::io::Result<Option<u64>> {
    match rustix::fs::seek(file, SeekFrom::Data(from)) {
        Ok(at) => Ok(Some(at)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::OPNOTSUPP) => Ok(Some(from)),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt as _;

    use super::*;

    #[test]
    fn holes_and_zeros_are_the_same_and_size_and_place_count() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("f");
        let file = File::create(&path).unwrap();
        let size = 5 * CHUNK as u64 + 4096;
        file.set_len(size).unwrap();
        let empty = of_file(&path).unwrap();
        file.write_all_at(b"x", 2 * CHUNK as u64 + 7).unwrap();
        file.write_all_at(b"tail", size - 4).unwrap();
        let sparse = of_file(&path).unwrap();
        assert_ne!(sparse, empty);
        file.write_all_at(&vec![0; CHUNK], 0).unwrap();
        assert_eq!(of_file(&path).unwrap(), sparse, "written zeros change nothing");
        file.set_len(size + 4096).unwrap();
        let longer = of_file(&path).unwrap();
        assert_ne!(longer, sparse);
        file.set_len(size).unwrap();
        file.write_all_at(&[0], 2 * CHUNK as u64 + 7).unwrap();
        file.write_all_at(b"x", 3 * CHUNK as u64 + 7).unwrap();
        assert_ne!(of_file(&path).unwrap(), sparse);

        let mut chunks = Chunks::default();
        chunks.set(5, hash_chunk(&[vec![0; 4092], b"tail".to_vec()].concat()));
        chunks.set(2, hash_chunk(b"\0\0\0\0\0\0\0x"));
        chunks.set(1, hash_chunk(b"soon overwritten"));
        chunks.set(1, hash_chunk(&[0; 10]));
        assert_eq!(chunks.finish(size), sparse, "in any order");
        let stop = of_file_unless(&path, &|| true).unwrap_err();
        assert!(matches!(stop, ChecksumError::Cancelled));
    }

    #[test]
    fn a_checksum_is_read_as_it_is_written() {
        let checksum = Checksum::from_bytes([0xab; 32]);
        assert_eq!(checksum.to_string(), format!("blake3-chunks:{}", "ab".repeat(32)));
        assert_eq!(checksum.to_string().parse::<Checksum>().unwrap(), checksum);
        for wrong in ["", "blake3-chunks:", "blake3:ab", &checksum.to_string().to_uppercase()] {
            assert!(wrong.parse::<Checksum>().is_err(), "{wrong}");
        }
        let upper = format!("blake3-chunks:{}", "AB".repeat(32));
        assert!(upper.parse::<Checksum>().is_err());
    }
}
