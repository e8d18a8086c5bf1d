//! One Shim on one node: how it is, and what is to be done. Pure.

mod past;

use std::collections::HashMap;
use std::num::NonZeroI64;

use portolan_api::shim::ShimSpec;
use portolan_shim::desired;
use portolan_shim::resolve::{self, Admitted, Complaint, Policy, Refusal};

use super::budget::Group;
use super::facts::{NodeFacts, Share};
use super::identity::Operation;
use super::outcome::Verdict;
use super::record::{self, Bare, Carried, Failed, Marks, NodePatch, Record, carried};

/// What was seen of a Shim on a node besides what the node itself says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) jobs: &'a [Share<'a>],
    /// What Jobs that failed came to, by their UIDs.
    pub(crate) verdicts: &'a HashMap<String, Verdict>,
    /// What the server did not take.
    pub(crate) rejected: Option<&'a Failed>,
    /// Whether what is announced has not begun, as far as anybody can know.
    pub(crate) fresh: bool,
}

/// What is looked at of a Shim.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View<'a> {
    pub(crate) name: &'a str,
    pub(crate) spec: &'a ShimSpec,
    pub(crate) deleting: bool,
    pub(crate) bare: Bare,
    pub(crate) policy: Policy,
    pub(crate) deadline_seconds: i64,
    pub(crate) look_every: Option<NonZeroI64>,
    /// What the operator says of nodes, as one word.
    pub(crate) said: &'a str,
}

impl<'a> View<'a> {
    pub(crate) fn marks(&self) -> Marks<'a> {
        Marks { shim: self.name, bare: self.bare, handler: &self.spec.runtime_class.handler }
    }
}

/// How a selected node is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    /// Pods can use it; `updated` is whether it is what the spec says now.
    Ready { updated: bool },
    /// It waits, or is worked on.
    Pending,
    /// It did not work; `usable` is whether pods can use what was there before.
    Failed { why: Why, usable: bool },
    /// It cannot work there.
    Unsupported(Why),
}

/// Why a node has nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Why {
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// What is to be done, once there is room for it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Want {
    pub(crate) operation: Operation,
    pub(crate) hash: String,
    pub(crate) artifact: Option<Admitted>,
    /// Of a Job that was announced and never made.
    pub(crate) nonce: Option<i64>,
    /// Whether it failed before.
    pub(crate) retry: bool,
    /// Whether this very thing was there before.
    pub(crate) repair: bool,
}

impl Want {
    /// With whom it begins or waits.
    pub(crate) fn group(&self, shim: &str) -> Group {
        let again = self.retry || self.repair;
        Group { shim: shim.to_owned(), operation: self.operation, hash: self.hash.clone(), again }
    }
}

/// One Shim on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cell {
    /// None of a node that is not selected.
    pub(crate) state: Option<State>,
    /// What the node should have.
    pub(crate) hash: Option<String>,
    /// Whether anything is to be taken away from it some day.
    pub(crate) carries: bool,
    pub(crate) busy: bool,
    pub(crate) want: Option<Want>,
    pub(crate) record: Record,
    pub(crate) patch: NodePatch,
    /// A failure that this patch records.
    pub(crate) failure: Option<Failed>,
    /// A Job whose end must be asked for: name and UID.
    pub(crate) collect: Option<(String, String)>,
    /// Jobs that nobody wants any more: name and UID.
    pub(crate) kill: Vec<(String, String)>,
    /// When what failed may be tried again, or a look is due, in seconds.
    pub(crate) wake: Option<i64>,
    /// What deserves a look, and is no failure.
    pub(crate) warnings: Vec<Complaint>,
}

impl Cell {
    /// Of a node that carries this, and of which nothing else is said yet.
    pub(crate) fn of(record: Record) -> Self {
        Self {
            state: None,
            hash: None,
            carries: false,
            busy: false,
            want: None,
            record,
            patch: NodePatch::default(),
            failure: None,
            collect: None,
            kill: Vec::new(),
            wake: None,
            warnings: Vec::new(),
        }
    }

    /// Whether what the node should have failed there, also while it is tried again.
    pub(crate) fn has_failed(&self) -> bool {
        let Some(hash) = &self.hash else { return false };
        let failed = self.record.failed.as_ref();
        // A Job that failed and has not said why yet has failed.
        let just = self.record.begun.as_ref().filter(|_| self.collect.is_some());
        failed.is_some_and(|failed| failed.is_of(Operation::Install, hash))
            || just.is_some_and(|of| of.operation == Operation::Install && of.hash == *hash)
    }
}

impl Cell {
    /// Then at the latest.
    fn wake_at(&mut self, at: i64) {
        self.wake = Some(self.wake.map_or(at, |other| other.min(at)));
    }
}

/// What a node should have.
enum Goal {
    Have(String, Admitted),
    Refused(Refusal),
    Nothing,
}

fn goal(view: &View<'_>, node: &NodeFacts) -> Goal {
    if view.deleting || !view.spec.selects(&node.labels) {
        return Goal::Nothing;
    }
    let facts =
        resolve::Node { name: &node.name, os: &node.os, arch: &node.arch, runtime: &node.runtime };
    let found = resolve::resolve(view.name, view.spec, &facts)
        .and_then(|artifact| resolve::sound(view.spec).map(|()| artifact))
        .and_then(|artifact| resolve::admit(&artifact, &view.policy));
    match found {
        Ok(artifact) => Goal::Have(desired::hash(view.spec, &artifact), artifact),
        Err(refusal) => Goal::Refused(refusal),
    }
}

/// Looks at one Shim on one node; nothing where it has nothing to do with it.
pub(crate) fn decide(view: &View<'_>, node: &NodeFacts, seen: &Seen<'_>, now: i64) -> Option<Cell> {
    let goal = goal(view, node);
    let marks = view.marks();
    let was = carried(node, &marks);
    if matches!((&goal, &was), (Goal::Nothing, Carried::Nothing)) && seen.jobs.is_empty() {
        return None;
    }
    let record = match &was {
        Carried::Ours(record) => (**record).clone(),
        _ => Record { node: node.uid.clone(), ..Record::default() },
    };
    let carries = !matches!(was, Carried::Nothing | Carried::Stale);
    let mut cell = Cell { carries, ..Cell::of(record) };
    past::look_at_jobs(&mut cell, &goal, node, seen, (view, now));
    past::give_up(&mut cell, &goal);
    if !seen.fresh {
        past::doubt(&mut cell);
    }
    if let Some(failed) = seen.rejected {
        past::reject(&mut cell, failed);
    }
    past::forget(&mut cell.record, &goal);
    let kept = cell.carries.then_some(&cell.record);
    cell.patch = match &was {
        Carried::Ours(_) => record::patch(node, &marks, kept),
        // Of another machine: pods must not be sent here on its word.
        Carried::Stale => record::patch(node, &marks, None),
        _ => NodePatch::default(),
    };
    settle(&mut cell, goal, node, (view, now));
    if !node.ready {
        cell.want = None;
    }
    Some(cell)
}

/// From what a node carries and should have to how it is and what is to be done.
fn settle(cell: &mut Cell, goal: Goal, node: &NodeFacts, (view, now): (&View<'_>, i64)) {
    match goal {
        Goal::Nothing => {
            if cell.carries && !cell.busy {
                try_for(cell, (Operation::Uninstall, String::new()), None, (view, now));
            }
        }
        Goal::Refused(refusal) => {
            let why = Why { reason: refusal.reason().into(), message: refusal.to_string() };
            cell.state = Some(match refusal.is_unsupported() {
                true => State::Unsupported(why),
                false => State::Failed { why, usable: is_usable(cell, view) },
            });
            look(cell, node, (view, now));
        }
        Goal::Have(hash, artifact) => {
            cell.hash = Some(hash.clone());
            cell.warnings.clone_from(&artifact.warnings);
            have(cell, (hash, artifact), node, (view, now));
        }
    }
}

fn have(
    cell: &mut Cell,
    (hash, artifact): (String, Admitted),
    node: &NodeFacts,
    (view, now): (&View<'_>, i64),
) {
    let installing = cell.busy && !is_verifying(cell);
    let applied = cell.record.applied.as_ref().filter(|applied| !applied.drifted);
    let there = applied.is_some_and(|applied| applied.hash == hash) && !installing;
    let failed = cell.record.failure(Operation::Install, &hash);
    let usable = is_usable(cell, view);
    cell.state = Some(match failed {
        _ if there => State::Ready { updated: true },
        // It stays visible until it works.
        Some(Failed { reason, message, .. }) => {
            let why = Why { reason: reason.clone(), message: message.clone() };
            State::Failed { why, usable }
        }
        None if usable => State::Ready { updated: false },
        None => State::Pending,
    });
    look(cell, node, (view, now));
    if !there && !cell.busy && cell.want.is_none() {
        try_for(cell, (Operation::Install, hash), Some(artifact), (view, now));
    }
}

/// What pods are sent here for is looked at after a boot, with another runtime and once in a while, before anything else, and also
/// where it is not what the Shim says now: an update may wait, or have failed for good, and the root of the node be a new one.
fn look(cell: &mut Cell, node: &NodeFacts, (view, now): (&View<'_>, i64)) {
    if cell.busy || !is_usable(cell, view) {
        return;
    }
    let Some(applied) = &cell.record.applied else { return };
    let due = view.look_every.map(|every| {
        let name = format!("{}/{}", node.uid, view.name);
        applied.look_at(&name, every.get(), now)
    });
    let other = applied.boot != node.boot || applied.runtime != node.runtime;
    if other || due.is_some_and(|at| at <= now) {
        let hash = applied.hash.clone();
        try_for(cell, (Operation::Verify, hash), None, (view, now));
    } else if let Some(at) = due {
        cell.wake_at(at);
    }
}

/// Whether pods can use what is there, and nobody is changing it.
fn is_usable(cell: &Cell, view: &View<'_>) -> bool {
    let applied = cell.record.applied.as_ref();
    let usable = applied.is_some_and(|one| one.is_usable(&view.spec.runtime_class.handler));
    usable && (cell.record.begun.is_none() || is_verifying(cell))
}

fn is_verifying(cell: &Cell) -> bool {
    cell.record.begun.as_ref().is_some_and(|begun| begun.operation == Operation::Verify)
}

/// Wants it, unless it failed and its time has not come.
fn try_for(
    cell: &mut Cell,
    (operation, hash): (Operation, String),
    artifact: Option<Admitted>,
    (view, now): (&View<'_>, i64),
) {
    let failed = cell.record.failure(operation, &hash);
    if let Some(failed) = failed {
        if failed.is_final(view.said) {
            return;
        }
        if failed.waits(now) {
            let at = failed.retry_at();
            cell.wake_at(at);
            return;
        }
    }
    let retry = failed.is_some();
    let begun = cell.record.begun.as_ref();
    let begun = begun.filter(|begun| begun.operation == operation && begun.hash == hash);
    let nonce = begun.map(|begun| begun.nonce);
    let repair = cell.record.applied.as_ref().is_some_and(|applied| applied.hash == hash);
    cell.want = Some(Want { operation, hash, artifact, nonce, retry, repair });
}
