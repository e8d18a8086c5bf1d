//! What looks at nodes left, and sums over it. A node that changed is taken out of the sums and added again, so
//! that what one change costs does not depend on how many nodes there are.

use std::collections::{BTreeMap, BTreeSet};

use crate::shims::budget::{Amount, Books, Queue, less};
use crate::shims::cell::{Cell, State};
use crate::shims::status::Tally;

/// How far the nodes of a Shim are.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// All that have to do with it, also those that it is taken away from.
    pub(super) nodes: usize,
    selected: usize,
    failed: usize,
    behind: usize,
    /// Artifacts, and on how many nodes they are there, or failed.
    proven: BTreeMap<String, usize>,
    suspect: BTreeMap<String, usize>,
}

/// What a node is to the others of its Shim.
enum Part {
    Failed,
    Proven,
    Behind,
    Neither,
}

impl Part {
    fn of(cell: &Cell) -> Self {
        match &cell.state {
            // What failed counts until it works, also while it is tried again. What a policy refuses says nothing
            // of the artifacts of others.
            _ if cell.has_failed() => Self::Failed,
            Some(State::Ready { updated: true }) => Self::Proven,
            Some(State::Pending | State::Ready { updated: false }) => Self::Behind,
            _ => Self::Neither,
        }
    }
}

impl Standing {
    fn add(&mut self, cell: &Cell) {
        self.nodes += 1;
        self.selected += usize::from(cell.state.is_some());
        let more = |counts: &mut BTreeMap<String, usize>| {
            if let Some(hash) = &cell.hash {
                *counts.entry(hash.clone()).or_default() += 1;
            }
        };
        match Part::of(cell) {
            Part::Failed => {
                self.failed += 1;
                more(&mut self.suspect);
            }
            Part::Proven => more(&mut self.proven),
            Part::Behind => self.behind += 1,
            Part::Neither => {}
        }
    }

    /// Undoes `add` of the same.
    fn take(&mut self, cell: &Cell) {
        self.nodes -= 1;
        self.selected -= usize::from(cell.state.is_some());
        let fewer = |counts: &mut BTreeMap<String, usize>| {
            if let Some(hash) = &cell.hash {
                less(counts, hash);
            }
        };
        match Part::of(cell) {
            Part::Failed => {
                self.failed -= 1;
                fewer(&mut self.suspect);
            }
            Part::Proven => fewer(&mut self.proven),
            Part::Behind => self.behind -= 1,
            Part::Neither => {}
        }
    }

    pub(super) fn proven(&self) -> BTreeSet<String> {
        self.proven.keys().cloned().collect()
    }

    pub(super) fn suspect(&self) -> BTreeSet<String> {
        self.suspect.keys().cloned().collect()
    }

    pub(super) fn is_paused(&self, max_failed: Amount) -> bool {
        let first_failed = self.suspect.keys().any(|hash| !self.proven.contains_key(hash));
        self.behind > 0
            && self.failed > 0
            && (first_failed || self.failed >= max_failed.of(self.selected))
    }
}

/// One Shim over all nodes.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Sums {
    pub(super) tally: Tally,
    pub(super) standing: Standing,
}

/// Shims on one node, by name.
pub(super) type Cells = BTreeMap<String, Cell>;

/// All Shims on all nodes.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    nodes: BTreeMap<String, Cells>,
    sums: BTreeMap<String, Sums>,
    pub(super) books: Books,
    pub(super) queue: Queue,
    /// How often a Shim on a node was counted or taken out again.
    pub(super) counted: u64,
}

impl Ledger {
    pub(super) fn of_node(&self, node: &str) -> Option<&Cells> {
        self.nodes.get(node)
    }

    pub(super) fn cell(&self, node: &str, shim: &str) -> Option<&Cell> {
        self.nodes.get(node)?.get(shim)
    }

    pub(super) fn sums(&self, shim: &str) -> Option<&Sums> {
        self.sums.get(shim)
    }

    /// Puts what a look left in the place of what the one before it had left. Names of the Shims that changed.
    pub(super) fn replace(&mut self, node: &str, cells: Cells) -> BTreeSet<String> {
        let old = self.nodes.remove(node).unwrap_or_default();
        self.counted += (old.len() + cells.len()) as u64;
        for (shim, cell) in &old {
            if let Some(sums) = self.sums.get_mut(shim) {
                sums.tally.take(node, cell);
                sums.standing.take(cell);
                if sums.standing.nodes == 0 {
                    self.sums.remove(shim);
                }
            }
        }
        for (shim, cell) in &cells {
            let sums = self.sums.entry(shim.clone()).or_default();
            sums.tally.add(node, cell);
            sums.standing.add(cell);
        }
        let shims = old.into_keys().chain(cells.keys().cloned()).collect();
        if !cells.is_empty() {
            self.nodes.insert(node.to_owned(), cells);
        }
        shims
    }
}

#[cfg(test)]
mod tests {
    use std::mem;

    use super::*;
    use crate::shims::plan::Planner;

    impl Planner {
        /// Fails where sums, books, queue and alarms are not those of the nodes: all are written again, from nothing.
        pub(crate) fn audit(&mut self, now: i64) {
            let mut anew = Ledger::default();
            for (node, cells) in &self.ledger.nodes {
                anew.replace(node, cells.clone());
            }
            assert_eq!(self.ledger.sums, anew.sums);
            let (books, queue) =
                (mem::take(&mut self.ledger.books), mem::take(&mut self.ledger.queue));
            let alarms = mem::take(&mut self.alarms);
            for node in self.nodes.keys().cloned().collect::<Vec<_>>() {
                self.enter(&node, now);
            }
            assert_eq!((&books, &queue), (&self.ledger.books, &self.ledger.queue));
            // Entering a node sets its alarm: one that was missing would never be missed otherwise.
            assert_eq!(alarms, self.alarms);
        }
    }
}
