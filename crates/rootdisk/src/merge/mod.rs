//! Layers in order to one tree: whiteouts, links, type changes.
//!
//! Everything happens in memory, on names and numbers. No path of the host is ever made, so a name
//! with `..`, an absolute name or a link that leaves the root has nothing to reach: the root is its
//! own parent.
//!
//! Each layer is applied in two steps: first its whiteouts, to what lower layers left; then its
//! other entries, in the order of the tar. Taking a subtree away is taking one name away. Nodes
//! that no name leads to stay where they are, and [`Merger::finish`] tells which blocks were
//! theirs.
//!
//! # Where the specification is silent
//!
//! umoci is the judge where it has an opinion, because its unpacked trees are what ours are
//! compared with; containerd and overlayfs agree unless the table says otherwise.
//!
//! | case | here |
//! |---|---|
//! | whiteout anywhere in a tar | applies to lower layers only, also to a directory that this layer fills again |
//! | whiteout of what is not there | nothing |
//! | whiteout below a symbolic link | the link is resolved in the lower tree, unless this layer puts a directory in the link's place: then nothing is below it |
//! | whiteout and new entry of one name in one layer | the new entry, with nothing of the old |
//! | opaque whiteout | the directory keeps its attributes and loses all that lower layers had in it |
//! | directory over directory | children stay, attributes (extended ones, too) are replaced |
//! | directory over anything else, also over a link to a directory | replaces it |
//! | anything but a directory over a directory | replaces it with all below |
//! | `..` in a name | resolved by name alone, kept inside the root: `a/../b` is `b`, whatever `a` is |
//! | parent is a symbolic link | followed inside the root, at most 255 links; `..` in links leads to the real parent |
//! | parent is missing, also where a link points | made: 0755, 0:0, 1970-01-01, no extended attributes |
//! | parent is a file or device | an error |
//! | root (`./`) | its attributes are taken; anything but a directory there is an error |
//! | the same name twice in a layer | the last wins; a directory twice keeps its children |
//! | hard link | binds to what is at its target at that moment, also of a lower layer; a link to a symbolic link is to the link itself; attributes in its header are ignored |
//! | hard link to itself | nothing |
//! | hard link to what is not there, or to a directory | an error with both names |
//! | a file replaced in an upper layer | its other names keep the old one |

mod apply;
mod arena;
mod walk;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use crate::layer::{EntryPath, LayerIndex};
use crate::limits::{Budget, Exceeded};
use crate::tree::{Kind, NodeId, Run, Tree};
use arena::Arena;

/// Why layers cannot be merged. `layer` counts from 0, the lowest.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// Something that is no directory where the root is.
    #[error("layer {layer} has an entry that would make the root something else than a directory")]
    Root {
        /// Which layer.
        layer: usize,
    },
    /// A name below something that is no directory.
    #[error("layer {layer} puts {path} below something that is no directory")]
    ParentNotDirectory {
        /// Which layer.
        layer: usize,
        /// The entry.
        path: EntryPath,
    },
    /// A hard link to what is not there.
    #[error("layer {layer} links {path} to {target}, which does not exist")]
    NoTarget {
        /// Which layer.
        layer: usize,
        /// The entry.
        path: EntryPath,
        /// What it should be another name of.
        target: EntryPath,
    },
    /// A hard link to a directory.
    #[error("layer {layer} links {path} to {target}, which is a directory")]
    LinkToDirectory {
        /// Which layer.
        layer: usize,
        /// The entry.
        path: EntryPath,
        /// What it should be another name of.
        target: EntryPath,
    },
    /// Symbolic links that lead in a circle, or nearly.
    #[error("layer {layer} has {path} behind more than 255 symbolic links")]
    LinkLoop {
        /// Which layer.
        layer: usize,
        /// The entry.
        path: EntryPath,
    },
    /// More than one image may ask for.
    #[error("layer {layer} asks for too much")]
    Limit {
        /// Which layer.
        layer: usize,
        /// Which limit.
        #[source]
        source: Exceeded,
    },
    /// A layer that was already there.
    #[error("layer {layer} was given twice")]
    Twice {
        /// Which layer.
        layer: usize,
    },
    /// A layer below others never came.
    #[error("layer {layer} is missing below others")]
    Missing {
        /// Which layer.
        layer: usize,
    },
    /// Nobody wants it any more.
    #[error("cancelled")]
    Cancelled,
}

/// The outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Merged {
    /// All nodes, those that lost among them.
    pub tree: Tree,
    /// Blocks of files that lost, in the order of the disk.
    pub losers: Vec<Run>,
    /// Nodes that did not lose.
    pub survivors: u64,
}

/// Merges layers. After an error it is of no more use.
pub struct Merger {
    arena: Arena,
    /// How many layers are in.
    applied: usize,
    /// Layers that came before one below them.
    waiting: BTreeMap<usize, LayerIndex>,
}

impl fmt::Debug for Merger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Merger")
            .field("applied", &self.applied)
            .field("nodes", &self.arena.nodes.len())
            .finish_non_exhaustive()
    }
}

impl Merger {
    /// An empty root, 0755 0:0. Memory is counted against `budget`, which can also cancel.
    pub fn new(budget: Arc<Budget>) -> Self {
        Self { arena: Arena::new(budget), applied: 0, waiting: BTreeMap::new() }
    }

    /// The next layer, lowest first.
    ///
    /// # Errors
    /// It cannot be applied, or the work was cancelled.
    pub fn apply(&mut self, layer: LayerIndex) -> Result<(), MergeError> {
        let number = self.applied;
        self.applied += 1;
        self.arena.apply(number, layer)
    }

    /// A layer that may have come before those below it: it waits for them.
    ///
    /// # Errors
    /// A layer whose turn has come cannot be applied, or it was already given.
    pub fn submit(&mut self, number: usize, layer: LayerIndex) -> Result<(), MergeError> {
        if number < self.applied || self.waiting.insert(number, layer).is_some() {
            return Err(MergeError::Twice { layer: number });
        }
        while let Some(next) = self.waiting.remove(&self.applied) {
            self.apply(next)?;
        }
        Ok(())
    }

    /// How many layers are in.
    pub fn applied(&self) -> usize {
        self.applied
    }

    /// All layers are in.
    ///
    /// # Errors
    /// One of them never came, or the work was cancelled.
    pub fn finish(mut self) -> Result<Merged, MergeError> {
        if !self.waiting.is_empty() {
            return Err(MergeError::Missing { layer: self.applied });
        }
        let mut alive = vec![false; self.arena.nodes.len()];
        let mut survivors = 0;
        let mut open = vec![Tree::ROOT];
        while let Some(NodeId(id)) = open.pop() {
            self.arena.tick().map_err(|trouble| trouble.in_layer(self.applied))?;
            // A hard link leads here again.
            if std::mem::replace(&mut alive[id as usize], true) {
                continue;
            }
            survivors += 1;
            if let Kind::Directory(children) = &self.arena.nodes[id as usize].kind {
                open.extend(children.values());
            }
        }
        let nodes = self.arena.nodes;
        let dead = nodes.iter().zip(&alive).filter(|(_, alive)| !**alive);
        let mut losers: Vec<Run> = dead
            .filter_map(|(node, _)| match &node.kind {
                Kind::File(data) => Some(data.runs.iter().copied()),
                _ => None,
            })
            .flatten()
            .collect();
        losers.sort_unstable_by_key(|run| run.physical);
        Ok(Merged { tree: Tree { nodes }, losers, survivors })
    }
}
