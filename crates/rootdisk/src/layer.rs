//! What one layer says: its entries in the order of the tar, with file data already placed.

use std::fmt;

use crate::tree::{Attributes, Device, FileData};

/// A path inside the image as the layer wrote it: components separated by single slashes, no
/// slash at either end, no `.`; empty is the root. `..` may still be there and is resolved, and
/// kept inside the root, when layers are merged.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPath(pub Box<[u8]>);

impl fmt::Display for EntryPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Shown(&self.0))
    }
}

/// A stranger's bytes in our messages: absolute, in quotes, escaped, and cut where more would help
/// nobody.
pub(crate) struct Shown<'a>(pub(crate) &'a [u8]);

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 200;
        let text = String::from_utf8_lossy(&self.0[..self.0.len().min(MOST)]);
        let more = if self.0.len() > MOST { "…" } else { "" };
        write!(f, "\"/{}{more}\"", text.escape_debug())
    }
}

/// What an entry does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EntryKind {
    /// A directory.
    Directory,
    /// A regular file.
    File(FileData),
    /// A symbolic link and what it says.
    Symlink(Box<[u8]>),
    /// Another name of what this path is at that moment.
    Hardlink(EntryPath),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
    /// Takes away what lower layers have at this path (its name comes without `.wh.`).
    Whiteout,
    /// Takes away all that lower layers have below this directory.
    Opaque,
}

/// One entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where.
    pub path: EntryPath,
    /// Meaningless for whiteouts.
    pub attributes: Attributes,
    /// What.
    pub kind: EntryKind,
}

/// A layer, read to its end.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LayerIndex {
    /// As they came.
    pub entries: Vec<Entry>,
}
