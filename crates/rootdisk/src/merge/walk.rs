//! From a path to a directory, through symbolic links, never out of the root.

use super::arena::{Arena, Trouble};
use crate::tree::{Attributes, Kind, NodeId, Tree};

/// As many as umoci's resolver follows.
const MAX_LINKS: u32 = 255;

/// What to do about directories that are not there.
#[derive(Clone, Copy)]
pub(super) enum Missing<'a> {
    /// Make them.
    Make,
    /// Find nothing.
    Stop,
    /// Find nothing, also behind a link at a path of which this says that the layer itself puts a
    /// directory there.
    StopAt(&'a dyn Fn(&[u8]) -> bool),
}

/// Text being walked: the path itself, or what a link says.
#[derive(Clone, Copy)]
enum Text {
    Path,
    Link(NodeId),
}

/// A text and how far it has been walked.
struct Cursor {
    text: Text,
    at: usize,
}

impl Arena {
    /// The directory at a path, whose last component may be a link, too. The path has no `..`.
    pub(super) fn directory(
        &mut self,
        path: &[u8],
        missing: Missing<'_>,
    ) -> Result<Option<NodeId>, Trouble> {
        let (start, from) = match &self.last {
            Some((known, node)) if path == &known[..] => return Ok(Some(*node)),
            Some((known, node))
                if path.starts_with(known) && path.get(known.len()) == Some(&b'/') =>
            {
                (*node, known.len() + 1)
            }
            _ => (Tree::ROOT, 0),
        };
        self.last = None;
        let (found, stable) = self.walk(path, start, from, missing)?;
        if let (Some(node), true) = (found, stable) {
            self.last = (!path.is_empty()).then(|| (path.to_vec(), node));
        }
        Ok(found)
    }

    /// Also tells whether the answer stands until a name of a directory or link is taken away: a
    /// walk through a name that does not exist may lead elsewhere as soon as it does.
    fn walk(
        &mut self,
        path: &[u8],
        start: NodeId,
        from: usize,
        missing: Missing<'_>,
    ) -> Result<(Option<NodeId>, bool), Trouble> {
        let mut here = start;
        let mut stable = true;
        // Names below `here` that do not exist. They are made at the end, because `..` may take
        // them back.
        let mut absent: Vec<Box<[u8]>> = Vec::new();
        let mut links = 0;
        let mut cursors = vec![Cursor { text: Text::Path, at: from }];
        while let Some(cursor) = cursors.last_mut() {
            let text = match cursor.text {
                Text::Path => path,
                Text::Link(node) => target(&self.nodes[node.0 as usize].kind),
            };
            if cursor.at >= text.len() {
                cursors.pop();
                continue;
            }
            let rest = &text[cursor.at..];
            let length = rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len());
            let name = &rest[..length];
            cursor.at += length + 1;
            let (in_path, end) = (matches!(cursor.text, Text::Path), cursor.at - 1);
            if !in_path {
                self.budget.take_link_step()?;
            }
            let next = match name {
                b"" | b"." => None,
                b".." => {
                    match absent.pop() {
                        Some(_) => stable = false,
                        None => here = self.place(here).parent,
                    }
                    None
                }
                _ if !absent.is_empty() => {
                    absent.push(name.into());
                    None
                }
                _ => match self.child(here, name) {
                    None => {
                        absent.push(name.into());
                        None
                    }
                    found => found,
                },
            };
            self.tick()?;
            let Some(next) = next else { continue };
            match self.kind(next) {
                Kind::Directory(_) => here = next,
                Kind::Symlink(target) => {
                    if let (true, Missing::StopAt(replaced)) = (in_path, missing)
                        && replaced(&path[..end])
                    {
                        return Ok((None, stable));
                    }
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Trouble::Loop);
                    }
                    if target.starts_with(b"/") {
                        here = Tree::ROOT;
                    }
                    cursors.push(Cursor { text: Text::Link(next), at: 0 });
                }
                _ => return Err(Trouble::NotDirectory),
            }
        }
        match missing {
            _ if absent.is_empty() => Ok((Some(here), stable)),
            Missing::Make => Ok((Some(self.make(here, &absent)?), stable)),
            Missing::Stop | Missing::StopAt(_) => Ok((None, stable)),
        }
    }

    /// Directories that no layer described.
    fn make(&mut self, mut here: NodeId, names: &[Box<[u8]>]) -> Result<NodeId, Trouble> {
        for name in names {
            let attributes = Attributes { mode: 0o755, ..Attributes::default() };
            let made = self.add_directory(here, attributes)?;
            self.bind(here, name, made)?;
            here = made;
        }
        Ok(here)
    }
}

fn target(kind: &Kind) -> &[u8] {
    match kind {
        Kind::Symlink(target) => target,
        _ => unreachable!("only links are walked as text"),
    }
}
