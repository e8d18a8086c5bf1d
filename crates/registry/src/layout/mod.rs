//! An OCI image layout on disk: `oci-layout`, `index.json`, `blobs/<algorithm>/<hex>`.
//!
//! - **Content** is addressed by digest, hashed while it is written, and exists under its name
//!   only when it is whole and durable.
//! - **`index.json`** is the root of everything. It is changed by read-modify-write under a lock
//!   on the layout's directory that other processes of this project honour, and replaced
//!   atomically. What other tools wrote into it survives.
//! - **Nothing is lost** by `kill -9` or a power cut at any moment. Temp files of the dead are
//!   swept when the layout is next opened.
//!
//! Everything here is synchronous. Reading is quick enough for an async task; whatever writes
//! waits for the disk and belongs on a blocking thread.

mod blob;
mod edit;
mod error;
mod facts;
mod gc;
mod index;
mod view;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use portolan_core::manifest::MAX_MANIFEST_BYTES;
use portolan_core::{Descriptor, Digest, Tag, Target};

use crate::durable;

pub use blob::{BlobWriter, NewBlob};
pub use error::LayoutError;
pub use gc::{Collected, Garbage, GarbageOptions};

use facts::Facts;
use index::IndexFile;
use view::View;

/// Where temp files live below a layout: on the same file system, so that rename is atomic, and
/// outside `blobs/`, so that no other tool takes one for content.
const TEMP_DIR: &str = ".portolan/tmp";
/// `index.json` may be this large: a hundred thousand entries with generous annotations.
const MAX_INDEX_BYTES: u64 = 64 * 1024 * 1024;
/// A manifest's relations are remembered when it is at most this large; larger ones are rare and
/// read again, so that a few huge annotations cannot fill the memory.
const MAX_REMEMBERED_BYTES: usize = 128 * 1024;
/// How many manifests' relations are remembered.
const MAX_REMEMBERED: usize = 50_000;

/// An OCI layout. Cheap to clone; clones share what they have read.
#[derive(Clone, Debug)]
pub struct Layout {
    dir: PathBuf,
    shared: Arc<Shared>,
    /// Whether content is to outlive this process, and a power cut.
    lasting: bool,
}

#[derive(Debug, Default)]
struct Shared {
    /// The last reading of `index.json`, with the file it was read from.
    view: Mutex<Option<(Stamp, Arc<View>)>>,
    /// What manifests say; true for ever, since a digest never changes its content.
    facts: Mutex<HashMap<Digest, Arc<Facts>>>,
    /// Writers of this process queue here, so that only one of them contends with others'.
    writers: Mutex<()>,
}

/// The right to change `index.json`, against this process and all others.
#[derive(Debug)]
struct Writing<'a> {
    _other_processes: durable::DirLock,
    _this_process: MutexGuard<'a, ()>,
}

/// Identity of one version of `index.json`. A replaced file has another inode or change time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    size: u64,
    changed: (i64, i64),
}

impl Layout {
    /// Opens an existing layout.
    pub fn open(dir: &Path) -> Result<Self, LayoutError> {
        let marker = dir.join("oci-layout");
        // The specification gives the file one short member; a page is generous.
        let Some(bytes) = durable::read_bounded(&marker, 4096)? else {
            return Err(LayoutError::NotALayout { path: dir.to_path_buf() });
        };
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Marker {
            image_layout_version: String,
        }
        let found: Marker = serde_json::from_slice(&bytes)
            .map_err(|source| LayoutError::Malformed { path: marker.clone(), source })?;
        if found.image_layout_version != "1.0.0" {
            return Err(LayoutError::Version { path: marker, found: found.image_layout_version });
        }
        durable::sweep_temp(&dir.join(TEMP_DIR));
        Ok(Self { dir: dir.to_path_buf(), shared: Arc::default(), lasting: true })
    }

    /// Opens the layout in `dir`, or makes one there.
    ///
    /// `index.json` comes first and `oci-layout` last: a directory whose creation was cut short
    /// is no layout yet, and the next call finishes it.
    pub fn create(dir: &Path) -> Result<Self, LayoutError> {
        match Self::open(dir) {
            Err(LayoutError::NotALayout { .. }) => {}
            other => return other,
        }
        durable::create_dir(&dir.join("blobs/sha256"))?;
        let _lock = durable::DirLock::exclusive(dir)?;
        let (temp, index) = (dir.join(TEMP_DIR), dir.join("index.json"));
        if !index.exists() {
            durable::replace(&temp, &index, &IndexFile::empty().to_bytes())?;
        }
        durable::replace(&temp, &dir.join("oci-layout"), br#"{"imageLayoutVersion":"1.0.0"}"#)?;
        Self::open(dir)
    }

    /// Makes one in a directory that goes with this process: no content that is written through it waits for the
    /// disk. Another layout may take it over all the same ([`Layout::mount_blob`] waits then).
    pub fn create_passing(dir: &Path) -> Result<Self, LayoutError> {
        Ok(Self { lasting: false, ..Self::create(dir)? })
    }

    /// The layout's directory.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A manifest's bytes, checked against size and digest, with its descriptor.
    ///
    /// By digest this also finds manifests that only an index leads to, and manifests stored as
    /// plain blobs; their media type is then what their parent or they themselves say.
    pub fn manifest(&self, target: &Target) -> Result<(Descriptor, Vec<u8>), LayoutError> {
        let descriptor = self.resolve(Some(target))?;
        let bytes = self.manifest_bytes(&descriptor)?;
        Ok((descriptor, bytes))
    }

    /// What `target` is. None means the only image; when there are several the error lists them.
    pub fn resolve(&self, target: Option<&Target>) -> Result<Descriptor, LayoutError> {
        let view = self.view()?;
        match target {
            Some(Target::Tag(tag)) => self.resolve_tag(&view, tag),
            Some(Target::Digest(digest)) => match view.manifest(digest) {
                Some(descriptor) if !descriptor.media_type.is_empty() => Ok(descriptor.clone()),
                _ => self.describe_blob(digest),
            },
            None => {
                let mut digests: Vec<Digest> = view.candidates.iter().map(|(d, _)| *d).collect();
                digests.sort_unstable();
                digests.dedup();
                match digests.as_slice() {
                    [] => Err(LayoutError::Empty { dir: self.dir.clone() }),
                    [only] => self.resolve(Some(&Target::Digest(*only))),
                    _ => Err(LayoutError::Ambiguous {
                        dir: self.dir.clone(),
                        names: view.candidates.iter().map(|(_, name)| name.clone()).collect(),
                    }),
                }
            }
        }
    }

    fn resolve_tag(&self, view: &View, tag: &Tag) -> Result<Descriptor, LayoutError> {
        let dir = self.dir.clone();
        if let Some(found) = view.tags.get(tag) {
            return self.resolve(Some(&Target::Digest(found.digest)));
        }
        match view.ambiguous.get(tag) {
            Some(names) => Err(LayoutError::Ambiguous { dir, names: names.clone() }),
            None => Err(LayoutError::TagNotFound {
                dir,
                tag: tag.clone(),
                known: view.tags.keys().map(ToString::to_string).collect(),
            }),
        }
    }

    /// Every tag, in order.
    pub fn tags(&self) -> Result<Vec<Tag>, LayoutError> {
        Ok(self.view()?.tags.keys().cloned().collect())
    }

    /// Every manifest `index.json` lists, in no particular order.
    pub fn manifests(&self) -> Result<Vec<Descriptor>, LayoutError> {
        Ok(self.view()?.listed.values().cloned().collect())
    }

    /// The manifests listed in `index.json` whose subject is `subject`, as the referrers API
    /// describes them.
    pub fn referrers(
        &self,
        subject: &Digest,
        artifact_type: Option<&str>,
    ) -> Result<Vec<Descriptor>, LayoutError> {
        let view = self.view()?;
        let all = view.referrers.get(subject).map(Vec::as_slice).unwrap_or_default();
        let wanted =
            |d: &&Descriptor| artifact_type.is_none_or(|t| d.artifact_type.as_deref() == Some(t));
        Ok(all.iter().filter(wanted).cloned().collect())
    }

    /// The manifest's descriptor if it is listed or below a listed index, and its content is
    /// there. Unlike [`Layout::resolve`] this never takes a plain blob for a manifest.
    pub(crate) fn known_manifest(
        &self,
        target: &Target,
    ) -> Result<Option<Descriptor>, LayoutError> {
        let view = self.view()?;
        let digest = match target {
            Target::Tag(tag) => view.tags.get(tag).map(|d| d.digest),
            Target::Digest(digest) => Some(*digest),
        };
        let Some(found) = digest.and_then(|digest| view.manifest(&digest)) else {
            return Ok(None);
        };
        if self.blob_size(&found.digest)?.is_none() {
            return Ok(None);
        }
        // Some indexes do not say what their entries are.
        let described = !found.media_type.is_empty();
        if described {
            Ok(Some(found.clone()))
        } else {
            self.describe_blob(&found.digest).map(Some)
        }
    }

    /// Reads and checks the content a descriptor names.
    pub(crate) fn manifest_bytes(&self, descriptor: &Descriptor) -> Result<Vec<u8>, LayoutError> {
        let digest = descriptor.digest;
        let path = self.blob_path(&digest);
        let bytes = durable::read_bounded(&path, MAX_MANIFEST_BYTES as u64)?
            .ok_or_else(|| LayoutError::ManifestNotFound { dir: self.dir.clone(), digest })?;
        let written = bytes.len() as u64;
        match written.cmp(&descriptor.size) {
            std::cmp::Ordering::Less => {
                return Err(LayoutError::TooShort { digest, size: descriptor.size, written });
            }
            std::cmp::Ordering::Greater => {
                return Err(LayoutError::TooLong { digest, size: descriptor.size });
            }
            std::cmp::Ordering::Equal => {}
        }
        let actual = Digest::of(digest.algorithm(), &bytes);
        if actual == digest {
            Ok(bytes)
        } else {
            Err(LayoutError::DigestMismatch { expected: digest, actual })
        }
    }

    /// A descriptor for content nobody described.
    fn describe_blob(&self, digest: &Digest) -> Result<Descriptor, LayoutError> {
        let digest = *digest;
        let missing = || LayoutError::ManifestNotFound { dir: self.dir.clone(), digest };
        let size = self.blob_size(&digest)?.ok_or_else(missing)?;
        let bytes = self.manifest_bytes(&Descriptor::new("", digest, size))?;
        let media_type = facts::detect_media_type(&bytes)
            .map_err(|source| LayoutError::NotAManifest { digest, source })?;
        Ok(Descriptor::new(&media_type, digest, size))
    }

    fn lock(&self) -> Result<Writing<'_>, LayoutError> {
        let this_process = lock(&self.shared.writers);
        let other_processes = durable::DirLock::exclusive(&self.dir)?;
        Ok(Writing { _other_processes: other_processes, _this_process: this_process })
    }

    fn index_path(&self) -> PathBuf {
        self.dir.join("index.json")
    }

    fn temp_dir(&self) -> PathBuf {
        self.dir.join(TEMP_DIR)
    }

    /// The current reading, from memory unless the file changed since.
    fn view(&self) -> Result<Arc<View>, LayoutError> {
        let mut cached = lock(&self.shared.view);
        let stamp = self.stamp()?;
        if let Some((at, view)) = cached.as_ref()
            && stamp.is_some_and(|now| now == *at)
        {
            return Ok(Arc::clone(view));
        }
        let view = Arc::new(self.build_view(&self.read_index()?));
        *cached = stamp.map(|stamp| (stamp, Arc::clone(&view)));
        Ok(view)
    }

    fn read_index(&self) -> Result<IndexFile, LayoutError> {
        let path = self.index_path();
        match durable::read_bounded(&path, MAX_INDEX_BYTES)? {
            Some(bytes) => {
                IndexFile::parse(&bytes).map_err(|source| LayoutError::Malformed { path, source })
            }
            // A layout may lack it before the first image; some tools leave it so.
            None => Ok(IndexFile::empty()),
        }
    }

    fn build_view(&self, index: &IndexFile) -> View {
        View::build(index, &mut |digest| self.facts(digest))
    }

    fn facts(&self, digest: &Digest) -> Option<Arc<Facts>> {
        if let Some(known) = lock(&self.shared.facts).get(digest) {
            return Some(Arc::clone(known));
        }
        let path = self.blob_path(digest);
        let bytes = durable::read_bounded(&path, MAX_MANIFEST_BYTES as u64).ok().flatten()?;
        let facts = Arc::new(facts::read(&bytes).ok()?);
        let mut remembered = lock(&self.shared.facts);
        if bytes.len() <= MAX_REMEMBERED_BYTES && remembered.len() < MAX_REMEMBERED {
            remembered.insert(*digest, Arc::clone(&facts));
        }
        Some(facts)
    }

    fn stamp(&self) -> Result<Option<Stamp>, LayoutError> {
        let path = self.index_path();
        match fs::metadata(&path) {
            Ok(m) => Ok(Some(Stamp {
                inode: m.ino(),
                size: m.len(),
                changed: (m.ctime(), m.ctime_nsec()),
            })),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(LayoutError::io("look at", &path, e)),
        }
    }
}

/// A poisoned cache is still a cache: every value in it was complete when it was stored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
