//! The nodes, and what it costs to keep them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::MergeError;
use crate::layer::EntryPath;
use crate::limits::{Budget, Exceeded};
use crate::tree::{Attributes, Kind, Node, NodeId, Tree};

/// What keeping a node costs beside its names.
const NODE_COST: usize = 160;
/// What keeping a name costs beside its bytes.
const NAME_COST: usize = 48;
/// How often the work asks whether it is still wanted.
const TICKS: u32 = 4096;

/// Why a step was not possible.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// Something that is no directory has something below it.
    NotDirectory,
    /// More than 255 symbolic links.
    Loop,
    Limit(Exceeded),
    Cancelled,
}

impl From<Exceeded> for Trouble {
    fn from(exceeded: Exceeded) -> Self {
        Self::Limit(exceeded)
    }
}

impl Trouble {
    /// What it means for an entry.
    pub(super) fn at(self, layer: usize, path: &[u8]) -> MergeError {
        let path = || EntryPath(path.into());
        match self {
            Self::NotDirectory => MergeError::ParentNotDirectory { layer, path: path() },
            Self::Loop => MergeError::LinkLoop { layer, path: path() },
            other => other.in_layer(layer),
        }
    }

    /// What it means where no path is concerned.
    pub(super) fn in_layer(self, layer: usize) -> MergeError {
        match self {
            Self::Limit(source) => MergeError::Limit { layer, source },
            Self::Cancelled => MergeError::Cancelled,
            Self::NotDirectory | Self::Loop => {
                MergeError::ParentNotDirectory { layer, path: EntryPath([].into()) }
            }
        }
    }
}

/// Where a directory is. Directories never move, so this never changes; other nodes have the
/// root's.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place {
    pub(super) parent: NodeId,
    pub(super) depth: u32,
}

pub(super) struct Arena {
    pub(super) nodes: Vec<Node>,
    pub(super) places: Vec<Place>,
    pub(super) budget: Arc<Budget>,
    /// The directory that was looked up last, and by which path: entries of one directory mostly
    /// follow each other.
    pub(super) last: Option<(Vec<u8>, NodeId)>,
    ticks: u32,
}

impl Arena {
    pub(super) fn new(budget: Arc<Budget>) -> Self {
        let root = Node {
            attributes: Attributes { mode: 0o755, ..Attributes::default() },
            kind: Kind::Directory(BTreeMap::new()),
        };
        let place = Place { parent: Tree::ROOT, depth: 0 };
        Self { nodes: vec![root], places: vec![place], budget, last: None, ticks: 0 }
    }

    /// Called in every loop over a stranger's numbers.
    pub(super) fn tick(&mut self) -> Result<(), Trouble> {
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS) && self.budget.cancelled() {
            return Err(Trouble::Cancelled);
        }
        Ok(())
    }

    pub(super) fn kind(&self, id: NodeId) -> &Kind {
        &self.nodes[id.0 as usize].kind
    }

    pub(super) fn place(&self, id: NodeId) -> Place {
        self.places[id.0 as usize]
    }

    pub(super) fn children(&mut self, id: NodeId) -> &mut BTreeMap<Box<[u8]>, NodeId> {
        match &mut self.nodes[id.0 as usize].kind {
            Kind::Directory(children) => children,
            _ => unreachable!("only directories are walked into"),
        }
    }

    pub(super) fn child(&self, id: NodeId, name: &[u8]) -> Option<NodeId> {
        match self.kind(id) {
            Kind::Directory(children) => children.get(name).copied(),
            _ => None,
        }
    }

    pub(super) fn add(&mut self, node: Node, place: Place) -> Result<NodeId, Trouble> {
        self.budget.take_index(NODE_COST)?;
        let id = u32::try_from(self.nodes.len()).map_err(|_| Exceeded {
            what: "the number of nodes",
            limit: u32::MAX.into(),
            setting: "max_index_bytes",
        })?;
        self.nodes.push(node);
        self.places.push(place);
        Ok(NodeId(id))
    }

    /// A new directory, yet without a name.
    pub(super) fn add_directory(
        &mut self,
        parent: NodeId,
        attributes: Attributes,
    ) -> Result<NodeId, Trouble> {
        let depth = self.place(parent).depth + 1;
        let limit = self.budget.limits().max_depth;
        if depth > limit {
            let what = "the depth of a directory";
            return Err(Exceeded { what, limit: limit.into(), setting: "max_depth" }.into());
        }
        let node = Node { attributes, kind: Kind::Directory(BTreeMap::new()) };
        self.add(node, Place { parent, depth })
    }

    /// Makes the name lead to the node, whatever it led to.
    pub(super) fn bind(
        &mut self,
        parent: NodeId,
        name: &[u8],
        node: NodeId,
    ) -> Result<(), Trouble> {
        if let Some(slot) = self.children(parent).get_mut(name) {
            let old = std::mem::replace(slot, node);
            self.forget(old);
            return Ok(());
        }
        let limit = self.budget.limits().max_component_bytes;
        if name.len() > limit {
            let limit = limit as u64;
            let setting = "max_component_bytes";
            return Err(Exceeded { what: "one name", limit, setting }.into());
        }
        self.budget.take_index(NAME_COST + name.len())?;
        self.children(parent).insert(name.into(), node);
        Ok(())
    }

    /// A name no longer leads here: paths that were looked up may lead elsewhere now.
    pub(super) fn forget(&mut self, old: NodeId) {
        if matches!(self.kind(old), Kind::Directory(_) | Kind::Symlink(_)) {
            self.last = None;
        }
    }
}
