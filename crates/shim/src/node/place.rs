//! Programs under their digests. A new one never touches the file of an old one, so nothing that runs is in
//! the way; an old one goes when no configuration names it and no process runs it.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use portolan_core::{Algorithm, Digest, Hasher};
use portolan_registry::durable::{self, DurableError, TempFile};
use rustix::fs::StatVfsMountFlags;

use super::state::{StateError, Store};
use crate::report::Reason;

/// Why a program cannot be put in its place.
#[derive(Debug, thiserror::Error)]
pub enum PlaceError {
    /// The state cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The disk.
    #[error("the program cannot be put in its place")]
    Disk(#[from] DurableError),
    /// Programs do not run there.
    #[error(
        "{path} is on a file system that is mounted noexec; give another --install-dir, such as /home/kubernetes/bin on Container-Optimized OS"
    )]
    NoExec {
        /// The directory.
        path: String,
    },
}

impl PlaceError {
    /// In the report's words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NoExec { .. } => Reason::NodeNotSupported,
            _ => Reason::HostTrouble,
        }
    }
}

/// Whether programs run where they would be put.
pub(crate) fn check_directory(store: &Store<'_>) -> Result<(), PlaceError> {
    let here = store.here(&store.install_dir)?;
    let there = here.ancestors().find(|dir| dir.exists()).unwrap_or_else(|| Path::new("/"));
    let flags = rustix::fs::statvfs(there).map(|fs| fs.f_flag);
    if flags.is_ok_and(|flags| flags.contains(StatVfsMountFlags::NOEXEC)) {
        return Err(PlaceError::NoExec { path: store.install_dir.clone() });
    }
    Ok(())
}

/// Where a program of a shim is, as the host names it.
pub(crate) fn path(install_dir: &str, name: &str, sha256: &str, binary: &str) -> String {
    format!("{install_dir}/{name}/{sha256}/{binary}")
}

/// The directory that a program is alone in.
pub(crate) fn dir_of(path: &str) -> &str {
    path.rsplit_once('/').map_or(path, |(dir, _)| dir)
}

/// Puts a program in its place. It must be in the state's `versions` before.
pub(crate) fn put(store: &mut Store<'_>, program: TempFile, path: &str) -> Result<(), PlaceError> {
    let here = store.here(path)?;
    store.ensure_dir(dir_of(path))?;
    store.disk.make_program(program.file(), program.path())?;
    store.disk.watch.before("rename to", &here);
    Ok(program.rename(&here)?)
}

/// Makes a placed program executable for all, whatever was done to it since; true where it was not.
pub(crate) fn correct_mode(store: &Store<'_>, path: &str) -> Result<bool, PlaceError> {
    let here = store.here(path)?;
    let failed = |e| DurableError::io("set the mode of", &here, e);
    if fs::metadata(&here).map_err(failed)?.mode() & 0o7777 == 0o755 {
        return Ok(false);
    }
    store.disk.watch.before("set the mode of", &here);
    fs::set_permissions(&here, fs::Permissions::from_mode(0o755)).map_err(failed)?;
    Ok(true)
}

/// Whether the file at `here` is the one.
pub(crate) fn is_right(here: &Path, digest: &Digest) -> bool {
    hash(here).is_some_and(|found| found == *digest)
}

/// What a file hashes to.
pub(crate) fn hash(here: &Path) -> Option<Digest> {
    use std::io::Read as _;
    let (mut file, _) = durable::open_file(here).ok()?;
    let mut hasher = Hasher::new(Algorithm::Sha256);
    let mut buffer = vec![0; 256 << 10];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Some(hasher.finish()),
            Ok(have) => hasher.update(&buffer[..have]),
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            Err(_) => return None,
        }
    }
}

/// Removes the programs of a shim that nothing needs. Those that run stay: the runtime calls a shim's file
/// again to clean up after it.
pub(crate) fn collect(store: &mut Store<'_>, name: &str) -> Result<(), PlaceError> {
    let Some(shim) = store.state.shims.get(name).cloned() else { return Ok(()) };
    let keep = &shim.sha256;
    let old: Vec<_> = shim.versions.iter().filter(|sha256| *sha256 != keep).cloned().collect();
    if old.is_empty() {
        return Ok(());
    }
    let running = running(store.root.dir());
    let mut kept = vec![keep.to_owned()];
    for sha256 in old {
        if runs(store, &running, name, &sha256)? {
            kept.push(sha256);
            continue;
        }
        remove(store, name, &sha256)?;
    }
    if let Some(shim) = store.state.shims.get_mut(name) {
        shim.versions = kept;
    }
    Ok(())
}

/// Where a program of a shim is, and what is there: it may have had another name then.
fn version(
    store: &Store<'_>,
    name: &str,
    sha256: &str,
) -> Result<(PathBuf, Vec<PathBuf>), PlaceError> {
    let dir = store.here(&format!("{}/{name}/{sha256}", store.install_dir))?;
    let files = fs::read_dir(&dir).into_iter().flatten().flatten().map(|file| file.path());
    let files = files.collect();
    Ok((dir, files))
}

/// Whether a process runs this program of a shim, whatever it is called.
pub(crate) fn runs(
    store: &Store<'_>,
    running: &Running,
    name: &str,
    sha256: &str,
) -> Result<bool, PlaceError> {
    let (_, files) = version(store, name, sha256)?;
    Ok(files.iter().any(|file| running.has(file)))
}

/// Removes one program of a shim, whatever it is called.
pub(crate) fn remove(store: &Store<'_>, name: &str, sha256: &str) -> Result<bool, PlaceError> {
    let (dir, files) = version(store, name, sha256)?;
    let mut removed = false;
    for file in files {
        removed |= store.disk.remove_file(&file)?;
    }
    store.disk.remove_empty_dir(&dir)?;
    Ok(removed)
}

/// What processes of a host run.
#[derive(Debug, Default)]
pub(crate) struct Running {
    /// Their files.
    ids: BTreeSet<(u64, u64)>,
    /// The programs that those name whose file is not shown to us: some systems hide it even from root.
    named: Vec<String>,
}

impl Running {
    /// Whether a process runs this file.
    pub(crate) fn has(&self, here: &Path) -> bool {
        let name = here.file_name().unwrap_or_default().to_string_lossy();
        id(here).is_some_and(|id| self.ids.contains(&id))
            || self.named.iter().any(|program| program.rsplit('/').next() == Some(&*name))
    }
}

fn id(path: &Path) -> Option<(u64, u64)> {
    fs::metadata(path).ok().map(|m| (m.dev(), m.ino()))
}

/// What the processes of a host run; nothing on a mere tree of files.
pub(crate) fn running(root: &Path) -> Running {
    let is_process = |name: &str| name.bytes().all(|b| b.is_ascii_digit());
    let entries = fs::read_dir(root.join("proc")).into_iter().flatten().flatten();
    let processes = entries.filter(|e| is_process(&e.file_name().to_string_lossy()));
    let mut running = Running::default();
    for process in processes {
        match fs::metadata(process.path().join("exe")) {
            Ok(m) => {
                running.ids.insert((m.dev(), m.ino()));
            }
            // It ended meanwhile, or is a thread of the kernel.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(_) => {
                let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
                let program = line.split(|byte| *byte == 0).next().unwrap_or_default();
                running.named.push(String::from_utf8_lossy(program).into_owned());
            }
        }
    }
    running
}
