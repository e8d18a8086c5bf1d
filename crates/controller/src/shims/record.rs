//! What a node carries of a Shim: what was begun, what was applied, what failed. It is an annotation of the node, so
//! it is there after any restart, and gone with the node.

use std::collections::{BTreeMap, BTreeSet};

use portolan_api::shim::{node_key, state};
use portolan_core::Digest;
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

impl Record {
    /// How this failed the last time.
    pub(crate) fn failure(&self, operation: Operation, hash: &str) -> Option<&Failed> {
        let last = match operation {
            Operation::Verify => self.applied.as_ref().and_then(|applied| applied.look.as_ref()),
            Operation::Install | Operation::Uninstall => self.failed.as_ref(),
        };
        last.filter(|failed| failed.is_of(operation, hash))
    }
}

/// The Job that was announced. Only its result counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Begun {
    pub(crate) operation: Operation,
    pub(crate) hash: String,
    pub(crate) nonce: i64,
    /// What the runtime knows it by afterwards.
    pub(crate) handler: String,
}

/// What is installed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Applied {
    pub(crate) hash: String,
    pub(crate) handler: String,
    /// The boot and the runtime that it was last seen with.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) boot: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) runtime: String,
    /// When that was, in seconds.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) seen: i64,
    /// It was looked at, and is not as it should be.
    #[serde(default, skip_serializing_if = "is_false")]
    pub(crate) drifted: bool,
    /// Why it could not be looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) look: Option<Failed>,
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_false(value: &bool) -> bool {
    !value
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde wants it so")]
fn is_zero(value: &i64) -> bool {
    *value == 0
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
    /// What the operator had said of nodes then, of what is permanent. Who wrote nothing of it, before there was this, had said the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) said: Option<String>,
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

    /// Whether its time has not come. What would take longer than any pause was written by another clock.
    pub(crate) fn waits(&self, now: i64) -> bool {
        let at = self.retry_at();
        now < at && at <= now + LONGEST_PAUSE
    }

    /// Whether it would fail again: the Shim is the same, and so is what the operator says of nodes, which may be the remedy.
    pub(crate) fn is_final(&self, said: &str) -> bool {
        self.permanent && self.said.as_deref().is_none_or(|then| then == said)
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
    /// What was written of another machine.
    Stale,
}

/// What is to be done with the bare label.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bare {
    Write,
    /// Nobody wants it, and what is there of it was once ours or upstream's.
    Remove,
    /// It is a key of the Shim's own selector.
    Leave,
}

/// How a Shim marks nodes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks<'a> {
    pub(crate) shim: &'a str,
    pub(crate) bare: Bare,
    /// What pods of its RuntimeClass ask for now.
    pub(crate) handler: &'a str,
}

/// Reads it.
pub(crate) fn carried(node: &NodeFacts, marks: &Marks<'_>) -> Carried {
    let Some(text) = node.records.get(marks.shim) else {
        let bare = node.labels.get(marks.shim).filter(|_| marks.bare != Bare::Leave);
        let canonical = node.labels.get(&node_key(marks.shim));
        let is_word = |word: &String| state::ALL.contains(&word.as_str());
        return match bare.into_iter().chain(canonical).any(is_word) {
            true => Carried::Legacy,
            false => Carried::Nothing,
        };
    };
    match serde_json::from_str::<Record>(text) {
        Ok(record) if record.node == node.uid => Carried::Ours(Box::new(record)),
        Ok(_) => Carried::Stale,
        // Somebody spoilt it; what is on the machine is there all the same.
        Err(_) => Carried::Legacy,
    }
}

/// The Shims of which a node says that their Job of this nonce was announced, whether or not anybody wants them now.
pub(crate) fn announced(node: &NodeFacts, nonce: i64) -> BTreeSet<&String> {
    let is = |text: &String| {
        let record = serde_json::from_str::<Record>(text).ok();
        let begun = record.filter(|record| record.node == node.uid).and_then(|one| one.begun);
        begun.is_some_and(|begun| begun.nonce == nonce)
    };
    node.records.iter().filter(|(_, text)| is(text)).map(|(shim, _)| shim).collect()
}

/// When something of this name has its turn, once in so many seconds: always at the same distance from each other, so that
/// turns of many are spread over that time.
fn turn(name: &str, every: i64) -> i64 {
    let digest = Digest::sha256(name.as_bytes()).hex();
    let number = i64::from_str_radix(&digest[..8], 16).expect("eight hexadecimal digits");
    number % every
}

impl Applied {
    /// From when on it is to be looked at again although nothing is heard of the node: the first turn that leaves it in peace for
    /// half of the time.
    pub(crate) fn look_at(&self, name: &str, every: i64, now: i64) -> i64 {
        // What would be later was written by another clock.
        if self.seen > now + every {
            return now;
        }
        let (turn, from) = (turn(name, every), self.seen + every / 2);
        from + (turn - from).rem_euclid(every)
    }

    /// Whether pods can use it.
    pub(crate) fn is_usable(&self, handler: &str) -> bool {
        !self.drifted && self.handler == handler
    }
}

/// What labels say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Words {
    /// Of the label that RuntimeClasses select: whether pods can use it.
    pub(crate) canonical: Option<&'static str>,
    /// Of the one for scripts: what became of the last try.
    pub(crate) bare: Option<&'static str>,
}

/// The words for labels.
pub(crate) fn words(record: &Record, handler: &str) -> Words {
    let applied = record.applied.as_ref().map(|applied| match applied.is_usable(handler) {
        true => state::PROVISIONED,
        false => state::PENDING,
    });
    let usable = applied == Some(state::PROVISIONED);
    let failed = record.failed.as_ref().map(|failed| failed.operation);
    let word = match (record.begun.as_ref().map(|begun| begun.operation), failed) {
        // What was there before an update is there when it was refused, also while it is looked at.
        (None | Some(Operation::Verify), Some(Operation::Install)) if usable => {
            return Words { canonical: applied, bare: Some(state::FAILED) };
        }
        (None, Some(Operation::Install | Operation::Uninstall)) => Some(state::FAILED),
        (Some(Operation::Install), _) => Some(state::PENDING),
        (Some(Operation::Uninstall), _) => Some(state::UNINSTALL),
        // A look changes nothing, also where it could not be made.
        (Some(Operation::Verify), _) | (None, Some(Operation::Verify) | None) => applied,
    };
    Words { canonical: word, bare: word }
}

/// Labels and annotations to set, or to remove where there is no value.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodePatch {
    pub(crate) labels: BTreeMap<String, Option<String>>,
    pub(crate) annotations: BTreeMap<String, Option<String>>,
}

impl NodePatch {
    /// Whatever is in both is as the other has it.
    pub(crate) fn extend(&mut self, other: &Self) {
        self.labels.extend(other.labels.clone());
        self.annotations.extend(other.annotations.clone());
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.annotations.is_empty()
    }
}

/// What must be written so that the node carries `record`; only what differs.
pub(crate) fn patch(node: &NodeFacts, marks: &Marks<'_>, record: Option<&Record>) -> NodePatch {
    let mut patch = NodePatch::default();
    let (shim, key) = (marks.shim, node_key(marks.shim));
    let words = record.map(|record| words(record, marks.handler));
    let mut label = |key: &str, now: Option<&String>, word: Option<&str>| {
        if now.map(String::as_str) != word {
            patch.labels.insert(key.to_owned(), word.map(str::to_owned));
        }
    };
    label(&key, node.labels.get(&key), words.and_then(|words| words.canonical));
    let now = node.labels.get(shim);
    // A value that is none of our words is somebody else's.
    let ours = now.is_none_or(|now| state::ALL.contains(&now.as_str()));
    match marks.bare {
        Bare::Write if ours => label(shim, now, words.and_then(|words| words.bare)),
        Bare::Remove if ours => label(shim, now, None),
        _ => {}
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
            said: None,
        };
        let pauses: Vec<i64> = (1..9).map(|times| failed(times).retry_at() - 100).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 960, 1800, 1800]);
        assert_eq!(failed(u32::MAX).retry_at(), 1900);
        assert!(failed(1).waits(129) && !failed(1).waits(130));
        assert!(!failed(1).waits(130 - LONGEST_PAUSE - 1), "the clock was set back");
    }

    #[test]
    fn turns_are_spread_over_the_time_and_none_comes_soon_after_a_look() {
        let every = 86_400;
        let applied = |seen| Applied {
            hash: "x".into(),
            handler: "h".into(),
            boot: String::new(),
            runtime: String::new(),
            seen,
            drifted: false,
            look: None,
        };
        let seen = 1_800_000_000;
        let mut hours = [0; 24];
        for node in 0..5000 {
            let node = format!("node-{node}");
            let at = applied(seen).look_at(&node, every, seen);
            assert!((every / 2..every / 2 + every).contains(&(at - seen)), "{at}");
            // Whoever looks in time looks at the same time of the day from then on.
            assert_eq!(applied(at).look_at(&node, every, at), at + every);
            hours[usize::try_from((at - seen - every / 2) / 3600).unwrap()] += 1;
        }
        assert!(hours.iter().all(|nodes| (140..280).contains(nodes)), "{hours:?}");
        let elsewhere = applied(seen + every + 1).look_at("a", every, seen);
        assert_eq!(elsewhere, seen, "the clock was set back");
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
        assert_eq!(carried(&node, &marks("s", Bare::Write)), Carried::Stale);
        let same = NodeFacts { uid: "old".into(), ..node };
        assert_eq!(carried(&same, &marks("s", Bare::Write)), Carried::Ours(Box::new(record)));
        let spoilt = NodeFacts { records: BTreeMap::from([("s".into(), "{".into())]), ..same };
        assert_eq!(carried(&spoilt, &marks("s", Bare::Write)), Carried::Legacy, "not clean");
    }

    fn marks(shim: &str, bare: Bare) -> Marks<'_> {
        Marks { shim, bare, handler: "h" }
    }

    #[test]
    fn a_label_alone_says_that_something_is_there_also_where_bare_labels_are_off() {
        for key in ["s", "runtime.spinkube.dev/s"] {
            let labels = BTreeMap::from([(key.to_owned(), "provisioned".to_owned())]);
            let node = NodeFacts { uid: "u".into(), labels, ..NodeFacts::default() };
            for bare in [Bare::Write, Bare::Remove] {
                assert_eq!(carried(&node, &marks("s", bare)), Carried::Legacy, "{key} {bare:?}");
            }
            let expected = if key == "s" { Carried::Nothing } else { Carried::Legacy };
            assert_eq!(carried(&node, &marks("s", Bare::Leave)), expected, "{key}");
            let clean = patch(&node, &marks("s", Bare::Remove), None);
            assert_eq!(clean.labels, BTreeMap::from([(key.to_owned(), None)]), "{key}");
        }
    }

    #[test]
    fn only_what_pods_can_use_is_called_provisioned() {
        let applied = Applied {
            hash: "x".into(),
            handler: "h".into(),
            boot: String::new(),
            runtime: String::new(),
            seen: 0,
            drifted: false,
            look: None,
        };
        let with = |applied| Record { applied: Some(applied), ..Record::default() };
        let both = |word| Words { canonical: Some(word), bare: Some(word) };
        let drifted = Applied { drifted: true, ..applied.clone() };
        assert_eq!(words(&with(applied.clone()), "h"), both("provisioned"));
        assert_eq!(words(&with(applied.clone()), "g"), both("pending"), "another handler");
        assert_eq!(words(&with(drifted.clone()), "h"), both("pending"));
        let failed = |operation, applied| {
            let failed = serde_json::json!({
                "operation": operation, "hash": "y", "times": 1, "at": 0, "reason": "X",
            });
            let failed = Some(serde_json::from_value(failed).unwrap());
            words(&Record { failed, ..with(applied) }, "h")
        };
        let kept = Words { canonical: Some("provisioned"), bare: Some("failed") };
        assert_eq!(failed("install", applied.clone()), kept, "what was there before");
        assert_eq!(failed("install", drifted), both("failed"));
        assert_eq!(failed("verify", applied.clone()), both("provisioned"), "only a look");
        assert_eq!(failed("uninstall", applied), both("failed"), "it is about to go");
    }

    #[test]
    fn c7_labels_of_others_are_left_alone() {
        let applied = Applied {
            hash: "x".into(),
            handler: "h".into(),
            boot: String::new(),
            runtime: String::new(),
            seen: 0,
            drifted: false,
            look: None,
        };
        let record = Record { node: "u".into(), applied: Some(applied), ..Record::default() };
        let mut node = NodeFacts { uid: "u".into(), ..NodeFacts::default() };
        let labels = |node: &NodeFacts, bare| {
            patch(node, &marks("spin", bare), Some(&record)).labels.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(labels(&node, Bare::Write), ["runtime.spinkube.dev/spin", "spin"]);
        assert_eq!(
            labels(&node, Bare::Leave),
            ["runtime.spinkube.dev/spin"],
            "a key of the selector"
        );
        node.labels.insert("spin".into(), "true".into());
        assert_eq!(
            labels(&node, Bare::Write),
            ["runtime.spinkube.dev/spin"],
            "somebody else's value"
        );
    }
}
