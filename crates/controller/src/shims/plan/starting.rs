//! What was told to begin on nodes and has not been heard of, and what the server did not take of it.

use std::sync::Arc;

use super::{Key, Order, Planner};
use crate::shims::outcome::MAX_MESSAGE;
use crate::shims::record::Failed;

/// Watches end by themselves before that, and are begun again.
pub(super) const UNSURE: i64 = 90_000;

/// Something that was told to begin.
#[derive(Debug, Clone)]
pub(super) struct Starting {
    pub(super) order: Arc<Order>,
    /// From when on it would have been heard of.
    pub(super) until: i64,
    /// Whether it is told now: other writes of its node say nothing of it.
    pub(super) told: bool,
    /// Whether an answer was lost, or it was announced before: it may have begun.
    pub(super) unsure: bool,
    /// Whether it was announced before, or its Job was heard of: it may have begun, and be gone.
    pub(super) again: bool,
}

impl Starting {
    /// What is told now.
    pub(super) fn new(order: Arc<Order>, again: bool, now: i64) -> Self {
        Self { order, until: now + UNSURE, told: true, unsure: again, again }
    }

    /// Whether it would not have been heard of yet.
    pub(super) fn lasts(&self, now: i64) -> bool {
        now < self.until && self.until <= now + UNSURE
    }
}

/// What the server did not take.
#[derive(Debug, Clone)]
pub(super) struct Rejected {
    failed: Failed,
    /// Whether it may have begun before.
    again: bool,
}

impl Planner {
    /// What the server did not take of a Shim on a node, and whether what is announced of it there has not begun.
    pub(super) fn rejected(&self, node: &str, shim: &str) -> (Option<&Failed>, bool) {
        let of = |one: &&Starting| one.order.identity.parts().any(|(name, ..)| name == shim);
        let starting = self.starting.get(node).filter(of);
        let rejected = self.rejected.get(node).and_then(|all| all.get(shim));
        let again = starting.map(|one| one.again).or_else(|| rejected.map(|one| one.again));
        (rejected.map(|one| &one.failed), again == Some(false))
    }

    /// A Job was heard of: it has begun, if it is the very one. Its maker may be about to say how that went.
    pub(super) fn is_made(&mut self, node: &str, job: &str) {
        let told = |one: &&mut Starting| one.order.identity.job_name() == job;
        let Some(one) = self.starting.get_mut(node).filter(told) else { return };
        one.again = true;
        if !self.busy.contains(&Key::Node(node.to_owned())) {
            self.starting.remove(node);
        }
    }

    /// Of what was told to begin nobody knows whether it did.
    pub(super) fn lose(&mut self, node: &str, now: i64) {
        if let Some(one) = self.answered(node) {
            one.unsure = true;
            one.until = now + UNSURE;
        }
    }

    /// What was told to begin will not: it has failed, and holds no place. Where it was said before and not answered it may
    /// have begun then: who admits Jobs is asked before it is seen that one is there.
    pub(super) fn reject(&mut self, node: &str, message: &str, now: i64) {
        if self.answered(node).is_none_or(|one| one.unsure && one.lasts(now)) {
            return;
        }
        let Some(one) = self.starting.remove(node) else { return };
        let identity = &one.order.identity;
        let message: String = message.chars().take(MAX_MESSAGE).collect();
        let rejected = |(shim, _, hash): (&str, &str, &str)| {
            let cell = self.ledger.cell(node, shim);
            let before = cell.and_then(|cell| cell.record.failure(identity.operation, hash));
            let failed = Failed {
                operation: identity.operation,
                hash: hash.to_owned(),
                times: before.map_or(1, |before| before.times.saturating_add(1)),
                at: now / 1000,
                reason: "JobRefused".to_owned(),
                message: message.clone(),
                permanent: false,
                said: None,
            };
            (shim.to_owned(), Rejected { failed, again: one.again })
        };
        let rejected: Vec<_> = identity.parts().map(rejected).collect();
        self.rejected.entry(node.to_owned()).or_default().extend(rejected);
    }

    /// These begin: that they were refused before is in what announces them.
    pub(super) fn begins(&mut self, node: &str, shims: &[String]) {
        if let Some(all) = self.rejected.get_mut(node) {
            all.retain(|shim, _| !shims.contains(shim));
        }
    }

    /// A node was written, and with it all that was known then: also what was refused.
    pub(super) fn is_written(&mut self, node: &str) {
        self.rejected.remove(node);
    }

    /// What was told to begin, where that is what was answered now and it did not begin as far as is known.
    fn answered(&mut self, node: &str) -> Option<&mut Starting> {
        let one = self.starting.get_mut(node)?;
        if !std::mem::take(&mut one.told) {
            return None;
        }
        if self.jobs.contains_key(&one.order.identity.job_name()) {
            self.starting.remove(node);
            return None;
        }
        self.starting.get_mut(node)
    }
}
