//! What one COPY puts into an image.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use portolan_rootdisk::ext4::read::{FileKind, Follow};

use super::ignore::{self, Ignore};
use super::layer::{Entry, EntryKind};
use super::tree::{Content, Disk, Node, Tree, TreeError, What};
use crate::containerfile::Copying;

/// The largest `/etc/passwd` that is looked into.
const MAX_PASSWD: u64 = 1024 * 1024;

/// What is in an image so far.
#[derive(Debug, Default)]
pub(crate) struct Into {
    /// What earlier instructions of this stage put there: whether it is a directory, and its
    /// content where it is a file.
    own: BTreeMap<String, Option<Content>>,
    /// What the stage stands on.
    pub(crate) base: Option<Arc<Disk>>,
}

/// Why a COPY cannot be done.
#[derive(Debug, thiserror::Error)]
pub enum CopyingError {
    /// What is copied from.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A pattern that is none.
    #[error("{0}")]
    Pattern(String),
    /// A pattern for nothing.
    #[error("the pattern {0:?} matches nothing in what is copied from")]
    NoMatch(String),
    /// Many things under one name.
    #[error("several things are copied to {0:?}, which must be a directory then; write {0}/")]
    NotADirectory(String),
    /// A file where a directory is.
    #[error("{0:?} is a directory in the image already, and a file cannot take its place")]
    IsADirectory(String),
    /// Something below a file.
    #[error("{0:?} is a file in the image already, and nothing can be below it")]
    ParentIsAFile(String),
    /// From elsewhere.
    #[error(
        "ADD {0:?} would fetch it from elsewhere, which is not done here; fetch it before, and COPY it"
    )]
    Address(String),
    /// An archive.
    #[error(
        "ADD would unpack {0:?}, which is not done here; unpack it before, or COPY it as it is"
    )]
    Archive(String),
    /// Nobody of that name.
    #[error("--chown={0}: the image has no such user or group; write numbers, such as 1000:1000")]
    Owner(String),
}

/// What something in an image is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Nothing,
    Directory,
    Other,
}

impl Into {
    fn place(&self, path: &str) -> Result<Place, TreeError> {
        if path.is_empty() {
            return Ok(Place::Directory);
        }
        if let Some(own) = self.own.get(path) {
            return Ok(if own.is_none() { Place::Directory } else { Place::Other });
        }
        let Some(base) = &self.base else { return Ok(Place::Nothing) };
        match base.fs.find(path.as_bytes(), Follow::Always) {
            Ok(inode) if inode.kind == FileKind::Directory => Ok(Place::Directory),
            Ok(_) => Ok(Place::Other),
            // What cannot be found for any reason is not there; a damaged disk was made here.
            Err(_) => Ok(Place::Nothing),
        }
    }

    /// Adds what is missing above a path.
    fn parents(&mut self, path: &str, entries: &mut Vec<Entry>) -> Result<(), CopyingError> {
        for (at, _) in path.match_indices('/') {
            self.directory(&path[..at], entries)?;
        }
        Ok(())
    }

    /// A directory that must be there.
    pub(crate) fn directory(
        &mut self,
        path: &str,
        entries: &mut Vec<Entry>,
    ) -> Result<(), CopyingError> {
        match self.place(path)? {
            Place::Directory => Ok(()),
            Place::Other => Err(CopyingError::ParentIsAFile(format!("/{path}"))),
            Place::Nothing => {
                self.own.insert(path.to_owned(), None);
                entries.push(entry(path, EntryKind::Directory, 0o755, (0, 0)));
                Ok(())
            }
        }
    }

    fn text(&self, path: &str) -> Option<String> {
        let mut text = String::new();
        match self.own.get(path) {
            Some(content) => {
                let content = content.as_ref()?;
                content.open().ok()?.take(MAX_PASSWD).read_to_string(&mut text).ok()?;
            }
            None => {
                let disk = Arc::clone(self.base.as_ref()?);
                let inode = disk.fs.find(path.as_bytes(), Follow::Always).ok()?;
                let content = Content::Disk(disk, Box::new(inode));
                content.open().ok()?.take(MAX_PASSWD).read_to_string(&mut text).ok()?;
            }
        }
        Some(text)
    }

    /// Numbers of `user[:group]`, names looked up in the image.
    fn owner(&self, chown: &str) -> Result<(u32, u32), CopyingError> {
        let bad = || CopyingError::Owner(chown.to_owned());
        let (user, group) = match chown.split_once(':') {
            Some((user, group)) => (user, Some(group)),
            None => (chown, None),
        };
        let find = |file: &str, name: &str, field: usize| -> Option<u32> {
            let text = self.text(file)?;
            let line = text.lines().find(|line| line.split(':').next() == Some(name))?;
            line.split(':').nth(field)?.parse().ok()
        };
        let uid = match user.parse() {
            Ok(uid) => uid,
            Err(_) => find("etc/passwd", user, 2).ok_or_else(bad)?,
        };
        let gid = match group {
            Some(group) => match group.parse() {
                Ok(gid) => gid,
                Err(_) => find("etc/group", group, 2).ok_or_else(bad)?,
            },
            // A name's own group; a number's is the same number, as elsewhere.
            None => find("etc/passwd", user, 3).unwrap_or(uid),
        };
        Ok((uid, gid))
    }
}

fn entry(path: &str, what: EntryKind, mode: u32, (uid, gid): (u32, u32)) -> Entry {
    Entry { path: path.to_owned(), what, mode, uid, gid, mtime: 0, xattrs: Vec::new() }
}

/// The entries of one COPY, parents first.
pub(crate) fn entries(
    copying: &Copying,
    from: Option<&Tree>,
    into: &mut Into,
) -> Result<Vec<Entry>, CopyingError> {
    let exclude = Ignore::of(&copying.exclude).map_err(CopyingError::Pattern)?;
    let owner = copying.chown.as_deref().map(|chown| into.owner(chown)).transpose()?;
    let mut work = Work {
        copying,
        owner: owner.unwrap_or((0, 0)),
        exclude,
        destination: copying.destination.trim_matches('/').to_owned(),
        entries: Vec::new(),
        into,
    };
    let mut sources: Vec<Node> = Vec::new();
    if let Some(tree) = from {
        for path in &copying.paths {
            if copying.add && (path.contains("://") || path.starts_with("git@")) {
                return Err(CopyingError::Address(path.clone()));
            }
            sources.extend(find(tree, path)?);
        }
    }
    let count = sources.len() + copying.inline.len();
    let many = count > 1 && !copying.destination.ends_with('/');
    if many && work.into.place(&work.destination)? != Place::Directory {
        return Err(CopyingError::NotADirectory(copying.destination.clone()));
    }
    for source in sources {
        match (&source.what, from) {
            (What::Directory, Some(tree)) => work.directory(&source, tree)?,
            _ => work.file(source)?,
        }
    }
    for (name, content) in &copying.inline {
        let bytes: Arc<[u8]> = content.as_bytes().into();
        let what = What::File { size: bytes.len() as u64, content: Content::Inline(bytes) };
        work.file(Node { path: name.clone(), what, mode: 0o644, xattrs: Vec::new() })?;
    }
    Ok(work.entries)
}

/// What a path or pattern names.
fn find(tree: &Tree, path: &str) -> Result<Vec<Node>, CopyingError> {
    let parts: Vec<&str> = path.split('/').filter(|part| !["", "."].contains(part)).collect();
    if parts.contains(&"..") {
        return Err(TreeError::Escapes(path.to_owned()).into());
    }
    let plain = parts.join("/");
    if !plain.contains(['*', '?', '[']) {
        return Ok(vec![tree.get(&plain)?]);
    }
    let glob = ignore::glob(&plain).map_err(CopyingError::Pattern)?;
    let root = tree.get("")?;
    let all = tree.below(&root)?;
    let found: Vec<Node> = all.into_iter().filter(|node| glob.is_match(&node.path)).collect();
    if found.is_empty() {
        return Err(CopyingError::NoMatch(path.to_owned()));
    }
    Ok(found)
}

struct Work<'a> {
    copying: &'a Copying,
    owner: (u32, u32),
    exclude: Ignore,
    destination: String,
    entries: Vec<Entry>,
    into: &'a mut Into,
}

impl Work<'_> {
    /// What is in a directory goes into the destination.
    fn directory(&mut self, directory: &Node, tree: &Tree) -> Result<(), CopyingError> {
        let destination = self.destination.clone();
        self.into.parents(&destination, &mut self.entries)?;
        self.into.directory(&destination, &mut self.entries)?;
        for node in tree.below(directory)? {
            if self.exclude.excludes(&node.path) {
                continue;
            }
            let path = match destination.is_empty() {
                true => node.path.clone(),
                false => format!("{destination}/{}", node.path),
            };
            self.put(path, node)?;
        }
        Ok(())
    }

    /// A file becomes the destination, or goes into it where that is a directory.
    fn file(&mut self, node: Node) -> Result<(), CopyingError> {
        let name = node.path.rsplit('/').next().unwrap_or_default().to_owned();
        if self.exclude.excludes(&name) {
            return Ok(());
        }
        if self.copying.add && is_archive(&node)? {
            return Err(CopyingError::Archive(node.path));
        }
        let inside = self.copying.destination.ends_with('/')
            || self.into.place(&self.destination)? == Place::Directory;
        let path = match (inside, self.destination.as_str()) {
            (true, "") => name,
            (true, destination) => format!("{destination}/{name}"),
            (false, destination) => destination.to_owned(),
        };
        self.put(path, node)
    }

    fn put(&mut self, path: String, node: Node) -> Result<(), CopyingError> {
        self.into.parents(&path, &mut self.entries)?;
        let there = self.into.place(&path)?;
        let mode = self.copying.chmod;
        let (what, mode) = match node.what {
            What::Directory if there == Place::Directory => return Ok(()),
            What::Directory if there == Place::Other => {
                return Err(CopyingError::ParentIsAFile(format!("/{path}")));
            }
            _ if there == Place::Directory => {
                return Err(CopyingError::IsADirectory(format!("/{path}")));
            }
            What::Directory => {
                self.into.own.insert(path.clone(), None);
                (EntryKind::Directory, mode.unwrap_or(node.mode))
            }
            What::Symlink(target) => {
                let link = Content::Inline(target.clone().into());
                self.into.own.insert(path.clone(), Some(link));
                (EntryKind::Symlink(target), 0o777)
            }
            What::File { size, content } => {
                self.into.own.insert(path.clone(), Some(content.clone()));
                (EntryKind::File { size, content }, mode.unwrap_or(node.mode))
            }
        };
        let made = entry(&path, what, mode, self.owner);
        self.entries.push(Entry { xattrs: node.xattrs, ..made });
        Ok(())
    }
}

/// What ADD would unpack, by its first bytes.
fn is_archive(node: &Node) -> Result<bool, TreeError> {
    let What::File { content, .. } = &node.what else { return Ok(false) };
    let mut head = Vec::new();
    let io = |source| TreeError::Io { path: node.path.clone().into(), source };
    content.open()?.take(262).read_to_end(&mut head).map_err(io)?;
    let packed: [&[u8]; 4] = [b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0", b"\x28\xb5\x2f\xfd"];
    Ok(packed.iter().any(|magic| head.starts_with(magic)) || head.get(257..262) == Some(b"ustar"))
}
