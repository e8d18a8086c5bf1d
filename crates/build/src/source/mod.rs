//! A directory as an OCI artifact: how source reaches every platform, pinned by its digest.
//!
//! One layer of tar in gzip on an ordinary image manifest, so that every registry keeps it and
//! Shipwright's own steps can read it. Names in order, modes and whole seconds of times as they
//! are, no owners: the same tree gives the same digest. Everything is in it, `.git` too: tools
//! put the commit into what they build.

pub(crate) mod beneath;
mod ignored;
mod links;
mod receive;
mod unpack;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use portolan_core::{Descriptor, Digest, Manifest, media_type};
use portolan_registry::ErrorClass;
use portolan_registry::layout::{Layout, LayoutError};
use tokio_util::sync::CancellationToken;

pub use ignored::IGNORE_FILE;
pub(crate) use ignored::Ignored;
pub use receive::{Announced, ReceiveError, receive};
pub(crate) use unpack::unpack_layer;
pub use unpack::{UnpackError, Unpacked, unpack};

use self::links::{Astray, Links};

use crate::assemble::layer::{self, Entry, EntryKind, LayerError};
use crate::assemble::tree::Content;
use crate::listing::{self, MAX_DEPTH, Unlisted};

/// So many names.
pub const MAX_ENTRIES: usize = 1_000_000;
/// So many bytes of files.
pub const MAX_TOTAL: u64 = 16 * 1024 * 1024 * 1024;

/// A source in a layout.
#[derive(Debug, Clone)]
pub struct Packed {
    /// Its manifest.
    pub manifest: Descriptor,
    /// Its one layer.
    pub layer: Descriptor,
    /// Of the tar in that.
    pub diff_id: Digest,
    /// When it was last changed: seconds since 1970, of the newest file.
    pub newest: i64,
    /// Sockets, which nothing can be built from and nobody can pack.
    pub skipped: Vec<PathBuf>,
}

/// Why a directory cannot be packed.
#[derive(Debug, thiserror::Error)]
pub enum PackError {
    /// It cannot be read.
    #[error("cannot read {}", path.display())]
    Io {
        /// What.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A link that leads out.
    #[error(
        "{} is a link to {target:?}, which is outside of the source; what is built elsewhere has only what is inside", path.display()
    )]
    Escapes {
        /// The link.
        path: PathBuf,
        /// What it says.
        target: String,
    },
    /// Links of links without end.
    #[error("the links in the source lead through too many others; take some out")]
    Tangled,
    /// A device or pipe.
    #[error("{} is a {kind}, which cannot be packed; take it out of the source", path.display())]
    Special {
        /// Which.
        path: PathBuf,
        /// What.
        kind: &'static str,
    },
    /// A name that is no text.
    #[error("{} has a name that is not UTF-8; rename it", path.display())]
    NotText {
        /// Which.
        path: PathBuf,
    },
    /// What says what stays behind cannot be read.
    #[error("{} cannot be read: {why}", path.display())]
    Ignore {
        /// The file.
        path: PathBuf,
        /// Why.
        why: String,
    },
    /// More directories in one another than anybody reads.
    #[error("{} is more than {MAX_DEPTH} names deep; take it out of the source", path.display())]
    TooDeep {
        /// Which.
        path: PathBuf,
    },
    /// More than anybody builds from.
    #[error("the source has more than {MAX_ENTRIES} files")]
    TooMany,
    /// More than anybody builds from.
    #[error("the source has more than {MAX_TOTAL} bytes")]
    TooLarge,
    /// It cannot be written.
    #[error("the source cannot be packed")]
    Layer(#[source] LayerError),
    /// It cannot be kept.
    #[error("the source artifact cannot be kept")]
    Keep(#[from] LayoutError),
}

impl PackError {
    /// What kind of trouble it is.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::Io { .. } | Self::Keep(_) | Self::Layer(_) => ErrorClass::Local,
            _ => ErrorClass::BadInput,
        }
    }
}

/// Packs a directory into a layout, all of it.
pub fn pack(dir: &Path, layout: &Layout) -> Result<Packed, PackError> {
    pack_until(dir, Ignored::default(), layout, &CancellationToken::new())
}

/// The same as somebody sends it: without what their `.shpignore` names.
pub fn pack_upload(dir: &Path, layout: &Layout) -> Result<Packed, PackError> {
    pack_upload_until(dir, layout, &CancellationToken::new())
}

/// The same, unless it is halted before.
pub fn pack_upload_until(
    dir: &Path,
    layout: &Layout,
    halt: &CancellationToken,
) -> Result<Packed, PackError> {
    pack_until(dir, Ignored::read(dir)?, layout, halt)
}

/// When the newest file of a directory was changed: seconds since 1970.
pub(crate) fn newest(dir: &Path) -> Result<i64, PackError> {
    Ok(walked(dir, Ignored::default())?.newest)
}

/// The same of what somebody sends.
pub(crate) fn newest_upload(dir: &Path) -> Result<i64, PackError> {
    Ok(walked(dir, Ignored::read(dir)?)?.newest)
}

/// How every file of a directory stands: the change time is none that a program can set, so that who
/// writes into a file and gives it its old time again is seen, too.
pub(crate) fn seen(dir: &Path, ignored: Ignored) -> Result<Digest, PackError> {
    let mut text = String::new();
    for Entry { path, .. } in walked(dir, ignored)?.entries {
        let place = dir.join(&path);
        let m = fs::symlink_metadata(&place)
            .map_err(|source| PackError::Io { path: place.clone(), source })?;
        let inode = (m.dev(), m.ino(), m.mode(), m.size());
        text.push_str(&format!("{path:?} {inode:?} {} {}\n", m.ctime(), m.ctime_nsec()));
    }
    Ok(Digest::sha256(text.as_bytes()))
}

fn walked(dir: &Path, ignored: Ignored) -> Result<Walk<'_>, PackError> {
    let (entries, skipped) = (Vec::new(), Vec::new());
    let links = Links::default();
    let mut walk = Walk { root: dir, ignored, entries, skipped, links, total: 0, newest: 0 };
    walk.all()?;
    walk.links.check().map_err(|astray| astray_in(dir, astray))?;
    Ok(walk)
}

/// Packs what is not ignored, unless it is halted before.
pub(crate) fn pack_until(
    dir: &Path,
    ignored: Ignored,
    layout: &Layout,
    halt: &CancellationToken,
) -> Result<Packed, PackError> {
    let Walk { entries, skipped, newest, .. } = walked(dir, ignored)?;
    let layer = layer::write(&entries, layout, halt).map_err(PackError::Layer)?;
    let config = serde_json::json!({
        "architecture": "unknown",
        "created": "1970-01-01T00:00:00Z",
        "os": "unknown",
        "rootfs": { "type": "layers", "diff_ids": [layer.diff_id] },
    });
    let config = serde_json::to_vec(&config).expect("JSON");
    layout.put_blob(&config)?;
    let config = Descriptor::of(media_type::OCI_CONFIG, &config);
    let manifest = Manifest::new(config, vec![layer.blob.clone()]);
    let manifest = layout.put_manifest(media_type::OCI_MANIFEST, &manifest.to_vec(), None)?;
    Ok(Packed { manifest, layer: layer.blob, diff_id: layer.diff_id, newest, skipped })
}

fn astray_in(dir: &Path, astray: Astray) -> PackError {
    match astray {
        Astray::Escapes { path, target } => PackError::Escapes {
            path: dir.join(OsStr::from_bytes(&path)),
            target: String::from_utf8_lossy(&target).into_owned(),
        },
        Astray::Tangled => PackError::Tangled,
    }
}

struct Walk<'a> {
    root: &'a Path,
    ignored: Ignored,
    entries: Vec<Entry>,
    skipped: Vec<PathBuf>,
    links: Links,
    total: u64,
    newest: i64,
}

impl Walk<'_> {
    fn all(&mut self) -> Result<(), PackError> {
        let mut open = self.list("")?;
        while let Some(path) = open.pop() {
            if self.name(&path)? {
                open.extend(self.list(&path)?);
            }
        }
        Ok(())
    }

    fn list(&self, inside: &str) -> Result<Vec<String>, PackError> {
        listing::last_first(self.root, inside).map_err(|unlisted| match unlisted {
            Unlisted::Io { path, source } => PackError::Io { path, source },
            Unlisted::NotText(path) => PackError::NotText { path },
        })
    }

    /// Takes one name up. Whether it is a directory, and what is in it comes next.
    fn name(&mut self, path: &str) -> Result<bool, PackError> {
        let place = self.root.join(path);
        let io = |source| PackError::Io { path: place.clone(), source };
        let metadata = fs::symlink_metadata(&place).map_err(io)?;
        let kind = metadata.file_type();
        if self.ignored.excludes(path, kind.is_dir()) {
            return Ok(false);
        }
        if listing::is_too_deep(path) {
            return Err(PackError::TooDeep { path: place });
        }
        let special = |kind| PackError::Special { path: place.clone(), kind };
        let what = if kind.is_dir() {
            EntryKind::Directory
        } else if kind.is_symlink() {
            let target = fs::read_link(&place).map_err(io)?.into_os_string().into_vec();
            self.links.add(path.as_bytes().to_vec(), target.clone());
            EntryKind::Symlink(target)
        } else if kind.is_file() {
            self.total = self.total.saturating_add(metadata.len());
            EntryKind::File { size: metadata.len(), content: Content::Path(place.clone()) }
        } else if kind.is_socket() {
            self.skipped.push(PathBuf::from(path));
            return Ok(false);
        } else {
            return Err(special(if kind.is_fifo() { "pipe" } else { "device" }));
        };
        if self.entries.len() >= MAX_ENTRIES {
            return Err(PackError::TooMany);
        }
        if self.total > MAX_TOTAL {
            return Err(PackError::TooLarge);
        }
        if kind.is_file() {
            self.newest = self.newest.max(metadata.mtime());
        }
        self.entries.push(Entry {
            path: path.to_owned(),
            what,
            mode: if kind.is_symlink() { 0o777 } else { metadata.mode() & 0o7777 },
            uid: 0,
            gid: 0,
            mtime: u64::try_from(metadata.mtime()).unwrap_or(0),
            xattrs: Vec::new(),
        });
        Ok(kind.is_dir())
    }
}
