//! What the writer wrote is what our reader reads.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::Path;

use portolan_rootdisk::ext4::read::{FileKind, Filesystem, Inode};
use portolan_rootdisk::tree::{Kind, Node, NodeId, Tree};

use super::Builder;

/// The seconds that ext4 can say: 34 bits, the lower half of them signed.
const SECONDS: std::ops::RangeInclusive<i64> = -0x8000_0000..=0x3_7fff_ffff;

/// Fails unless a disk holds the builder's tree, and nothing but it.
#[track_caller]
pub(crate) fn reads_back(builder: &Builder, disk: &Path) {
    let fs = Filesystem::open(File::open(disk).unwrap()).unwrap();
    let mut expected = paths(&builder.tree);
    let root = fs.root().unwrap();
    same(&fs, builder, builder.tree.node(Tree::ROOT), &root);
    let mut numbers: BTreeMap<u32, NodeId> = BTreeMap::new();
    for entry in fs.walk(&root).unwrap() {
        let entry = entry.unwrap();
        if entry.path == b"lost+found" {
            continue;
        }
        let shown = String::from_utf8_lossy(&entry.path).into_owned();
        let id = expected.remove(&entry.path).unwrap_or_else(|| panic!("{shown} is new"));
        same(&fs, builder, builder.tree.node(id), &entry.inode);
        let known = *numbers.entry(entry.inode.number).or_insert(id);
        assert_eq!(known, id, "{shown}: one inode for two files");
    }
    assert!(expected.is_empty(), "missing: {:?}", expected.keys());
}

/// Every path of a tree but the root's.
fn paths(tree: &Tree) -> BTreeMap<Vec<u8>, NodeId> {
    let mut found = BTreeMap::new();
    let mut waiting = vec![(Vec::new(), Tree::ROOT)];
    while let Some((prefix, id)) = waiting.pop() {
        let Kind::Directory(children) = &tree.node(id).kind else { continue };
        for (name, child) in children {
            let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
            let path = [&prefix, slash, name].concat();
            waiting.push((path.clone(), *child));
            found.insert(path, *child);
        }
    }
    found
}

#[track_caller]
fn same(fs: &Filesystem<File>, builder: &Builder, node: &Node, inode: &Inode) {
    let attributes = &node.attributes;
    assert_eq!(
        (inode.mode, inode.uid, inode.gid),
        (attributes.mode, attributes.uid, attributes.gid)
    );
    let wanted = attributes.mtime;
    if SECONDS.contains(&wanted.seconds) {
        assert_eq!(inode.modified, wanted);
    } else {
        let nearest = wanted.seconds.clamp(*SECONDS.start(), *SECONDS.end());
        assert_eq!(inode.modified.seconds, nearest, "{wanted:?}");
    }
    assert_eq!(fs.xattrs(inode).unwrap(), *attributes.xattrs);
    match &node.kind {
        Kind::Directory(_) => assert_eq!(inode.kind, FileKind::Directory),
        Kind::Symlink(target) => assert_eq!(fs.read_link(inode).unwrap(), **target),
        Kind::CharDevice(device) => {
            assert_eq!((inode.kind, inode.device), (FileKind::CharDevice, Some(*device)));
        }
        Kind::BlockDevice(device) => {
            assert_eq!((inode.kind, inode.device), (FileKind::BlockDevice, Some(*device)));
        }
        Kind::Fifo => assert_eq!(inode.kind, FileKind::Fifo),
        Kind::File(data) => {
            assert_eq!((inode.kind, inode.size), (FileKind::File, data.size));
            content(fs, builder, data, inode);
        }
    }
}

/// Every byte of every run, and nothing where there is none.
#[track_caller]
fn content(
    fs: &Filesystem<File>,
    builder: &Builder,
    data: &portolan_rootdisk::tree::FileData,
    inode: &Inode,
) {
    let block = portolan_rootdisk::tree::BLOCK as u64;
    let given: u64 = data
        .runs
        .iter()
        .map(|run| {
            let start = u64::from(run.logical) * block;
            (u64::from(run.blocks) * block).min(data.size.saturating_sub(start))
        })
        .sum();
    let mut read = 0;
    fs.read_file(inode, 0..inode.size, &mut |offset, bytes| {
        read += bytes.len() as u64;
        let logical = u32::try_from(offset / block).unwrap();
        let run = data
            .runs
            .iter()
            .find(|run| (run.logical..run.logical + run.blocks).contains(&logical))
            .expect("data where there is a run");
        let physical = run.physical + (logical - run.logical);
        let placed = builder
            .data
            .iter()
            .find(|(first, held)| {
                let blocks = u32::try_from(held.len() as u64 / block).unwrap();
                (*first..first + blocks).contains(&physical)
            })
            .map(|(first, held)| {
                let start = u64::from(physical - first) * block + offset % block;
                let start = usize::try_from(start).unwrap();
                &held[start..start + bytes.len()]
            });
        if let Some(placed) = placed {
            assert!(bytes == placed, "the content of inode {}", inode.number);
        }
        Ok(())
    })
    .unwrap();
    assert_eq!(read, given, "bytes of inode {}", inode.number);
}
