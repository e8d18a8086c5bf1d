//! From what was heard of the cluster to what is done next. No clock and no network here: events and the
//! time come in, effects go out, so a whole cluster can be played through in a test.
//!
//! A node is looked at when it, one of its Jobs or a Shim changed; what came of it is kept, and who may begin
//! is decided over all of that.

mod graves;
mod heard;
mod ledger;
mod owed;
mod rollout;
mod shim;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use portolan_api::shim::{FINALIZER, Shim, ShimStatus};
use portolan_shim::resolve::Admitted;
use serde_json::Value;

use super::cell::{self, Cell, Seen, View};
use super::class::ClassStep;
use super::facts::{End, JobFacts, NodeFacts};
use super::identity::{Identity, Operation};
use super::job;
use super::outcome::Outcome;
use super::record::{Bare, Failed, NodePatch};
use super::settings::Settings;

use graves::Graves;
pub(crate) use heard::{Done, Gone, Heard};
use ledger::{Cells, Ledger};
use owed::Owed;

/// What is written at one time by one writer only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Node(String),
    Job(String),
    Shim(String),
    /// The RuntimeClass of a Shim.
    Class(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Labels and annotations of a node.
    Patch {
        node: String,
        uid: String,
        patch: NodePatch,
    },
    /// The same, and then a Job.
    Start {
        node: String,
        uid: String,
        patch: NodePatch,
        order: Arc<Order>,
    },
    /// Ask why a Job failed.
    Collect {
        job: String,
        uid: String,
        reason: String,
        message: String,
    },
    /// Delete a Job and its pods.
    Kill {
        job: String,
        uid: String,
    },
    Finalizers {
        shim: Arc<Shim>,
        finalizers: Vec<String>,
    },
    Status {
        shim: Arc<Shim>,
        status: Box<ShimStatus>,
    },
    Class {
        shim: String,
        name: String,
        step: Box<ClassStep>,
    },
    /// An Event; nobody waits for it.
    Tell(Notice),
}

/// A Job to be made. It is put together when it is sent: thousands may wait for their turn.
#[derive(Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) identity: Identity,
    pub(crate) shim: Arc<Shim>,
    pub(crate) artifact: Option<Admitted>,
}

impl Order {
    pub(crate) fn render(&self, settings: &Settings) -> Value {
        job::render(&self.identity, &self.shim.spec, self.artifact.as_ref(), settings)
    }
}

/// Something that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) about: About,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) note: String,
}

/// What an Event is about: kind, name, UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum About {
    Shim { name: String, uid: String },
    Node { name: String, uid: String },
}

impl Effect {
    /// What nobody else may write meanwhile.
    pub(crate) fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Patch { node, .. } | Self::Start { node, .. } => Key::Node(node.clone()),
            Self::Collect { job, .. } | Self::Kill { job, .. } => Key::Job(job.clone()),
            Self::Finalizers { shim, .. } | Self::Status { shim, .. } => {
                Key::Shim(shim.metadata.name.clone().unwrap_or_default())
            }
            Self::Class { shim, .. } => Key::Class(shim.clone()),
            Self::Tell(_) => return None,
        })
    }
}

/// An object and the version it was heard in: what comes late must not undo what came after it.
#[derive(Debug, Clone)]
struct Kept<T> {
    version: u64,
    value: T,
}

/// All that is known, and all that follows from it.
#[derive(Debug)]
pub(crate) struct Planner {
    settings: Settings,
    nodes: BTreeMap<String, Kept<NodeFacts>>,
    shims: BTreeMap<String, Kept<Arc<Shim>>>,
    jobs: HashMap<String, Kept<JobFacts>>,
    jobs_of: HashMap<String, BTreeSet<String>>,
    classes: BTreeMap<String, RuntimeClass>,
    refused_classes: BTreeMap<String, String>,
    outcomes: HashMap<String, Outcome>,
    ledger: Ledger,
    owed: Owed,
    dirty_nodes: BTreeSet<String>,
    dirty_shims: BTreeSet<String>,
    /// Nodes that changed and are being written, or wait for a pause to end: they are looked at then.
    waiting: BTreeSet<String>,
    busy: BTreeSet<Key>,
    /// What was told to begin and has not been heard of, by node.
    starting: BTreeMap<String, Starting>,
    /// What the server did not take of it, by node and with the Shim, until that is written there.
    rejected: BTreeMap<String, (String, Failed)>,
    /// Jobs that were heard of since the last look.
    unseen: Vec<String>,
    graves: Graves,
    pauses: HashMap<Key, Pause>,
    timers: BTreeSet<(i64, Key)>,
    status_at: HashMap<String, i64>,
    /// When the last look was.
    last: i64,
    /// How often a node was looked at.
    pub(crate) looked: u64,
    /// How often a Shim on a node was decided on, or who begins was.
    weighed: u64,
}

/// Something that was told to begin.
#[derive(Debug, Clone)]
struct Starting {
    shim: String,
    hash: String,
    operation: Operation,
    order: Arc<Order>,
    /// From when on it would have been heard of.
    until: i64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    times: u32,
    length: i64,
    until: i64,
}

/// Milliseconds: between two statuses of a Shim while something goes on.
const STATUS_PAUSE: i64 = 1000;
/// Watches end by themselves before that, and are begun again.
const UNSURE: i64 = 90_000;
const FIRST_PAUSE: i64 = 500;
const LONGEST_PAUSE: i64 = 60_000;
/// After a no: somebody has to change a rule of the cluster, or the Shim, which ends the pause.
const FIRST_PAUSE_REFUSED: i64 = 30_000;
const LONGEST_PAUSE_REFUSED: i64 = 1_800_000;

impl Planner {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            settings,
            nodes: BTreeMap::new(),
            shims: BTreeMap::new(),
            jobs: HashMap::new(),
            jobs_of: HashMap::new(),
            classes: BTreeMap::new(),
            refused_classes: BTreeMap::new(),
            outcomes: HashMap::new(),
            ledger: Ledger::default(),
            owed: Owed::default(),
            dirty_nodes: BTreeSet::new(),
            dirty_shims: BTreeSet::new(),
            waiting: BTreeSet::new(),
            busy: BTreeSet::new(),
            starting: BTreeMap::new(),
            rejected: BTreeMap::new(),
            unseen: Vec::new(),
            graves: Graves::default(),
            pauses: HashMap::new(),
            timers: BTreeSet::new(),
            status_at: HashMap::new(),
            last: i64::MIN,
            looked: 0,
            weighed: 0,
        }
    }

    /// What is to be done now; `now` in milliseconds. What can wait waits where nobody is `idle`.
    pub(crate) fn step(&mut self, now: i64, idle: usize) -> Vec<Effect> {
        if now + LONGEST_PAUSE < self.last {
            self.set_back(now);
        }
        self.last = now;
        self.ring(now);
        for name in std::mem::take(&mut self.unseen) {
            if let Some(job) = self.jobs.get_mut(&name) {
                job.value.since = now / 1000;
            }
        }
        let mut effects = Vec::new();
        let changed: Vec<String> = std::mem::take(&mut self.dirty_nodes).into_iter().collect();
        for node in &changed {
            if self.may_write(&Key::Node(node.clone()), now) {
                self.waiting.remove(node);
                self.look_at(node, now, &mut effects);
            } else {
                self.waiting.insert(node.clone());
            }
        }
        self.busy.extend(effects.iter().filter_map(Effect::key));
        self.begin(&changed, now, &mut effects);
        self.write(now, idle, &mut effects);
        for shim in std::mem::take(&mut self.dirty_shims) {
            self.look_at_shim(&shim, now, &mut effects);
        }
        self.busy.extend(effects.iter().filter_map(Effect::key));
        effects
    }

    /// When something is to be looked at again although nothing is heard.
    pub(crate) fn next(&self) -> Option<i64> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// The clock was set back: whatever was to be looked at by the old one is looked at now.
    fn set_back(&mut self, now: i64) {
        self.timers.clear();
        self.dirty_nodes.extend(self.nodes.keys().cloned());
        self.dirty_shims.extend(self.shims.keys().cloned());
        self.jobs.values_mut().for_each(|job| job.value.since = job.value.since.min(now / 1000));
    }

    /// Lets those be looked at whose time has come.
    fn ring(&mut self, now: i64) {
        while let Some((at, key)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key.clone()));
            match key {
                Key::Node(node) => drop(self.dirty_nodes.insert(node)),
                Key::Shim(shim) | Key::Class(shim) => drop(self.dirty_shims.insert(shim)),
                Key::Job(job) => {
                    let node = self.jobs.get(&job).map(|job| job.value.identity.node.clone());
                    self.dirty_nodes.extend(node);
                }
            }
        }
    }

    /// How often a Shim on a node was decided on, weighed or counted: what a change costs.
    pub(crate) fn weighed(&self) -> u64 {
        self.weighed + self.ledger.counted
    }

    /// Whether nobody writes it, and its last failure is long enough ago. If not, it is looked at again.
    fn may_write(&mut self, key: &Key, now: i64) -> bool {
        if self.busy.contains(key) {
            return false;
        }
        // A pause that would be longer than it was made was made before the clock was set back.
        let lasts = |pause: &&Pause| pause.until > now && pause.until <= now + pause.length;
        match self.pauses.get(key).filter(lasts) {
            None => true,
            Some(pause) => {
                self.timers.insert((pause.until, key.clone()));
                false
            }
        }
    }

    /// Looks at all Shims on one node.
    fn look_at(&mut self, name: &str, now: i64, effects: &mut Vec<Effect>) {
        self.looked += 1;
        let Some(node) = self.nodes.get(name).map(|kept| kept.value.clone()) else {
            self.dirty_shims.extend(self.ledger.replace(name, Cells::new()));
            self.owe(name, now);
            self.forget_jobs(name, now, effects);
            return;
        };
        let mut cells = Cells::new();
        for (shim_name, shim) in &self.shims {
            let shim = &shim.value;
            if !is_held(shim) {
                continue;
            }
            self.weighed += 1;
            let jobs = self.jobs_on(name, shim);
            let view = self.view(shim_name, shim);
            let rejected = self.rejected.get(name).filter(|(shim, _)| shim == shim_name);
            let seen = Seen {
                jobs: &jobs,
                outcomes: &self.outcomes,
                rejected: rejected.map(|(_, failed)| failed),
            };
            let Some(cell) = cell::decide(&view, &node, &seen, now / 1000) else { continue };
            cells.insert(shim_name.clone(), cell);
        }
        for cell in cells.values() {
            self.follow(cell, name, now, effects);
        }
        self.dirty_shims.extend(self.ledger.replace(name, cells));
        self.owe(name, now);
    }

    /// What a cell asks for besides a turn.
    fn follow(&mut self, cell: &Cell, node: &str, now: i64, effects: &mut Vec<Effect>) {
        if let Some(at) = cell.wake {
            self.timers.insert((at.saturating_mul(1000), Key::Node(node.to_owned())));
        }
        if let Some((job, uid)) = cell.collect.clone()
            && self.may_write(&Key::Job(job.clone()), now)
        {
            let end = self.jobs.get(&job).and_then(|job| job.value.end.clone());
            let (reason, message) = match end {
                Some(End::Failed { reason, message }) => (reason, message),
                _ => Default::default(),
            };
            effects.push(Effect::Collect { job, uid, reason, message });
        }
        for (job, uid) in cell.kill.clone() {
            if self.may_write(&Key::Job(job.clone()), now) {
                effects.push(Effect::Kill { job, uid });
            }
        }
    }

    /// Jobs of a node that is gone: nobody will ever run them.
    fn forget_jobs(&mut self, node: &str, now: i64, effects: &mut Vec<Effect>) {
        for name in self.jobs_of.get(node).cloned().unwrap_or_default() {
            let Some(job) = self.jobs.get(&name).map(|kept| kept.value.clone()) else { continue };
            if job.is_live() && !job.deleting && self.may_write(&Key::Job(name.clone()), now) {
                effects.push(Effect::Kill { job: name, uid: job.uid });
            }
        }
    }

    fn jobs_on(&self, node: &str, shim: &Shim) -> Vec<&JobFacts> {
        let names = self.jobs_of.get(node).into_iter().flatten();
        let jobs = names.filter_map(|name| self.jobs.get(name)).map(|kept| &kept.value);
        jobs.filter(|job| Some(&job.identity.shim_uid) == shim.metadata.uid.as_ref()).collect()
    }

    fn view<'a>(&self, name: &'a str, shim: &'a Shim) -> View<'a> {
        let selector = shim.spec.node_selector.as_ref();
        let selects = selector.is_some_and(|selector| selector.contains_key(name));
        View {
            name,
            spec: &shim.spec,
            deleting: shim.metadata.deletion_timestamp.is_some(),
            bare: match (selects, self.settings.bare_labels) {
                (true, _) => Bare::Leave,
                (false, true) => Bare::Write,
                (false, false) => Bare::Remove,
            },
            policy: self.settings.policy,
            deadline_seconds: self.settings.deadline_seconds,
        }
    }
}

/// Whether it carries our finalizer: nothing is done for a Shim that could vanish without a trace.
fn is_held(shim: &Shim) -> bool {
    shim.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
}

fn tell(node: &str, uid: &str, shim: &str, failed: &Failed) -> Effect {
    let again = if failed.permanent {
        "not tried again until the Shim changes"
    } else {
        "tried again later"
    };
    Effect::Tell(Notice {
        about: About::Node { name: node.to_owned(), uid: uid.to_owned() },
        warning: true,
        reason: failed.reason.clone(),
        note: format!(
            "{} of shim {shim} failed, {again}: {}",
            failed.operation.as_str(),
            failed.message
        ),
    })
}
