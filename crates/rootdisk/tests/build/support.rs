//! Images in memory, built into disks that are read back.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::collections::BTreeMap;
use std::fs::File;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use portolan_core::{Descriptor, Digest};
use portolan_rootdisk::build::{
    BuildError, BuildOptions, Built, Chunks, LayerInput, LayerSource, Request, SourceError,
    Unwatched, Watch, build,
};
use portolan_rootdisk::ext4::read::{FileKind, Filesystem};

use crate::support::pack;

pub(crate) const GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
pub(crate) const ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
pub(crate) const PLAIN: &str = "application/vnd.oci.image.layer.v1.tar";

/// An image whose blobs are in memory.
#[derive(Clone, Default)]
pub(crate) struct Image {
    pub(crate) layers: Vec<LayerInput>,
    pub(crate) blobs: Vec<Bytes>,
}

impl Image {
    /// Puts a layer on top.
    pub(crate) fn with(self, media_type: &str, tar: &[u8]) -> Self {
        let blob = match media_type {
            GZIP => pack::gzip(tar),
            ZSTD => pack::zstd(tar),
            _ => tar.to_vec(),
        };
        self.with_blob(media_type, blob, Digest::sha256(tar))
    }

    pub(crate) fn with_blob(mut self, media_type: &str, blob: Vec<u8>, diff_id: Digest) -> Self {
        let descriptor = Descriptor::of(media_type, &blob);
        self.layers.push(LayerInput { descriptor, diff_id });
        self.blobs.push(blob.into());
        self
    }

    pub(crate) fn request(&self, options: BuildOptions) -> Request {
        let resolved_digest = Digest::sha256(b"a manifest");
        Request { resolved_digest, layers: self.layers.clone(), options }
    }

    pub(crate) fn build(&self, dir: &Path, options: BuildOptions) -> Result<Built, BuildError> {
        let watch: Arc<dyn Watch> = Arc::new(Unwatched);
        build(&self.request(options), self, dir, &watch)
    }
}

impl LayerSource for Image {
    fn open(&self, layer: usize) -> Result<Box<dyn Chunks>, SourceError> {
        // Cut differently each time, so that nothing may depend on it.
        static OPENED: AtomicUsize = AtomicUsize::new(0);
        let cut = 1000 + 77_777 * (OPENED.fetch_add(1, Ordering::Relaxed) % 5);
        Ok(Box::new(Cut { bytes: self.blobs[layer].clone(), cut }))
    }
}

struct Cut {
    bytes: Bytes,
    cut: usize,
}

impl Chunks for Cut {
    fn next(&mut self) -> Result<Option<Bytes>, SourceError> {
        let length = self.bytes.len().min(self.cut);
        Ok((length > 0).then(|| self.bytes.split_to(length)))
    }
}

/// Small disks: a test writes hundreds of them.
pub(crate) fn small() -> BuildOptions {
    BuildOptions { min_bytes: 0, ..BuildOptions::default() }
}

pub(crate) fn threads(count: usize) -> BuildOptions {
    BuildOptions { threads: NonZeroUsize::new(count), ..small() }
}

/// Everything that a name leads to: files with their content, links with their target.
pub(crate) fn tree(disk: &Path) -> BTreeMap<String, String> {
    let fs = Filesystem::open(File::open(disk).unwrap()).unwrap();
    let mut found = BTreeMap::new();
    for entry in fs.walk(&fs.root().unwrap()).unwrap() {
        let entry = entry.unwrap();
        let inode = fs.inode(entry.inode.number).unwrap();
        let what = match inode.kind {
            FileKind::Directory => format!("dir {:o}", inode.mode),
            FileKind::Symlink => {
                format!("link {}", String::from_utf8_lossy(&fs.read_link(&inode).unwrap()))
            }
            // Holes are not read: a sparse file may be larger than this machine's memory.
            FileKind::File if inode.size > 1 << 30 => {
                let mut end = [0; 3];
                fs.read_file_at(&inode, inode.size - 3, &mut end).unwrap();
                format!("sparse {} {}", inode.size, String::from_utf8_lossy(&end))
            }
            FileKind::File => {
                let mut content = Vec::new();
                fs.copy_file(&inode, &mut content).unwrap();
                match std::str::from_utf8(&content) {
                    Ok(text) if text.len() < 100 => format!("file {text}"),
                    _ => format!("file {}", Digest::sha256(&content)),
                }
            }
            other => other.to_string(),
        };
        found.insert(String::from_utf8_lossy(&entry.path).into_owned(), what);
    }
    found
}

/// Bytes without any pattern, the same every time.
pub(crate) fn noise(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u64::from(seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

/// Whether two files have the same bytes, without having them in memory.
pub(crate) fn same(one: &Path, two: &Path) -> bool {
    let (one, two) = (File::open(one).unwrap(), File::open(two).unwrap());
    let (mut ours, mut theirs) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut at = 0;
    loop {
        let length = one.read_at(&mut ours, at).unwrap();
        if length == 0 {
            return one.metadata().unwrap().len() == two.metadata().unwrap().len();
        }
        two.read_exact_at(&mut theirs[..length], at).unwrap();
        if ours[..length] != theirs[..length] {
            return false;
        }
        at += length as u64;
    }
}

/// How many files are in a directory.
pub(crate) fn count(dir: &Path) -> usize {
    std::fs::read_dir(dir).unwrap().count()
}
