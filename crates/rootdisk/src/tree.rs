//! The merged file system: what every path is after all layers.

use std::collections::BTreeMap;

/// Bytes of a block, in the disk and in a [`Run`].
pub const BLOCK: usize = 4096;

/// Seconds since 1970, which may be negative, and nanoseconds, which may not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Time {
    /// Whole seconds, rounded down.
    pub seconds: i64,
    /// Below 1,000,000,000.
    pub nanoseconds: u32,
}

impl std::fmt::Display for Time {
    /// RFC 3339 in UTC; what lies outside its years is `@` and the seconds.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match jiff::Timestamp::new(self.seconds, self.nanoseconds.cast_signed()) {
            Ok(time) => time.fmt(f),
            Err(_) => write!(f, "@{}", self.seconds),
        }
    }
}

/// One extended attribute, by its full name (`security.capability`, `user.x`).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Xattr {
    /// With its namespace.
    pub name: Box<[u8]>,
    /// Any bytes.
    pub value: Box<[u8]>,
}

/// What every kind of file has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Attributes {
    /// Permission bits, setuid, setgid and sticky: the low twelve bits, no file type.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// When the content last changed.
    pub mtime: Time,
    /// Sorted by name, each name once.
    pub xattrs: Box<[Xattr]>,
}

/// A device's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Device {
    /// Which driver.
    pub major: u32,
    /// Which of its devices.
    pub minor: u32,
}

/// Blocks that follow each other, in the file and on the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The first block's place in the file.
    pub logical: u32,
    /// The first block's place on the disk.
    pub physical: u32,
    /// How many blocks; never 0.
    pub blocks: u32,
}

impl Run {
    /// How many bytes of the disk it takes.
    pub fn bytes(&self) -> u64 {
        u64::from(self.blocks) * BLOCK as u64
    }
}

/// Where a file's content is. What no run covers is zeros.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FileData {
    /// Bytes.
    pub size: u64,
    /// In the order of the file; they neither overlap nor touch unless a run is full.
    pub runs: Box<[Run]>,
}

/// A node of a [`Tree`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u32);

/// What a node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    /// Names and what they lead to; never `.` or `..`.
    Directory(BTreeMap<Box<[u8]>, NodeId>),
    /// A regular file.
    File(FileData),
    /// A link and what it says, as it was written.
    Symlink(Box<[u8]>),
    /// A character device.
    CharDevice(Device),
    /// A block device.
    BlockDevice(Device),
    /// A named pipe.
    Fifo,
}

/// A file of any kind. Several names of one node are hard links; only directories have but one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// Mode, owner, time, extended attributes.
    pub attributes: Attributes,
    /// What it is.
    pub kind: Kind,
}

/// All nodes. Those that no name leads to any more have lost and are not written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tree {
    /// By [`NodeId`]; the root is first and is always a directory.
    pub nodes: Vec<Node>,
}

impl Tree {
    /// The root directory.
    pub const ROOT: NodeId = NodeId(0);

    /// The node of an id that this tree gave out.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }
}
