//! What is over: what Jobs came to, what the server did not take, and what nobody wants any more. Pure.

use super::{Cell, Goal, Seen, View};
use crate::shims::facts::{End, NodeFacts, Share};
use crate::shims::identity::Operation;
use crate::shims::outcome::Outcome;
use crate::shims::record::{Applied, Begun, Failed, Record};

/// Takes in what Jobs have come to.
pub(super) fn look_at_jobs(
    cell: &mut Cell,
    goal: &Goal,
    node: &NodeFacts,
    seen: &Seen<'_>,
    (view, now): (&View<'_>, i64),
) {
    let deadline = view.deadline_seconds;
    let begun = cell.record.begun.clone();
    for Share { job, shim, hash } in seen.jobs {
        let of = &job.identity;
        let announced = of.node_uid == node.uid
            && begun.as_ref().is_some_and(|begun| {
                begun.nonce == of.nonce && begun.operation == of.operation && begun.hash == *hash
            });
        let late = job.is_late(now, deadline);
        match &job.end {
            // Whatever was not announced, or is of another machine, says nothing of this one.
            Some(_) if !announced => {}
            Some(End::Complete) => succeeded(cell, node, begun.as_ref(), now),
            Some(End::Failed(_)) => match seen.verdicts.get(&job.uid) {
                Some(verdict) => match verdict.of(shim, of.is_shared()) {
                    Some(outcome) => failed(cell, (of.operation, hash), &outcome, (view, now)),
                    None => succeeded(cell, node, begun.as_ref(), now),
                },
                None => {
                    cell.busy = true;
                    cell.collect = Some((job.name.clone(), job.uid.clone()));
                }
            },
            None if late => {
                if announced {
                    failed(cell, (of.operation, hash), &Outcome::silent(), (view, now));
                }
                if !job.deleting {
                    cell.kill.push((job.name.clone(), job.uid.clone()));
                }
            }
            None => {
                cell.busy = true;
                let obsolete = is_obsolete(goal, &cell.record, of.operation, hash);
                if !job.deleting && (!announced || obsolete) {
                    cell.kill.push((job.name.clone(), job.uid.clone()));
                }
            }
        }
    }
}

/// What was to begin was not taken by the server. Nothing was done on the node.
pub(super) fn reject(cell: &mut Cell, failed: &Failed) {
    let of = |begun: &Begun| failed.is_of(begun.operation, &begun.hash);
    if cell.busy || cell.record.begun.as_ref().is_some_and(|begun| !of(begun)) {
        return;
    }
    cell.record.begun = None;
    note(cell, failed.clone());
}

/// Writes down what failed.
fn note(cell: &mut Cell, failed: Failed) {
    cell.failure = Some(failed.clone());
    match (failed.operation, &mut cell.record.applied) {
        (Operation::Verify, applied) => {
            // A look changes nothing, also where it could not be made: what failed before stays where it is.
            applied.iter_mut().for_each(|applied| applied.look = Some(failed.clone()));
        }
        _ => cell.record.failed = Some(failed),
    }
}

/// A failure of what nobody wants any more would be told for ever: nothing is tried that could end it. On a node that lacks
/// something, one of an install stays until that is there; who failed is tried alone.
pub(super) fn forget(record: &mut Record, goal: &Goal) {
    let hash = match goal {
        Goal::Have(hash, _) => Some(hash),
        Goal::Refused(_) => None,
        Goal::Nothing => return,
    };
    let applied = record.applied.as_ref().filter(|applied| !applied.drifted);
    let there = applied.is_some_and(|applied| Some(&applied.hash) == hash);
    record.failed.take_if(|failed| match failed.operation {
        // Of looks it was written here once.
        Operation::Uninstall | Operation::Verify => true,
        // What is there cannot have failed.
        Operation::Install => there,
    });
}

/// Something was begun that nobody wants any more, and that has left no result: how far it came nobody knows, so
/// what was there before is put there again.
pub(super) fn give_up(cell: &mut Cell, goal: &Goal) {
    let Some(begun) = &cell.record.begun else { return };
    if cell.busy || is_wanted(goal, &cell.record, begun.operation, &begun.hash) {
        return;
    }
    if begun.operation != Operation::Verify {
        distrust(&mut cell.record);
    }
    cell.record.begun = None;
}

/// Something is announced, and there is no Job of it: it may have been there and be gone, and have left half of what it does.
/// That it is announced again, and is not taken then, changes nothing of that.
pub(super) fn doubt(cell: &mut Cell) {
    let begun = cell.record.begun.as_ref();
    if !cell.busy && begun.is_some_and(|begun| begun.operation != Operation::Verify) {
        distrust(&mut cell.record);
    }
}

fn distrust(record: &mut Record) {
    if let Some(applied) = &mut record.applied {
        applied.drifted = true;
        applied.look = None;
    }
}

/// Whether it is on the way to what the node should have, or a look at what pods are sent there for.
fn is_wanted(goal: &Goal, record: &Record, operation: Operation, hash: &str) -> bool {
    let there = || record.applied.as_ref().is_some_and(|one| one.hash == hash && !one.drifted);
    match (operation, goal) {
        (Operation::Uninstall, Goal::Nothing) => true,
        (Operation::Install, Goal::Have(wanted, _)) => wanted == hash,
        (Operation::Verify, Goal::Have(..) | Goal::Refused(_)) => there(),
        _ => false,
    }
}

/// An uninstall is let go to its end: what it leaves is clean.
fn is_obsolete(goal: &Goal, record: &Record, operation: Operation, hash: &str) -> bool {
    operation != Operation::Uninstall && !is_wanted(goal, record, operation, hash)
}

fn succeeded(cell: &mut Cell, node: &NodeFacts, begun: Option<&Begun>, now: i64) {
    let Some(begun) = begun else { return };
    let seen = Applied {
        hash: begun.hash.clone(),
        handler: begun.handler.clone(),
        boot: node.boot.clone(),
        runtime: node.runtime.clone(),
        seen: now,
        drifted: false,
        look: None,
    };
    cell.record.begun = None;
    match begun.operation {
        Operation::Install => {
            cell.record.applied = Some(seen);
            cell.record.failed = None;
        }
        // It says nothing of an update that failed.
        Operation::Verify => cell.record.applied = Some(seen),
        Operation::Uninstall => {
            cell.record = Record { node: node.uid.clone(), ..Record::default() };
            cell.carries = false;
        }
    }
}

fn failed(
    cell: &mut Cell,
    (operation, hash): (Operation, &str),
    outcome: &Outcome,
    (view, now): (&View<'_>, i64),
) {
    cell.record.begun = None;
    let look = operation == Operation::Verify;
    // A look that could not be made, because nothing ran, has found nothing: it is made later.
    let unseen = look && !outcome.said;
    // Whatever a look did not find as it should be, an install puts right or says why not. What failed half way
    // may have left half of it; an install that was refused before it began has left what was there.
    if !unseen && (operation != Operation::Install || !outcome.untouched) {
        distrust(&mut cell.record);
    }
    if look && !unseen {
        return;
    }
    let before = cell.record.failure(operation, hash);
    // What is to be taken away has no spec that could change.
    let permanent = outcome.permanent && operation == Operation::Install;
    let failed = Failed {
        operation,
        hash: hash.to_owned(),
        times: before.map_or(1, |before| before.times.saturating_add(1)),
        at: now,
        reason: outcome.reason.clone(),
        message: outcome.message.clone(),
        permanent,
        said: permanent.then(|| view.said.to_owned()),
    };
    note(cell, failed);
}
