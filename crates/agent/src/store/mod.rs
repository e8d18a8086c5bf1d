//! The cache on disk: what is there, who holds it, how things get in and out.
//!
//! One lock guards the lists in memory. A disk is pinned and looked up under it, and a victim is
//! checked and taken off the lists and its name under it, so that no start is ever given what is
//! being evicted. Nothing slow happens under it: bytes are written and freed outside.
//!
//! A disk is valid when its metadata has its name, which comes last when it is built and goes
//! first when it is evicted. Whatever a crash leaves in between is swept at the next start.

mod ledger;
mod lock;
mod protect;
mod room;
mod scan;
mod state;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use portolan_core::Digest;
use portolan_registry::durable::{self, DurableError, TempFile};
use portolan_rootdisk::build::Built;
use portolan_rootdisk::meta::{ROOTDISK_FORMAT_VERSION, path_beside};

use crate::id::InstanceId;
use crate::paths::{Paths, disk_name};
use crate::pins::{Database, DatabaseError, DiskId, Pins, Writer};

pub use lock::{LockError, RootLock};
pub(crate) use protect::let_through;
pub use room::Removed;
pub use state::{Amount, Disk, Item, State};

/// Why the cache cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The directories cannot be made.
    #[error("the agent's root cannot be used; choose another or change its permissions")]
    Directories(#[source] DurableError),
    /// Another agent has it, or nobody can.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// There is no database, and none can be made.
    #[error("the database of pins cannot be used")]
    Database(#[from] DatabaseError),
}

/// The cache. Dropping it writes what the database lacks and gives the root back.
#[derive(Debug)]
pub struct Store {
    paths: Paths,
    state: Arc<Mutex<State>>,
    /// Before the lock: fields are dropped in order, and the database is closed first.
    writer: Writer,
    _lock: RootLock,
}

/// The wall clock, in milliseconds since 1970.
pub fn wall_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Store {
    /// Locks the root, sweeps what a crash left, and takes in what is valid.
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        let paths = Paths::new(root);
        let ours = !root.exists() || paths.lock().exists();
        durable::create_dir(root).map_err(OpenError::Directories)?;
        let lock = RootLock::take(&paths.lock())?;
        protect::root(root, ours);
        scan::create_directories(&paths).map_err(OpenError::Directories)?;
        scan::sweep_tmp(&paths);
        let now = wall_clock();
        let (database, loaded) = Database::open(&paths.database())?;
        let mut state = State::new(Pins::new(loaded, now));
        scan::scan(&paths, &mut state, now);
        let state = Arc::new(Mutex::new(state));
        let writer = Writer::start(database, Arc::clone(&state));
        writer.soon();
        Ok(Self { paths, state, writer, _lock: lock })
    }

    /// Where everything is.
    pub fn paths(&self) -> &Paths {
        &self.paths
    }

    /// The lists. Whoever has them does nothing slow.
    pub fn state(&self) -> MutexGuard<'_, State> {
        // Every change leaves them whole, and none can panic half way.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Says that pins changed, so that the database hears of it within milliseconds.
    pub fn pins_changed(&self) {
        self.writer.soon();
    }

    /// Brings the database up to date; false when it could not be written.
    pub fn flush(&self) -> bool {
        self.writer.flush()
    }

    /// Makes the pins those of these instances; from then on disks may be evicted.
    pub fn reconcile(&self, live: impl IntoIterator<Item = (InstanceId, DiskId)>) {
        self.state().reconcile(live);
        self.pins_changed();
    }

    /// A disk of the lists whose file is still there as it was. What is not is taken off them.
    pub fn look_up(&self, id: &DiskId) -> Option<Disk> {
        let disk = self.state().disk(id).cloned()?;
        match scan::read_disk(&id.resolved_digest, &id.format_version, &disk.path) {
            Ok(_) => Some(disk),
            Err(invalid) => {
                tracing::warn!(
                    resolved_digest = %id.resolved_digest, why = invalid.why,
                    "a cached root disk is not what it was; it is built again"
                );
                if invalid.proven {
                    self.invalidate(id);
                }
                None
            }
        }
    }

    /// Takes a disk's validity away, then its file. A machine that has it open keeps it.
    pub fn invalidate(&self, id: &DiskId) {
        let gone = {
            let mut state = self.state();
            state.remove_disk(id).map(|disk| self.detach_disk(&disk.path))
        };
        if let Some(Ok(aside)) = gone {
            scan::remove(&aside);
        }
    }

    /// A manifest's bytes, if they are here and right.
    pub fn manifest(&self, digest: &Digest) -> Option<Bytes> {
        let path = self.paths.manifest(digest)?;
        self.read_small(digest, &path)
    }

    /// A small blob's bytes, if they are here and right.
    pub fn small_blob(&self, digest: &Digest) -> Option<Bytes> {
        let path = self.paths.blob(digest)?;
        self.read_small(digest, &path)
    }

    fn read_small(&self, digest: &Digest, path: &Path) -> Option<Bytes> {
        let limit = portolan_core::manifest::MAX_MANIFEST_BYTES as u64;
        let bytes = durable::read_bounded(path, limit).ok().flatten()?;
        (Digest::of(digest.algorithm(), &bytes) == *digest).then(|| bytes.into())
    }

    /// A layer's file, if it is here with this length. Its content is checked by who reads it.
    pub fn layer(&self, digest: &Digest, size: u64) -> Option<fs::File> {
        let path = self.paths.blob(digest)?;
        let (file, length) = durable::open_file(&path).ok()?;
        (length == size).then_some(file)
    }

    /// Keeps a manifest, whose bytes were verified.
    pub fn put_manifest(&self, digest: &Digest, bytes: &[u8]) -> Result<(), DurableError> {
        let Some(path) = self.paths.manifest(digest) else { return Ok(()) };
        self.replace(&path, bytes)?;
        if let Some(entry) = scan::manifest_entry(digest, bytes, self.size_of(&path)) {
            let mut state = self.state();
            state.insert_manifest(*digest, entry);
            state.touch(&digest.to_string(), wall_clock());
        }
        Ok(())
    }

    /// Keeps a small blob, whose bytes were verified.
    pub fn put_small_blob(&self, digest: &Digest, bytes: &[u8]) -> Result<(), DurableError> {
        let Some(path) = self.paths.blob(digest) else { return Ok(()) };
        self.replace(&path, bytes)?;
        self.note_blob(digest, &path);
        Ok(())
    }

    fn replace(&self, path: &Path, bytes: &[u8]) -> Result<(), DurableError> {
        self.clear_the_way(path);
        durable::replace(&self.paths.tmp(), path, bytes)
    }

    /// A new file for work in progress.
    pub fn temp_file(&self) -> Result<TempFile, DurableError> {
        TempFile::create(&self.paths.tmp())
    }

    /// Keeps a layer that came whole and verified in a temp file.
    pub fn put_layer(&self, digest: &Digest, file: TempFile) -> Result<(), DurableError> {
        let Some(path) = self.paths.blob(digest) else { return Ok(()) };
        self.clear_the_way(&path);
        file.rename(&path)?;
        self.note_blob(digest, &path);
        Ok(())
    }

    fn note_blob(&self, digest: &Digest, path: &Path) {
        let bytes = self.size_of(path);
        let mut state = self.state();
        state.insert_blob(*digest, bytes);
        state.touch(&digest.to_string(), wall_clock());
    }

    /// Drops a blob that turned out to be damaged, or to be in the way. Gives back what it took.
    pub fn drop_blob(&self, digest: &Digest) -> u64 {
        let Some(path) = self.paths.blob(digest) else { return 0 };
        scan::remove(&path);
        self.state().remove_blob(digest).unwrap_or(0)
    }

    /// Gives a disk that was built its name, and last its metadata, which makes it valid. `origin`
    /// is the repository that it came from.
    pub fn publish(&self, built: Built, origin: &str) -> Result<Disk, DurableError> {
        let Built { disk, metadata, .. } = built;
        let id = DiskId::new(metadata.resolved_digest, &metadata.rootdisk_format_version);
        let path = self.disk_path(&id);
        let beside = path_beside(&path);
        // Metadata of an older disk would vouch for the new one until its own is there.
        scan::remove(&beside);
        self.clear_the_way(&path);
        if let Some(dir) = path.parent() {
            durable::create_dir(dir)?;
        }
        disk.rename(&path)?;
        if let Err(error) = durable::replace(&self.paths.tmp(), &beside, &metadata.to_json()) {
            scan::remove(&path);
            return Err(error);
        }
        let allocated_bytes = self.size_of(&path);
        let key = metadata.rootdisk_key.clone();
        let disk = Disk { path, metadata: Arc::new(metadata), allocated_bytes };
        let mut state = self.state();
        state.set_origin(&id.resolved_digest, origin);
        state.insert_disk(id, disk.clone());
        state.touch(&key, wall_clock());
        state.miss_nothing();
        Ok(disk)
    }

    /// Takes a damaged disk's validity away and leaves its file, which machines may run from.
    pub fn disown(&self, id: &DiskId) {
        let path = self.disk_path(id);
        self.state().disown(id);
        scan::remove(&path_beside(&path));
    }

    /// Removes the file of a disk that was disowned and not built again, unless somebody uses it;
    /// then it goes with the last who does. True when it is gone.
    pub fn drop_disowned(&self, id: &DiskId) -> bool {
        let mut state = self.state();
        let gone = state.take_disowned(id);
        if gone {
            // Under the lock, since a new disk could get this name in the next moment.
            scan::remove(&self.disk_path(id));
        }
        gone
    }

    /// How many files are in `tmp/`, and what they take.
    pub fn temporary(&self) -> (u64, u64) {
        let listed = fs::read_dir(self.paths.tmp()).into_iter().flatten().flatten();
        let sizes = listed.filter_map(|entry| entry.metadata().ok());
        sizes.fold((0, 0), |(count, bytes), m| (count + 1, bytes + scan::allocated(&m)))
    }

    /// Where a disk is, or would be.
    pub fn disk_path(&self, id: &DiskId) -> PathBuf {
        let dir = match id.format_version == ROOTDISK_FORMAT_VERSION {
            true => self.paths.current_disks(),
            false => self.paths.other_disks(&id.format_version),
        };
        dir.join(disk_name(&id.resolved_digest))
    }

    /// Rename replaces files, but not a directory that somebody put in the place of one.
    fn clear_the_way(&self, path: &Path) {
        if fs::symlink_metadata(path).is_ok_and(|m| m.is_dir()) {
            scan::remove(path);
        }
    }

    fn size_of(&self, path: &Path) -> u64 {
        fs::symlink_metadata(path).map(|m| scan::allocated(&m)).unwrap_or(0)
    }

    /// Moves a file out of its place into `tmp/`, where removing it disturbs nobody.
    fn detach(&self, path: &Path) -> io::Result<PathBuf> {
        let aside = self.paths.tmp().join(format!("evicted-{}", durable::random_hex()?));
        match fs::rename(path, &aside) {
            Ok(()) => Ok(aside),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(aside),
            // A file system that is too full for another name still removes one.
            Err(_) => fs::remove_file(path).map(|()| aside),
        }
    }

    /// The metadata first: from then on the disk is not valid, whatever happens to it.
    fn detach_disk(&self, path: &Path) -> io::Result<PathBuf> {
        match fs::remove_file(path_beside(path)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        self.detach(path)
    }
}
