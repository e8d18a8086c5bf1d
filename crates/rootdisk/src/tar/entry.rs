//! A header, and all that was said before it, put together to one entry.

use super::header::Header;
use super::name::{self, Name, NameProblem};
use super::pax::Pax;
use super::sparse::Piece;
use super::{Head, HeadKind, TarError};
use crate::layer::EntryPath;
use crate::limits::{Exceeded, Limits};
use crate::tree::{Attributes, Device, Time, Xattr};

/// Linux has no larger device numbers.
const MAX_MAJOR: u32 = (1 << 12) - 1;
const MAX_MINOR: u32 = (1 << 20) - 1;

/// What was said before a header about the entry to come.
#[derive(Debug, Default)]
pub(super) struct Before {
    /// GNU's long name.
    pub(super) name: Option<Vec<u8>>,
    /// GNU's long link target.
    pub(super) link: Option<Vec<u8>>,
    /// PAX records, those for all entries included.
    pub(super) pax: Option<Pax>,
}

impl Before {
    pub(super) fn is_empty(&self) -> bool {
        self.name.is_none() && self.link.is_none() && self.pax.is_none()
    }
}

/// How the bytes after a header are to be read.
#[derive(Debug)]
pub(super) enum Body {
    /// None follow; but if what follows is no header, these are skipped.
    None { announced: u64 },
    /// They mean nothing.
    Skipped { bytes: u64 },
    /// All of a file.
    Whole { bytes: u64 },
    /// Pieces of a file.
    Pieces { pieces: Vec<Piece>, bytes: u64 },
    /// An old GNU map goes on in blocks, then come pieces.
    OldMap { pieces: Vec<Piece>, bytes: u64 },
    /// A map, then pieces, together so many bytes.
    MapThenPieces { bytes: u64 },
}

/// An entry, understood. Without a head it is skipped.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) head: Option<Head>,
    pub(super) body: Body,
}

/// Reads one entry. `at` is where its header is.
pub(super) fn read(
    header: Header<'_>,
    mut before: Before,
    pax: Pax,
    at: u64,
    limits: &Limits,
) -> Result<Entry, TarError> {
    let bad_name = |problem| match problem {
        NameProblem::Zero => TarError::ZeroInName { at },
        NameProblem::Whiteout => TarError::BadWhiteout { at },
        NameProblem::Limit(source) => TarError::Limit { at, source },
    };
    let written = match (before.name.take(), &pax.sparse.name, &pax.path) {
        (Some(name), _, _) => name,
        (None, Some(name), _) | (None, None, Some(name)) => name.to_vec(),
        (None, None, None) => header.name(),
    };
    let absolute = written.starts_with(b"/");
    let stored = match pax.size {
        Some(size) => size,
        None => header.size().ok_or(TarError::Number { at, field: "size" })?,
    };
    let kind = match header.kind() {
        // Before POSIX a directory was a file whose name ends in a slash.
        0 if written.ends_with(b"/") => b'5',
        0 | b'7' => b'0',
        kind => kind,
    };
    let has_data = !matches!(kind, b'1'..=b'6');
    let no_data = || match has_data {
        true => Body::Skipped { bytes: stored },
        false => Body::None { announced: stored },
    };
    let (path, whiteout) = match name::read(&written, limits).map_err(bad_name)? {
        Name::Entry(path) => (path, None),
        Name::Whiteout(path) => (path, Some(HeadKind::Whiteout)),
        Name::Opaque(path) => (path, Some(HeadKind::Opaque)),
        Name::Ignored => return Ok(Entry { head: None, body: no_data() }),
    };
    if let Some(kind) = whiteout {
        let head = Head { path, absolute, kind, attributes: Attributes::default() };
        return Ok(Entry { head: Some(head), body: no_data() });
    }
    let link = before.link.take().map(Vec::into_boxed_slice).or_else(|| pax.link.clone());
    let link = || link.as_deref().unwrap_or_else(|| header.link());
    let (kind, body) = match kind {
        b'0' | b'S' => {
            let (size, body) = file(header, &pax, stored, &path, at)?;
            if size > limits.max_file_bytes {
                let limit = limits.max_file_bytes;
                let source = Exceeded { what: "one file", limit, setting: "max_file_bytes" };
                return Err(TarError::Limit { at, source });
            }
            (HeadKind::File { size }, body)
        }
        b'1' => (HeadKind::Hardlink(name::path(link(), limits).map_err(bad_name)?), no_data()),
        b'2' => (HeadKind::Symlink(target(link(), &path, at, limits)?), no_data()),
        b'3' => (HeadKind::CharDevice(device(header, at)?), no_data()),
        b'4' => (HeadKind::BlockDevice(device(header, at)?), no_data()),
        b'5' => (HeadKind::Directory, no_data()),
        b'6' => (HeadKind::Fifo, no_data()),
        kind => return Err(TarError::UnknownType { path, kind }),
    };
    let mut attributes = attributes(header, pax, at)?;
    if matches!(kind, HeadKind::Symlink(_)) {
        attributes.mode = 0o777;
    }
    Ok(Entry { head: Some(Head { path, absolute, kind, attributes }), body })
}

/// Size and layout of a regular file, sparse or not.
fn file(
    header: Header<'_>,
    pax: &Pax,
    stored: u64,
    path: &EntryPath,
    at: u64,
) -> Result<(u64, Body), TarError> {
    let sparse = &pax.sparse;
    let bad = |what| TarError::Sparse { path: path.clone(), what };
    if header.kind() == b'S' {
        let real_size = match sparse.real_size {
            Some(size) => size,
            None => header.real_size().ok_or(TarError::Number { at, field: "real size" })?,
        };
        let (map, more) = header.sparse_map();
        let mut pieces = Vec::new();
        super::sparse::old_pieces(map, &mut pieces).map_err(bad)?;
        let body = match more {
            true => Body::OldMap { pieces, bytes: stored },
            false => Body::Pieces { pieces, bytes: stored },
        };
        return Ok((real_size, body));
    }
    match (sparse.major, sparse.minor, &sparse.map) {
        (None, None, None) => Ok((stored, Body::Whole { bytes: stored })),
        (Some(1), Some(0), _) => {
            let real_size = sparse.real_size.ok_or_else(|| bad("its size is missing"))?;
            Ok((real_size, Body::MapThenPieces { bytes: stored }))
        }
        (None | Some(0), None | Some(0 | 1), Some(map)) => {
            let real_size = sparse.real_size.ok_or_else(|| bad("its size is missing"))?;
            Ok((real_size, Body::Pieces { pieces: map.clone(), bytes: stored }))
        }
        (_, _, None) => Err(bad("its map is missing")),
        _ => Err(bad("its map is of an unknown version")),
    }
}

fn target(link: &[u8], path: &EntryPath, at: u64, limits: &Limits) -> Result<Box<[u8]>, TarError> {
    if link.contains(&0) {
        return Err(TarError::ZeroInName { at });
    }
    if link.is_empty() {
        return Err(TarError::NoTarget { path: path.clone() });
    }
    if link.len() > limits.max_path_bytes {
        let limit = limits.max_path_bytes as u64;
        let what = "the target of a symbolic link";
        let source = Exceeded { what, limit, setting: "max_path_bytes" };
        return Err(TarError::Limit { at, source });
    }
    Ok(link.into())
}

fn device(header: Header<'_>, at: u64) -> Result<Device, TarError> {
    let number = |field: Option<i64>, most: u32| {
        field
            .and_then(|n| u32::try_from(n).ok())
            .filter(|n| *n <= most)
            .ok_or(TarError::Number { at, field: "device number" })
    };
    Ok(Device {
        major: number(header.major(), MAX_MAJOR)?,
        minor: number(header.minor(), MAX_MINOR)?,
    })
}

fn attributes(header: Header<'_>, pax: Pax, at: u64) -> Result<Attributes, TarError> {
    let owner = |said: Option<u64>, field: Option<i64>, name| {
        let id = match said {
            Some(id) => u32::try_from(id).ok(),
            None => field.and_then(|id| u32::try_from(id).ok()),
        };
        id.ok_or(TarError::Number { at, field: name })
    };
    let mode = header.mode().ok_or(TarError::Number { at, field: "mode" })?;
    let mtime = match pax.mtime {
        Some(time) => time,
        None => Time {
            seconds: header.mtime().ok_or(TarError::Number { at, field: "mtime" })?,
            nanoseconds: 0,
        },
    };
    let xattrs = pax.xattrs.into_iter().map(|(name, value)| Xattr { name, value });
    Ok(Attributes {
        mode: u16::try_from(mode & 0o7777).expect("twelve bits"),
        uid: owner(pax.uid, header.uid(), "uid")?,
        gid: owner(pax.gid, header.gid(), "gid")?,
        mtime,
        xattrs: xattrs.collect(),
    })
}
