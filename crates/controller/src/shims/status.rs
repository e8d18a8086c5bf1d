//! What the status of a Shim says. Pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::condition::{Condition, Status};
use portolan_api::shim::{
    AVAILABLE, DEGRADED, MAX_FAILURES, MAX_NAMES, NodeFailures, PROGRESSING, RUNTIME_CLASS_READY,
    Shim, ShimStatus,
};
use portolan_shim::resolve;

use super::budget::less;
use super::cell::{Cell, State, Why};

/// What is kept of a message, in characters.
const MAX_MESSAGE: usize = 500;

/// How the nodes of one Shim are, counted. A node is added and taken out again as it changes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) nodes: usize,
    pub(crate) ready: usize,
    pub(crate) updated: usize,
    pub(crate) pending: usize,
    pub(crate) failed: usize,
    /// Those of them that are ready, too: pods can use what was there before.
    pub(crate) failed_usable: usize,
    pub(crate) unsupported: usize,
    /// Nodes that something is still to be taken away from.
    pub(crate) leaving: BTreeSet<String>,
    leaving_failed: usize,
    /// By reason: what is said of each node.
    failures: BTreeMap<String, BTreeMap<String, String>>,
    /// What deserves a look, and how many nodes say so.
    warnings: BTreeMap<String, usize>,
}

impl Tally {
    pub(crate) fn add(&mut self, node: &str, cell: &Cell) {
        for warning in &cell.warnings {
            *self.warnings.entry(warning.to_string()).or_default() += 1;
        }
        if let Some(why) = failure(cell) {
            // It may quote a URL as long as anybody likes.
            let message = why.message.chars().take(MAX_MESSAGE).collect();
            self.failures.entry(why.reason).or_default().insert(node.to_owned(), message);
        }
        if is_leaving(cell) {
            self.leaving.insert(node.to_owned());
            self.leaving_failed += usize::from(cell.record.failed.is_some());
        }
        self.counters(cell).into_iter().for_each(|count| *count += 1);
    }

    /// Undoes `add` of the same.
    pub(crate) fn take(&mut self, node: &str, cell: &Cell) {
        for warning in &cell.warnings {
            less(&mut self.warnings, &warning.to_string());
        }
        if let Some(why) = failure(cell)
            && let Some(all) = self.failures.get_mut(&why.reason)
        {
            all.remove(node);
            if all.is_empty() {
                self.failures.remove(&why.reason);
            }
        }
        if is_leaving(cell) {
            self.leaving.remove(node);
            self.leaving_failed -= usize::from(cell.record.failed.is_some());
        }
        self.counters(cell).into_iter().for_each(|count| *count -= 1);
    }

    /// Those that a node counts in.
    fn counters(&mut self, cell: &Cell) -> Vec<&mut usize> {
        let Some(state) = &cell.state else { return Vec::new() };
        let mut counters = match state {
            State::Ready { updated: true } => vec![&mut self.ready, &mut self.updated],
            State::Ready { updated: false } => vec![&mut self.ready],
            State::Pending => vec![&mut self.pending],
            State::Failed { usable: true, .. } => {
                vec![&mut self.failed, &mut self.failed_usable, &mut self.ready]
            }
            State::Failed { usable: false, .. } => vec![&mut self.failed],
            State::Unsupported(_) => vec![&mut self.unsupported],
        };
        counters.push(&mut self.nodes);
        counters
    }

    /// What deserves a look, each once.
    pub(crate) fn warnings(&self) -> impl Iterator<Item = &str> {
        self.warnings.keys().take(MAX_NAMES).map(String::as_str)
    }

    fn failures(&self) -> Vec<NodeFailures> {
        let group = |(reason, nodes): (&String, &BTreeMap<String, String>)| NodeFailures {
            reason: reason.clone(),
            count: i64::try_from(nodes.len()).unwrap_or(i64::MAX),
            message: nodes.values().next().cloned().unwrap_or_default(),
            nodes: nodes.keys().take(MAX_NAMES).cloned().collect(),
        };
        let mut all: Vec<_> = self.failures.iter().map(group).collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        all.truncate(MAX_FAILURES);
        all
    }
}

/// Whether the node is not selected, and something is there all the same. Also what is written on it has to go.
fn is_leaving(cell: &Cell) -> bool {
    cell.state.is_none() && (cell.carries || cell.busy || !cell.patch.is_empty())
}

fn failure(cell: &Cell) -> Option<Why> {
    match &cell.state {
        Some(State::Failed { why, .. } | State::Unsupported(why)) => Some(why.clone()),
        Some(State::Ready { .. } | State::Pending) => None,
        None => {
            cell.record.failed.as_ref().filter(|_| is_leaving(cell)).map(|failed| Why {
                reason: failed.reason.clone(),
                message: failed.message.clone(),
            })
        }
    }
}

/// How the RuntimeClass is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ClassState {
    Ready,
    Pending,
    Conflict(String),
    Refused(String),
}

type Verdict = (Status, &'static str, String);

/// The status. The time of a condition is that of its last change.
pub(crate) fn status(
    shim: &Shim,
    tally: &Tally,
    class: &ClassState,
    paused: bool,
    now: &Time,
) -> ShimStatus {
    let deleting = shim.metadata.deletion_timestamp.is_some();
    let before = shim.status.as_ref().map(|status| status.conditions.as_slice());
    let verdicts: [(&str, Verdict); 4] = [
        (AVAILABLE, available(tally, class)),
        (PROGRESSING, progressing(tally, paused, deleting)),
        (DEGRADED, degraded(shim, tally, paused)),
        (RUNTIME_CLASS_READY, class_ready(class, deleting)),
    ];
    let conditions = verdicts.into_iter().map(|(kind, (status, reason, message))| {
        let new = Condition {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: None,
            observed_generation: shim.metadata.generation,
        };
        new.since(before.unwrap_or_default(), now)
    });
    let count = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
    ShimStatus {
        observed_generation: shim.metadata.generation,
        nodes: count(tally.nodes),
        nodes_ready: count(tally.ready),
        nodes_updated: count(tally.updated),
        nodes_pending: count(tally.pending),
        nodes_failed: count(tally.failed),
        nodes_unsupported: count(tally.unsupported),
        conditions: conditions.collect(),
        failures: tally.failures(),
    }
}

fn available(tally: &Tally, class: &ClassState) -> Verdict {
    let counted = format!("{} of {} nodes are ready", tally.ready, tally.nodes);
    match (tally.nodes, tally.ready, class) {
        (0, ..) => (Status::False, "NoNodes", "no node is selected".to_owned()),
        (_, 0, _) => (Status::False, "NotInstalled", counted),
        (.., ClassState::Ready) => (Status::True, "Installed", counted),
        _ => (Status::False, "NoRuntimeClass", counted),
    }
}

fn progressing(tally: &Tally, paused: bool, deleting: bool) -> Verdict {
    let behind = tally.pending + (tally.ready - tally.failed_usable - tally.updated);
    let waiting = tally.leaving.len();
    let some: Vec<&str> = tally.leaving.iter().take(MAX_NAMES).map(String::as_str).collect();
    let leaving = format!("to be taken away from {waiting} nodes: {}", some.join(", "));
    match () {
        () if deleting => (Status::True, "Deleting", leaving),
        () if paused => {
            let message = format!("{} nodes failed, so {behind} others wait", tally.failed);
            (Status::False, "Paused", message)
        }
        () if behind > 0 => {
            (Status::True, "Installing", format!("{behind} of {} nodes to go", tally.nodes))
        }
        () if waiting > 0 => (Status::True, "Uninstalling", leaving),
        () => (Status::False, "Complete", "every node is as it can be".to_owned()),
    }
}

fn degraded(shim: &Shim, tally: &Tally, paused: bool) -> Verdict {
    let platforms = &shim.spec.fetch_strategy.platforms;
    let twice = resolve::duplicates(platforms);
    let worst = tally.failures().into_iter().next();
    let told = worst.map(|worst| {
        format!(
            "{} on {} nodes, such as {}: {}",
            worst.reason, worst.count, worst.nodes[0], worst.message
        )
    });
    let told = told.unwrap_or_default();
    match twice.first() {
        _ if paused => (Status::True, "RolloutPaused", told),
        _ if tally.failed + tally.leaving_failed > 0 => (Status::True, "NodesFailed", told),
        Some((at, first)) => {
            let platform = resolve::platform(&platforms[*at]);
            let message = format!(
                "platforms[{at}] is for {platform}, as platforms[{first}] is; no node gets it"
            );
            (Status::True, "DuplicatePlatform", message)
        }
        None if tally.unsupported > 0 => (Status::False, "NodesUnsupported", told),
        None => (Status::False, "AsExpected", "nothing failed".to_owned()),
    }
}

fn class_ready(class: &ClassState, deleting: bool) -> Verdict {
    match class {
        _ if deleting => (Status::False, "Deleting", "it goes last".to_owned()),
        ClassState::Ready => (Status::True, "Ready", "it is as the Shim says".to_owned()),
        ClassState::Pending => (Status::False, "Pending", "it is being made".to_owned()),
        ClassState::Conflict(message) => (Status::False, "Conflict", message.clone()),
        ClassState::Refused(message) => (Status::False, "Refused", message.clone()),
    }
}

#[cfg(test)]
mod tests {
    use kube::CustomResourceExt as _;
    use serde_json::json;

    use super::super::record::Record;
    use super::super::world::shim;
    use super::*;

    fn failed(reason: &str) -> Cell {
        let why = Why { reason: reason.to_owned(), message: "so it was".to_owned() };
        let state = Some(State::Failed { why, usable: false });
        Cell { state, ..Cell::of(Record::default()) }
    }

    /// A status with one entry more is refused as a whole, and with it everything else that it says.
    #[test]
    fn no_more_is_listed_than_the_definition_allows() {
        let mut tally = Tally::default();
        for node in 0..11 {
            tally.add(&format!("many-{node:02}"), &failed("Many"));
        }
        for reason in 0..16 {
            tally.add(&format!("one-{reason}"), &failed(&format!("Reason{reason:02}")));
        }
        let time = Time(jiff::Timestamp::UNIX_EPOCH);
        let shim = shim("s", "https://x.example/1", json!({"type": "recreate"}));
        let status = status(&shim, &tally, &ClassState::Ready, false, &time);
        let definition = serde_json::to_value(Shim::crd()).unwrap();
        let failures = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
            ["status"]["properties"]["failures"];
        let nodes = &failures["items"]["properties"]["nodes"];
        assert_eq!(json!(status.failures.len()), failures["maxItems"]);
        let worst = &status.failures[0];
        assert_eq!((&*worst.reason, worst.count, &*worst.nodes[0]), ("Many", 11, "many-00"));
        assert_eq!(json!(worst.nodes.len()), nodes["maxItems"]);
        assert_eq!(status.nodes_failed, 27, "all are counted");
    }
}
