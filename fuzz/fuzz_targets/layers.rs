//! Layers come from strangers: any one to three tars, in any cuts, end in a tree or an error; a
//! tree's directories each have one name, its losers no block that a survivor has; and what the
//! writer makes of a tree, the reader reads.
//!
//! A header that the fuzzer changed has a wrong checksum, and it would look for the right one for
//! ever. So one bit of the input says whether every block gets its checksum first.
#![no_main]

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::io;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use portolan_rootdisk::ext4::read::{Filesystem, ReadAt};
use portolan_rootdisk::ext4::{self, BlockSink, FIRST_DATA_BLOCK, Options, WriteError};
use portolan_rootdisk::layer::{Entry, EntryKind, LayerIndex};
use portolan_rootdisk::limits::{Budget, Limits};
use portolan_rootdisk::merge::Merger;
use portolan_rootdisk::tar::{Head, HeadKind, Reader, Sink};
use portolan_rootdisk::tree::{BLOCK, FileData, Kind, Run, Tree};

/// Places each file at the next free block.
#[derive(Default)]
struct Placed {
    index: LayerIndex,
    next: u32,
    end_of_data: u64,
    open: bool,
}

impl Sink for Placed {
    type Error = Infallible;

    fn begin(&mut self, head: Head) -> Result<(), Infallible> {
        assert!(!std::mem::replace(&mut self.open, true));
        self.end_of_data = 0;
        let kind = match head.kind {
            HeadKind::Directory => EntryKind::Directory,
            HeadKind::File { size } => {
                let run = Run { logical: 0, physical: self.next, blocks: 1 };
                self.next += 1;
                let runs = Some(run).filter(|_| size > 0).into_iter().collect();
                EntryKind::File(FileData { size, runs })
            }
            HeadKind::Symlink(target) => EntryKind::Symlink(target),
            HeadKind::Hardlink(target) => EntryKind::Hardlink(target),
            HeadKind::CharDevice(device) => EntryKind::CharDevice(device),
            HeadKind::BlockDevice(device) => EntryKind::BlockDevice(device),
            HeadKind::Fifo => EntryKind::Fifo,
            HeadKind::Whiteout => EntryKind::Whiteout,
            HeadKind::Opaque => EntryKind::Opaque,
        };
        self.index.entries.push(Entry { path: head.path, attributes: head.attributes, kind });
        Ok(())
    }

    fn data(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Infallible> {
        let Some(Entry { kind: EntryKind::File(file), .. }) = self.index.entries.last() else {
            panic!("only files have data");
        };
        assert!(self.open && !bytes.is_empty() && offset >= self.end_of_data);
        self.end_of_data = offset + bytes.len() as u64;
        assert!(self.end_of_data <= file.size);
        Ok(())
    }

    fn end(&mut self) -> Result<(), Infallible> {
        assert!(std::mem::replace(&mut self.open, false));
        Ok(())
    }
}

fn read(tar: &[u8], cut: usize, budget: &Arc<Budget>, next: u32) -> Option<(LayerIndex, u32)> {
    let mut reader = Reader::new(Arc::clone(budget), Placed { next, ..Placed::default() });
    for piece in tar.chunks(cut) {
        reader.push(piece).ok()?;
    }
    let (placed, _) = reader.finish().ok()?;
    assert!(!placed.open);
    Some((placed.index, placed.next))
}

fn check(tree: &Tree, losers: &[Run], survivors: u64) {
    let mut seen = BTreeSet::new();
    let mut kept = BTreeSet::new();
    let mut open = vec![Tree::ROOT];
    while let Some(id) = open.pop() {
        match &tree.node(id).kind {
            Kind::Directory(children) => {
                assert!(seen.insert(id), "a directory has one name");
                open.extend(children.values());
                assert!(children.keys().all(|name| {
                    !name.is_empty() && name.len() <= 255 && !name.contains(&b'/') && !name.contains(&0)
                        && !matches!(&name[..], b"." | b"..")
                }));
            }
            Kind::File(data) => {
                seen.insert(id);
                kept.extend(data.runs.iter().map(|run| run.physical));
            }
            _ => drop(seen.insert(id)),
        }
    }
    assert_eq!(seen.len() as u64, survivors);
    assert!(losers.is_sorted_by_key(|run| run.physical));
    assert!(losers.iter().all(|run| !kept.contains(&run.physical)));
}

/// Blocks that were written.
#[derive(Default)]
struct Disk {
    blocks: BTreeMap<u64, Box<[u8]>>,
    size: u64,
}

impl BlockSink for Disk {
    fn write(&mut self, block: u32, bytes: &[u8]) -> io::Result<()> {
        for (block, bytes) in (u64::from(block)..).zip(bytes.chunks(BLOCK)) {
            assert!(self.blocks.insert(block, bytes.into()).is_none(), "no block is written twice");
        }
        Ok(())
    }
}

impl ReadAt for Disk {
    fn size(&self) -> io::Result<u64> {
        Ok(self.size)
    }

    fn read_exact_at(&self, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
        while !bytes.is_empty() {
            let inside = (offset % BLOCK as u64) as usize;
            let (now, later) = bytes.split_at_mut(bytes.len().min(BLOCK - inside));
            match self.blocks.get(&(offset / BLOCK as u64)) {
                Some(block) => now.copy_from_slice(&block[inside..inside + now.len()]),
                None => now.fill(0),
            }
            offset += now.len() as u64;
            bytes = later;
        }
        Ok(())
    }
}

/// Names and the longest path of a tree.
fn names(tree: &Tree) -> (usize, usize) {
    let (mut count, mut longest) = (0, 0);
    let mut open = vec![(Tree::ROOT, 0)];
    while let Some((id, length)) = open.pop() {
        let Kind::Directory(children) = &tree.node(id).kind else { continue };
        for (name, child) in children {
            count += 1;
            longest = longest.max(length + name.len());
            open.push((*child, length + name.len() + 1));
        }
    }
    (count, longest)
}

fn write(tree: &Tree, first_free: u32) {
    let options = Options {
        uuid: [7; 16],
        hash_seed: [9; 16],
        read_only: true,
        first_free,
        min_bytes: 0,
        headroom_percent: 100,
        max_bytes: 1 << 40,
        min_inodes: 0,
    };
    let mut disk = Disk::default();
    disk.size = match ext4::write(tree, &options, &mut disk) {
        Ok(geometry) => geometry.size_bytes,
        Err(WriteError::Xattrs { .. } | WriteError::Acl { .. }) => return,
        Err(other) => panic!("layers that merge make a disk: {other}"),
    };
    let (count, longest) = names(tree);
    // The reader shows no path that no program could name.
    if longest > 4095 {
        return;
    }
    let fs = Filesystem::open(disk).expect("a disk");
    let root = fs.root().expect("a root");
    let mut seen = 0;
    for entry in fs.walk(&root).expect("a directory") {
        let inode = entry.expect("a sound disk").inode;
        fs.xattrs(&inode).expect("attributes");
        seen += 1;
    }
    assert_eq!(seen, count);
}

/// Gives each block that is not all zeros the checksum of a header.
fn mend(tar: &mut [u8]) {
    for block in tar.chunks_exact_mut(512).filter(|block| block.iter().any(|byte| *byte != 0)) {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
}

fuzz_target!(|input: &[u8]| {
    let [cut, layers, bytes @ ..] = input else { return };
    let mut bytes = bytes.to_vec();
    if layers & 0x80 != 0 {
        mend(&mut bytes);
    }
    let budget = Arc::new(Budget::new(Limits { max_index_bytes: 16 << 20, ..Limits::default() }));
    let mut merger = Merger::new(Arc::clone(&budget));
    let size = (bytes.len() / (usize::from(*layers % 3) + 1)).max(512).next_multiple_of(512);
    let mut next = FIRST_DATA_BLOCK;
    for tar in bytes.chunks(size) {
        let whole = read(tar, tar.len(), &budget, next);
        assert_eq!(whole, read(tar, usize::from(*cut) + 1, &budget, next), "cuts change nothing");
        let Some((index, after)) = whole else { return };
        next = after;
        if merger.apply(index).is_err() {
            return;
        }
    }
    if let Ok(merged) = merger.finish() {
        check(&merged.tree, &merged.losers, merged.survivors);
        write(&merged.tree, next);
    }
});
