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
mod load;
mod state;
mod worker;

use std::collections::BTreeMap;
use std::hash::{BuildHasher as _, RandomState};
use std::ops::Bound;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use jiff::Timestamp;
use portolan_core::Digest;
use portolan_registry::durable;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub use disks::{NoRootDisk, RootDisk, RootDisks};
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
/// How long an answer to a deletion waits for it, beyond what the workload may take to end.
const DELETE_PATIENCE: Duration = Duration::from_secs(60);

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

    /// Counts an instance's move from one phase to another.
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
        });
        for entry in load::all(&inner.paths, Timestamp::now())? {
            let entry = Arc::new(entry);
            inner.count(None, Some(entry.record().state.phase));
            inner.insert(&entry);
        }
        Ok(Self { inner })
    }

    /// What instances that run, or should, hold: to set the cache's pins right after a crash.
    pub fn held(&self) -> Vec<(InstanceId, Digest)> {
        let entries = self.inner.all();
        let held = |entry: &Arc<Entry>| {
            let record = entry.record();
            let digest = record.spec.image.resolved_digest.as_ref()?.parse().ok()?;
            (load::may_have_machine(&entry.dir) || worker::wants_machine(&record))
                .then(|| (entry.id.clone(), digest))
        };
        entries.values().filter_map(held).collect()
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
            return Ok((status(&entry), true));
        };
        {
            let record = entry.record();
            if record.deleting {
                return Err(PutError::Deleting { id });
            }
            if record.broken.is_none() && record.spec == spec {
                drop(record);
                return Ok((status(&entry), false));
            }
        }
        let (dir, written) = (entry.dir.clone(), Arc::clone(&spec));
        blocking(move || state::write_spec(&dir, &written))
            .await
            .map_err(|source| PutError::Write { id, source })?;
        let (before, after) = {
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
            (before, record.state.phase)
        };
        self.inner.count(Some(before), Some(after));
        worker::ensure(&self.inner, &entry);
        Ok((status(&entry), false))
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
            // What is there without being known is rubbish: an unusable name in place of a folder.
            if std::fs::symlink_metadata(&folder).is_ok_and(|file| !file.is_dir()) {
                std::fs::remove_file(&folder)
                    .map_err(|error| durable::DurableError::io("remove", &folder, error))?;
            }
            durable::create_dir(&folder)?;
            // A workload's environment may be secret.
            let own = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&folder, own)
                .map_err(|error| durable::DurableError::io("protect", &folder, error))?;
            state::write_state(&folder, &first)?;
            // Last: with it the instance exists.
            state::write_spec(&folder, &written)
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
        worker::ensure(&self.inner, &entry);
        Ok(entry)
    }

    /// One instance.
    pub fn get(&self, id: &InstanceId) -> Option<InstanceStatus> {
        self.inner.find(id).map(|entry| status(&entry))
    }

    /// Up to `limit` instances after `after`, by id.
    pub fn summaries(&self, after: Option<&InstanceId>, limit: usize) -> Vec<InstanceSummary> {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let entries = self.inner.all();
        let range = entries.range::<InstanceId, _>((from, Bound::Unbounded));
        range.take(limit).map(|(_, entry)| summary(entry)).collect()
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
        let patience = DELETE_PATIENCE + self.inner.vmm.config().stop_timeout.0;
        let mut gone = entry.gone.subscribe();
        match tokio::time::timeout(patience, gone.wait_for(|gone| *gone)).await {
            Ok(_) => Ok(true),
            Err(_) => {
                let message = entry.record().state.message.clone().unwrap_or_default();
                Err(DeleteError::Slow { id: id.clone(), message })
            }
        }
    }

    /// The file its console goes to; it is not there before the first start. Older output is in the
    /// file of the same name with `.1`.
    pub fn console(&self, id: &InstanceId) -> PathBuf {
        self.inner.paths.instance(id).join(files::CONSOLE)
    }
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    tokio::task::spawn_blocking(work).await.expect("it does not panic")
}

fn status(entry: &Entry) -> InstanceStatus {
    let record = entry.record();
    let state = &record.state;
    InstanceStatus {
        id: entry.id.clone(),
        spec: WorkloadSpec::clone(&record.spec),
        phase: state.phase,
        reason: state.reason,
        message: state.message.clone(),
        resolved_digest: record.spec.image.resolved_digest.clone(),
        rootdisk_key: state.rootdisk_key.clone(),
        cached: state.cached,
        progress: None,
        created_at: state.created_at,
        started_at: state.started_at,
        ended_at: state.ended_at,
        exit: state.exit,
    }
}

fn summary(entry: &Entry) -> InstanceSummary {
    let record = entry.record();
    InstanceSummary {
        id: entry.id.clone(),
        phase: record.state.phase,
        reason: record.state.reason,
        resolved_digest: record.spec.image.resolved_digest.clone(),
        release: record.spec.release.clone(),
        started_at: record.state.started_at,
    }
}
