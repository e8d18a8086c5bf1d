//! Zip: its list of files is at the end, and counts.

use std::io::{Read, Seek, SeekFrom};

use zip::ZipArchive;
use zip::result::ZipError;

use super::wanted::{Search, refused};
use super::{ArchiveError, Bounds, Take};

/// The end record is 22 bytes and a comment of up to 64 KiB.
const END: u64 = 22 + (64 << 10);
/// The kind of a file in its Unix mode.
const KIND: u32 = 0o170_000;
const REGULAR: u32 = 0o100_000;
/// What the library leaves out of a mode: set-user-ID, set-group-ID, sticky.
const SPECIAL: u32 = 0o7000;
/// An entry of the list, without its name and what follows that.
const ENTRY: usize = 46;
/// From here on a ratio is suspicious.
const FLOOR: u64 = 64 << 20;

pub(super) fn read<R: Read + Seek>(
    from: &mut R,
    name: &str,
    bounds: &Bounds,
    out: &mut dyn Take,
) -> Result<(), ArchiveError> {
    let listed = listed(from)?;
    if listed.is_some_and(|listed| u64::from(listed) > bounds.entries) {
        return Err(ArchiveError::Entries { limit: bounds.entries });
    }
    let archive = ZipArchive::new(&mut *from).map_err(damaged)?;
    if archive.len() as u64 > bounds.entries {
        return Err(ArchiveError::Entries { limit: bounds.entries });
    }
    // Of equal names the library keeps one.
    if listed.is_some_and(|listed| usize::from(listed) != archive.len()) {
        return Err(ArchiveError::damaged("its list names a file twice, or is damaged"));
    }
    let (start, count) = (archive.central_directory_start(), archive.len());
    let modes = modes(archive.into_inner(), start, count)?;
    let mut archive = ZipArchive::new(from).map_err(damaged)?;
    let mut search = Search::new(name, out);
    let mut wanted = None;
    for (at, mode) in modes.into_iter().enumerate() {
        if let Some(packed) = look(&mut archive, at, mode, &mut search)? {
            wanted = Some((at, packed));
        }
    }
    if let Some((at, packed)) = wanted {
        take(&mut archive, at, packed, bounds, &mut search)?;
    }
    search.finish()
}

/// One entry of the list: refused, passed over, or the one that is wanted.
fn look<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    at: usize,
    listed: u32,
    search: &mut Search<'_>,
) -> Result<Option<u64>, ArchiveError> {
    let file = archive.by_index_raw(at).map_err(damaged)?;
    let path = file.name_raw().to_vec();
    let absolute = path.starts_with(b"/") || path.starts_with(b"\\") || path.get(1) == Some(&b':');
    Search::name(&path, absolute)?;
    if path.contains(&b'\\') {
        return Err(refused(&path, "a name with backslashes"));
    }
    if path.ends_with(b"/") {
        return Ok(None);
    }
    let mode = file.unix_mode().unwrap_or(REGULAR);
    if !matches!(mode & KIND, 0 | REGULAR) {
        return Err(refused(&path, "no regular file"));
    }
    if file.encrypted() {
        return Err(refused(&path, "encrypted"));
    }
    Ok(search.file(&path, mode | (listed & SPECIAL))?.then(|| file.compressed_size()))
}

fn take<R: Read + Seek>(
    archive: &mut ZipArchive<R>,
    at: usize,
    packed: u64,
    bounds: &Bounds,
    search: &mut Search<'_>,
) -> Result<(), ArchiveError> {
    let mut file = archive.by_index(at).map_err(damaged)?;
    let mut unpacked = 0_u64;
    let mut buffer = vec![0; 64 << 10];
    loop {
        let have = super::fill(&mut file, &mut buffer).map_err(|e| ArchiveError::Damaged {
            what: "a file in the zip is corrupt",
            source: Some(e.into()),
        })?;
        if have == 0 {
            return Ok(());
        }
        unpacked += have as u64;
        if unpacked > FLOOR && unpacked / packed.max(1) > bounds.ratio {
            return Err(ArchiveError::Bomb { ratio: bounds.ratio });
        }
        search.take(&buffer[..have])?;
    }
}

/// The whole modes of the files, as the list has them.
fn modes(
    from: &mut (impl Read + Seek),
    start: u64,
    count: usize,
) -> Result<Vec<u32>, ArchiveError> {
    from.seek(SeekFrom::Start(start)).map_err(ArchiveError::Read)?;
    let mut modes = Vec::with_capacity(count);
    for _ in 0..count {
        let mut entry = [0; ENTRY];
        from.read_exact(&mut entry).map_err(ArchiveError::Read)?;
        if !entry.starts_with(b"PK\x01\x02") {
            return Err(ArchiveError::damaged("its list is damaged"));
        }
        let two = |at: usize| i64::from(u16::from_le_bytes([entry[at], entry[at + 1]]));
        modes.push(u32::from(u16::from_le_bytes([entry[40], entry[41]])));
        from.seek(SeekFrom::Current(two(28) + two(30) + two(32))).map_err(ArchiveError::Read)?;
    }
    Ok(modes)
}

/// How many files the end record says there are; none where that is told elsewhere.
fn listed(from: &mut (impl Read + Seek)) -> Result<Option<u16>, ArchiveError> {
    let size = from.seek(SeekFrom::End(0)).map_err(ArchiveError::Read)?;
    from.seek(SeekFrom::Start(size.saturating_sub(END))).map_err(ArchiveError::Read)?;
    let mut tail = Vec::new();
    from.take(END).read_to_end(&mut tail).map_err(ArchiveError::Read)?;
    from.seek(SeekFrom::Start(0)).map_err(ArchiveError::Read)?;
    let end = tail.windows(4).rposition(|four| four == b"PK\x05\x06");
    let count = end.and_then(|end| tail.get(end + 10..end + 12));
    let count = count.map(|two| u16::from_le_bytes([two[0], two[1]]));
    Ok(count.filter(|count| *count != u16::MAX))
}

fn damaged(error: ZipError) -> ArchiveError {
    ArchiveError::Damaged { what: "its zip is damaged", source: Some(error.into()) }
}
