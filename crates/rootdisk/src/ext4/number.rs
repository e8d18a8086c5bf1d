//! Which inode is which file.
//!
//! From the root down, a directory's entries get the numbers that follow each other, in the order
//! in which they stand in the directory; then its subdirectories are gone through in that order,
//! each with all below it before the next. So one reading of a directory reads one piece of the
//! inode table, and nothing but names decides.

use super::directory::{self, Entry};
use super::format::{FIRST_INODE, ROOT_INODE, low16};
use super::{WriteError, inode};
use crate::tree::{Kind, NodeId, Tree};

/// More names than an inode can count.
const MAX_LINKS: u32 = 65000;

/// The numbers of all nodes that a name leads to.
pub(super) struct Numbering {
    /// In the order of inodes: the root, then those from [`FIRST_INODE`] on.
    pub(super) order: Vec<NodeId>,
    /// By node; 0 for what no name leads to.
    inodes: Vec<u32>,
    /// By node: its names, or a directory's subdirectories.
    links: Vec<u32>,
    /// By node: a directory's parent.
    parents: Vec<u32>,
}

impl Numbering {
    /// The inode at a place in the order.
    pub(super) fn at(index: usize) -> u32 {
        let index = u32::try_from(index).expect("nodes are counted in 32 bits");
        if index == 0 { ROOT_INODE } else { FIRST_INODE - 1 + index }
    }

    pub(super) fn inode(&self, node: NodeId) -> u32 {
        self.inodes[node.0 as usize]
    }

    /// The inode of `..`.
    pub(super) fn parent(&self, directory: NodeId) -> u32 {
        self.parents[directory.0 as usize]
    }

    /// `i_links_count`; a directory with more subdirectories than it can count says 1.
    pub(super) fn links(&self, node: NodeId, kind: &Kind) -> u16 {
        let links = self.links[node.0 as usize];
        match kind {
            Kind::Directory(_) if links + 2 > MAX_LINKS => 1,
            Kind::Directory(_) => low16(links + 2),
            _ => low16(links),
        }
    }

    /// Inodes that are taken, reserved ones among them.
    pub(super) fn used(&self) -> u32 {
        Self::at(self.order.len() - 1).max(FIRST_INODE - 1)
    }

    /// A directory's entries in the order of their names.
    pub(super) fn entries<'t>(&self, tree: &'t Tree, directory: NodeId) -> Vec<Entry<'t>> {
        let Kind::Directory(children) = &tree.node(directory).kind else { return Vec::new() };
        let entry = |name: &'t [u8], child| Entry {
            name,
            inode: self.inode(child),
            kind: inode::file_type(&tree.node(child).kind),
        };
        children.iter().map(|(name, &child)| entry(name, child)).collect()
    }
}

/// Numbers all that names lead to, and checks the names.
pub(super) fn number(tree: &Tree, seed: [u32; 4]) -> Result<Numbering, WriteError> {
    let count = tree.nodes.len();
    let mut numbering = Numbering {
        order: vec![Tree::ROOT],
        inodes: vec![0; count],
        links: vec![0; count],
        parents: vec![0; count],
    };
    numbering.inodes[0] = ROOT_INODE;
    numbering.parents[0] = ROOT_INODE;
    let mut directories = vec![Tree::ROOT];
    while let Some(directory) = directories.pop() {
        let subdirectories = directories.len();
        let Kind::Directory(children) = &tree.node(directory).kind else { continue };
        let mut entries = numbering.entries(tree, directory);
        check_names(&entries, tree, directory)?;
        let count = entries.len();
        directory::arrange(&mut entries, seed).map_err(|directory::TooLarge| {
            WriteError::Directory { path: path_of(tree, directory), entries: count }
        })?;
        for entry in entries {
            let child = children[entry.name];
            let at = child.0 as usize;
            if matches!(tree.node(child).kind, Kind::Directory(_)) {
                if numbering.inodes[at] != 0 {
                    return Err(WriteError::DirectoryTwice { path: path_of(tree, child) });
                }
                numbering.links[directory.0 as usize] += 1;
                numbering.parents[at] = numbering.inode(directory);
                directories.push(child);
            } else {
                numbering.links[at] += 1;
                if numbering.links[at] > MAX_LINKS {
                    return Err(WriteError::Links { path: path_of(tree, child), max: MAX_LINKS });
                }
            }
            if numbering.inodes[at] == 0 {
                numbering.inodes[at] = Numbering::at(numbering.order.len());
                numbering.order.push(child);
            }
        }
        // The last one pushed is the next one taken.
        directories[subdirectories..].reverse();
    }
    Ok(numbering)
}

fn check_names(entries: &[Entry<'_>], tree: &Tree, directory: NodeId) -> Result<(), WriteError> {
    let bad = entries.iter().map(|entry| entry.name).find(|name| {
        matches!(*name, b"" | b"." | b"..")
            || name.len() > 255
            || name.iter().any(|byte| matches!(byte, 0 | b'/'))
    });
    let Some(name) = bad else { return Ok(()) };
    let directory = path_of(tree, directory);
    Err(WriteError::Name { directory, name: name.escape_ascii().to_string() })
}

/// A path that leads to a node, to be put into a message.
pub(super) fn path_of(tree: &Tree, wanted: NodeId) -> String {
    if wanted == Tree::ROOT {
        return "/".to_owned();
    }
    let mut seen = vec![false; tree.nodes.len()];
    let mut directories = vec![(Tree::ROOT, Vec::new())];
    while let Some((directory, path)) = directories.pop() {
        let Kind::Directory(children) = &tree.node(directory).kind else { continue };
        for (name, &child) in children {
            let path = [&path[..], b"/", &**name].concat();
            if child == wanted {
                return path.escape_ascii().to_string();
            }
            if matches!(tree.node(child).kind, Kind::Directory(_))
                && !std::mem::replace(&mut seen[child.0 as usize], true)
            {
                directories.push((child, path));
            }
        }
    }
    "a file without a name".to_owned()
}
