//! One regular file out of an archive, and nothing else.
//!
//! What it is, its first bytes say: gzip, zstd, xz, a plain tar, zip, or the program itself. The archive
//! is read to its end before anything is believed, and whatever an honest archive of a program does not
//! have makes it refused as a whole.
//!
//! | in the archive | here |
//! |---|---|
//! | the wanted name once, at the top or in a directory | taken |
//! | the wanted name twice, wherever | refused |
//! | other regular files, directories | passed over |
//! | links, devices, pipes; `..`; names that begin with `/`; set-user-ID and set-group-ID programs | refused |
//! | a web page, nothing at all | refused |
//! | more than the limits, in bytes, entries or ratio | refused |

mod error;
mod unpack;
mod wanted;
mod zip;

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::path::Path;

use portolan_core::{Algorithm, Digest, Hasher};
use portolan_registry::durable::{DurableError, TempFile};

pub use error::ArchiveError;

use super::disk::unname;
use super::elf;

/// How much an archive may unpack to, and one program in it.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// All of it, unpacked.
    pub unpacked: u64,
    /// The program.
    pub program: u64,
    /// Unpacked bytes for a packed one, counted from 64 MiB on.
    pub ratio: u64,
    /// Entries.
    pub entries: u64,
}

impl Default for Bounds {
    fn default() -> Self {
        // Programs shrink to a third or a quarter; a ratio of a hundred is no program.
        Self { unpacked: 4 << 30, program: 1 << 30, ratio: 100, entries: 10_000 }
    }
}

/// A program that was taken out.
#[derive(Debug)]
pub struct Program {
    /// Its bytes, in a file that is gone unless it is renamed.
    pub file: TempFile,
    /// What they hash to.
    pub digest: Digest,
    /// How many.
    pub bytes: u64,
    /// The first of them.
    pub head: Vec<u8>,
}

/// Takes the file called `name` out of `archive`, into a file in `temp`.
///
/// # Errors
/// See [`ArchiveError`].
pub fn take(
    archive: &mut File,
    name: &str,
    bounds: &Bounds,
    temp: &Path,
) -> Result<Program, ArchiveError> {
    let mut out = Out::new(bounds.program, temp)?;
    read(archive, name, bounds, &mut out)?;
    Ok(Program { file: out.file, digest: out.hasher.finish(), bytes: out.bytes, head: out.head })
}

/// Reads an archive from anywhere and hands the wanted program to `out`.
///
/// # Errors
/// See [`ArchiveError`].
pub fn read<R: Read + Seek>(
    archive: &mut R,
    name: &str,
    bounds: &Bounds,
    out: &mut dyn Take,
) -> Result<(), ArchiveError> {
    let mut magic = [0; 512];
    let have = fill(archive, &mut magic).map_err(ArchiveError::Read)?;
    archive.seek(SeekFrom::Start(0)).map_err(ArchiveError::Read)?;
    match kind(&magic[..have])? {
        Kind::Zip => zip::read(archive, name, bounds, out),
        Kind::Xz => unpack::xz(archive, name, bounds, out),
        Kind::Program | Kind::Stream => unpack::stream(archive, name, bounds, out),
    }
}

/// Who takes the program's bytes.
pub trait Take {
    /// The next of them.
    ///
    /// # Errors
    /// They cannot be kept, or are too many.
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArchiveError>;
}

#[derive(Debug, PartialEq, Eq)]
enum Kind {
    /// The program itself.
    Program,
    /// gzip, zstd or plain.
    Stream,
    Xz,
    Zip,
}

fn kind(head: &[u8]) -> Result<Kind, ArchiveError> {
    let text = head.trim_ascii_start();
    let page = |tag: &[u8]| text.len() >= tag.len() && text[..tag.len()].eq_ignore_ascii_case(tag);
    match head {
        [] => Err(ArchiveError::Empty),
        _ if head.starts_with(b"\x7fELF") => Ok(Kind::Program),
        _ if head.starts_with(b"\xfd7zXZ\0") => Ok(Kind::Xz),
        _ if head.starts_with(b"PK\x03\x04") || head.starts_with(b"PK\x05\x06") => Ok(Kind::Zip),
        _ if head.starts_with(b"BZh") => Err(ArchiveError::Unknown { what: "bzip2" }),
        _ if page(b"<!doctype") || page(b"<html") || page(b"<?xml") || page(b"<head") => {
            Err(ArchiveError::WebPage)
        }
        _ => Ok(Kind::Stream),
    }
}

fn fill(from: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut have = 0;
    while have < buffer.len() {
        match from.read(&mut buffer[have..]) {
            Ok(0) => break,
            Ok(n) => have += n,
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(have)
}

/// A program on its way to disk.
struct Out {
    file: TempFile,
    hasher: Hasher,
    bytes: u64,
    head: Vec<u8>,
    limit: u64,
}

impl Out {
    fn new(limit: u64, temp: &Path) -> Result<Self, DurableError> {
        let file = TempFile::create(temp)?;
        unname(&file)?;
        Ok(Self { file, hasher: Hasher::new(Algorithm::Sha256), bytes: 0, head: Vec::new(), limit })
    }
}

impl Take for Out {
    fn write(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        self.bytes += bytes.len() as u64;
        if self.bytes > self.limit {
            return Err(ArchiveError::TooLarge { what: "the program", limit: self.limit });
        }
        let more = elf::HEAD.saturating_sub(self.head.len()).min(bytes.len());
        self.head.extend_from_slice(&bytes[..more]);
        self.hasher.update(bytes);
        Ok(self.file.write(bytes)?)
    }
}

#[cfg(test)]
mod tests;
