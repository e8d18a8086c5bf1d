//! All names of a file system, parents before children.

use std::collections::HashSet;
use std::sync::Arc;

use super::dir::MAX_ENTRIES;
use super::map::Budget;
use super::{DirEntry, FileKind, Filesystem, Inode, ReadAt, ReadError};

/// The longest path a program can name; a deeper tree is nothing that could be used.
const MAX_PATH: usize = 4095;

/// Bytes of all paths together. Who walks mostly keeps them, and a directory of many names far
/// down would make them as many times larger than the disk as its own path is longer than a name.
/// Real images have a few megabytes.
const MAX_PATH_BYTES: usize = 1 << 30;

/// A name somewhere below where the walk began.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// From where the walk began, without a leading slash.
    pub path: Vec<u8>,
    /// What it leads to.
    pub inode: Inode,
}

/// All names below a directory: parents before children, those of one directory together and
/// sorted. The first error is the last item.
///
/// A directory that is met twice is an error, and so is a tree whose directories together are
/// larger than the disk, so a walk ends whatever the disk says. Paths have 4095 bytes each and a
/// gibibyte together, at most.
pub struct Walk<'a, R> {
    fs: &'a Filesystem<R>,
    budget: Budget,
    seen: HashSet<u32>,
    /// Directories still to read, the next one last.
    waiting: Vec<Directory>,
    /// The names of the directory in hand, the next one last.
    entries: Vec<DirEntry>,
    prefix: Arc<[u8]>,
    /// Where the subdirectories of the one in hand begin in `waiting`.
    first_child: usize,
    count: usize,
    /// How many more bytes of paths there may be.
    path_bytes: usize,
    ended: bool,
}

/// Its path is put together when its turn comes: a million siblings share their parent's.
struct Directory {
    parent: Arc<[u8]>,
    name: Box<[u8]>,
    number: u32,
}

impl<R> std::fmt::Debug for Walk<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("count", &self.count).finish_non_exhaustive()
    }
}

impl<R: ReadAt> Filesystem<R> {
    /// All names below a directory, which itself is not among them.
    pub fn walk(&self, from: &Inode) -> Result<Walk<'_, R>, ReadError> {
        self.walk_within(from, MAX_PATH_BYTES)
    }

    fn walk_within(&self, from: &Inode, path_bytes: usize) -> Result<Walk<'_, R>, ReadError> {
        from.expect_kind(FileKind::Directory)?;
        Ok(Walk {
            fs: self,
            budget: self.budget(),
            seen: HashSet::from([from.number]),
            waiting: vec![Directory {
                parent: Arc::default(),
                name: Box::default(),
                number: from.number,
            }],
            entries: Vec::new(),
            prefix: Arc::default(),
            first_child: 0,
            count: 0,
            path_bytes,
            ended: false,
        })
    }
}

impl<R: ReadAt> Walk<'_, R> {
    fn step(&mut self) -> Result<Option<Entry>, ReadError> {
        let entry = loop {
            if let Some(entry) = self.entries.pop() {
                break entry;
            }
            // The last name that was pushed is the first to be read.
            self.waiting[self.first_child..].reverse();
            let Some(directory) = self.waiting.pop() else { return Ok(None) };
            let inode = self.fs.inode(directory.number)?;
            self.entries = self.fs.list(&inode, &mut self.budget)?;
            self.entries.reverse();
            self.prefix = join(&directory.parent, &directory.name).into();
            self.first_child = self.waiting.len();
        };
        self.count += 1;
        if self.count > MAX_ENTRIES {
            return Err(ReadError::TooMany { limit: MAX_ENTRIES });
        }
        let path = join(&self.prefix, &entry.name);
        let inode = self.fs.inode(entry.inode)?;
        if path.len() > MAX_PATH {
            return Err(inode.damaged("its path is longer than 4095 bytes"));
        }
        self.path_bytes = self.path_bytes.checked_sub(path.len()).ok_or_else(|| {
            inode.damaged("it is one of more and longer paths than any image has")
        })?;
        if inode.kind == FileKind::Directory {
            if !self.seen.insert(inode.number) {
                return Err(inode.damaged("the directory has more than one name"));
            }
            self.waiting.push(Directory {
                parent: Arc::clone(&self.prefix),
                name: entry.name,
                number: inode.number,
            });
        }
        Ok(Some(Entry { path, inode }))
    }
}

fn join(prefix: &[u8], name: &[u8]) -> Vec<u8> {
    let slash: &[u8] = if prefix.is_empty() { b"" } else { b"/" };
    [prefix, slash, name].concat()
}

impl<R: ReadAt> Iterator for Walk<'_, R> {
    type Item = Result<Entry, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let item = self.step().transpose();
        self.ended = !matches!(item, Some(Ok(_)));
        item
    }
}

#[cfg(test)]
#[path = "../../../tests/common/sparse.rs"]
mod sparse;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_a_largest_size_together() {
        let seed = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fuzz/seeds/ext4/plain");
        let fs = Filesystem::open(sparse::unpack(&std::fs::read(seed).unwrap())).unwrap();
        let root = fs.root().unwrap();
        let all = fs.walk(&root).unwrap().map(|entry| entry.unwrap().path.len()).sum();
        assert!(fs.walk_within(&root, all).unwrap().all(|entry| entry.is_ok()));
        let mut short = fs.walk_within(&root, all - 1).unwrap();
        let error = short.find_map(Result::err).expect("one byte too many");
        assert!(error.to_string().contains("longer paths than any image"), "{error}");
        assert!(short.next().is_none());
    }
}
