//! What a node carries of a Shim: what was begun, what was applied, what failed. It is an annotation of the node, so
//! it is there after any restart, and gone with the node.

use std::collections::BTreeMap;

use portolan_api::shim::{node_key, state};
use serde::{Deserialize, Serialize};

use super::facts::NodeFacts;
use super::identity::Operation;

/// Everything of one Shim on one node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    /// The node's UID: a machine that comes back under the same name has nothing.
    pub(crate) node: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begun: Option<Begun>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) applied: Option<Applied>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<Failed>,
}

/// The Job that was announced. Only its result counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Begun {
    pub(crate) operation: Operation,
    pub(crate) hash: String,
    pub(crate) nonce: i64,
}

/// What is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Applied {
    pub(crate) hash: String,
    /// The boot and the runtime that it was last seen with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) boot: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) runtime: String,
    /// It was looked at, and is not as it should be.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) drifted: bool,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(value: &bool) -> bool {
    !value
}

/// What failed last.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Failed {
    pub(crate) operation: Operation,
    pub(crate) hash: String,
    /// In a row.
    pub(crate) times: u32,
    /// Seconds.
    pub(crate) at: i64,
    pub(crate) reason: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) message: String,
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) permanent: bool,
}

/// The first pause after a failure, in seconds; it doubles.
const FIRST_PAUSE: i64 = 30;
const LONGEST_PAUSE: i64 = 1800;

impl Failed {
    /// When it may be tried again, in seconds.
    pub(crate) fn retry_at(&self) -> i64 {
        let doubled = FIRST_PAUSE << i64::from(self.times.saturating_sub(1).min(10));
        self.at + doubled.min(LONGEST_PAUSE)
    }

    /// Whether it is this that failed.
    pub(crate) fn is_of(&self, operation: Operation, hash: &str) -> bool {
        self.operation == operation && self.hash == hash
    }
}

/// What a node says of a Shim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Carried {
    /// Nothing was ever done there.
    Nothing,
    /// Upstream's controller did something there: only its label says so.
    Legacy,
    /// What we wrote of this very machine.
    Ours(Box<Record>),
    /// What was written of another machine, or by nobody who can write.
    Stale,
}

/// Reads it. `bare` is whether the bare label may be ours.
pub(crate) fn carried(node: &NodeFacts, shim: &str, bare: bool) -> Carried {
    let Some(text) = node.records.get(shim) else {
        let label = node.labels.get(shim).filter(|_| bare);
        return match label {
            Some(word) if state::ALL.contains(&word.as_str()) => Carried::Legacy,
            _ => Carried::Nothing,
        };
    };
    match serde_json::from_str::<Record>(text) {
        Ok(record) if record.node == node.uid => Carried::Ours(Box::new(record)),
        _ => Carried::Stale,
    }
}

/// The word for labels.
pub(crate) fn word(record: &Record) -> Option<&'static str> {
    match (&record.begun, &record.failed, &record.applied) {
        (Some(begun), ..) => match begun.operation {
            Operation::Install => Some(state::PENDING),
            Operation::Uninstall => Some(state::UNINSTALL),
            // A look changes nothing.
            Operation::Verify => record.applied.as_ref().map(|_| state::PROVISIONED),
        },
        (None, Some(_), _) => Some(state::FAILED),
        (None, None, Some(_)) => Some(state::PROVISIONED),
        (None, None, None) => None,
    }
}

/// Labels and annotations to set, or to remove where there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodePatch {
    pub(crate) labels: BTreeMap<String, Option<String>>,
    pub(crate) annotations: BTreeMap<String, Option<String>>,
}

impl NodePatch {
    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// What must be written so that the node carries `record`; only what differs.
pub(crate) fn patch(
    node: &NodeFacts,
    shim: &str,
    bare: bool,
    record: Option<&Record>,
) -> NodePatch {
    let mut patch = NodePatch::default();
    let key = node_key(shim);
    let word = record.and_then(word);
    let mut label = |key: &str, now: Option<&String>| {
        if now.map(String::as_str) != word {
            patch.labels.insert(key.to_owned(), word.map(str::to_owned));
        }
    };
    label(&key, node.labels.get(&key));
    let now = node.labels.get(shim);
    // A value that is none of our words is somebody else's.
    let ours = now.is_none_or(|now| state::ALL.contains(&now.as_str()));
    if bare && ours {
        label(shim, now);
    }
    let text = record.map(|record| serde_json::to_string(record).expect("texts and numbers"));
    if node.records.get(shim) != text.as_ref() {
        patch.annotations.insert(key, text);
    }
    patch
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_to_a_bound() {
        let failed = |times| Failed {
            operation: Operation::Install,
            hash: String::new(),
            times,
            at: 100,
            reason: String::new(),
            message: String::new(),
            permanent: false,
        };
        let pauses: Vec<i64> = (1..9).map(|times| failed(times).retry_at() - 100).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1800, 1800]);
        assert_eq!(failed(u32::MAX).retry_at(), 1900);
    }

    #[test]
    fn c5_a_machine_that_comes_back_under_the_same_name_has_nothing() {
        let record = Record { node: "old".into(), ..Record::default() };
        let text = serde_json::to_string(&record).unwrap();
        let node = NodeFacts {
            uid: "new".into(),
            records: BTreeMap::from([("s".into(), text)]),
            ..NodeFacts::default()
        };
        assert_eq!(carried(&node, "s", true), Carried::Stale);
        let same = NodeFacts { uid: "old".into(), ..node };
        assert_eq!(carried(&same, "s", true), Carried::Ours(Box::new(record)));
    }

    #[test]
    fn c7_labels_of_others_are_left_alone() {
        let applied = Applied {
            hash: "h".into(),
            boot: String::new(),
            runtime: String::new(),
            drifted: false,
        };
        let record = Record { node: "u".into(), applied: Some(applied), ..Record::default() };
        let mut node = NodeFacts { uid: "u".into(), ..NodeFacts::default() };
        let labels = |node: &NodeFacts, bare| {
            patch(node, "spin", bare, Some(&record)).labels.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(labels(&node, true), ["runtime.spinkube.dev/spin", "spin"]);
        assert_eq!(labels(&node, false), ["runtime.spinkube.dev/spin"], "a key of the selector");
        node.labels.insert("spin".into(), "true".into());
        assert_eq!(labels(&node, true), ["runtime.spinkube.dev/spin"], "somebody else's value");
    }
}
