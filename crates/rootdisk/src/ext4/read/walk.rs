//! All names of a file system, parents before children.

use std::collections::HashSet;
use std::sync::Arc;

use super::dir::MAX_ENTRIES;
use super::map::Budget;
use super::{DirEntry, FileKind, Filesystem, Inode, ReadAt, ReadError};

/// The longest path a program can name; a deeper tree is nothing that could be used.
const MAX_PATH: usize = 4095;

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
/// larger than the disk, so a walk ends whatever the disk says.
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
        from.expect_kind(FileKind::Directory)?;
        Ok(Walk {
            fs: self,
            budget: Budget::of(self.size),
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
