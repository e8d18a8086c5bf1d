//! Where files are copied from: the directory that is built, or the file system of an image.

use std::fs::{self, File, Metadata};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_registry::durable::TempFile;
use portolan_rootdisk::ext4::read::{FileKind, Filesystem, Follow, Inode, ReadError};

use super::ignore::Ignore;
use crate::listing::{self, MAX_DEPTH, Unlisted};

/// So many names of one directory tree.
const MAX_ENTRIES: usize = 1_000_000;
/// `O_NOFOLLOW | O_NONBLOCK`: a link or pipe that took a file's place is not waited for.
const OPEN_FLAGS: i32 =
    (rustix::fs::OFlags::NOFOLLOW.bits() | rustix::fs::OFlags::NONBLOCK.bits()) as i32;

/// A file system of an image, as a disk that is read and never mounted.
#[derive(Debug)]
pub(crate) struct Disk {
    pub(crate) fs: Filesystem<File>,
    /// Gone when nobody needs it.
    _file: TempFile,
}

impl Disk {
    pub(crate) fn open(file: TempFile) -> Result<Self, ReadError> {
        let opened = File::open(file.path()).map_err(|source| ReadError::Sink { source })?;
        Ok(Self { fs: Filesystem::open(opened)?, _file: file })
    }
}

/// The directory that is built.
#[derive(Debug)]
pub(crate) struct Context {
    root: PathBuf,
    ignore: Ignore,
}

/// Somewhere to copy from.
#[derive(Debug, Clone)]
pub(crate) enum Tree {
    Context(Arc<Context>),
    Disk(Arc<Disk>),
}

/// Something in a tree.
#[derive(Debug, Clone)]
pub(crate) struct Node {
    /// From the root, without a slash at its beginning.
    pub(crate) path: String,
    pub(crate) what: What,
    pub(crate) mode: u32,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
}

/// What it is.
#[derive(Debug, Clone)]
pub(crate) enum What {
    Directory,
    Symlink(Vec<u8>),
    File { size: u64, content: Content },
}

/// A file's bytes.
#[derive(Debug, Clone)]
pub(crate) enum Content {
    Path(PathBuf),
    Inline(Arc<[u8]>),
    Disk(Arc<Disk>, Box<Inode>),
}

/// Why something cannot be copied.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// It is not there.
    #[error(
        "there is no {0:?} in what is copied from; paths are from its root, and what an ignore file leaves out is not there"
    )]
    NotFound(String),
    /// It is elsewhere.
    #[error("{0:?} leads out of the directory that is built")]
    Escapes(String),
    /// It is neither file nor directory nor link.
    #[error("{path:?} is a {kind}, which is not copied")]
    Special {
        /// Which.
        path: String,
        /// What.
        kind: String,
    },
    /// A name that is no text.
    #[error("{} is not UTF-8; rename it", .0.display())]
    NotText(PathBuf),
    /// More directories in one another than anybody reads.
    #[error("{0:?} is more than {MAX_DEPTH} names deep; take it out, or name it in an ignore file")]
    TooDeep(String),
    /// More than anybody builds from.
    #[error("more than {MAX_ENTRIES} files")]
    TooMany,
    /// Somebody writes to it.
    #[error("{path:?} changed while it was read; build again when nobody writes there")]
    Changed {
        /// Which.
        path: String,
    },
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It cannot be read from an image.
    #[error("cannot read the file system of the image")]
    Disk(#[source] ReadError),
}

impl Context {
    pub(crate) fn new(dir: &Path, ignore: Ignore) -> Result<Self, TreeError> {
        let io = |source| TreeError::Io { path: dir.to_owned(), source };
        let root = fs::canonicalize(dir).map_err(io)?;
        Ok(Self { root, ignore })
    }

    /// The path with all links on the way followed, as long as they stay inside.
    fn resolve(&self, path: &str) -> Result<PathBuf, TreeError> {
        let missing = || TreeError::NotFound(path.to_owned());
        let whole = fs::canonicalize(self.root.join(path)).map_err(|_| missing())?;
        match whole.strip_prefix(&self.root) {
            Ok(inside) => Ok(inside.to_owned()),
            Err(_) => Err(TreeError::Escapes(path.to_owned())),
        }
    }

    fn node(&self, path: &str) -> Result<Node, TreeError> {
        let place = self.root.join(path);
        let io = |source| TreeError::Io { path: place.clone(), source };
        let metadata = fs::symlink_metadata(&place).map_err(io)?;
        let what = if metadata.is_dir() {
            What::Directory
        } else if metadata.is_symlink() {
            What::Symlink(fs::read_link(&place).map_err(io)?.into_os_string().into_vec())
        } else if metadata.is_file() {
            What::File { size: metadata.len(), content: Content::Path(place) }
        } else {
            let kind = "device, pipe or socket".to_owned();
            return Err(TreeError::Special { path: path.to_owned(), kind });
        };
        Ok(Node { path: path.to_owned(), mode: checked_out(&metadata), what, xattrs: Vec::new() })
    }

    fn list(&self, inside: &str) -> Result<impl Iterator<Item = Step>, TreeError> {
        let listed = listing::last_first(&self.root, inside).map_err(|unlisted| match unlisted {
            Unlisted::Io { path, source } => TreeError::Io { path, source },
            Unlisted::NotText(path) => TreeError::NotText(path),
        });
        Ok(listed?.into_iter().map(Step::Name))
    }

    fn walk(&self, from: &str, found: &mut Vec<Node>) -> Result<(), TreeError> {
        let mut open: Vec<Step> = self.list(from)?.collect();
        while let Some(step) = open.pop() {
            let path = match step {
                Step::Name(path) => path,
                Step::Emptied(before) => {
                    if found.len() == before + 1 {
                        found.truncate(before);
                    }
                    continue;
                }
            };
            let excluded = self.ignore.excludes(&path);
            if excluded && !self.ignore.has_exceptions() {
                continue;
            }
            if found.len() >= MAX_ENTRIES {
                return Err(TreeError::TooMany);
            }
            if listing::is_too_deep(&path) {
                return Err(TreeError::TooDeep(path));
            }
            let is_dir = fs::symlink_metadata(self.root.join(&path)).is_ok_and(|m| m.is_dir());
            let before = found.len();
            if !excluded || is_dir {
                found.push(self.node(&path)?);
            }
            if is_dir {
                open.extend(excluded.then_some(Step::Emptied(before)));
                open.extend(self.list(&path)?);
            }
        }
        Ok(())
    }
}

/// What a walk has still to do.
enum Step {
    /// To take up a path.
    Name(String),
    /// To look whether anything came of a directory that is left out, which is where it was found: it is only there for
    /// what is taken back below it.
    Emptied(usize),
}

/// The mode as git keeps it: a checkout by somebody else, or elsewhere, gives the same image.
fn checked_out(metadata: &Metadata) -> u32 {
    match metadata.is_dir() || metadata.mode() & 0o100 != 0 {
        true => 0o755,
        false => 0o644,
    }
}

impl Tree {
    /// What a path is, links on the way followed, and the last one too.
    pub(crate) fn get(&self, path: &str) -> Result<Node, TreeError> {
        let path = path.trim_matches('/');
        match self {
            Self::Context(context) => {
                let inside = context.resolve(path)?;
                let Some(inside) = inside.to_str() else { return Err(TreeError::NotText(inside)) };
                let node = context.node(inside)?;
                // Below a directory that is left out something may have been taken back.
                let ignore = &context.ignore;
                let may_hold = matches!(node.what, What::Directory) && ignore.has_exceptions();
                match !inside.is_empty() && ignore.excludes(inside) && !may_hold {
                    true => Err(TreeError::NotFound(path.to_owned())),
                    false => Ok(node),
                }
            }
            Self::Disk(disk) => {
                let found = disk.fs.find(path.as_bytes(), Follow::Always);
                let inode = found.map_err(|error| match error {
                    ReadError::NotFound { .. } => TreeError::NotFound(path.to_owned()),
                    error => TreeError::Disk(error),
                })?;
                disk_node(disk, path.to_owned(), inode)
            }
        }
    }

    /// All below a directory that [`Tree::get`] found, parents first; paths are below it.
    pub(crate) fn below(&self, directory: &Node) -> Result<Vec<Node>, TreeError> {
        let mut found = Vec::new();
        match self {
            Self::Context(context) => {
                context.walk(&directory.path, &mut found)?;
                let cut = if directory.path.is_empty() { 0 } else { directory.path.len() + 1 };
                found.iter_mut().for_each(|node| drop(node.path.drain(..cut)));
            }
            Self::Disk(disk) => {
                let find = disk.fs.find(directory.path.as_bytes(), Follow::Always);
                let start = find.map_err(TreeError::Disk)?;
                for entry in disk.fs.walk(&start).map_err(TreeError::Disk)? {
                    let entry = entry.map_err(TreeError::Disk)?;
                    let path = String::from_utf8(entry.path)
                        .map_err(|error| TreeError::NotText(PathBuf::from(error.to_string())))?;
                    found.push(disk_node(disk, path, entry.inode)?);
                }
            }
        }
        Ok(found)
    }
}

fn disk_node(disk: &Arc<Disk>, path: String, inode: Inode) -> Result<Node, TreeError> {
    let what = match inode.kind {
        FileKind::Directory => What::Directory,
        FileKind::Symlink => What::Symlink(disk.fs.read_link(&inode).map_err(TreeError::Disk)?),
        FileKind::File => What::File {
            size: inode.size,
            content: Content::Disk(Arc::clone(disk), Box::new(inode.clone())),
        },
        kind => return Err(TreeError::Special { path, kind: kind.to_string() }),
    };
    let mut xattrs = Vec::new();
    for xattr in disk.fs.xattrs(&inode).map_err(TreeError::Disk)? {
        let name = String::from_utf8_lossy(&xattr.name).into_owned();
        xattrs.push((name, xattr.value.to_vec()));
    }
    Ok(Node { path, what, mode: u32::from(inode.mode), xattrs })
}

impl Content {
    /// The bytes, from the beginning.
    pub(crate) fn open(&self) -> Result<Box<dyn Read + '_>, TreeError> {
        Ok(match self {
            Self::Path(path) => {
                let io = |source| TreeError::Io { path: path.clone(), source };
                let opened = File::options().read(true).custom_flags(OPEN_FLAGS).open(path);
                Box::new(opened.map_err(io)?)
            }
            Self::Inline(bytes) => Box::new(&bytes[..]),
            Self::Disk(disk, inode) => Box::new(DiskFile { disk, inode, offset: 0 }),
        })
    }

    /// What tells it from other contents of one run.
    pub(crate) fn identity(&self) -> String {
        match self {
            Self::Path(path) => format!("path {}", path.display()),
            Self::Inline(bytes) => format!("inline {}", portolan_core::Digest::sha256(bytes)),
            Self::Disk(disk, inode) => format!("disk {:p} {}", Arc::as_ptr(disk), inode.number),
        }
    }
}

struct DiskFile<'a> {
    disk: &'a Disk,
    inode: &'a Inode,
    offset: u64,
}

impl Read for DiskFile<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.disk.fs.read_file_at(self.inode, self.offset, buffer);
        let read = read.map_err(io::Error::other)?;
        self.offset += read as u64;
        Ok(read)
    }
}
