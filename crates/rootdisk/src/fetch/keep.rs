//! Blobs kept in an OCI layout as they pass by.

use std::fs::File;
use std::io;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use portolan_core::Descriptor;
use portolan_registry::durable::{self, DurableError, TempFile};
use rustix::fs::{Advice, fadvise};

use super::{Keep, Keeping};

/// Writeback is asked for every so many bytes, so that the last flush finds little to do.
const WRITEBACK: u64 = 8 * 1024 * 1024;

/// Keeps blobs under `blobs/<algorithm>/<hex>`. They are not hashed again: whoever calls
/// [`Keeping::commit`] has done so.
#[derive(Debug, Clone)]
pub struct KeepInLayout {
    dir: PathBuf,
}

impl KeepInLayout {
    /// In the layout at `dir`.
    pub fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned() }
    }

    fn path(&self, blob: &Descriptor) -> PathBuf {
        self.dir.join("blobs").join(blob.digest.algorithm().as_str()).join(blob.digest.hex())
    }
}

impl Keep for KeepInLayout {
    fn stored(&self, blob: &Descriptor) -> io::Result<Option<File>> {
        match durable::open_file(&self.path(blob)) {
            // A file of another size was damaged after it was written, and is replaced.
            Ok((file, size)) => Ok((size == blob.size).then_some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn begin(&self, blob: &Descriptor) -> io::Result<Option<Box<dyn Keeping>>> {
        let path = self.path(blob);
        let parent = path.parent().expect("the path was joined");
        durable::create_dir(parent).map_err(plain)?;
        let temp = TempFile::create(&self.dir.join(".portolan/tmp")).map_err(plain)?;
        Ok(Some(Box::new(Kept { temp, path, written: 0, flushed: 0 })))
    }
}

struct Kept {
    temp: TempFile,
    path: PathBuf,
    written: u64,
    /// Up to where writeback was asked for.
    flushed: u64,
}

impl Keeping for Kept {
    fn piece(&mut self, bytes: &Bytes) -> io::Result<()> {
        self.temp.write(bytes).map_err(plain)?;
        self.written += bytes.len() as u64;
        if self.written - self.flushed >= WRITEBACK {
            // Only advice: what matters is said by the flush at the end.
            let length = NonZeroU64::new(self.written - self.flushed);
            let _ = fadvise(self.temp.file(), self.flushed, length, Advice::DontNeed);
            self.flushed = self.written;
        }
        Ok(())
    }

    fn commit(self: Box<Self>) -> io::Result<()> {
        self.temp.rename(&self.path).map_err(plain)
    }
}

/// The system's error, which is what tells a full disk from others.
fn plain(error: DurableError) -> io::Error {
    match error {
        DurableError::Io { source, .. } | DurableError::Unreadable { source, .. } => source,
        other => io::Error::other(other),
    }
}
