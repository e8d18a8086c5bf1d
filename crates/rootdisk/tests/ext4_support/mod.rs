//! Trees made for tests, disks in files, and the tools that judge them.
#![allow(dead_code, clippy::unwrap_used, reason = "tests; every file uses a part of it")]

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use portolan_rootdisk::ext4::{self, BlockSink, FIRST_DATA_BLOCK, Geometry, Options, WriteError};
use portolan_rootdisk::tree::{
    Attributes, BLOCK, FileData, Kind, Node, NodeId, Run, Time, Tree, Xattr,
};

#[path = "../../../registry/tests/common/skip.rs"]
pub(crate) mod skip;

/// A disk in a file.
pub(crate) struct FileSink(pub(crate) File);

impl BlockSink for FileSink {
    fn write(&mut self, block: u32, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all_at(bytes, u64::from(block) * BLOCK as u64)
    }
}

/// A disk in memory, by block; writing a block twice is a mistake.
#[derive(Default, PartialEq, Eq)]
pub(crate) struct MemorySink(pub(crate) BTreeMap<u32, Vec<u8>>);

impl BlockSink for MemorySink {
    fn write(&mut self, block: u32, bytes: &[u8]) -> io::Result<()> {
        assert!(!bytes.is_empty() && bytes.len().is_multiple_of(BLOCK), "whole blocks");
        for (block, bytes) in (block..).zip(bytes.chunks(BLOCK)) {
            assert!(self.0.insert(block, bytes.to_vec()).is_none(), "block {block} came twice");
        }
        Ok(())
    }
}

/// Puts a tree together, with data in a row from the first data block on.
pub(crate) struct Builder {
    pub(crate) tree: Tree,
    pub(crate) next: u32,
    /// What the data blocks hold, to be written beside the metadata.
    pub(crate) data: Vec<(u32, Vec<u8>)>,
}

pub(crate) fn attributes(mode: u16) -> Attributes {
    Attributes {
        mode,
        mtime: Time { seconds: 1_600_000_000, nanoseconds: 5 },
        ..Attributes::default()
    }
}

pub(crate) fn xattr(name: &str, value: &[u8]) -> Xattr {
    Xattr { name: name.as_bytes().into(), value: value.into() }
}

impl Builder {
    pub(crate) fn new() -> Self {
        let root = Node { attributes: attributes(0o755), kind: Kind::Directory(BTreeMap::new()) };
        Self { tree: Tree { nodes: vec![root] }, next: FIRST_DATA_BLOCK, data: Vec::new() }
    }

    pub(crate) fn node(&mut self, attributes: Attributes, kind: Kind) -> NodeId {
        self.tree.nodes.push(Node { attributes, kind });
        NodeId(u32::try_from(self.tree.nodes.len() - 1).unwrap())
    }

    pub(crate) fn link(&mut self, parent: NodeId, name: &[u8], child: NodeId) {
        let Kind::Directory(children) = &mut self.tree.nodes[parent.0 as usize].kind else {
            panic!("links go into directories")
        };
        children.insert(name.into(), child);
    }

    pub(crate) fn add(&mut self, parent: NodeId, name: &[u8], kind: Kind) -> NodeId {
        let node = self.node(attributes(0o644), kind);
        self.link(parent, name, node);
        node
    }

    pub(crate) fn directory(&mut self, parent: NodeId, name: &[u8]) -> NodeId {
        let node = self.node(attributes(0o755), Kind::Directory(BTreeMap::new()));
        self.link(parent, name, node);
        node
    }

    /// A file with this content, in one run.
    pub(crate) fn file(&mut self, parent: NodeId, name: &[u8], content: &[u8]) -> NodeId {
        let data = self.place(content);
        self.add(parent, name, Kind::File(data))
    }

    pub(crate) fn place(&mut self, content: &[u8]) -> FileData {
        let blocks = u32::try_from(content.len().div_ceil(BLOCK)).unwrap();
        if blocks == 0 {
            return FileData::default();
        }
        let physical = self.next;
        self.next += blocks;
        let mut bytes = content.to_vec();
        bytes.resize(blocks as usize * BLOCK, 0);
        self.data.push((physical, bytes));
        let runs = Box::new([Run { logical: 0, physical, blocks }]);
        FileData { size: content.len() as u64, runs }
    }

    pub(crate) fn set(&mut self, node: NodeId, change: impl FnOnce(&mut Attributes)) {
        change(&mut self.tree.nodes[node.0 as usize].attributes);
    }

    pub(crate) fn options(&self) -> Options {
        Options {
            uuid: *b"an id, any sixte",
            hash_seed: *b"a seed of hashes",
            read_only: true,
            first_free: self.next,
            min_bytes: 0,
            headroom_percent: 100,
            max_bytes: 16 << 40,
            min_inodes: 0,
        }
    }

    /// Writes data and metadata into a fresh file.
    pub(crate) fn write(&self, path: &Path) -> Geometry {
        self.write_with(&self.options(), path).unwrap()
    }

    pub(crate) fn write_with(
        &self,
        options: &Options,
        path: &Path,
    ) -> Result<Geometry, WriteError> {
        let file = File::options().read(true).write(true).create_new(true).open(path).unwrap();
        let mut sink = FileSink(file);
        for (block, bytes) in &self.data {
            sink.write(*block, bytes).unwrap();
        }
        let geometry = ext4::write(&self.tree, options, &mut sink)?;
        sink.0.set_len(geometry.size_bytes).unwrap();
        Ok(geometry)
    }
}

/// A tool of e2fsprogs or the like: where the environment says, in the path, or where only root's
/// path leads. None, with the skip noted, where there is none.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let variable = format!("PORTOLAN_PART_{}", name.to_uppercase().replace('-', "_"));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let directories = std::env::split_paths(&path)
        .chain(["/sbin", "/usr/sbin", "/usr/local/sbin"].map(PathBuf::from));
    let found = std::env::var_os(variable)
        .map(PathBuf::from)
        .or_else(|| directories.map(|dir| dir.join(name)).find(|file| file.is_file()));
    if found.is_none() {
        skip::skip(&format!("{name} is not installed"));
    }
    found
}

pub(crate) fn run(command: &mut Command) -> Output {
    command.output().unwrap_or_else(|error| panic!("{command:?} cannot be run: {error}"))
}

pub(crate) fn text(output: &Output) -> String {
    [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat()
}

/// Fails unless e2fsck finds nothing at all. False where it is not installed.
#[track_caller]
pub(crate) fn fsck(disk: &Path) -> bool {
    let Some(e2fsck) = tool("e2fsck") else { return false };
    let output = run(Command::new(e2fsck).arg("-fn").arg(disk));
    let said = text(&output);
    assert_eq!(output.status.code(), Some(0), "{said}");
    // A clean disk is told in the titles of five passes and one line of numbers.
    let complaints = output.stdout.split(|&byte| byte == b'\n').filter(|line| {
        !line.is_empty() && !line.starts_with(b"Pass ") && !line.windows(7).any(|w| w == b" files ")
    });
    assert_eq!(complaints.count(), 0, "{said}");
    true
}
