//! A layer: files as a tar in gzip, the same bytes on every machine.
//!
//! Entries come in the order given; times, owners and modes are what is said here and nothing of
//! the machine. zlib-rs packs alike whatever the processor can do.

use std::io::{self, Read as _, Write};
use std::path::Path;

use portolan_core::{Algorithm, Descriptor, Digest, Hasher};
use portolan_registry::layout::{Layout, LayoutError};
use tokio_util::sync::CancellationToken;

use super::gzip::Gzip;
use super::tree::{Content, TreeError};

/// What such a layer is called.
pub(crate) const MEDIA_TYPE: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const BUFFER: usize = 64 * 1024;

/// One name in a layer.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    /// From the root, without a slash at its beginning.
    pub(crate) path: String,
    pub(crate) what: EntryKind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Seconds since 1970.
    pub(crate) mtime: u64,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
}

#[derive(Debug, Clone)]
pub(crate) enum EntryKind {
    Directory,
    Symlink(Vec<u8>),
    File { size: u64, content: Content },
}

/// A layer in a layout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) blob: Descriptor,
    pub(crate) diff_id: Digest,
}

/// Why a layer cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum LayerError {
    /// What goes into it.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// A name that would take away another.
    #[error(
        "{0:?} has a name that begins with .wh., which in a layer takes another file away; rename it or leave it out"
    )]
    Whiteout(String),
    /// Its file.
    #[error("cannot write {path:?} to the layer")]
    Write {
        /// What was written.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Where it is kept.
    #[error("cannot keep the layer")]
    Keep(#[from] LayoutError),
}

/// Hashes what is written on its way, as long as anybody wants it.
struct Hashed<'a, W> {
    inner: W,
    hasher: Hasher,
    halt: &'a CancellationToken,
}

impl<'a, W> Hashed<'a, W> {
    fn new(inner: W, halt: &'a CancellationToken) -> Self {
        Self { inner, hasher: Hasher::new(Algorithm::Sha256), halt }
    }
}

impl<W: Write> Write for Hashed<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Everything in a layer comes by here, names without content too. Not as `Interrupted`, which is tried again.
        if self.halt.is_cancelled() {
            return Err(io::Error::other("nobody waits for it any more"));
        }
        let written = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Writes a layer of these entries and keeps it, unless it is halted before.
pub(crate) fn write(
    entries: &[Entry],
    layout: &Layout,
    halt: &CancellationToken,
) -> Result<Layer, LayerError> {
    let whole = |source| LayerError::Write { path: String::new(), source };
    let gzip = Gzip::new(layout.new_blob()?).map_err(whole)?;
    // The packer is fed in pieces of one size, whatever sizes files have.
    let tar = Hashed::new(io::BufWriter::with_capacity(BUFFER, gzip), halt);
    let mut builder = tar::Builder::new(tar);
    for entry in entries {
        append(&mut builder, entry)?;
    }
    let mut tar = builder.into_inner().map_err(whole)?;
    tar.flush().map_err(whole)?;
    let diff_id = tar.hasher.finish();
    let gzip = tar.inner.into_inner().map_err(|error| whole(error.into_error()))?;
    let (digest, size) = gzip.finish().map_err(whole)?.keep()?;
    Ok(Layer { blob: Descriptor::new(MEDIA_TYPE, digest, size), diff_id })
}

fn append<W: Write>(builder: &mut tar::Builder<W>, entry: &Entry) -> Result<(), LayerError> {
    if entry.path.split('/').any(|name| name.starts_with(".wh.")) {
        return Err(LayerError::Whiteout(entry.path.clone()));
    }
    let io = |source| LayerError::Write { path: entry.path.clone(), source };
    let mut header = tar::Header::new_gnu();
    header.set_mode(entry.mode);
    header.set_uid(u64::from(entry.uid));
    header.set_gid(u64::from(entry.gid));
    header.set_mtime(entry.mtime);
    header.set_size(0);
    if !entry.xattrs.is_empty() {
        let names: Vec<String> =
            entry.xattrs.iter().map(|(name, _)| format!("SCHILY.xattr.{name}")).collect();
        let values = entry.xattrs.iter().map(|(_, value)| value.as_slice());
        let records = names.iter().map(String::as_str).zip(values);
        builder.append_pax_extensions(records).map_err(io)?;
    }
    match &entry.what {
        EntryKind::Directory => {
            header.set_entry_type(tar::EntryType::Directory);
            builder.append_data(&mut header, format!("{}/", entry.path), io::empty()).map_err(io)
        }
        EntryKind::Symlink(target) => {
            use std::os::unix::ffi::OsStrExt as _;
            header.set_entry_type(tar::EntryType::Symlink);
            let target = Path::new(std::ffi::OsStr::from_bytes(target));
            builder.append_link(&mut header, &entry.path, target).map_err(io)
        }
        EntryKind::File { size, content } => {
            header.set_entry_type(tar::EntryType::Regular);
            header.set_size(*size);
            let changed = || TreeError::Changed { path: entry.path.clone() };
            // One byte more than announced tells a file that grew from one that did not.
            let mut reader = Counted { inner: content.open()?.take(*size + 1), read: 0 };
            builder.append_data(&mut header, &entry.path, (&mut reader).take(*size)).map_err(io)?;
            let short = reader.read < *size;
            let more = reader.read(&mut [0]).map_err(io)? > 0;
            if short || more { Err(changed().into()) } else { Ok(()) }
        }
    }
}

struct Counted<R> {
    inner: R,
    read: u64,
}

impl<R: io::Read> io::Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.read += read as u64;
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_layer_that_nobody_wants_any_more_is_given_up() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::create(dir.path()).unwrap();
        let entry = |what| Entry {
            path: "name".to_owned(),
            what,
            mode: 0o755,
            uid: 0,
            gid: 0,
            mtime: 0,
            xattrs: Vec::new(),
        };
        let content = Content::Inline(b"text".as_slice().into());
        let file = EntryKind::File { size: 4, content };
        for what in [EntryKind::Directory, EntryKind::Symlink(b"to".to_vec()), file] {
            let (entries, halt) = ([entry(what)], CancellationToken::new());
            let blobs = || std::fs::read_dir(dir.path().join("blobs/sha256")).unwrap().count();
            let before = blobs();
            halt.cancel();
            let error = write(&entries, &layout, &halt).unwrap_err();
            let told = portolan_core::causes::chain(&error);
            assert!(told.contains("nobody waits"), "{told}");
            assert_eq!(blobs(), before, "nothing is kept");
            write(&entries, &layout, &CancellationToken::new()).unwrap();
            assert_eq!(blobs(), before + 1);
        }
    }
}
