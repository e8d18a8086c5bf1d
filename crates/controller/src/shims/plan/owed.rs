//! What is to be written on nodes, and when. Who begins goes first: what a node is to say of what is over waits for a free
//! hand, or is written with what announces the next Job, so that under load a node is written less often.

use std::collections::{BTreeSet, HashMap};

use super::{Effect, Key, Planner, tell};
use crate::shims::record::{Failed, NodePatch};

/// Nothing waits longer, in milliseconds, however much there is to do.
const LONGEST_WAIT: i64 = 20_000;

/// Nodes that something is to be written on.
#[derive(Debug, Default)]
pub(super) struct Owed {
    since: HashMap<String, i64>,
    /// Those that nobody writes, the oldest first.
    queue: BTreeSet<(i64, String)>,
    /// Failures that people were told of and that are not known to be written, by node and Shim: what cannot be written
    /// is tried again and again.
    told: HashMap<String, HashMap<String, Failed>>,
}

impl Owed {
    /// Something is to be written, or nothing is.
    fn set(&mut self, node: &str, owes: bool, now: i64) {
        self.hold(node);
        if owes {
            let since = *self.since.entry(node.to_owned()).or_insert(now);
            self.queue.insert((since, node.to_owned()));
        } else {
            self.since.remove(node);
        }
    }

    /// Somebody writes the node; it is looked at again afterwards.
    pub(super) fn hold(&mut self, node: &str) {
        if let Some(since) = self.since.get(node) {
            self.queue.remove(&(*since, node.to_owned()));
        }
    }

    /// When the oldest has waited too long.
    pub(super) fn next(&self) -> Option<i64> {
        self.queue.first().map(|(since, _)| since + LONGEST_WAIT)
    }

    /// Whether this failure is not told yet; it is from now on. When it was differs from look to look.
    fn is_news(&mut self, node: &str, shim: &str, failed: &Failed) -> bool {
        let told = self.told.entry(node.to_owned()).or_default();
        let told = told.insert(shim.to_owned(), failed.clone());
        told.is_none_or(|told| Failed { at: failed.at, ..told } != *failed)
    }

    /// Failures are still to be written of no other Shims.
    fn keep_told(&mut self, node: &str, failing: &BTreeSet<&String>) {
        if let Some(told) = self.told.get_mut(node) {
            told.retain(|shim, _| failing.contains(shim));
            if told.is_empty() {
                self.told.remove(node);
            }
        }
    }

    /// It is being written.
    pub(super) fn settle(&mut self, node: &str) {
        self.hold(node);
        self.since.remove(node);
    }
}

impl Planner {
    /// Remembers whether a look left something to write.
    pub(super) fn owe(&mut self, node: &str, now: i64) {
        let cells = || self.ledger.of_node(node).into_iter().flatten();
        let owes = cells().any(|(_, cell)| !cell.patch.is_empty());
        let failing = cells().filter(|(_, cell)| cell.failure.is_some()).map(|(shim, _)| shim);
        self.owed.keep_told(node, &failing.collect());
        self.owed.set(node, owes, now);
    }

    /// What is to be written on a node but for these Shims, and what is told with it: once, however often it is written.
    pub(super) fn owed(
        &mut self,
        node: &str,
        uid: &str,
        but: &[String],
    ) -> (NodePatch, Vec<Effect>) {
        let mut patch = NodePatch::default();
        let mut told = Vec::new();
        for (shim, cell) in self.ledger.of_node(node).into_iter().flatten() {
            let news = cell.failure.as_ref().filter(|failed| self.owed.is_news(node, shim, failed));
            told.extend(news.map(|failed| tell(node, uid, shim, failed)));
            if !but.contains(shim) {
                patch.extend(&cell.patch);
            }
        }
        (patch, told)
    }

    /// Writes what can wait: with the hands that are idle, and what has waited too long.
    pub(super) fn write(&mut self, now: i64, idle: usize, effects: &mut Vec<Effect>) {
        let mut room = idle.saturating_sub(effects.len());
        while let Some((since, node)) = self.owed.queue.first().cloned() {
            let late = now - since >= LONGEST_WAIT || since > now;
            if room == 0 && !late {
                return;
            }
            room = room.saturating_sub(1);
            self.owed.settle(&node);
            let Some(uid) = self.nodes.get(&node).map(|kept| kept.value.uid.clone()) else {
                continue;
            };
            let (patch, told) = self.owed(&node, &uid, &[]);
            effects.extend(told);
            // Nobody begins there until it is written.
            self.busy.insert(Key::Node(node.clone()));
            self.ledger.queue.set(&node, Vec::new());
            effects.push(Effect::Patch { node, uid, patch });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Planner {
        /// Whether something is to be written on a node and has not been told.
        pub(crate) fn owes(&self, node: &str) -> bool {
            self.owed.since.contains_key(node)
        }
    }

    #[test]
    fn what_is_owed_keeps_its_age_while_the_node_is_written() {
        let mut owed = Owed::default();
        owed.set("a", true, 5);
        owed.set("b", true, 3);
        owed.hold("b");
        assert_eq!(owed.queue.first(), Some(&(5, "a".to_owned())));
        owed.set("b", true, 9);
        assert_eq!(owed.queue.first(), Some(&(3, "b".to_owned())));
        owed.settle("b");
        owed.set("a", false, 9);
        assert!(owed.queue.is_empty() && owed.since.is_empty());
    }
}
