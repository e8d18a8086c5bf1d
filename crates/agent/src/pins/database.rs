//! `agent.redb`: what outlives the process.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use portolan_core::Digest;
use redb::{ReadableDatabase as _, ReadableTable as _, TableDefinition};

use super::{Changes, DiskId};
use crate::id::InstanceId;
use portolan_core::causes::chain;

/// Instance to resolved digest, format version and rootdisk key.
const INSTANCES: TableDefinition<'_, &str, (&str, &str, &str)> = TableDefinition::new("instances");
/// Rootdisk key to how many instances pin it.
const COUNTS: TableDefinition<'_, &str, u32> = TableDefinition::new("pin_counts");
/// Rootdisk key or blob digest to milliseconds since 1970.
const ACCESS: TableDefinition<'_, &str, u64> = TableDefinition::new("last_access");

/// Resolved digest to the repository that the disk was built from.
const ORIGINS: TableDefinition<'_, &str, &str> = TableDefinition::new("origins");

/// The pages that redb keeps in memory. Everything is in our own memory already, so its cache
/// serves one transaction at a time.
const CACHE_BYTES: usize = 1 << 20;

/// A process that died may have forked a moment before; until its child calls exec, the child
/// holds the database's lock as well.
const LOCK_PATIENCE: Duration = Duration::from_secs(2);

/// What a database had.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// Pins.
    pub instances: Vec<(InstanceId, DiskId)>,
    /// Times of use.
    pub access: HashMap<String, u64>,
    /// Where disks came from.
    pub origins: HashMap<Digest, String>,
}

/// Why the database cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// It cannot be opened or made.
    #[error("cannot open {}", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// It cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: Box<redb::Error>,
    },
    /// A damaged one cannot be moved out of the way.
    #[error("cannot move the damaged {} aside; remove it by hand", path.display())]
    Aside {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The library gave up on the file.
    #[error("{} is damaged beyond what redb can say", path.display())]
    Panicked {
        /// The file.
        path: PathBuf,
    },
}

/// The open database.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    /// None after an error: redb refuses everything then until it is opened again.
    redb: Option<redb::Database>,
}

impl Database {
    /// Opens the database and reads all of it. A damaged one is moved aside, and an empty one
    /// takes its place: everything in it can be rebuilt.
    pub fn open(path: &Path) -> Result<(Self, Loaded), DatabaseError> {
        // A pipe, a device or a directory: not even to be opened.
        if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            tracing::warn!(path = %path.display(), "what is no file is in the database's place; it is moved aside");
            move_aside(path)?;
        }
        match Self::try_open(path) {
            Ok(opened) => return Ok(opened),
            // What cannot be read because of permissions or a failing disk would be no better
            // for being moved.
            Err(error) if !is_damage(&error) => return Err(error),
            Err(error) => tracing::warn!(
                path = %path.display(),
                error = chain(&error),
                "the database of pins is damaged; it is moved aside and rebuilt"
            ),
        }
        move_aside(path)?;
        Self::try_open(path)
    }

    fn try_open(path: &Path) -> Result<(Self, Loaded), DatabaseError> {
        // The library is given bytes that anything may have happened to.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            let redb = open_redb(path)?;
            let loaded = load(&redb)?;
            Ok::<_, redb::Error>((redb, loaded))
        }));
        match outcome {
            Ok(Ok((redb, loaded))) => {
                Ok((Self { path: path.to_owned(), redb: Some(redb) }, loaded))
            }
            Ok(Err(source)) => {
                Err(DatabaseError::Open { path: path.to_owned(), source: Box::new(source) })
            }
            Err(_) => Err(DatabaseError::Panicked { path: path.to_owned() }),
        }
    }

    /// Writes changes, all or nothing, and durable when it returns.
    pub fn write(&mut self, changes: &Changes) -> Result<(), DatabaseError> {
        let redb = match self.redb.take() {
            Some(redb) => redb,
            None => open_redb(&self.path).map_err(|source| DatabaseError::Open {
                path: self.path.clone(),
                source: Box::new(source),
            })?,
        };
        let written = catch_unwind(AssertUnwindSafe(|| write(&redb, changes)));
        match written {
            Ok(Ok(())) => {
                self.redb = Some(redb);
                Ok(())
            }
            Ok(Err(source)) => {
                Err(DatabaseError::Write { path: self.path.clone(), source: Box::new(source) })
            }
            Err(_) => Err(DatabaseError::Panicked { path: self.path.clone() }),
        }
    }

    /// Makes an empty database in place of one that no longer takes writes.
    pub fn start_over(&mut self) -> Result<(), DatabaseError> {
        self.redb = None;
        move_aside(&self.path)?;
        self.redb = Self::try_open(&self.path)?.0.redb;
        Ok(())
    }
}

fn is_damage(error: &DatabaseError) -> bool {
    match error {
        DatabaseError::Panicked { .. } => true,
        DatabaseError::Open { source, .. } | DatabaseError::Write { source, .. } => {
            match source.as_ref() {
                redb::Error::Io(source) => matches!(
                    source.kind(),
                    std::io::ErrorKind::InvalidData
                        | std::io::ErrorKind::UnexpectedEof
                        | std::io::ErrorKind::IsADirectory
                        | std::io::ErrorKind::InvalidInput
                ),
                redb::Error::DatabaseAlreadyOpen => false,
                _ => true,
            }
        }
        DatabaseError::Aside { .. } => false,
    }
}

/// Whether a write failed because of what is in the file, and not for want of room or rights.
pub(super) fn is_beyond_repair(error: &DatabaseError) -> bool {
    is_damage(error)
}

fn open_redb(path: &Path) -> Result<redb::Database, redb::Error> {
    let start = Instant::now();
    loop {
        match redb::Builder::new().set_cache_size(CACHE_BYTES).create(path) {
            Err(redb::DatabaseError::DatabaseAlreadyOpen) if start.elapsed() < LOCK_PATIENCE => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return Ok(other?),
        }
    }
}

/// Beside itself, under the first name that is free; only a few are kept.
fn move_aside(path: &Path) -> Result<(), DatabaseError> {
    let failed = |source| DatabaseError::Aside { path: path.to_owned(), source };
    let beside = |n: u32| path.with_extension(format!("redb.damaged-{n}"));
    let free = (0..8).map(beside).find(|to| std::fs::symlink_metadata(to).is_err());
    let to = free.unwrap_or_else(|| beside(7));
    match std::fs::rename(path, &to) {
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => other.map_err(failed),
    }
}

fn load(redb: &redb::Database) -> Result<Loaded, redb::Error> {
    let mut loaded = Loaded::default();
    let read = redb.begin_read()?;
    let missing = |e: &redb::TableError| matches!(e, redb::TableError::TableDoesNotExist(_));
    match read.open_table(INSTANCES) {
        Ok(table) => {
            for row in table.iter()? {
                let (id, value) = row?;
                let (digest, version, _) = value.value();
                // A row that was not written by us says nothing.
                if let (Ok(id), Ok(digest)) =
                    (id.value().parse::<InstanceId>(), digest.parse::<Digest>())
                    && crate::paths::is_version(version)
                {
                    loaded.instances.push((id, DiskId::new(digest, version)));
                }
            }
        }
        Err(e) if missing(&e) => {}
        Err(e) => return Err(e.into()),
    }
    match read.open_table(ACCESS) {
        Ok(table) => {
            for row in table.iter()? {
                let (name, time) = row?;
                loaded.access.insert(name.value().to_owned(), time.value());
            }
        }
        Err(e) if missing(&e) => {}
        Err(e) => return Err(e.into()),
    }
    match read.open_table(ORIGINS) {
        Ok(table) => {
            for row in table.iter()? {
                let (digest, origin) = row?;
                if let Ok(digest) = digest.value().parse() {
                    loaded.origins.insert(digest, origin.value().to_owned());
                }
            }
        }
        Err(e) if missing(&e) => {}
        Err(e) => return Err(e.into()),
    }
    Ok(loaded)
}

fn write(redb: &redb::Database, changes: &Changes) -> Result<(), redb::Error> {
    let transaction = redb.begin_write()?;
    {
        let mut instances = transaction.open_table(INSTANCES)?;
        let mut counts = transaction.open_table(COUNTS)?;
        let mut access = transaction.open_table(ACCESS)?;
        let mut origins = transaction.open_table(ORIGINS)?;
        if changes.all {
            instances.retain(|_, _| false)?;
            counts.retain(|_, _| false)?;
            access.retain(|_, _| false)?;
            origins.retain(|_, _| false)?;
        }
        for (id, disk) in &changes.instances {
            match disk {
                Some(disk) => {
                    let (digest, key) = (disk.resolved_digest.to_string(), disk.key());
                    let value = (digest.as_str(), disk.format_version.as_str(), key.as_str());
                    instances.insert(id.as_str(), value)?;
                }
                None => drop(instances.remove(id.as_str())?),
            }
        }
        for (disk, count) in &changes.counts {
            match count {
                0 => drop(counts.remove(disk.key().as_str())?),
                count => drop(counts.insert(disk.key().as_str(), count)?),
            }
        }
        for (name, time) in &changes.access {
            match time {
                Some(time) => drop(access.insert(name.as_str(), time)?),
                None => drop(access.remove(name.as_str())?),
            }
        }
        for (digest, origin) in &changes.origins {
            let digest = digest.to_string();
            match origin {
                Some(origin) => drop(origins.insert(digest.as_str(), origin.as_str())?),
                None => drop(origins.remove(digest.as_str())?),
            }
        }
    }
    transaction.commit()?;
    Ok(())
}
