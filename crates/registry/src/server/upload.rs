//! Upload sessions: a file per session inside the repository's layout, so that an upload goes on
//! after a restart, and an abandoned one is a file with a date.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use portolan_core::{Algorithm, Digest, Hasher};
use tokio::sync::OwnedMutexGuard;

use super::error::{ApiError, Code};
use super::route::UploadId;
use crate::durable;
use crate::layout::Layout;

/// Where sessions live below a layout.
const UPLOAD_DIR: &str = ".portolan/uploads";

/// What is known of the sessions of this process. The files are the truth; this only saves
/// hashing them again.
#[derive(Debug)]
pub(super) struct Uploads {
    known: Mutex<HashMap<PathBuf, Arc<tokio::sync::Mutex<Progress>>>>,
    most: usize,
}

/// The hash of the first `hashed` bytes of a session's file.
#[derive(Debug)]
pub(super) struct Progress {
    algorithm: Algorithm,
    hasher: Hasher,
    hashed: u64,
}

impl Progress {
    fn new(algorithm: Algorithm) -> Self {
        Self { algorithm, hasher: Hasher::new(algorithm), hashed: 0 }
    }
}

/// A session that one request works on. Others are refused until it is dropped.
#[derive(Debug)]
pub(super) struct Session {
    path: PathBuf,
    file: File,
    size: u64,
    progress: OwnedMutexGuard<Progress>,
}

impl Uploads {
    /// Knows of at most `most` sessions at once.
    pub(super) fn new(most: usize) -> Self {
        Self { known: Mutex::default(), most }
    }

    /// Starts a session. The algorithm is a guess at the digest that will be asked for; a wrong
    /// guess costs one more reading of the file.
    pub(super) fn start(
        &self,
        layout: &Layout,
        algorithm: Algorithm,
    ) -> Result<UploadId, ApiError> {
        let random = durable::random_hex().map_err(|e| ApiError::io("draw a session name", &e))?;
        let id = UploadId::parse(&random).expect("random_hex writes 32 hex digits");
        let path = path(layout, &id);
        let mut known = self.known();
        if known.len() >= self.most {
            return Err(ApiError::new(
                Code::TooManyRequests,
                "too many uploads are under way; try again later",
            ));
        }
        durable::create_dir(path.parent().unwrap_or(&path))?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| ApiError::io("create an upload", &e))?;
        known.insert(path, Arc::new(tokio::sync::Mutex::new(Progress::new(algorithm))));
        Ok(id)
    }

    /// Takes a session over for one request.
    pub(super) fn open(&self, layout: &Layout, id: &UploadId) -> Result<Session, ApiError> {
        let path = path(layout, id);
        let mut file =
            OpenOptions::new().read(true).write(true).open(&path).map_err(|e| match e.kind() {
                io::ErrorKind::NotFound => {
                    self.known().remove(&path);
                    ApiError::upload_unknown()
                }
                _ => ApiError::io("open an upload", &e),
            })?;
        let progress = {
            let mut known = self.known();
            let fresh = || Arc::new(tokio::sync::Mutex::new(Progress::new(Algorithm::Sha256)));
            Arc::clone(known.entry(path.clone()).or_insert_with(fresh))
        };
        let progress = progress.try_lock_owned().map_err(|_| {
            ApiError::new(Code::UploadBusy, "another request is writing to this upload")
        })?;
        // Only now, under the lock, is the size sure.
        let size = file.seek(SeekFrom::End(0)).map_err(|e| ApiError::io("read an upload", &e))?;
        Ok(Session { path, file, size, progress })
    }

    /// How many bytes a session has, also while another request writes to it.
    pub(super) fn size(&self, layout: &Layout, id: &UploadId) -> Result<u64, ApiError> {
        match fs::metadata(path(layout, id)) {
            Ok(metadata) => Ok(metadata.len()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(ApiError::upload_unknown()),
            Err(e) => Err(ApiError::io("look at an upload", &e)),
        }
    }

    /// Gives a session up and frees its space.
    pub(super) fn cancel(&self, session: Session) -> Result<(), ApiError> {
        self.known().remove(&session.path);
        fs::remove_file(&session.path).map_err(|e| ApiError::io("remove an upload", &e))
    }

    /// Ends a session: its content becomes the blob `digest`, or the session is gone.
    pub(super) fn finish(
        &self,
        mut session: Session,
        layout: &Layout,
        digest: &Digest,
    ) -> Result<(), ApiError> {
        let actual = session.digest(digest.algorithm())?;
        if actual != *digest {
            self.cancel(session)?;
            let text = format!("the content has digest {actual}, not {digest}");
            return Err(ApiError::new(Code::DigestInvalid, text));
        }
        let target = layout.blob_path(digest);
        layout.make_room(&target)?;
        session.file.sync_all().map_err(|e| ApiError::io("flush an upload", &e))?;
        fs::rename(&session.path, &target).map_err(|e| ApiError::io("name a blob", &e))?;
        self.known().remove(&session.path);
        durable::sync_dir(target.parent().unwrap_or(&target))?;
        Ok(())
    }

    /// Removes sessions of a layout that nobody wrote to for `expiry`.
    pub(super) fn expire(&self, layout: &Layout, expiry: Duration) -> io::Result<usize> {
        let entries = match fs::read_dir(layout.dir().join(UPLOAD_DIR)) {
            Ok(entries) => entries,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(e) => return Err(e),
        };
        let mut removed = 0;
        for entry in entries {
            let entry = entry?;
            let old = entry.metadata().is_ok_and(|m| durable::age(&m) > expiry);
            let id = entry.file_name().to_str().and_then(UploadId::parse);
            if let Some(id) = id.filter(|_| old)
                && let Ok(session) = self.open(layout, &id)
                && self.cancel(session).is_ok()
            {
                removed += 1;
            }
        }
        Ok(removed)
    }

    fn known(
        &self,
    ) -> std::sync::MutexGuard<'_, HashMap<PathBuf, Arc<tokio::sync::Mutex<Progress>>>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn path(layout: &Layout, id: &UploadId) -> PathBuf {
    layout.dir().join(UPLOAD_DIR).join(id.as_str())
}

impl Session {
    /// How many bytes are there.
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Says which digest will be asked for, as long as nothing was hashed yet.
    pub(super) fn expect(&mut self, algorithm: Algorithm) {
        if self.size == 0 {
            *self.progress = Progress::new(algorithm);
        }
    }

    /// Appends, and hashes while the bytes are still in the processor's cache.
    pub(super) fn append(&mut self, pieces: &[Bytes]) -> io::Result<()> {
        for piece in pieces {
            self.file.write_all(piece)?;
            if self.progress.hashed == self.size {
                self.progress.hasher.update(piece);
                self.progress.hashed += piece.len() as u64;
            }
            self.size += piece.len() as u64;
        }
        Ok(())
    }

    /// Goes back to an earlier size.
    pub(super) fn truncate(&mut self, size: u64) -> io::Result<()> {
        self.file.set_len(size)?;
        self.file.seek(SeekFrom::Start(size))?;
        self.size = size;
        // What was hashed beyond cannot be taken back: hash the file again at the end.
        let algorithm = self.progress.algorithm;
        *self.progress = Progress::new(algorithm);
        Ok(())
    }

    fn digest(&mut self, algorithm: Algorithm) -> Result<Digest, ApiError> {
        let complete = self.progress.hashed == self.size && self.progress.algorithm == algorithm;
        if complete {
            return Ok(self.progress.hasher.clone().finish());
        }
        hash_file(&self.path, algorithm).map_err(|e| ApiError::io("read an upload", &e))
    }
}

/// After a restart, or for another algorithm than was guessed.
fn hash_file(path: &Path, algorithm: Algorithm) -> io::Result<Digest> {
    let mut file = File::open(path)?;
    let mut hasher = Hasher::new(algorithm);
    let mut buffer = vec![0; 256 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hasher.finish()),
            n => hasher.update(&buffer[..n]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(dir: &tempfile::TempDir) -> Layout {
        Layout::create(&dir.path().join("l")).unwrap()
    }

    #[test]
    fn a_session_outlives_the_process_that_began_it() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        let before = Uploads::new(10);
        let id = before.start(&layout, Algorithm::Sha256).unwrap();
        before.open(&layout, &id).unwrap().append(&[Bytes::from_static(b"one ")]).unwrap();

        let after = Uploads::new(10);
        let mut session = after.open(&layout, &id).unwrap();
        assert_eq!(session.size(), 4);
        session.append(&[Bytes::from_static(b"two")]).unwrap();
        let digest = Digest::of(Algorithm::Sha512, b"one two");
        after.finish(session, &layout, &digest).unwrap();
        assert_eq!(layout.blob_size(&digest).unwrap(), Some(7));
        assert_eq!(after.open(&layout, &id).unwrap_err().code(), Code::BlobUploadUnknown);
    }

    #[test]
    fn a_wrong_digest_ends_the_session_and_stores_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        let uploads = Uploads::new(10);
        let id = uploads.start(&layout, Algorithm::Sha256).unwrap();
        let session = uploads.open(&layout, &id).unwrap();
        let refused = uploads.finish(session, &layout, &Digest::sha256(b"other")).unwrap_err();
        assert_eq!(refused.code(), Code::DigestInvalid);
        assert!(uploads.open(&layout, &id).is_err());
        assert_eq!(layout.blob_size(&Digest::sha256(b"")).unwrap(), None);
    }

    #[test]
    fn one_request_at_a_time_and_a_bound_on_sessions() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        let uploads = Uploads::new(1);
        let id = uploads.start(&layout, Algorithm::Sha256).unwrap();
        let first = uploads.open(&layout, &id).unwrap();
        assert_eq!(uploads.open(&layout, &id).unwrap_err().code(), Code::UploadBusy);
        drop(first);
        let refused = uploads.start(&layout, Algorithm::Sha256).unwrap_err();
        assert_eq!(refused.code(), Code::TooManyRequests);
        let session = uploads.open(&layout, &id).unwrap();
        uploads.cancel(session).unwrap();
        uploads.start(&layout, Algorithm::Sha256).unwrap();
    }

    #[test]
    fn truncating_hashes_again() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        let uploads = Uploads::new(10);
        let id = uploads.start(&layout, Algorithm::Sha256).unwrap();
        let mut session = uploads.open(&layout, &id).unwrap();
        session.append(&[Bytes::from_static(b"keep"), Bytes::from_static(b"drop")]).unwrap();
        session.truncate(4).unwrap();
        session.append(&[Bytes::from_static(b"!")]).unwrap();
        uploads.finish(session, &layout, &Digest::sha256(b"keep!")).unwrap();
    }

    #[test]
    fn only_the_abandoned_expire() {
        let dir = tempfile::tempdir().unwrap();
        let layout = layout(&dir);
        let uploads = Uploads::new(10);
        let old = uploads.start(&layout, Algorithm::Sha256).unwrap();
        let young = uploads.start(&layout, Algorithm::Sha256).unwrap();
        let long_ago = std::time::SystemTime::now() - Duration::from_secs(7200);
        File::options()
            .write(true)
            .open(path(&layout, &old))
            .unwrap()
            .set_modified(long_ago)
            .unwrap();
        assert_eq!(uploads.expire(&layout, Duration::from_secs(3600)).unwrap(), 1);
        assert!(uploads.open(&layout, &old).is_err());
        assert!(uploads.open(&layout, &young).is_ok());
    }
}
