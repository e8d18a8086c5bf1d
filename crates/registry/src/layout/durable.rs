//! Writing so that a power cut or `kill -9` leaves either the old state or the new one:
//! temp file, fsync, rename, fsync of the directory. Valid means renamed.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::OFlags;

use super::error::LayoutError;

/// Where temp files live below a layout: on the same file system, so that rename is atomic, and
/// outside `blobs/`, so that no other tool takes one for content.
pub(crate) const TEMP_DIR: &str = ".portolan/tmp";

/// A temp file nobody holds a lock on belongs to a dead process. It is removed only when it is
/// also this old, because a file exists for a moment before its writer locks it.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// How long to wait for another process's lock. Locks are held for the rewrite of one small
/// file, or for a garbage collection; longer means something hangs.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// A file that removes itself unless it is renamed into place.
#[derive(Debug)]
pub(crate) struct TempFile {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl TempFile {
    /// A new, locked file in the temp directory of `root`.
    pub(crate) fn create(root: &Path) -> Result<Self, LayoutError> {
        let dir = root.join(TEMP_DIR);
        create_dir(&dir)?;
        for _ in 0..16 {
            let path = dir.join(random_name(&dir)?);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // The lock says "my writer lives" to whoever sweeps; it ends with the process.
                    file.lock().map_err(|e| LayoutError::io("lock", &path, e))?;
                    return Ok(Self { file, path, kept: false });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(LayoutError::io("create", &path, e)),
            }
        }
        Err(LayoutError::io("create a new file in", &dir, io::ErrorKind::AlreadyExists.into()))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), LayoutError> {
        self.file.write_all(bytes).map_err(|e| LayoutError::io("write", &self.path, e))
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Makes the content durable and gives it its name.
    pub(crate) fn rename(mut self, to: &Path) -> Result<(), LayoutError> {
        self.file.sync_all().map_err(|e| LayoutError::io("flush", &self.path, e))?;
        fs::rename(&self.path, to).map_err(|e| LayoutError::io("rename a temp file to", to, e))?;
        self.kept = true;
        sync_dir(to.parent().unwrap_or(to))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept {
            // Best effort: what stays behind is swept when the layout is opened again.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Sixteen random bytes in hex: never the same twice, in this process or another.
pub(crate) fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

fn random_name(dir: &Path) -> Result<String, LayoutError> {
    random_hex().map_err(|e| LayoutError::io("draw a random name in", dir, e))
}

/// Replaces `path` by `bytes`, all or nothing.
pub(crate) fn replace(root: &Path, path: &Path, bytes: &[u8]) -> Result<(), LayoutError> {
    let mut temp = TempFile::create(root)?;
    temp.write(bytes)?;
    temp.rename(path)
}

/// Creates a directory and its parents, each durable in its own parent.
pub(crate) fn create_dir(dir: &Path) -> Result<(), LayoutError> {
    if dir.is_dir() {
        return Ok(());
    }
    if let Some(parent) = dir.parent().filter(|p| !p.as_os_str().is_empty()) {
        create_dir(parent)?;
    }
    match fs::create_dir(dir) {
        Ok(()) => sync_dir(dir.parent().unwrap_or(dir)),
        // Another writer was faster.
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(()),
        Err(e) => Err(LayoutError::io("create the directory", dir, e)),
    }
}

/// Makes the names in a directory durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), LayoutError> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| LayoutError::io("flush", dir, e))
}

/// An exclusive lock on a directory, across threads and processes; released on drop or death.
#[derive(Debug)]
pub(crate) struct DirLock(#[expect(dead_code, reason = "held for its lock")] File);

impl DirLock {
    pub(crate) fn exclusive(dir: &Path) -> Result<Self, LayoutError> {
        Self::within(dir, LOCK_PATIENCE)
    }

    fn within(dir: &Path, patience: Duration) -> Result<Self, LayoutError> {
        let handle = File::open(dir).map_err(|e| LayoutError::io("open", dir, e))?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            match handle.try_lock() {
                Ok(()) => return Ok(Self(handle)),
                Err(TryLockError::Error(e)) => return Err(LayoutError::io("lock", dir, e)),
                Err(TryLockError::WouldBlock) if start.elapsed() > patience => {
                    return Err(LayoutError::Locked {
                        dir: dir.to_path_buf(),
                        seconds: patience.as_secs(),
                    });
                }
                Err(TryLockError::WouldBlock) => {
                    std::thread::sleep(pause);
                    pause = (pause * 2).min(Duration::from_millis(20));
                }
            }
        }
    }
}

/// Removes the temp files of writers that died. Trouble is not an error: a read-only layout may
/// still be read.
pub(crate) fn sweep_temp(root: &Path) {
    let Ok(entries) = fs::read_dir(root.join(TEMP_DIR)) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let old = entry.metadata().is_ok_and(|m| m.is_file() && age(&m) > STALE_AFTER);
        if old && File::open(&path).is_ok_and(|f| f.try_lock().is_ok()) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Time since the last write; zero for a file from the future.
pub(crate) fn age(metadata: &fs::Metadata) -> Duration {
    let modified = metadata.modified().unwrap_or_else(|_| SystemTime::now());
    modified.elapsed().unwrap_or_default()
}

/// Opens a regular file for reading and says how large it is.
///
/// A layout may come from a stranger: a pipe in it would make the reader wait for ever, so it is
/// opened without waiting and refused. Links are followed, other tools share blobs by them.
pub(crate) fn open_file(path: &Path) -> io::Result<(File, u64)> {
    let nonblock = OFlags::NONBLOCK.bits().cast_signed();
    let file = OpenOptions::new().read(true).custom_flags(nonblock).open(path)?;
    let metadata = file.metadata()?;
    if metadata.is_file() {
        Ok((file, metadata.len()))
    } else {
        Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"))
    }
}

/// Reads a whole file of at most `limit` bytes; none when it is not there.
pub(crate) fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, LayoutError> {
    let (file, size) = match open_file(path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(LayoutError::unreadable(path, e)),
    };
    let too_large = |size| LayoutError::TooLarge { path: path.to_path_buf(), size, limit };
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| LayoutError::unreadable(path, e))?;
    let read = bytes.len() as u64;
    if read > limit { Err(too_large(read)) } else { Ok(Some(bytes)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_temp_file_leaves_nothing() {
        let root = tempfile::tempdir().unwrap();
        let mut temp = TempFile::create(root.path()).unwrap();
        temp.write(b"half").unwrap();
        let path = temp.path.clone();
        assert!(path.exists());
        drop(temp);
        assert!(!path.exists());
    }

    #[test]
    fn sweeping_spares_the_living_and_the_young() {
        let root = tempfile::tempdir().unwrap();
        let old = SystemTime::now() - STALE_AFTER * 2;
        let living = TempFile::create(root.path()).unwrap();
        living.file.set_modified(old).unwrap();
        let dir = root.path().join(TEMP_DIR);
        fs::write(dir.join("young"), b"x").unwrap();
        fs::write(dir.join("dead"), b"x").unwrap();
        File::options().write(true).open(dir.join("dead")).unwrap().set_modified(old).unwrap();

        sweep_temp(root.path());

        assert!(living.path.exists());
        assert!(dir.join("young").exists());
        assert!(!dir.join("dead").exists());
    }

    #[test]
    fn a_held_lock_is_reported_after_the_wait() {
        let root = tempfile::tempdir().unwrap();
        let held = DirLock::exclusive(root.path()).unwrap();
        let refused = DirLock::within(root.path(), Duration::from_millis(30));
        assert!(matches!(refused, Err(LayoutError::Locked { .. })));
        drop(held);
        DirLock::within(root.path(), Duration::from_millis(30)).unwrap();
    }

    #[test]
    fn reading_stops_at_the_bound() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap().unwrap(), b"12345");
        assert!(matches!(read_bounded(&path, 4), Err(LayoutError::TooLarge { size: 5, .. })));
        assert!(read_bounded(&root.path().join("none"), 4).unwrap().is_none());
    }

    #[test]
    fn what_is_no_file_is_refused_without_waiting() {
        let root = tempfile::tempdir().unwrap();
        let pipe = root.path().join("pipe");
        rustix::fs::mknodat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        for path in [pipe.as_path(), root.path()] {
            let error = read_bounded(path, 4).unwrap_err();
            assert_eq!(error.to_string(), format!("cannot read {}", path.display()));
        }
    }
}
