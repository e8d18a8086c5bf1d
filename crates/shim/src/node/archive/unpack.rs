//! Streams: gzip, zstd, xz or nothing around a tar, or around the program itself.

use std::io::Read;
use std::sync::Arc;

use lzma_rust2::XzReader;
use portolan_rootdisk::codec::{self, Decoder};
use portolan_rootdisk::limits::{Budget, Limits};
use portolan_rootdisk::tar::{self, Reader};

use super::wanted::Search;
use super::{ArchiveError, Bounds, Take};

/// Bytes read at once.
const BUFFER: usize = 64 << 10;
/// The largest dictionary of xz: what its strongest preset asks for.
const XZ_KIB: u32 = 80 << 10;
/// Of what the decoder takes for a plain tar; its bytes decide.
const TAR: &str = "application/vnd.oci.image.layer.v1.tar";

fn limits(bounds: &Bounds) -> Limits {
    Limits {
        max_layer_bytes: bounds.unpacked,
        max_total_bytes: bounds.unpacked,
        max_ratio: bounds.ratio,
        max_entries: bounds.entries,
        max_file_bytes: bounds.unpacked,
        max_index_bytes: 64 << 20,
        ..Limits::default()
    }
}

/// gzip, zstd or plain.
pub(super) fn stream(
    from: &mut impl Read,
    name: &str,
    bounds: &Bounds,
    out: &mut dyn Take,
) -> Result<(), ArchiveError> {
    let budget = Arc::new(Budget::new(limits(bounds)));
    let mut decoder = Decoder::new(TAR, Arc::clone(&budget))?;
    let mut inside = Inside::new(budget, name, out);
    let told = |stopped| match stopped {
        codec::Stopped::Codec(error) => ArchiveError::from(error),
        codec::Stopped::Sink(error) => error,
    };
    let mut buffer = vec![0; BUFFER];
    loop {
        let have = super::fill(from, &mut buffer).map_err(ArchiveError::Read)?;
        if have == 0 {
            break;
        }
        decoder.push(&buffer[..have], &mut |bytes| inside.push(bytes)).map_err(told)?;
    }
    decoder.finish(&mut |bytes| inside.push(bytes)).map_err(told)?;
    inside.finish()
}

/// xz, which no image has and its decoder does not know.
pub(super) fn xz(
    from: &mut impl Read,
    name: &str,
    bounds: &Bounds,
    out: &mut dyn Take,
) -> Result<(), ArchiveError> {
    let limits = limits(bounds);
    let floor = limits.ratio_floor_bytes;
    let mut inside = Inside::new(Arc::new(Budget::new(limits)), name, out);
    let mut unpacked = 0_u64;
    let mut counted = Counted { from, bytes: 0 };
    let mut reader = XzReader::new_mem_limit(&mut counted, true, XZ_KIB);
    let mut buffer = vec![0; BUFFER];
    loop {
        let have = super::fill(&mut reader, &mut buffer).map_err(|e| ArchiveError::Damaged {
            what: "its xz is corrupt, or asks for too much memory",
            source: Some(e.into()),
        })?;
        if have == 0 {
            break;
        }
        unpacked += have as u64;
        if unpacked > bounds.unpacked {
            return Err(ArchiveError::TooLarge {
                what: "the archive, unpacked,",
                limit: bounds.unpacked,
            });
        }
        let packed = reader.inner().bytes.max(1);
        if unpacked > floor && unpacked / packed > bounds.ratio {
            return Err(ArchiveError::Bomb { ratio: bounds.ratio });
        }
        inside.push(&buffer[..have])?;
    }
    inside.finish()
}

struct Counted<R> {
    from: R,
    bytes: u64,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let read = self.from.read(buffer)?;
        self.bytes += read as u64;
        Ok(read)
    }
}

/// What is inside the packing: a tar, or a program.
enum Inside<'a> {
    /// Too few bytes to tell.
    Unknown {
        head: Vec<u8>,
        budget: Arc<Budget>,
        search: Search<'a>,
    },
    Program(Search<'a>),
    Tar(Box<Reader<Search<'a>>>),
    /// It was moved out and broke.
    Over,
}

const ELF: &[u8] = b"\x7fELF";

impl<'a> Inside<'a> {
    fn new(budget: Arc<Budget>, name: &'a str, out: &'a mut dyn Take) -> Self {
        Self::Unknown { head: Vec::new(), budget, search: Search::new(name, out) }
    }

    fn push(&mut self, bytes: &[u8]) -> Result<(), ArchiveError> {
        match self {
            Self::Unknown { head, .. } => {
                head.extend_from_slice(bytes);
                if head.len() < ELF.len() { Ok(()) } else { self.decide() }
            }
            Self::Program(search) => search.take(bytes),
            Self::Tar(reader) => reader.push(bytes).map_err(told),
            Self::Over => Err(ArchiveError::damaged("it is cut off")),
        }
    }

    fn decide(&mut self) -> Result<(), ArchiveError> {
        let Self::Unknown { head, budget, mut search } = std::mem::replace(self, Self::Over) else {
            return Ok(());
        };
        *self = if head.starts_with(ELF) {
            let name = search.wanted().to_owned();
            search.file(name.as_bytes(), 0)?;
            Self::Program(search)
        } else {
            Self::Tar(Box::new(Reader::new(budget, search)))
        };
        self.push(&head)
    }

    fn finish(mut self) -> Result<(), ArchiveError> {
        if matches!(self, Self::Unknown { .. }) {
            self.decide()?;
        }
        match self {
            Self::Program(search) => search.finish(),
            Self::Tar(reader) => reader.finish()?.0.finish(),
            Self::Unknown { .. } | Self::Over => Err(ArchiveError::Empty),
        }
    }
}

fn told(stopped: tar::Stopped<ArchiveError>) -> ArchiveError {
    match stopped {
        tar::Stopped::Tar(error) => error.into(),
        tar::Stopped::Sink(error) => error,
    }
}
