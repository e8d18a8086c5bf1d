//! One Shim as a whole: its finalizer, its RuntimeClass, its status.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::condition::{self, Status};
use portolan_api::shim::{
    AVAILABLE, DEGRADED, FINALIZER, PROGRESSING, RUNTIME_CLASS_READY, Shim, ShimStatus,
};

use super::{About, Effect, Key, Notice, Planner, STATUS_PAUSE, Starting, is_held};
use crate::shims::class::{self, ClassStep};
use crate::shims::record::{Carried, carried};
use crate::shims::status::{self, ClassState, Tally};

impl Planner {
    pub(super) fn look_at_shim(&mut self, name: &str, now: i64, effects: &mut Vec<Effect>) {
        let Some(shim) = self.shims.get(name).map(|kept| Arc::clone(&kept.value)) else { return };
        let deleting = shim.metadata.deletion_timestamp.is_some();
        if deleting && !is_held(&shim) {
            return;
        }
        let key = Key::Shim(name.to_owned());
        if !self.may_write(&key, now) {
            if self.busy.contains(&key) {
                self.dirty_shims.insert(name.to_owned());
            }
            return;
        }
        if !is_held(&shim) {
            let mut finalizers = shim.metadata.finalizers.clone().unwrap_or_default();
            finalizers.push(FINALIZER.to_owned());
            effects.push(Effect::Finalizers { shim, finalizers });
            return;
        }
        let clean = deleting && self.is_clean(name, &shim, now);
        if deleting && !clean {
            self.dirty_shims.insert(name.to_owned());
        }
        // The class goes last: pods that still name it are not refused while nodes are cleaned.
        let class = match deleting && !clean {
            true => ClassState::Pending,
            false => self.keep_class(name, &shim, now, effects),
        };
        if clean && !class::is_left(&shim, &self.classes) {
            let mut finalizers = shim.metadata.finalizers.clone().unwrap_or_default();
            finalizers.retain(|one| one != FINALIZER);
            effects.push(Effect::Finalizers { shim, finalizers });
            return;
        }
        let time = Time(Timestamp::from_second(now / 1000).unwrap_or_default());
        let none = Tally::default();
        let tally = self.ledger.sums(name).map_or(&none, |sums| &sums.tally);
        let new = status::status(&shim, tally, &class, self.is_paused(name), &time);
        if shim.status.as_ref() == Some(&new) {
            return;
        }
        let news = news(name, &shim, &new, tally);
        if self.may_report(name, now) {
            effects.extend(news);
            effects.push(Effect::Status { shim, status: Box::new(new) });
        }
    }

    /// How all nodes of all Shims are, for metrics: ready, pending, failed, unsupported.
    pub(crate) fn counts(&self) -> [usize; 4] {
        let mut sum = [0; 4];
        for sums in self.shims.keys().filter_map(|name| self.ledger.sums(name)) {
            let tally = &sums.tally;
            // Each node once.
            let ready = tally.ready - tally.failed_usable;
            let counts = [ready, tally.pending, tally.failed, tally.unsupported];
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        sum
    }

    /// Whether nothing of a Shim is left on any node that there is, and no Job of it goes on.
    fn is_clean(&self, name: &str, shim: &Shim, now: i64) -> bool {
        let leaving = self.ledger.sums(name).is_some_and(|sums| !sums.tally.leaving.is_empty());
        let starting = |one: &Starting| one.order.identity.parts().any(|(shim, ..)| shim == name);
        if leaving || self.starting.values().any(starting) {
            return false;
        }
        let unknown = self.dirty_nodes.iter().chain(&self.waiting);
        if unknown.into_iter().any(|node| self.is_about(node, name, shim)) {
            return false;
        }
        let Some(uid) = &shim.metadata.uid else { return true };
        let deadline = self.settings.deadline_seconds;
        let live = |name: &String| {
            self.jobs.get(name).map(|job| &job.value).is_some_and(|job| {
                // What is deleted and does not go has nobody left who would run it.
                let lost = job.deleting && job.is_late(now / 1000, deadline);
                job.is_live() && !lost && job.identity.hash_of(uid).is_some()
            })
        };
        let there = self.jobs_of.iter().filter(|(node, _)| self.nodes.contains_key(*node));
        !there.flat_map(|(_, names)| names).any(live)
    }

    /// Whether a node has anything to do with a Shim: others are not waited for.
    fn is_about(&self, node: &str, name: &str, shim: &Shim) -> bool {
        let known = self.ledger.cell(node, name).is_some();
        let marks = self.view(name, shim).marks();
        let marked = self.nodes.get(node).map(|node| carried(&node.value, &marks));
        known
            || marked.is_some_and(|marked| marked != Carried::Nothing)
            || !self.jobs_on(node, shim).is_empty()
    }

    fn keep_class(
        &mut self,
        name: &str,
        shim: &Arc<Shim>,
        now: i64,
        effects: &mut Vec<Effect>,
    ) -> ClassState {
        let step = class::step(shim, &self.classes);
        let refused = self.refused_classes.get(name).cloned();
        match step {
            ClassStep::Ready => return ClassState::Ready,
            ClassStep::Foreign(message) => return ClassState::Conflict(message),
            _ => {}
        }
        if self.may_write(&Key::Class(name.to_owned()), now) {
            let class = match &step {
                ClassStep::Delete(old) => old.metadata.name.clone().unwrap_or_default(),
                _ => shim.spec.runtime_class.name.clone(),
            };
            effects.push(Effect::Class {
                shim: name.to_owned(),
                name: class,
                step: Box::new(step),
            });
        }
        refused.map_or(ClassState::Pending, ClassState::Refused)
    }

    /// Whether the last status is long enough ago. If not, it is looked at again.
    fn may_report(&mut self, name: &str, now: i64) -> bool {
        let next = self.status_at.get(name).map_or(i64::MIN, |at| at + STATUS_PAUSE);
        // Further away than any pause: the clock was set back.
        if now < next && next <= now + STATUS_PAUSE {
            self.timers.insert((next, Key::Shim(name.to_owned())));
            return false;
        }
        self.status_at.insert(name.to_owned(), now);
        true
    }
}

/// What people should hear of: what turned bad, what became complete, what a new spec is warned of.
fn news(name: &str, shim: &Shim, new: &ShimStatus, tally: &Tally) -> Vec<Effect> {
    let notice = |warning: bool, reason: &str, note: &str| {
        let (name, uid) = (name.to_owned(), shim.metadata.uid.clone().unwrap_or_default());
        let (reason, note) = (reason.to_owned(), note.to_owned());
        Effect::Tell(Notice { about: About::Shim { name, uid }, warning, reason, note })
    };
    let old = shim.status.as_ref();
    let before = |kind: &str| {
        let old = old.and_then(|old| condition::find(&old.conditions, kind));
        old.map(|old| (old.status, old.reason.clone()))
    };
    let mut all = Vec::new();
    for (kind, bad, done) in [
        (DEGRADED, Status::True, None),
        (RUNTIME_CLASS_READY, Status::False, None),
        (PROGRESSING, Status::Unknown, Some("Complete")),
        (AVAILABLE, Status::Unknown, None),
    ] {
        let Some(now) = condition::find(&new.conditions, kind) else { continue };
        if before(kind) == Some((now.status, now.reason.clone())) {
            continue;
        }
        let told = ["Pending", "Deleting"].contains(&now.reason.as_str());
        match now.status == bad && !told {
            true => all.push(notice(true, &now.reason, &now.message)),
            false if done == Some(now.reason.as_str()) => {
                all.push(notice(false, &now.reason, &now.message));
            }
            false => {}
        }
    }
    if old.and_then(|old| old.observed_generation) != new.observed_generation {
        all.extend(tally.warnings().map(|warning| notice(true, "ArtifactNotSafe", warning)));
        if shim.spec.fetch_strategy.kind.is_some() {
            all.push(notice(true, "Deprecated", "fetchStrategy.type is deprecated and ignored"));
        }
    }
    all
}
