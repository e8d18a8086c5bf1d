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
    Attributes, BLOCK, Device, FileData, Kind, Node, NodeId, Run, Time, Tree, Xattr,
};

#[allow(unreachable_pub, reason = "it is public to the tests of its own crate")]
#[path = "../../../registry/tests/common/busy.rs"]
pub(crate) mod busy;
#[path = "../../../registry/tests/common/skip.rs"]
pub(crate) mod skip;

pub(crate) mod reads_back;

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

/// A POSIX access control list as the system calls have it.
pub(crate) fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    list
}

/// A tree with at least one of everything.
pub(crate) fn torture() -> Builder {
    let mut builder = Builder::new();
    let root = Tree::ROOT;
    let bin = builder.directory(root, b"bin");
    let tool = builder.file(bin, b"tool", &[0xab; 10_000]);
    builder.set(tool, |a| {
        a.mode = 0o4755;
        let capability = b"\x01\0\0\x02\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        a.xattrs = Box::new([xattr("security.capability", capability)]);
    });
    builder.link(root, b"another name of tool", tool);
    builder.file(root, b"empty", b"");

    let odd = builder.directory(root, b"odd names \xff\n");
    builder.set(odd, |a| a.mode = 0o1777);
    for length in [1, 2, 3, 4, 5, 59, 60, 254, 255] {
        builder.file(odd, &vec![0xe9; length], &vec![b'c'; length]);
        builder.add(odd, &vec![b'l'; length], Kind::Symlink(vec![b't'; length].into()));
    }
    builder.add(odd, b"longest", Kind::Symlink(vec![b't'; 4095].into()));

    let dev = builder.directory(root, b"dev");
    for (name, major, minor) in
        [("null", 1, 3), ("none", 0, 0), ("new", 259, 70_000), ("last", 4095, 0xf_ffff)]
    {
        let device = Device { major, minor };
        builder.add(dev, name.as_bytes(), Kind::CharDevice(device));
        let block = builder.add(dev, format!("{name}b").as_bytes(), Kind::BlockDevice(device));
        builder.set(block, |a| a.xattrs = Box::new([xattr("trusted.long", &[3; 700])]));
    }
    builder.add(dev, b"fifo", Kind::Fifo);

    let times = builder.directory(root, b"times");
    for seconds in [-1, i64::from(i32::MIN), 1 << 31, 1 << 32, 1 << 33, 0x3_7fff_ffff] {
        let file = builder.file(times, format!("{seconds}").as_bytes(), b"t");
        builder.set(file, |a| {
            a.mtime = Time { seconds, nanoseconds: 987_654_321 };
            (a.uid, a.gid) = (u32::MAX - 1, 0x1_0000);
        });
    }
    torture_xattrs(&mut builder);

    let many = builder.directory(root, b"many");
    for name in 0..2_000 {
        builder.file(many, format!("a file called {name}").as_bytes(), b"");
    }
    let sparse = FileData {
        size: (5 << 30) + 1,
        runs: builder
            .place(&[0x55; 4096])
            .runs
            .iter()
            .map(|r| Run { logical: 1 << 20, ..*r })
            .collect(),
    };
    builder.add(root, b"sparse", Kind::File(sparse));
    builder
}

fn torture_xattrs(builder: &mut Builder) {
    const NONE: u32 = u32::MAX;
    let list =
        [(1, 7, NONE), (2, 5, 1000), (4, 5, NONE), (8, 1, 70_000), (16, 5, NONE), (32, 0, NONE)];
    let xattrs = builder.directory(Tree::ROOT, b"xattrs");
    builder.set(xattrs, |a| {
        a.mode = 0o750;
        a.xattrs = Box::new([
            xattr("system.posix_acl_access", &acl(&list)),
            xattr("system.posix_acl_default", &acl(&list)),
        ]);
    });
    let cases: [(&[u8], Vec<Xattr>); 5] = [
        (b"inode", vec![xattr("user.a", b"1"), xattr("user.b", b"")]),
        (b"block", vec![xattr("user.large", &[9; 3000])]),
        (b"full", vec![xattr("trusted.full", &[9; 4040])]),
        (
            b"mixed",
            vec![
                xattr("security.selinux", b"system_u:object_r:bin_t:s0\0"),
                xattr("trusted.overlay.origin", &[1; 29]),
                xattr("user.aa", &[2; 61]),
                xattr("user.b", b""),
                xattr("user.zzzzzzzzzzzzzzzz", &[4; 1001]),
            ],
        ),
        (b"long name", vec![xattr(&format!("user.{}", "n".repeat(250)), b"value")]),
    ];
    for (name, list) in cases {
        let file = builder.file(xattrs, name, b"data");
        builder.set(file, |a| a.xattrs = list.into());
    }
    let link = builder.add(xattrs, b"link", Kind::Symlink(b"inode"[..].into()));
    builder.set(link, |a| a.xattrs = Box::new([xattr("trusted.link", &[5; 300])]));
}

/// A disk while it is mounted.
pub(crate) struct Mount(tempfile::TempDir);

impl Mount {
    /// Mounted for reading; none, with the skip noted, where that is not allowed.
    pub(crate) fn read_only(disk: &Path) -> Option<Self> {
        Self::new(Command::new("mount").args(["-t", "ext4", "-o", "loop,ro,noload"]).arg(disk))
    }

    /// Mounted for writing.
    pub(crate) fn writable(disk: &Path) -> Option<Self> {
        Self::new(Command::new("mount").args(["-t", "ext4", "-o", "loop,rw"]).arg(disk))
    }

    /// An overlay of what is mounted elsewhere.
    pub(crate) fn overlay(options: &str) -> Option<Self> {
        Self::new(Command::new("mount").args(["-t", "overlay", "overlay", "-o", options]))
    }

    fn new(command: &mut Command) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            skip::skip("mounting needs root");
            return None;
        }
        let target = tempfile::tempdir().unwrap();
        let output = run(command.arg(target.path()));
        let said = text(&output);
        // Root in a container may be root without the right to mount, or have no loop devices.
        let forbidden = ["permission denied", "not permitted", "failed to setup loop device"];
        if !output.status.success() && forbidden.iter().any(|why| said.contains(why)) {
            skip::skip(&format!("mounting is not possible here: {}", said.trim()));
            return None;
        }
        assert!(output.status.success(), "{command:?}: {said}");
        Some(Self(target))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        let output = busy::once_not_busy(Command::new("umount").arg(self.0.path()));
        if !output.status.success() && !std::thread::panicking() {
            panic!("{} stays mounted: {}", self.0.path().display(), text(&output));
        }
    }
}
