//! Writing so that a power cut or `kill -9` leaves either the old state or the new one:
//! temp file, fsync, rename, fsync of the directory. Valid means renamed.
//!
//! Layouts, root disks and the agent's store are all written through here.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{CWD, OFlags, RenameFlags};

/// A temp file nobody holds a lock on belongs to a dead process. It is removed only when it is
/// also this old, because a file exists for a moment before its writer locks it.
const STALE_AFTER: Duration = Duration::from_secs(60);

/// How long to wait for another process's lock. Locks are held for the rewrite of one small
/// file, or for a garbage collection; longer means something hangs.
const LOCK_PATIENCE: Duration = Duration::from_secs(60);

/// Why a file could not be written, read or locked.
#[derive(Debug, thiserror::Error)]
pub enum DurableError {
    /// A change to the file system failed.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// A file cannot be read. Permission denied means something else here than to a writer.
    #[error("cannot read {}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// A file that is read whole is larger than anything sane.
    #[error("{} has {size} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The bound.
        limit: u64,
    },
    /// Somebody else holds the lock.
    #[error("{} stayed locked by another process for {seconds} s; try again when it is done", path.display())]
    Locked {
        /// The directory or file.
        path: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
}

impl DurableError {
    /// A failed change: what was tried, as a verb, on what, and the system's word for it.
    pub fn io(step: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { step, path: path.to_path_buf(), source }
    }

    /// Whether there is no space, quota or file size left.
    pub fn is_full(&self) -> bool {
        matches!(self, Self::Io { source, .. } if is_full(source))
    }

    fn unreadable(path: &Path, source: io::Error) -> Self {
        Self::Unreadable { path: path.to_path_buf(), source }
    }
}

/// Whether the system says that there is no space, quota or file size left.
pub fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// A file that removes itself unless it is renamed into place.
#[derive(Debug)]
pub struct TempFile {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl TempFile {
    /// A new, locked file in `dir`, which is made when it is missing. It must be on the file
    /// system of the final name, so that rename is atomic.
    pub fn create(dir: &Path) -> Result<Self, DurableError> {
        create_dir(dir)?;
        for _ in 0..16 {
            let path = dir.join(random_name(dir)?);
            match OpenOptions::new().read(true).write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // The lock says "my writer lives" to whoever sweeps; it ends with the process.
                    file.lock().map_err(|e| DurableError::io("lock", &path, e))?;
                    return Ok(Self { file, path, kept: false });
                }
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(DurableError::io("create", &path, e)),
            }
        }
        Err(DurableError::io("create a new file in", dir, io::ErrorKind::AlreadyExists.into()))
    }

    /// Appends.
    pub fn write(&mut self, bytes: &[u8]) -> Result<(), DurableError> {
        self.file.write_all(bytes).map_err(|e| DurableError::io("write", &self.path, e))
    }

    /// The file, open for reading and writing.
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Where it is until it is renamed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the content durable and gives it its name.
    pub fn rename(self, to: &Path) -> Result<(), DurableError> {
        self.named(to, |from, to| fs::rename(from, to))
    }

    /// Gives it its name without waiting for the disk: for what need not outlive its process.
    pub fn rename_passing(mut self, to: &Path) -> Result<(), DurableError> {
        fs::rename(&self.path, to).map_err(|e| DurableError::io("rename a temp file to", to, e))?;
        self.kept = true;
        Ok(())
    }

    /// The same, unless there is something of that name.
    pub fn rename_new(self, to: &Path) -> Result<(), DurableError> {
        self.named(to, |from, to| {
            Ok(rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE)?)
        })
    }

    fn named(
        mut self,
        to: &Path,
        rename: impl Fn(&Path, &Path) -> io::Result<()>,
    ) -> Result<(), DurableError> {
        self.file.sync_all().map_err(|e| DurableError::io("flush", &self.path, e))?;
        rename(&self.path, to).map_err(|e| DurableError::io("rename a temp file to", to, e))?;
        self.kept = true;
        sync_dir(to.parent().unwrap_or(to))
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.kept {
            // Best effort: what stays behind is swept when its directory is next opened.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Sixteen random bytes in hex: never the same twice, in this process or another.
pub fn random_hex() -> io::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(io::Error::other)?;
    Ok(portolan_core::hex(&bytes))
}

fn random_name(dir: &Path) -> Result<String, DurableError> {
    random_hex().map_err(|e| DurableError::io("draw a random name in", dir, e))
}

/// Replaces `path` by `bytes`, all or nothing, by way of a temp file in `temp`.
pub fn replace(temp: &Path, path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
    let mut temp = TempFile::create(temp)?;
    temp.write(bytes)?;
    temp.rename(path)
}

/// Creates a directory and its parents, each durable in its own parent.
pub fn create_dir(dir: &Path) -> Result<(), DurableError> {
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
        Err(e) => Err(DurableError::io("create the directory", dir, e)),
    }
}

/// Makes what is in a file durable.
pub fn sync_file(path: &Path) -> Result<(), DurableError> {
    File::open(path).and_then(|f| f.sync_all()).map_err(|e| DurableError::io("flush", path, e))
}

/// Makes the names in a directory durable.
pub fn sync_dir(dir: &Path) -> Result<(), DurableError> {
    let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
    File::open(dir).and_then(|d| d.sync_all()).map_err(|e| DurableError::io("flush", dir, e))
}

/// An exclusive lock on a directory, across threads and processes; released on drop or death.
#[derive(Debug)]
pub struct DirLock(#[expect(dead_code, reason = "held for its lock")] File);

impl DirLock {
    /// Waits up to a minute for it.
    pub fn exclusive(dir: &Path) -> Result<Self, DurableError> {
        Self::within(dir, LOCK_PATIENCE)
    }

    /// Waits so long for it.
    pub fn within(dir: &Path, patience: Duration) -> Result<Self, DurableError> {
        let handle = File::open(dir).map_err(|e| DurableError::io("open", dir, e))?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(200);
        loop {
            match handle.try_lock() {
                Ok(()) => return Ok(Self(handle)),
                Err(TryLockError::Error(e)) => return Err(DurableError::io("lock", dir, e)),
                Err(TryLockError::WouldBlock) if start.elapsed() > patience => {
                    return Err(DurableError::Locked {
                        path: dir.to_path_buf(),
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

/// Removes the temp files of writers that died from `dir`. Trouble is not an error: what is
/// read-only may still be read.
pub fn sweep_temp(dir: &Path) {
    let Ok(entries) = fs::read_dir(dir) else { return };
    for path in entries.flatten().map(|entry| entry.path()) {
        if is_abandoned(&path) {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a temp file's writer is dead: nobody holds its lock, and it is not so young that its
/// writer may not have locked it yet.
pub fn is_abandoned(path: &Path) -> bool {
    let old = fs::symlink_metadata(path).is_ok_and(|m| m.is_file() && age(&m) > STALE_AFTER);
    old && File::open(path).is_ok_and(|f| f.try_lock().is_ok())
}

/// Time since the last write; zero for a file from the future.
pub fn age(metadata: &fs::Metadata) -> Duration {
    let modified = metadata.modified().unwrap_or_else(|_| SystemTime::now());
    modified.elapsed().unwrap_or_default()
}

/// Opens a regular file for reading and says how large it is.
///
/// A layout may come from a stranger: a pipe in it would make the reader wait for ever, so it is
/// opened without waiting and refused. Links are followed, other tools share blobs by them.
pub fn open_file(path: &Path) -> io::Result<(File, u64)> {
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
pub fn read_bounded(path: &Path, limit: u64) -> Result<Option<Vec<u8>>, DurableError> {
    let (file, size) = match open_file(path) {
        Ok(opened) => opened,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(DurableError::unreadable(path, e)),
    };
    let too_large = |size| DurableError::TooLarge { path: path.to_path_buf(), size, limit };
    if size > limit {
        return Err(too_large(size));
    }
    let mut bytes = Vec::with_capacity(usize::try_from(size).unwrap_or_default());
    file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| DurableError::unreadable(path, e))?;
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
        let dir = root.path().join("a/temp");
        let living = TempFile::create(&dir).unwrap();
        living.file.set_modified(old).unwrap();
        fs::write(dir.join("young"), b"x").unwrap();
        fs::write(dir.join("dead"), b"x").unwrap();
        File::options().write(true).open(dir.join("dead")).unwrap().set_modified(old).unwrap();

        sweep_temp(&dir);

        assert!(living.path.exists());
        assert!(dir.join("young").exists());
        assert!(!dir.join("dead").exists());
    }

    #[test]
    fn a_held_lock_is_reported_after_the_wait() {
        let root = tempfile::tempdir().unwrap();
        let held = DirLock::exclusive(root.path()).unwrap();
        let refused = DirLock::within(root.path(), Duration::from_millis(30));
        assert!(matches!(refused, Err(DurableError::Locked { .. })));
        drop(held);
        DirLock::within(root.path(), Duration::from_millis(30)).unwrap();
    }

    #[test]
    fn reading_stops_at_the_bound() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("f");
        fs::write(&path, b"12345").unwrap();
        assert_eq!(read_bounded(&path, 5).unwrap().unwrap(), b"12345");
        assert!(matches!(read_bounded(&path, 4), Err(DurableError::TooLarge { size: 5, .. })));
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
