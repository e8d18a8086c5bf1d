//! One layer over what is there.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::collections::HashSet;

use super::MergeError;
use super::arena::{Arena, Trouble};
use super::walk::Missing;
use crate::layer::{Entry, EntryKind, EntryPath, LayerIndex};
use crate::tree::{Kind, Node, NodeId, Tree};

impl Arena {
    pub(super) fn apply(&mut self, number: usize, layer: LayerIndex) -> Result<(), MergeError> {
        self.last = None;
        self.take_away(number, &layer)?;
        self.last = None;
        for entry in layer.entries {
            self.tick().map_err(|trouble| trouble.in_layer(number))?;
            if !matches!(entry.kind, EntryKind::Whiteout | EntryKind::Opaque) {
                self.put(number, entry)?;
            }
        }
        Ok(())
    }

    /// The whiteouts of a layer, before anything of it is there.
    fn take_away(&mut self, number: usize, layer: &LayerIndex) -> Result<(), MergeError> {
        // Only a whiteout behind a link asks for this, and few layers have one.
        let directories: OnceCell<HashSet<Cow<'_, [u8]>>> = OnceCell::new();
        let replaced = |path: &[u8]| {
            let of_layer = || {
                let entries = layer.entries.iter();
                let directories = entries.filter(|entry| entry.kind == EntryKind::Directory);
                directories.map(|entry| clean(&entry.path.0)).collect()
            };
            directories.get_or_init(of_layer).contains(path)
        };
        for entry in &layer.entries {
            self.tick().map_err(|trouble| trouble.in_layer(number))?;
            let path = clean(&entry.path.0);
            let missing = Missing::StopAt(&replaced);
            let outcome = match entry.kind {
                EntryKind::Whiteout => {
                    let Some((parent, name)) = split(&path) else {
                        return Err(MergeError::Root { layer: number });
                    };
                    self.below(parent, missing).map(|found| {
                        if let Some(parent) = found
                            && let Some(old) = self.children(parent).remove(name)
                        {
                            self.forget(old);
                        }
                    })
                }
                EntryKind::Opaque => self.below(&path, missing).map(|found| {
                    if let Some(directory) = found {
                        self.children(directory).clear();
                        self.last = None;
                    }
                }),
                _ => continue,
            };
            outcome.map_err(|trouble| trouble.at(number, &path))?;
        }
        Ok(())
    }

    /// A directory of the lower tree; below a file there is nothing.
    fn below(&mut self, path: &[u8], missing: Missing<'_>) -> Result<Option<NodeId>, Trouble> {
        match self.directory(path, missing) {
            Err(Trouble::NotDirectory) => Ok(None),
            other => other,
        }
    }

    /// Any other entry.
    fn put(&mut self, number: usize, entry: Entry) -> Result<(), MergeError> {
        let Entry { path: EntryPath(path), attributes, kind } = entry;
        let path = clean(&path);
        let trouble = |trouble: Trouble| trouble.at(number, &path);
        let Some((parent, name)) = split(&path) else {
            if kind != EntryKind::Directory {
                return Err(MergeError::Root { layer: number });
            }
            self.nodes[Tree::ROOT.0 as usize].attributes = attributes;
            return Ok(());
        };
        let parent = self
            .directory(parent, Missing::Make)
            .map_err(trouble)?
            .expect("what is missing was made");
        let kind = match kind {
            EntryKind::Directory => {
                if let Some(NodeId(old)) = self.child(parent, name)
                    && let node = &mut self.nodes[old as usize]
                    && matches!(node.kind, Kind::Directory(_))
                {
                    node.attributes = attributes;
                    return Ok(());
                }
                let made = self.add_directory(parent, attributes).map_err(trouble)?;
                return self.bind(parent, name, made).map_err(trouble);
            }
            EntryKind::Hardlink(target) => {
                let node = self.link_target(number, &path, target)?;
                return self.bind(parent, name, node).map_err(trouble);
            }
            EntryKind::File(data) => Kind::File(data),
            EntryKind::Symlink(target) => Kind::Symlink(target),
            EntryKind::CharDevice(device) => Kind::CharDevice(device),
            EntryKind::BlockDevice(device) => Kind::BlockDevice(device),
            EntryKind::Fifo => Kind::Fifo,
            EntryKind::Whiteout | EntryKind::Opaque => unreachable!("taken away before"),
        };
        let place = self.place(Tree::ROOT);
        let made = self.add(Node { attributes, kind }, place).map_err(trouble)?;
        self.bind(parent, name, made).map_err(trouble)
    }

    /// What a hard link is to be another name of.
    fn link_target(
        &mut self,
        layer: usize,
        path: &[u8],
        target: EntryPath,
    ) -> Result<NodeId, MergeError> {
        let path = || EntryPath(path.into());
        let cleaned = clean(&target.0);
        let Some((parent, name)) = split(&cleaned) else {
            return Err(MergeError::LinkToDirectory { layer, path: path(), target });
        };
        let parent =
            self.below(parent, Missing::Stop).map_err(|trouble| trouble.at(layer, &target.0))?;
        match parent.and_then(|parent| self.child(parent, name)) {
            None => Err(MergeError::NoTarget { layer, path: path(), target: target.clone() }),
            Some(node) if matches!(self.kind(node), Kind::Directory(_)) => {
                Err(MergeError::LinkToDirectory { layer, path: path(), target: target.clone() })
            }
            Some(node) => Ok(node),
        }
    }
}

/// The path without `..`, which takes back the name before it, if there is one.
fn clean(path: &[u8]) -> Cow<'_, [u8]> {
    let components = || path.split(|byte| *byte == b'/');
    if !components().any(|component| component == b"..") {
        return Cow::Borrowed(path);
    }
    let mut kept: Vec<&[u8]> = Vec::new();
    for component in components() {
        match component {
            b".." => drop(kept.pop()),
            b"" | b"." => {}
            name => kept.push(name),
        }
    }
    Cow::Owned(kept.join(&b'/'))
}

/// Parent and name; nothing for the root.
fn split(path: &[u8]) -> Option<(&[u8], &[u8])> {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => Some((&path[..slash], &path[slash + 1..])),
        None if path.is_empty() => None,
        None => Some((&[], path)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_are_resolved_by_name_and_stay_inside() {
        for (path, expected) in [
            (&b"a/b"[..], &b"a/b"[..]),
            (b"a/../b", b"b"),
            (b"../../a", b"a"),
            (b"a/b/../../..", b""),
            (b"..", b""),
            (b"a..b/..c", b"a..b/..c"),
            (b"", b""),
        ] {
            assert_eq!(clean(path).as_ref(), expected, "{}", path.escape_ascii());
        }
    }
}
