//! When nodes are to be looked at although nothing is heard of them. A node has one such time, which follows from what goes on
//! there: once that is over nobody is woken for it any more.

use std::collections::{BTreeSet, HashMap};

/// In milliseconds.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Alarms {
    at: HashMap<String, i64>,
    queue: BTreeSet<(i64, String)>,
}

impl Alarms {
    /// From now on it is this time, or none.
    pub(super) fn set(&mut self, node: &str, at: Option<i64>) {
        let old = self.at.get(node).copied();
        if old == at {
            return;
        }
        if let Some(old) = old {
            self.queue.remove(&(old, node.to_owned()));
            self.at.remove(node);
        }
        if let Some(at) = at {
            self.queue.insert((at, node.to_owned()));
            self.at.insert(node.to_owned(), at);
        }
    }

    pub(super) fn next(&self) -> Option<i64> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// A node whose time has come; it has none then.
    pub(super) fn ring(&mut self, now: i64) -> Option<String> {
        let (_, node) = self.queue.first().filter(|(at, _)| *at <= now)?.clone();
        self.set(&node, None);
        Some(node)
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_has_one_time_and_rings_once() {
        let mut alarms = Alarms::default();
        alarms.set("a", Some(5));
        alarms.set("b", Some(3));
        alarms.set("a", Some(9));
        assert_eq!(alarms.next(), Some(3));
        alarms.set("b", None);
        assert_eq!((alarms.next(), alarms.ring(8)), (Some(9), None));
        assert_eq!((alarms.ring(9).as_deref(), alarms.ring(9)), (Some("a"), None));
        assert!(alarms.at.is_empty() && alarms.queue.is_empty());
    }
}
