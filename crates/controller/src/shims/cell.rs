//! One Shim on one node: how it is, and what is to be done. Pure.

use std::collections::HashMap;

use portolan_api::shim::ShimSpec;
use portolan_shim::desired;
use portolan_shim::resolve::{self, Admitted, Complaint, Policy, Refusal};

use super::facts::{End, GRACE_SECONDS, JobFacts, NodeFacts};
use super::identity::Operation;
use super::outcome::Outcome;
use super::record::{
    self, Applied, Bare, Begun, Carried, Failed, Marks, NodePatch, Record, carried,
};

/// What was seen of a Shim on a node besides what the node itself says.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Seen<'a> {
    pub(crate) jobs: &'a [&'a JobFacts],
    /// Why Jobs failed, by their UIDs.
    pub(crate) outcomes: &'a HashMap<String, Outcome>,
    /// What the server did not take.
    pub(crate) rejected: Option<&'a Failed>,
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
    /// It did not work.
    Failed(Why),
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
    /// When to look again, in seconds.
    pub(crate) wake: Option<i64>,
    /// What deserves a look, and is no failure.
    pub(crate) warnings: Vec<Complaint>,
}

impl Cell {
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
    let mut cell = Cell {
        state: None,
        hash: None,
        carries: !matches!(was, Carried::Nothing | Carried::Stale),
        busy: false,
        want: None,
        record,
        patch: NodePatch::default(),
        failure: None,
        collect: None,
        kill: Vec::new(),
        wake: None,
        warnings: Vec::new(),
    };
    look_at_jobs(&mut cell, &goal, node, seen, (now, view.deadline_seconds));
    give_up(&mut cell, &goal);
    if let Some(failed) = seen.rejected {
        reject(&mut cell, failed);
    }
    let kept = cell.carries.then_some(&cell.record);
    cell.patch = match &was {
        Carried::Ours(_) => record::patch(node, &marks, kept),
        // Of another machine: pods must not be sent here on its word.
        Carried::Stale => record::patch(node, &marks, None),
        _ => NodePatch::default(),
    };
    settle(&mut cell, goal, node, (marks.handler, now));
    if !node.ready {
        cell.want = None;
    }
    Some(cell)
}

/// Takes in what Jobs have come to.
fn look_at_jobs(
    cell: &mut Cell,
    goal: &Goal,
    node: &NodeFacts,
    seen: &Seen<'_>,
    (now, deadline): (i64, i64),
) {
    let begun = cell.record.begun.clone();
    for job in seen.jobs {
        let of = &job.identity;
        let announced = of.node_uid == node.uid
            && begun.as_ref().is_some_and(|begun| {
                begun.nonce == of.nonce && begun.operation == of.operation && begun.hash == of.hash
            });
        let late = job.is_late(now, deadline);
        match &job.end {
            // Whatever was not announced, or is of another machine, says nothing of this one.
            Some(_) if !announced => {}
            Some(End::Complete) => succeeded(cell, node, begun.as_ref()),
            Some(End::Failed { .. }) => match seen.outcomes.get(&job.uid) {
                Some(outcome) => failed(cell, of.operation, &of.hash, outcome, now),
                None => {
                    cell.busy = true;
                    cell.collect = Some((job.name.clone(), job.uid.clone()));
                }
            },
            None if late => {
                if announced {
                    failed(cell, of.operation, &of.hash, &Outcome::silent(), now);
                }
                if !job.deleting {
                    cell.kill.push((job.name.clone(), job.uid.clone()));
                }
            }
            None => {
                cell.busy = true;
                cell.wake = Some(job.since + deadline + GRACE_SECONDS + 1);
                if !job.deleting && (!announced || is_obsolete(goal, of.operation, &of.hash)) {
                    cell.kill.push((job.name.clone(), job.uid.clone()));
                }
            }
        }
    }
}

/// What was to begin was not taken by the server. Nothing was done on the node.
fn reject(cell: &mut Cell, failed: &Failed) {
    let of = |begun: &Begun| failed.is_of(begun.operation, &begun.hash);
    if cell.busy || cell.record.begun.as_ref().is_some_and(|begun| !of(begun)) {
        return;
    }
    cell.record.begun = None;
    cell.record.failed = Some(failed.clone());
    cell.failure = Some(failed.clone());
}

/// Something was begun that nobody wants any more, and that has left no result: how far it came nobody knows, so
/// what was there before is put there again.
fn give_up(cell: &mut Cell, goal: &Goal) {
    let Some(begun) = &cell.record.begun else { return };
    let wanted = match (begun.operation, goal) {
        (Operation::Uninstall, Goal::Nothing) => true,
        (Operation::Install | Operation::Verify, Goal::Have(hash, _)) => *hash == begun.hash,
        _ => false,
    };
    if cell.busy || wanted {
        return;
    }
    if begun.operation != Operation::Verify {
        distrust(&mut cell.record);
    }
    cell.record.begun = None;
}

fn distrust(record: &mut Record) {
    if let Some(applied) = &mut record.applied {
        applied.drifted = true;
    }
}

/// An uninstall is let go to its end: what it leaves is clean.
fn is_obsolete(goal: &Goal, operation: Operation, hash: &str) -> bool {
    match (operation, goal) {
        (Operation::Uninstall, _) => false,
        (_, Goal::Have(wanted, _)) => wanted != hash,
        _ => true,
    }
}

fn succeeded(cell: &mut Cell, node: &NodeFacts, begun: Option<&Begun>) {
    let Some(begun) = begun else { return };
    let seen = Applied {
        hash: begun.hash.clone(),
        handler: begun.handler.clone(),
        boot: node.boot.clone(),
        runtime: node.runtime.clone(),
        drifted: false,
    };
    cell.record.begun = None;
    match begun.operation {
        Operation::Install => {
            cell.record.applied = Some(seen);
            cell.record.failed = None;
        }
        Operation::Verify => cell.record.applied = Some(seen),
        Operation::Uninstall => {
            cell.record = Record { node: node.uid.clone(), ..Record::default() };
            cell.carries = false;
        }
    }
}

fn failed(cell: &mut Cell, operation: Operation, hash: &str, outcome: &Outcome, now: i64) {
    cell.record.begun = None;
    // Whatever a look did not find as it should be, an install puts right or says why not. What failed half way
    // may have left half of it.
    distrust(&mut cell.record);
    if operation == Operation::Verify {
        return;
    }
    let before = cell.record.failed.take().filter(|before| before.is_of(operation, hash));
    let failed = Failed {
        operation,
        hash: hash.to_owned(),
        times: before.map_or(1, |before| before.times.saturating_add(1)),
        at: now,
        reason: outcome.reason.clone(),
        message: outcome.message.clone(),
        // What is to be taken away has no spec that could change.
        permanent: outcome.permanent && operation == Operation::Install,
    };
    cell.record.failed = Some(failed.clone());
    cell.failure = Some(failed);
}

/// From what a node carries and should have to how it is and what is to be done.
fn settle(cell: &mut Cell, goal: Goal, node: &NodeFacts, (handler, now): (&str, i64)) {
    match goal {
        Goal::Nothing => {
            if cell.carries && !cell.busy {
                try_for(cell, Operation::Uninstall, String::new(), None, now);
            }
        }
        Goal::Refused(refusal) => {
            let why = Why { reason: refusal.reason().into(), message: refusal.to_string() };
            cell.state = Some(match refusal.is_unsupported() {
                true => State::Unsupported(why),
                false => State::Failed(why),
            });
        }
        Goal::Have(hash, artifact) => {
            cell.hash = Some(hash.clone());
            cell.warnings.clone_from(&artifact.warnings);
            have(cell, (hash, artifact), node, handler, now);
        }
    }
}

fn have(
    cell: &mut Cell,
    (hash, artifact): (String, Admitted),
    node: &NodeFacts,
    handler: &str,
    now: i64,
) {
    let installing = cell.busy && !is_verifying(cell);
    let applied = cell.record.applied.clone();
    let usable = applied.as_ref().is_some_and(|applied| applied.is_usable(handler));
    match applied {
        Some(applied) if applied.hash == hash && !applied.drifted && !installing => {
            cell.state = Some(State::Ready { updated: true });
            let moved = applied.boot != node.boot || applied.runtime != node.runtime;
            if moved && !cell.busy {
                try_for(cell, Operation::Verify, hash, None, now);
            }
        }
        _ => {
            let failed = cell.record.failed.clone();
            let failed = failed.filter(|failed| failed.is_of(Operation::Install, &hash));
            let begun = cell.record.begun.is_some() && !is_verifying(cell);
            cell.state = Some(match failed {
                // It stays visible until it works.
                Some(failed) => {
                    State::Failed(Why { reason: failed.reason, message: failed.message })
                }
                None if usable && !begun => State::Ready { updated: false },
                None => State::Pending,
            });
            if !cell.busy {
                try_for(cell, Operation::Install, hash, Some(artifact), now);
            }
        }
    }
}

fn is_verifying(cell: &Cell) -> bool {
    cell.record.begun.as_ref().is_some_and(|begun| begun.operation == Operation::Verify)
}

/// Wants it, unless it failed and its time has not come.
fn try_for(
    cell: &mut Cell,
    operation: Operation,
    hash: String,
    artifact: Option<Admitted>,
    now: i64,
) {
    let failed = cell.record.failed.as_ref().filter(|failed| failed.is_of(operation, &hash));
    if let Some(failed) = failed {
        if failed.permanent {
            return;
        }
        if failed.waits(now) {
            cell.wake = Some(failed.retry_at());
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
