//! Changes to a host's files. Each is told before it is made, and none is half made: temp file, fsync,
//! rename, fsync of the directory.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use portolan_registry::durable::{self, DurableError, TempFile};

/// Is told of every change before it is made: for a log, and for whoever wants to see what is left when
/// it ends there.
pub trait Watch: Send + Sync {
    /// This is about to be done to that path.
    fn before(&self, what: &'static str, path: &Path);
}

/// Tells nobody but the log.
#[derive(Debug, Clone, Copy, Default)]
pub struct Quiet;

impl Watch for Quiet {
    fn before(&self, what: &'static str, path: &Path) {
        tracing::debug!(path = %path.display(), "{what}");
    }
}

/// What a file that is being written is called. It must not end as a configuration does: to containerd,
/// `*.toml` also takes names that begin with a dot.
const TEMP: &str = ".portolan-new-";

pub(crate) struct Disk<'a> {
    pub(crate) watch: &'a dyn Watch,
}

impl Disk<'_> {
    fn tell(&self, what: &'static str, path: &Path) {
        self.watch.before(what, path);
    }

    /// Replaces `path` by `bytes`. Mode and owner stay what they were; a new file has `mode`.
    ///
    /// The temp file has one name for each path: only one installer works at a time, so what is there
    /// under it was left by one that died.
    pub(crate) fn replace(&self, path: &Path, bytes: &[u8], mode: u32) -> Result<(), DurableError> {
        let temp = temp_of(path);
        self.tell("write", &temp);
        let failed = |e| DurableError::io("write", &temp, e);
        let _ = fs::remove_file(&temp);
        let kept = Discard(&temp);
        let before = fs::metadata(path).ok();
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&temp)
            .map_err(failed)?;
        file.write_all(bytes).map_err(failed)?;
        if let Some(before) = &before {
            let (uid, gid) = (Some(before.uid()), Some(before.gid()));
            // Not root, and a file of somebody else: the rename would take it from its owner.
            std::os::unix::fs::fchown(&file, uid, gid).map_err(failed)?;
        }
        let mode = before.map_or(mode, |before| before.mode() & 0o7777);
        file.set_permissions(Permissions::from_mode(mode)).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        self.rename(&temp, path)?;
        std::mem::forget(kept);
        Ok(())
    }

    /// Gives what is at `from` the name `to`, for good.
    pub(crate) fn rename(&self, from: &Path, to: &Path) -> Result<(), DurableError> {
        self.tell("rename to", to);
        fs::rename(from, to).map_err(|e| DurableError::io("rename a file to", to, e))?;
        durable::sync_dir(to.parent().unwrap_or(to))
    }

    /// Makes one directory, for good.
    pub(crate) fn create_dir(&self, dir: &Path) -> Result<(), DurableError> {
        match self.make_dir(dir)? {
            true => durable::sync_dir(dir.parent().unwrap_or(dir)),
            false => Ok(()),
        }
    }

    /// Makes one directory, true where it was not there. Its name may be gone after a crash of the system: for what is
    /// swept anyway, or gets another name.
    pub(crate) fn make_dir(&self, dir: &Path) -> Result<bool, DurableError> {
        self.tell("make the directory", dir);
        match fs::create_dir(dir) {
            Ok(()) => {
                // Whatever the umask says: the runtime and its shims must get through.
                let _ = fs::set_permissions(dir, Permissions::from_mode(0o755));
                Ok(true)
            }
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && dir.is_dir() => Ok(false),
            Err(e) => Err(DurableError::io("create the directory", dir, e)),
        }
    }

    /// Removes a file; true where there was one.
    pub(crate) fn remove_file(&self, path: &Path) -> Result<bool, DurableError> {
        if fs::symlink_metadata(path).is_err_and(|e| is_gone(&e)) {
            return Ok(false);
        }
        self.tell("remove", path);
        match fs::remove_file(path) {
            Ok(()) => {
                durable::sync_dir(path.parent().unwrap_or(path))?;
                Ok(true)
            }
            Err(e) if is_gone(&e) => Ok(false),
            Err(e) => Err(DurableError::io("remove", path, e)),
        }
    }

    /// Removes a directory unless there is something in it; true where it is gone.
    pub(crate) fn remove_empty_dir(&self, dir: &Path) -> Result<bool, DurableError> {
        match fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
            Ok(true) => return Ok(false),
            Err(e) if is_gone(&e) => return Ok(true),
            _ => {}
        }
        self.tell("remove the directory", dir);
        match fs::remove_dir(dir) {
            Ok(()) => {
                durable::sync_dir(dir.parent().unwrap_or(dir))?;
                Ok(true)
            }
            Err(e) if is_gone(&e) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => Ok(false),
            Err(e) => Err(DurableError::io("remove the directory", dir, e)),
        }
    }

    /// Removes a directory of our own with all that is in it.
    pub(crate) fn remove_tree(&self, dir: &Path) -> Result<(), DurableError> {
        if fs::symlink_metadata(dir).is_err_and(|e| is_gone(&e)) {
            return Ok(());
        }
        self.tell("remove with all that is in it", dir);
        match fs::remove_dir_all(dir) {
            Err(e) if !is_gone(&e) => Err(DurableError::io("remove", dir, e)),
            _ => durable::sync_dir(dir.parent().unwrap_or(dir)),
        }
    }

    /// Removes what a dead writer of `path` left beside it.
    pub(crate) fn sweep(&self, path: &Path) -> Result<(), DurableError> {
        self.remove_file(&temp_of(path)).map(|_| ())
    }

    /// Makes a file executable for all and writable for its owner alone; it is not synced before it gets its name.
    pub(crate) fn make_program(&self, file: &File, path: &Path) -> Result<(), DurableError> {
        self.tell("set the mode of", path);
        file.set_permissions(Permissions::from_mode(0o755))
            .map_err(|e| DurableError::io("set the mode of", path, e))
    }
}

/// Takes a file's name away: it goes with its last reader, also where that is killed. Nobody sweeps where
/// downloads are kept.
pub(crate) fn unname(file: &TempFile) -> Result<(), DurableError> {
    fs::remove_file(file.path()).map_err(|e| DurableError::io("take the name of", file.path(), e))
}

/// Removes a temp file that got no name; a process that is killed does not, and the next one sweeps.
struct Discard<'a>(&'a Path);

impl Drop for Discard<'_> {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.0);
    }
}

fn temp_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{TEMP}{name}~"))
}

fn is_gone(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}
