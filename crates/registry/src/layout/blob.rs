//! Content by digest: look, read, write, link, delete.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use portolan_core::{Algorithm, Digest, Hasher};
use rustix::fs::{Advice, fadvise};

use super::{Layout, LayoutError};
use crate::durable::{self, DurableError, TempFile};

/// After this many bytes the kernel is asked to start writing them out, so that the fsync at the
/// end finds little left to do. Smaller windows cost system calls, larger ones leave more for
/// the end.
const WRITEBACK_WINDOW: u64 = 8 * 1024 * 1024;

impl Layout {
    /// The size of a blob, or none when it is not there.
    pub fn blob_size(&self, digest: &Digest) -> Result<Option<u64>, LayoutError> {
        let path = self.blob_path(digest);
        match fs::metadata(&path) {
            Ok(m) => Ok(m.is_file().then_some(m.len())),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(e) => Err(LayoutError::io("look at", &path, e)),
        }
    }

    /// Opens a blob for reading and says how large it is.
    pub fn open_blob(&self, digest: &Digest) -> Result<(File, u64), LayoutError> {
        let path = self.blob_path(digest);
        durable::open_file(&path).map_err(|e| match e.kind() {
            io::ErrorKind::NotFound => {
                LayoutError::BlobNotFound { dir: self.dir.clone(), digest: *digest }
            }
            _ => LayoutError::Io { step: "read", path, source: e },
        })
    }

    /// Starts writing a blob. `size`, where known, bounds what is taken.
    pub fn blob_writer(
        &self,
        digest: Digest,
        size: Option<u64>,
    ) -> Result<BlobWriter, LayoutError> {
        let draft = Draft::new(self, digest.algorithm())?;
        Ok(BlobWriter { draft, target: self.blob_path(&digest), digest, size })
    }

    /// Starts writing content that is being made, whose SHA-256 digest shows when all of it is there.
    pub fn new_blob(&self) -> Result<NewBlob, LayoutError> {
        Ok(NewBlob { draft: Draft::new(self, Algorithm::Sha256)?, layout: self.clone() })
    }

    /// Stores small content under its SHA-256 digest.
    pub fn put_blob(&self, bytes: &[u8]) -> Result<Digest, LayoutError> {
        let digest = Digest::sha256(bytes);
        self.put_blob_as(digest, bytes)?;
        Ok(digest)
    }

    /// Stores small content under the digest it is said to have, which is checked. Content that
    /// is there already is not written again.
    pub fn put_blob_as(&self, digest: Digest, bytes: &[u8]) -> Result<(), LayoutError> {
        let actual = Digest::of(digest.algorithm(), bytes);
        if actual != digest {
            return Err(LayoutError::DigestMismatch { expected: digest, actual });
        }
        if self.blob_size(&digest)? == Some(bytes.len() as u64) {
            return self.touch_blob(&digest);
        }
        let target = self.blob_path(&digest);
        self.make_room(&target)?;
        let mut temp = TempFile::create(&self.temp_dir())?;
        temp.write(bytes)?;
        Ok(named(temp, &target, self.lasting)?)
    }

    /// Takes a blob over from another layout, by hard link where the file system allows it and
    /// by copy elsewhere. False when the other layout does not have it.
    pub fn mount_blob(&self, digest: &Digest, from: &Self) -> Result<bool, LayoutError> {
        let (there, size) = (self.blob_size(digest)?, from.blob_size(digest)?);
        // Of another size it was damaged, in either place: only who reads it can tell in which.
        if there.is_some() && (there == size || size.is_none()) {
            self.touch_blob(digest)?;
            return Ok(true);
        }
        let (source, target) = (from.blob_path(digest), self.blob_path(digest));
        if size.is_none() {
            return Ok(false);
        }
        self.make_room(&target)?;
        if self.lasting {
            // Before it has its name here: where it comes from it may not have been meant to last.
            match durable::sync_file(&source) {
                Err(DurableError::Io { source, .. })
                    if source.kind() == io::ErrorKind::NotFound =>
                {
                    return Ok(false);
                }
                synced => synced?,
            }
        }
        let linked = match there {
            None => fs::hard_link(&source, &target),
            // What is copied is checked, and takes the place of what is there.
            Some(_) => Err(io::ErrorKind::Unsupported.into()),
        };
        match linked {
            Ok(()) => {
                self.sync_names(&target)?;
                self.touch_blob(digest)?;
                return Ok(true);
            }
            // Somebody else gives it its name, and may not have made that last yet.
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {
                self.sync_names(&target)?;
                return Ok(true);
            }
            Err(_) => {} // Another file system, or one without links: copy.
        }
        let (mut file, size) = match from.open_blob(digest) {
            Ok(found) => found,
            Err(LayoutError::BlobNotFound { .. }) => return Ok(false),
            Err(e) => return Err(e),
        };
        let mut writer = self.blob_writer(*digest, Some(size))?;
        let mut buffer = vec![0; 256 * 1024];
        loop {
            let n = io::Read::read(&mut file, &mut buffer)
                .map_err(|e| LayoutError::io("read", &source, e))?;
            if n == 0 {
                break;
            }
            writer.write(&buffer[..n])?;
        }
        match writer.commit() {
            // It is the other's that was damaged.
            Err(LayoutError::DigestMismatch { .. }) if there.is_some() => Ok(true),
            kept => kept.map(|()| true),
        }
    }

    /// Says that a blob is about to be used, so that garbage collection spares it for another
    /// grace period. Costs nothing when it was written or touched within the last second.
    pub fn touch_blob(&self, digest: &Digest) -> Result<(), LayoutError> {
        let path = self.blob_path(digest);
        let fresh = fs::metadata(&path).is_ok_and(|m| durable::age(&m) < Duration::from_secs(1));
        if fresh {
            return Ok(());
        }
        let touched = File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        match touched {
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                Err(LayoutError::BlobNotFound { dir: self.dir.clone(), digest: *digest })
            }
            // A blob that somebody else owns can be read but not touched; collection belongs to
            // its owner then.
            _ => Ok(()),
        }
    }

    /// Removes a blob, referenced or not. False when it was not there.
    pub fn delete_blob(&self, digest: &Digest) -> Result<bool, LayoutError> {
        let path = self.blob_path(digest);
        match fs::remove_file(&path) {
            Ok(()) => {
                durable::sync_dir(path.parent().unwrap_or(&path))?;
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(e) => Err(LayoutError::io("remove", &path, e)),
        }
    }

    pub(crate) fn blob_path(&self, digest: &Digest) -> PathBuf {
        self.blobs_dir(digest.algorithm()).join(digest.hex())
    }

    pub(crate) fn blobs_dir(&self, algorithm: Algorithm) -> PathBuf {
        self.dir.join("blobs").join(algorithm.as_str())
    }

    fn sync_names(&self, target: &Path) -> Result<(), LayoutError> {
        match self.lasting {
            true => Ok(durable::sync_dir(target.parent().unwrap_or(target))?),
            false => Ok(()),
        }
    }

    /// Only `blobs/sha256` exists from the start.
    pub(crate) fn make_room(&self, target: &Path) -> Result<(), LayoutError> {
        Ok(target.parent().map_or(Ok(()), durable::create_dir)?)
    }
}

/// A blob on its way in: a temp file inside the layout, hashed as it is written.
///
/// [`BlobWriter::commit`] gives it its name; dropping it removes it.
#[derive(Debug)]
pub struct BlobWriter {
    draft: Draft,
    digest: Digest,
    target: PathBuf,
    size: Option<u64>,
}

impl BlobWriter {
    /// Takes the next bytes. Refuses what goes beyond the announced size.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), LayoutError> {
        let after = self.draft.written + bytes.len() as u64;
        if let Some(size) = self.size.filter(|size| after > *size) {
            return Err(LayoutError::TooLong { digest: self.digest, size });
        }
        self.draft.write(bytes)
    }

    /// How many bytes were taken.
    pub fn written(&self) -> u64 {
        self.draft.written
    }

    /// Checks size and digest, makes the content durable and gives it its name.
    ///
    /// Waits for the disk: call it on a blocking thread while other blobs flow.
    pub fn commit(self) -> Result<(), LayoutError> {
        let Self { draft, digest, target, size } = self;
        let lasting = draft.lasting;
        let Made { temp, hasher, written } = draft.made()?;
        if let Some(size) = size.filter(|size| written != *size) {
            return Err(LayoutError::TooShort { digest, size, written });
        }
        let actual = hasher.finish();
        if actual != digest {
            return Err(LayoutError::DigestMismatch { expected: digest, actual });
        }
        if let Some(dir) = target.parent() {
            durable::create_dir(dir)?;
        }
        Ok(named(temp, &target, lasting)?)
    }
}

/// Content on its way in that nobody has named yet: written once, hashed as it is written.
///
/// [`NewBlob::keep`] gives it its name; dropping it removes it.
#[derive(Debug)]
pub struct NewBlob {
    draft: Draft,
    layout: Layout,
}

impl NewBlob {
    /// Makes the content durable under the digest that it came to have, and says that and its size.
    pub fn keep(self) -> Result<(Digest, u64), LayoutError> {
        let Self { draft, layout } = self;
        let Made { temp, hasher, written } = draft.made()?;
        let digest = hasher.finish();
        if layout.blob_size(&digest)? == Some(written) {
            match layout.touch_blob(&digest) {
                // Collected since: what was just written takes its place.
                Err(LayoutError::BlobNotFound { .. }) => {}
                touched => return touched.map(|()| (digest, written)),
            }
        }
        let target = layout.blob_path(&digest);
        layout.make_room(&target)?;
        named(temp, &target, layout.lasting)?;
        Ok((digest, written))
    }
}

impl io::Write for NewBlob {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.draft.write(bytes).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A file without its name yet, and what is known of its bytes.
#[derive(Debug)]
struct Draft {
    temp: TempFile,
    hasher: Hasher,
    written: u64,
    flushed: u64,
    lasting: bool,
    /// How a write failed. Some of its bytes may be there, and neither hashed nor counted.
    torn: Option<io::ErrorKind>,
}

/// A draft that is whole.
struct Made {
    temp: TempFile,
    hasher: Hasher,
    written: u64,
}

impl Draft {
    fn new(layout: &Layout, algorithm: Algorithm) -> Result<Self, LayoutError> {
        let temp = TempFile::create(&layout.temp_dir())?;
        let (hasher, lasting) = (Hasher::new(algorithm), layout.lasting);
        Ok(Self { temp, hasher, written: 0, flushed: 0, lasting, torn: None })
    }

    /// All of it, for who gives it a name. Not everybody stops at the first error: what goes through
    /// [`io::Write`] may come from a library that tries on.
    fn made(self) -> Result<Made, LayoutError> {
        self.whole()?;
        let Self { temp, hasher, written, .. } = self;
        Ok(Made { temp, hasher, written })
    }

    fn whole(&self) -> Result<(), LayoutError> {
        let Some(kind) = self.torn else { return Ok(()) };
        let why = io::Error::new(kind, "a write failed before, so it is not whole");
        Err(LayoutError::io("go on with", self.temp.path(), why))
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), LayoutError> {
        self.whole()?;
        self.temp.write(bytes).inspect_err(|error| self.torn = Some(kind(error)))?;
        self.hasher.update(bytes);
        self.written += bytes.len() as u64;
        if self.lasting && self.written - self.flushed >= WRITEBACK_WINDOW {
            self.start_writeback();
        }
        Ok(())
    }

    /// Advice, not a demand: on Linux "not needed soon" starts writing dirty pages out without
    /// waiting for them. Failure costs only time.
    fn start_writeback(&mut self) {
        let length = std::num::NonZeroU64::new(self.written - self.flushed);
        let _ = fadvise(self.temp.file(), self.flushed, length, Advice::DontNeed);
        self.flushed = self.written;
    }
}

/// Gives whole content its name, made durable where it is to last.
fn named(temp: TempFile, target: &Path, lasting: bool) -> Result<(), DurableError> {
    match lasting {
        true => temp.rename(target),
        false => temp.rename_passing(target),
    }
}

fn kind(error: &DurableError) -> io::ErrorKind {
    match error {
        DurableError::Io { source, .. } => source.kind(),
        _ => io::ErrorKind::Other,
    }
}
