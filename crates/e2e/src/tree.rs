//! A directory tree as a value: everything a kernel tells about it, to be compared.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::Path;

use anyhow::{Context as _, Result};
use sha2::{Digest as _, Sha256};

/// All that is to know about one name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// File type and permissions, as in `st_mode`.
    pub mode: u32,
    pub owner: (u32, u32),
    pub mtime: (i64, i64),
    pub links: u64,
    /// Of a device.
    pub device: u64,
    /// Of a file; directories have whatever size their file system needs.
    pub size: u64,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
    /// The target of a link, the digest of a file.
    pub content: Vec<u8>,
    /// The first name, in order, of the same file.
    pub same_as: Vec<u8>,
}

/// Every name below a folder, as bytes with `/` between them; the folder itself is empty.
pub type Tree = BTreeMap<Vec<u8>, Node>;

/// Reads it all.
pub fn read_tree(root: &Path) -> Result<Tree> {
    let mut tree = Tree::new();
    let mut todo = vec![root.to_owned()];
    let mut inodes: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).with_context(|| format!("{}", path.display()))?;
        let name = path.strip_prefix(root)?.as_os_str().as_bytes().to_vec();
        if meta.is_dir() {
            for entry in fs::read_dir(&path)? {
                todo.push(entry?.path());
            }
        }
        inodes.insert(name.clone(), meta.ino());
        tree.insert(name, node(&path, &meta)?);
    }
    let mut first: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
    for (name, inode) in inodes {
        let same = first.entry(inode).or_insert_with(|| name.clone()).clone();
        if let Some(node) = tree.get_mut(&name) {
            node.same_as = same;
        }
    }
    Ok(tree)
}

fn node(path: &Path, meta: &fs::Metadata) -> Result<Node> {
    let kind = meta.file_type();
    let content = if kind.is_file() {
        digest(&mut fs::File::open(path)?)?
    } else if kind.is_symlink() {
        fs::read_link(path)?.as_os_str().as_bytes().to_vec()
    } else {
        Vec::new()
    };
    let device = kind.is_char_device() || kind.is_block_device();
    Ok(Node {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        mtime: (meta.mtime(), meta.mtime_nsec()),
        links: meta.nlink(),
        device: if device { meta.rdev() } else { 0 },
        size: if meta.is_dir() { 0 } else { meta.len() },
        xattrs: xattrs(path).with_context(|| format!("attributes of {}", path.display()))?,
        content,
        same_as: Vec::new(),
    })
}

fn digest(from: &mut impl Read) -> Result<Vec<u8>> {
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match from.read(&mut buffer)? {
            0 => return Ok(hasher.finalize().to_vec()),
            got => hasher.update(&buffer[..got]),
        }
    }
}

fn xattrs(path: &Path) -> Result<BTreeMap<Vec<u8>, Vec<u8>>> {
    // The kernel's own bound for both.
    let mut names = vec![0; 64 * 1024];
    let length = rustix::fs::llistxattr(path, names.as_mut_slice())?;
    let mut all = BTreeMap::new();
    for name in names[..length].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 64 * 1024];
        let length = rustix::fs::lgetxattr(path, name, value.as_mut_slice())?;
        value.truncate(length);
        all.insert(name.to_vec(), value);
    }
    Ok(all)
}

/// What differs, a line each; nothing when the two are the same.
pub fn differences(ours: &Tree, theirs: &Tree) -> Vec<String> {
    let mut lines = Vec::new();
    let names: std::collections::BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    for name in names {
        let shown = String::from_utf8_lossy(name).escape_debug().to_string();
        match (ours.get(name), theirs.get(name)) {
            (Some(a), Some(b)) if a == b => {}
            (Some(a), Some(b)) => lines.push(format!("/{shown}:\n  ours   {a:?}\n  theirs {b:?}")),
            (Some(_), None) => lines.push(format!("/{shown}: only ours has it")),
            (None, _) => lines.push(format!("/{shown}: ours has it not")),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_changed_bit_of_anything_is_a_difference() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("a"), "1").unwrap();
        fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        std::os::unix::fs::symlink("a", dir.path().join("l")).unwrap();
        let before = read_tree(dir.path()).unwrap();
        assert_eq!(before.len(), 4);
        assert_eq!(before[&b"b"[..]].same_as, b"a");
        assert!(differences(&before, &before).is_empty());
        let mut other = before.clone();
        other.get_mut(&b"l"[..]).unwrap().content = b"b".to_vec();
        assert_eq!(differences(&before, &other).len(), 1);
        other.remove(&b"a"[..]);
        assert_eq!(differences(&before, &other).len(), 2);
    }
}
