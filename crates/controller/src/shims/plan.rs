//! From what was heard of the cluster to what is done next. No clock and no network here: events and the
//! time come in, effects go out, so a whole cluster can be played through in a test.
//!
//! A node is looked at when it, one of its Jobs or a Shim changed; what came of it is kept, and who may begin
//! is decided over all of that.

mod alarms;
mod effect;
mod gather;
mod graves;
mod heard;
mod ledger;
mod owed;
mod rollout;
mod shim;
mod starting;
mod together;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::api::node::v1::RuntimeClass;
use portolan_api::shim::{FINALIZER, Shim};

use super::cell::{self, Cell, Seen, View};
use super::facts::{End, Failure, JobFacts, NodeFacts, Share};
use super::outcome::Verdict;
use super::record::{Bare, Failed};
use super::settings::Settings;

use alarms::Alarms;
pub(crate) use effect::{About, Effect, Key, Notice, Order, Piece};
use gather::Gather;
use graves::Graves;
pub(crate) use heard::{Done, Gone, Heard};
use ledger::{Cells, Ledger};
use owed::Owed;
use starting::{Rejected, Starting};

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
    /// What they say of nodes, as one word.
    said: String,
    nodes: BTreeMap<String, Kept<NodeFacts>>,
    shims: BTreeMap<String, Kept<Arc<Shim>>>,
    jobs: HashMap<String, Kept<JobFacts>>,
    jobs_of: HashMap<String, BTreeSet<String>>,
    classes: BTreeMap<String, RuntimeClass>,
    refused_classes: BTreeMap<String, String>,
    verdicts: HashMap<String, Verdict>,
    ledger: Ledger,
    owed: Owed,
    dirty_nodes: BTreeSet<String>,
    dirty_shims: BTreeSet<String>,
    /// Nodes that changed and are being written, or wait for a pause to end: they are looked at then.
    waiting: BTreeSet<String>,
    busy: BTreeSet<Key>,
    /// What was told to begin and has not been heard of, by node.
    starting: BTreeMap<String, Starting>,
    /// What the server did not take of it, by node and Shim, until that is written there.
    rejected: BTreeMap<String, BTreeMap<String, Rejected>>,
    gather: Gather,
    /// Jobs that were heard of since the last look.
    unseen: Vec<String>,
    graves: Graves,
    pauses: HashMap<Key, Pause>,
    timers: BTreeSet<(i64, Key)>,
    alarms: Alarms,
    status_at: HashMap<String, i64>,
    /// When the last look was.
    last: i64,
    /// How often a node was looked at.
    pub(crate) looked: u64,
    /// How often a Shim on a node was decided on, or who begins was.
    weighed: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Pause {
    times: u32,
    length: i64,
    until: i64,
}

/// Milliseconds: between two statuses of a Shim while something goes on.
const STATUS_PAUSE: i64 = 1000;
const FIRST_PAUSE: i64 = 500;
const LONGEST_PAUSE: i64 = 60_000;
/// After a no: somebody has to change a rule of the cluster, or the Shim, which ends the pause.
const FIRST_PAUSE_REFUSED: i64 = 30_000;
const LONGEST_PAUSE_REFUSED: i64 = 1_800_000;

impl Planner {
    pub(crate) fn new(settings: Settings) -> Self {
        Self {
            said: settings.said_of_nodes(),
            settings,
            nodes: BTreeMap::new(),
            shims: BTreeMap::new(),
            jobs: HashMap::new(),
            jobs_of: HashMap::new(),
            classes: BTreeMap::new(),
            refused_classes: BTreeMap::new(),
            verdicts: HashMap::new(),
            ledger: Ledger::default(),
            owed: Owed::default(),
            dirty_nodes: BTreeSet::new(),
            dirty_shims: BTreeSet::new(),
            waiting: BTreeSet::new(),
            busy: BTreeSet::new(),
            starting: BTreeMap::new(),
            rejected: BTreeMap::new(),
            gather: Gather::default(),
            unseen: Vec::new(),
            graves: Graves::default(),
            pauses: HashMap::new(),
            timers: BTreeSet::new(),
            alarms: Alarms::default(),
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
        if let Some((until, shim)) = self.gather.heard(now) {
            self.timers.insert((until, Key::Shim(shim)));
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
        let timer = self.timers.first().map(|(at, _)| *at);
        timer.into_iter().chain(self.alarms.next()).chain(self.owed.next()).min()
    }

    /// The clock was set back: whatever was to be looked at by the old one is looked at now.
    fn set_back(&mut self, now: i64) {
        self.timers.clear();
        self.alarms.clear();
        self.dirty_nodes.extend(self.nodes.keys().cloned());
        self.dirty_shims.extend(self.shims.keys().cloned());
        self.jobs.values_mut().for_each(|job| job.value.since = job.value.since.min(now / 1000));
    }

    /// Lets those be looked at whose time has come.
    fn ring(&mut self, now: i64) {
        while let Some(node) = self.alarms.ring(now) {
            self.dirty_nodes.insert(node);
        }
        while let Some((at, key)) = self.timers.first().cloned().filter(|(at, _)| *at <= now) {
            self.timers.remove(&(at, key.clone()));
            // Heard of too late: nothing else would ever end this pause.
            if !self.knows(&key) {
                self.pauses.remove(&key);
            }
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

    /// How many wait after a failure.
    #[cfg(test)]
    pub(crate) fn paused(&self) -> usize {
        self.pauses.len()
    }

    fn knows(&self, key: &Key) -> bool {
        match key {
            Key::Node(node) => self.nodes.contains_key(node),
            Key::Job(job) => self.jobs.contains_key(job),
            Key::Shim(shim) | Key::Class(shim) => self.shims.contains_key(shim),
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
            let (rejected, fresh) = self.rejected(name, shim_name);
            let seen = Seen { jobs: &jobs, verdicts: &self.verdicts, rejected, fresh };
            let Some(cell) = cell::decide(&view, &node, &seen, now / 1000) else { continue };
            cells.insert(shim_name.clone(), cell);
        }
        for cell in cells.values() {
            self.follow(cell, now, effects);
        }
        self.dirty_shims.extend(self.ledger.replace(name, cells));
        self.owe(name, now);
    }

    /// What a cell asks for besides a turn.
    fn follow(&mut self, cell: &Cell, now: i64, effects: &mut Vec<Effect>) {
        if let Some((job, uid)) = cell.collect.clone()
            && self.claim(&job, now)
        {
            let end = self.jobs.get(&job).and_then(|job| job.value.end.clone());
            let failure = match end {
                Some(End::Failed(failure)) => failure,
                _ => Failure::default(),
            };
            effects.push(Effect::Collect { job, uid, failure });
        }
        for (job, uid) in cell.kill.clone() {
            if self.claim(&job, now) {
                effects.push(Effect::Kill { job, uid });
            }
        }
    }

    /// Whether something may be done with a Job now; who asks next is told no. Several Shims may ask for the same.
    fn claim(&mut self, job: &str, now: i64) -> bool {
        let key = Key::Job(job.to_owned());
        self.may_write(&key, now) && self.busy.insert(key)
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

    fn jobs_on(&self, node: &str, shim: &Shim) -> Vec<Share<'_>> {
        let Some(uid) = &shim.metadata.uid else { return Vec::new() };
        let names = self.jobs_of.get(node).into_iter().flatten();
        let jobs = names.filter_map(|name| self.jobs.get(name)).map(|kept| &kept.value);
        jobs.filter_map(|job| job.share(uid)).collect()
    }

    fn view<'a>(&'a self, name: &'a str, shim: &'a Shim) -> View<'a> {
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
            look_every: self.settings.look_every,
            said: &self.said,
        }
    }
}

/// Whether it carries our finalizer: nothing is done for a Shim that could vanish without a trace.
fn is_held(shim: &Shim) -> bool {
    shim.metadata.finalizers.iter().flatten().any(|one| one == FINALIZER)
}

fn tell(node: &str, uid: &str, shim: &str, failed: &Failed) -> Effect {
    let again = if failed.permanent {
        "not tried again until the Shim or what the controller is told of nodes changes"
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
