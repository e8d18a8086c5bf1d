//! `portolan rootdisk inspect FILE --ls`

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;

use portolan_rootdisk::ext4::read::{FileKind, Filesystem, Follow, Inode};
use serde::Serialize;

use super::failure;
use crate::exit::Failure;
use crate::format::safe_bytes;

/// Bytes of rows that are held at a time. Files may share attributes of megabytes each, so that a
/// small disk could ask for more memory than there is.
const MAX_HELD: usize = 512 << 20;

/// One file, as programs see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    /// From the root, with a leading slash; what is not UTF-8 in it is replaced.
    path: String,
    /// The path's bytes in hex, where they are not UTF-8.
    #[serde(skip_serializing_if = "Option::is_none")]
    path_hex: Option<String>,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Octal: `0755`.
    mode: String,
    uid: u32,
    gid: u32,
    size: u64,
    modified: String,
    links: u16,
    inode: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    major: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    minor: Option<u32>,
    /// By name, values in hex.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    xattrs: BTreeMap<String, String>,
    /// For people: the name and, of a link, where it leads.
    #[serde(skip)]
    shown: String,
    #[serde(skip)]
    permissions: String,
}

impl Row {
    /// Bytes that it takes in memory, those that a disk decides about.
    fn weight(&self) -> usize {
        let texts = [Some(&self.path), self.path_hex.as_ref(), self.target.as_ref()];
        let texts = texts.into_iter().flatten().map(String::len).sum::<usize>();
        let xattrs = self.xattrs.iter().map(|(name, value)| name.len() + value.len());
        size_of::<Self>() + texts + self.shown.len() + xattrs.sum::<usize>()
    }
}

/// Rows that together stay below a size.
struct Held {
    rows: Vec<Row>,
    left: usize,
}

impl Held {
    fn push(&mut self, row: Row) -> Result<(), Failure> {
        self.left = self.left.checked_sub(row.weight()).ok_or_else(|| {
            let most = crate::format::size(MAX_HELD as u64);
            Failure::usage(anyhow::anyhow!(
                "the list would take more than {most} of memory; list one directory at a time"
            ))
        })?;
        self.rows.push(row);
        Ok(())
    }
}

/// What a path is: the names in a directory, or the file itself.
pub(super) fn rows(
    fs: &Filesystem<File>,
    path: &[u8],
    recursive: bool,
) -> Result<Vec<Row>, Failure> {
    rows_within(fs, path, recursive, MAX_HELD)
}

fn rows_within(
    fs: &Filesystem<File>,
    path: &[u8],
    recursive: bool,
    left: usize,
) -> Result<Vec<Row>, Failure> {
    let start = fs.find(path, Follow::Parents).map_err(failure)?;
    let mut prefix = vec![b'/'];
    for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        prefix.extend_from_slice(name);
        prefix.push(b'/');
    }
    if start.kind != FileKind::Directory {
        prefix.pop();
        return Ok(vec![row(fs, &prefix, &prefix, &start)?]);
    }
    let mut held = Held { rows: Vec::new(), left };
    if recursive {
        for entry in fs.walk(&start).map_err(failure)? {
            let entry = entry.map_err(failure)?;
            let whole = [&prefix, entry.path.as_slice()].concat();
            held.push(row(fs, &whole, &whole, &entry.inode)?)?;
        }
        held.rows.sort_by(|a, b| a.path.split('/').cmp(b.path.split('/')));
    } else {
        for entry in fs.read_dir(&start).map_err(failure)? {
            let whole = [&prefix, &*entry.name].concat();
            let inode = fs.inode(entry.inode).map_err(failure)?;
            held.push(row(fs, &whole, &entry.name, &inode)?)?;
        }
    }
    Ok(held.rows)
}

fn row(fs: &Filesystem<File>, path: &[u8], name: &[u8], inode: &Inode) -> Result<Row, Failure> {
    let target = match inode.kind {
        FileKind::Symlink => Some(fs.read_link(inode).map_err(failure)?),
        _ => None,
    };
    let mut shown = safe_bytes(name);
    if let Some(target) = &target {
        let _ = write!(shown, " -> {}", safe_bytes(target));
    }
    let xattrs = fs.xattrs(inode).map_err(failure)?;
    Ok(Row {
        path: String::from_utf8_lossy(path).into_owned(),
        path_hex: std::str::from_utf8(path).is_err().then(|| portolan_core::hex(path)),
        kind: kind(inode.kind).1,
        mode: format!("{:04o}", inode.mode),
        uid: inode.uid,
        gid: inode.gid,
        size: inode.size,
        modified: inode.modified.to_string(),
        links: inode.links,
        inode: inode.number,
        target: target.map(|target| String::from_utf8_lossy(&target).into_owned()),
        major: inode.device.map(|device| device.major),
        minor: inode.device.map(|device| device.minor),
        xattrs: xattrs
            .iter()
            .map(|xattr| {
                (
                    String::from_utf8_lossy(&xattr.name).into_owned(),
                    portolan_core::hex(&xattr.value),
                )
            })
            .collect(),
        shown,
        permissions: permissions(inode),
    })
}

/// The letter of `ls -l` and a word for programs.
fn kind(kind: FileKind) -> (char, &'static str) {
    match kind {
        FileKind::File => ('-', "file"),
        FileKind::Directory => ('d', "directory"),
        FileKind::Symlink => ('l', "symlink"),
        FileKind::CharDevice => ('c', "charDevice"),
        FileKind::BlockDevice => ('b', "blockDevice"),
        FileKind::Fifo => ('p', "fifo"),
        FileKind::Socket => ('s', "socket"),
    }
}

/// `drwxr-sr-t`, as `ls -l` has it.
fn permissions(inode: &Inode) -> String {
    let mut text = String::from(kind(inode.kind).0);
    for (shift, special, letter) in [(6, 0o4000, 's'), (3, 0o2000, 's'), (0, 0o1000, 't')] {
        let bits = inode.mode >> shift;
        text.push(if bits & 4 != 0 { 'r' } else { '-' });
        text.push(if bits & 2 != 0 { 'w' } else { '-' });
        text.push(match (inode.mode & special != 0, bits & 1 != 0) {
            (false, false) => '-',
            (false, true) => 'x',
            (true, true) => letter,
            (true, false) => letter.to_ascii_uppercase(),
        });
    }
    text
}

/// Like `ls -l`, numbers right and names last.
pub(super) fn draw(rows: &[Row]) -> String {
    let mut out = String::new();
    for row in rows {
        let Row { permissions, links, uid, gid, modified, shown, .. } = row;
        let size = match (row.major, row.minor) {
            (Some(major), Some(minor)) => format!("{major}, {minor}"),
            _ => row.size.to_string(),
        };
        let marked = if row.xattrs.is_empty() { ' ' } else { '+' };
        let _ = writeln!(
            out,
            "{permissions}{marked} {links:>3} {uid:>5} {gid:>5} {size:>12} {modified:<20} {shown}"
        );
    }
    out
}

#[cfg(test)]
#[path = "../../../rootdisk/tests/common/sparse.rs"]
mod sparse;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_list_has_a_largest_size() {
        let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/ext4/ea-inode");
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&sparse::unpack(&std::fs::read(seed).unwrap())).unwrap();
        let fs = Filesystem::open(file).unwrap();
        let all = rows(&fs, b"/", true).unwrap();
        assert_eq!(all.len(), 64);
        let weight = all.iter().map(Row::weight).sum();
        let attributes = all.iter().flat_map(|row| row.xattrs.values()).map(String::len);
        assert!(weight > attributes.sum::<usize>(), "attributes count");
        assert!(rows_within(&fs, b"/", true, weight).is_ok());
        let failure = rows_within(&fs, b"/", true, weight - 1).err().expect("one byte too many");
        assert!(failure.error.to_string().contains("one directory at a time"));
    }
}
