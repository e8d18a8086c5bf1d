//! Instances: what should run, kept on disk, and made so.
//!
//! Every instance has a folder. `spec.json` is what was asked for, `state.json` what came of it; both
//! are whole at any moment, and a new agent goes on from them: it takes running machines over, ends
//! what was to be ended, and starts what was to be started. A workload that ended is not started
//! again by itself, well or not: its spec must change, or it must be wanted stopped in between.
//!
//! An instance has a task only while there is something to do or a machine to watch.

mod decide;
mod disks;
mod error;
mod folder;
mod load;
mod state;
mod view;
mod worker;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use disks::{Held, NoRootDisk, RootDisk, RootDisks};
pub use error::{DeleteError, OpenError, PutError};

use crate::api::{InstanceStatus, InstanceSummary, Phase};
use crate::id::InstanceId;
use crate::metrics::Metrics;
use crate::paths::Paths;
use crate::spec::{DesiredState, WorkloadSpec};
use crate::vmm::{Vmm, files};
use state::State;

/// Changes to one instance wait for each other; those to others do not, mostly.
const EDIT_LOCKS: usize = 64;
/// How long an answer to a deletion waits for it. Less than a call of the API may take, so that
/// whoever waits is told what it is about and not only that it took too long.
const DELETE_PATIENCE: Duration = Duration::from_secs(50);

/// All instances of this host. Cheap to copy.
#[derive(Clone)]
pub struct Instances {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for Instances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Instances").field("count", &self.inner.all().len()).finish()
    }
}

struct Inner {
    paths: Paths,
    vmm: Vmm,
    disks: Arc<dyn RootDisks>,
    metrics: Arc<Metrics>,
    /// Of this boot of the host.
    boot: String,
    entries: RwLock<BTreeMap<InstanceId, Arc<Entry>>>,
    phases: Mutex<BTreeMap<Phase, u64>>,
    edits: Vec<tokio::sync::Mutex<()>>,
    edit_hash: RandomState,
    /// Counts up with every change that a list or a report would show.
    changes: watch::Sender<u64>,
}

struct Entry {
    id: InstanceId,
    dir: PathBuf,
    record: Mutex<Record>,
    /// Becomes true when every trace is gone.
    gone: watch::Sender<bool>,
}

struct Record {
    spec: Arc<WorkloadSpec>,
    /// Why the spec cannot be read.
    broken: Option<String>,
    deleting: bool,
    state: State,
    /// Cancelled and replaced when somebody wants something else.
    changed: CancellationToken,
    working: bool,
}

impl Entry {
    fn record(&self) -> MutexGuard<'_, Record> {
        // A panic while it was held cannot leave it half changed: fields are set one by one, and
        // each alone is a state that the worker goes on from.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn all(&self) -> std::sync::RwLockReadGuard<'_, BTreeMap<InstanceId, Arc<Entry>>> {
        self.entries.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn find(&self, id: &InstanceId) -> Option<Arc<Entry>> {
        self.all().get(id).cloned()
    }

    fn insert(&self, entry: &Arc<Entry>) {
        let mut entries = self.entries.write().unwrap_or_else(PoisonError::into_inner);
        entries.insert(entry.id.clone(), Arc::clone(entry));
    }

    fn forget(&self, id: &InstanceId) {
        self.entries.write().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    async fn edit(&self, id: &InstanceId) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = self.edit_hash.hash_one(id);
        let index = usize::try_from(hash % EDIT_LOCKS as u64).unwrap_or(0);
        self.edits[index].lock().await
    }

    /// Somebody who lists instances would see something new.
    fn changed(&self) {
        self.changes.send_modify(|count| *count = count.wrapping_add(1));
    }

    /// Counts an instance's move from one phase to another. Whoever moved it still holds its record: of two moves, the
    /// second counted first would take one from a phase that has none yet.
    fn count(&self, from: Option<Phase>, to: Option<Phase>) {
        let mut phases = self.phases.lock().unwrap_or_else(PoisonError::into_inner);
        for (phase, up) in [(from, false), (to, true)] {
            let Some(phase) = phase else { continue };
            let count = phases.entry(phase).or_default();
            *count = if up { *count + 1 } else { count.saturating_sub(1) };
            self.metrics.instances_in(phase.as_str(), *count);
        }
    }
}

impl Instances {
    /// Reads what is in `instances/`. Nothing is started or ended before [`Instances::run`].
    ///
    /// # Errors
    /// When the folder cannot be read. What is wrong with one instance does not keep the others.
    pub fn open(
        paths: Paths,
        vmm: Vmm,
        disks: Arc<dyn RootDisks>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, OpenError> {
        let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        let inner = Arc::new(Inner {
            paths,
            vmm,
            disks,
            metrics,
            boot: boot.trim().to_owned(),
            entries: RwLock::default(),
            phases: Mutex::default(),
            edits: (0..EDIT_LOCKS).map(|_| tokio::sync::Mutex::default()).collect(),
            edit_hash: RandomState::new(),
            changes: watch::Sender::new(0),
        });
        for entry in load::all(&inner.paths, Timestamp::now())? {
            let entry = Arc::new(entry);
            inner.count(None, Some(entry.record().state.phase));
            inner.insert(&entry);
        }
        Ok(Self { inner })
    }

    /// What instances that run, or should, hold: to set the cache's pins right after a crash.
    pub fn held(&self) -> Vec<Held> {
        let entries = self.inner.all();
        let held = |entry: &Arc<Entry>| {
            let record = entry.record();
            let machine = load::may_have_machine(&entry.dir);
            (machine || worker::wants_machine(&record)).then(|| Held {
                id: entry.id.clone(),
                machine,
                rootdisk_key: record.state.rootdisk_key.clone(),
                digest: record.spec.image.resolved_digest.as_ref().and_then(|d| d.parse().ok()),
            })
        };
        entries.values().filter_map(held).collect()
    }

    /// Counts up with every change that a list would show, and can be made to: others may have
    /// something to tell to whoever listens, too.
    pub fn changes(&self) -> watch::Sender<u64> {
        self.inner.changes.clone()
    }

    /// Begins to make it so, once. Must be called within a runtime.
    pub fn run(&self) {
        let entries: Vec<_> = self.inner.all().values().cloned().collect();
        for entry in entries {
            let idle = {
                let record = entry.record();
                !record.deleting && !worker::wants_machine(&record)
            };
            if !idle || load::may_have_machine(&entry.dir) {
                worker::ensure(&self.inner, &entry);
            }
        }
    }

    /// Makes an instance or changes what is wanted of it; true when it is new. It is on disk when
    /// this returns. The same spec again changes nothing.
    ///
    /// # Errors
    /// When it is being deleted, or the disk does not take it.
    pub async fn put(
        &self,
        id: InstanceId,
        spec: WorkloadSpec,
    ) -> Result<(InstanceStatus, bool), PutError> {
        let _edit = self.inner.edit(&id).await;
        let spec = Arc::new(spec);
        let Some(entry) = self.inner.find(&id) else {
            let entry = self.create(id, spec).await?;
            return Ok((view::status(&self.inner, &entry), true));
        };
        {
            let record = entry.record();
            if record.deleting {
                return Err(PutError::Deleting { id });
            }
            if record.broken.is_none() && record.spec == spec {
                drop(record);
                return Ok((view::status(&self.inner, &entry), false));
            }
        }
        let (dir, written) = (entry.dir.clone(), Arc::clone(&spec));
        blocking(move || state::write_spec(&dir, &written))
            .await
            .map_err(|source| PutError::Write { id, source })?;
        {
            let mut record = entry.record();
            let before = record.state.phase;
            let last = std::mem::replace(&mut record.spec, spec);
            record.broken = None;
            // It was wanted stopped in between, whether or not anybody came to look meanwhile.
            if last.desired_state == DesiredState::Stopped {
                record.state.settled = None;
            }
            // From here on nobody may take the end of the last run for the end of this one.
            if matches!(before, Phase::Stopped | Phase::Failed) && worker::wants_machine(&record) {
                record.state.wait();
            }
            std::mem::take(&mut record.changed).cancel();
            self.inner.count(Some(before), Some(record.state.phase));
        }
        self.inner.changed();
        worker::ensure(&self.inner, &entry);
        Ok((view::status(&self.inner, &entry), false))
    }

    async fn create(
        &self,
        id: InstanceId,
        spec: Arc<WorkloadSpec>,
    ) -> Result<Arc<Entry>, PutError> {
        let dir = self.inner.paths.instance(&id);
        let state = State::new(Timestamp::now());
        let (folder, written, first) = (dir.clone(), Arc::clone(&spec), state.clone());
        let made = blocking(move || {
            folder::make(&folder, &first, &written).inspect_err(|_| {
                // Nothing was changed, the caller is told; so the next agent must not find half
                // an instance.
                let _ = std::fs::remove_dir_all(&folder);
            })
        });
        made.await.map_err(|source| PutError::Write { id: id.clone(), source })?;
        let record = Record {
            spec,
            broken: None,
            deleting: false,
            state,
            changed: CancellationToken::new(),
            working: false,
        };
        let entry = Arc::new(Entry {
            id,
            dir,
            record: Mutex::new(record),
            gone: watch::Sender::new(false),
        });
        self.inner.count(None, Some(Phase::Pending));
        self.inner.insert(&entry);
        self.inner.changed();
        worker::ensure(&self.inner, &entry);
        Ok(entry)
    }

    /// One instance.
    pub fn get(&self, id: &InstanceId) -> Option<InstanceStatus> {
        self.inner.find(id).map(|entry| view::status(&self.inner, &entry))
    }

    /// Up to `limit` instances after `after`, by id.
    pub fn summaries(&self, after: Option<&InstanceId>, limit: usize) -> Vec<InstanceSummary> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.inner.all();
        let range = entries.range::<InstanceId, _>((from, Bound::Unbounded));
        range.take(limit).map(|(_, entry)| view::summary(entry)).collect()
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.inner.all().len()
    }

    /// How many there are in each phase.
    pub fn phases(&self) -> BTreeMap<Phase, u64> {
        self.inner.phases.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Ends and forgets an instance with its scratch disk; false when there is none. Once marked, it
    /// goes even when this is dropped or the agent ends.
    ///
    /// # Errors
    /// When the mark cannot be written, or the end takes too long: then it is still on its way.
    pub async fn delete(&self, id: &InstanceId) -> Result<bool, DeleteError> {
        let Some(entry) = self.inner.find(id) else { return Ok(false) };
        {
            let _edit = self.inner.edit(id).await;
            if !entry.record().deleting {
                let dir = entry.dir.clone();
                blocking(move || state::mark_deleted(&dir))
                    .await
                    .map_err(|source| DeleteError::Mark { id: id.clone(), source })?;
                let mut record = entry.record();
                record.deleting = true;
                std::mem::take(&mut record.changed).cancel();
            }
        }
        worker::ensure(&self.inner, &entry);
        let mut gone = entry.gone.subscribe();
        match tokio::time::timeout(DELETE_PATIENCE, gone.wait_for(|gone| *gone)).await {
            Ok(_) => Ok(true),
            Err(_) => {
                let message = entry.record().state.message.clone().unwrap_or_default();
                Err(DeleteError::Slow { id: id.clone(), message })
            }
        }
    }

    /// The files its console goes to, the older half first; neither is there before the first
    /// start.
    pub fn console(&self, id: &InstanceId) -> [PathBuf; 2] {
        let dir = self.inner.paths.instance(id);
        [dir.join(files::CONSOLE_OLD), dir.join(files::CONSOLE)]
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}
