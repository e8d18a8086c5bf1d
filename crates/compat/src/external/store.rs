//! What was fetched, by digest: `<dir>/blobs/sha256/<hex>`.
//!
//! Only a way not to fetch twice. What is read from it is hashed like anything else, so a damaged
//! or changed file is merely fetched again.

use std::fs::{self, File};
use std::io::Read as _;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use portolan_core::Digest;
use portolan_registry::durable::{DurableError, TempFile};
use rustix::fs::{Mode, OFlags};

use super::program::MAX_PROGRAM;
use super::trust::{self, Distrust, Kind};

/// Why something fetched is not kept.
#[derive(Debug, thiserror::Error)]
pub(super) enum KeepError {
    /// Others could change it.
    #[error("{} is not used to keep plugins", path.display())]
    Untrusted {
        path: PathBuf,
        #[source]
        source: Distrust,
    },
    /// The disk says no.
    #[error(transparent)]
    Write(#[from] DurableError),
}

/// Programs by digest.
#[derive(Debug, Clone)]
pub(super) struct Store {
    blobs: PathBuf,
}

impl Store {
    /// Below the directory of plugins.
    pub(super) fn new(directory: &Path) -> Self {
        Self { blobs: directory.join("blobs/sha256") }
    }

    /// The program, if it is there, whole, and nobody else's.
    pub(super) fn read(&self, digest: &Digest) -> Option<Vec<u8>> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.blobs.join(digest.hex()), flags, Mode::empty()).ok()?;
        trust::check(&file, Kind::File).ok()?.ok()?;
        let mut bytes = Vec::new();
        File::from(file).take(MAX_PROGRAM + 1).read_to_end(&mut bytes).ok()?;
        (Digest::sha256(&bytes) == *digest).then_some(bytes)
    }

    /// Keeps a program whose digest was checked.
    pub(super) fn keep(&self, digest: &Digest, program: &[u8]) -> Result<(), KeepError> {
        let io = |step, path: &Path, source| DurableError::io(step, path, source);
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o755)
            .create(&self.blobs)
            .map_err(|error| io("create the directory", &self.blobs, error))?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(&self.blobs, flags, Mode::empty())
            .map_err(|errno| io("open", &self.blobs, errno.into()))?;
        trust::check(&directory, Kind::Directory)
            .map_err(|errno| io("look at", &self.blobs, errno.into()))?
            .map_err(|source| KeepError::Untrusted { path: self.blobs.clone(), source })?;
        let mut temp = TempFile::create(&self.blobs)?;
        temp.write(program)?;
        temp.file()
            .set_permissions(fs::Permissions::from_mode(0o555))
            .map_err(|error| io("change the mode of", temp.path(), error))?;
        Ok(temp.rename(&self.blobs.join(digest.hex()))?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_found_again_and_what_was_changed_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::new(dir.path());
        let digest = Digest::sha256(b"program");
        assert!(store.read(&digest).is_none());
        store.keep(&digest, b"program").unwrap();
        assert_eq!(store.read(&digest).unwrap(), b"program");
        let path = dir.path().join("blobs/sha256").join(digest.hex());
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o7777, 0o555);
        let listed = fs::read_dir(path.parent().unwrap()).unwrap().count();
        assert_eq!(listed, 1, "nothing half done stays");

        fs::remove_file(&path).unwrap();
        fs::write(&path, b"another").unwrap();
        assert!(store.read(&digest).is_none(), "other content");
        store.keep(&digest, b"program").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o757)).unwrap();
        assert!(store.read(&digest).is_none(), "others may write");
    }

    #[test]
    fn a_directory_that_others_may_write_to_keeps_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let blobs = dir.path().join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        fs::set_permissions(&blobs, fs::Permissions::from_mode(0o777)).unwrap();
        let digest = Digest::sha256(b"program");
        let error = Store::new(dir.path()).keep(&digest, b"program").unwrap_err();
        assert!(matches!(error, KeepError::Untrusted { .. }), "{error}");
        assert!(Store::new(dir.path()).read(&digest).is_none());
    }
}
