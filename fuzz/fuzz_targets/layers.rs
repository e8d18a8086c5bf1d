//! Layers come from strangers: any one to three tars, in any cuts, end in a tree or an error, and a
//! tree's directories each have one name, its losers no block that a survivor has.
#![no_main]

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use libfuzzer_sys::fuzz_target;
use portolan_rootdisk::layer::{Entry, EntryKind, LayerIndex};
use portolan_rootdisk::limits::{Budget, Limits};
use portolan_rootdisk::merge::Merger;
use portolan_rootdisk::tar::{Head, HeadKind, Reader, Sink};
use portolan_rootdisk::tree::{FileData, Kind, Run, Tree};

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
                let runs = [Run { logical: 0, physical: self.next, blocks: 1 }].into();
                self.next += 1;
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

fuzz_target!(|input: &[u8]| {
    let [cut, layers, bytes @ ..] = input else { return };
    let budget = Arc::new(Budget::new(Limits { max_index_bytes: 16 << 20, ..Limits::default() }));
    let mut merger = Merger::new(Arc::clone(&budget));
    let size = (bytes.len() / (usize::from(*layers % 3) + 1)).max(512).next_multiple_of(512);
    let mut next = 0;
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
    }
});
