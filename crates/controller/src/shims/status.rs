//! What the status of a Shim says. Pure.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use portolan_api::condition::{self, Condition, Status};
use portolan_api::shim::{
    AVAILABLE, DEGRADED, MAX_FAILURES, MAX_NAMES, NodeFailures, PROGRESSING, RUNTIME_CLASS_READY,
    Shim, ShimStatus,
};
use portolan_shim::resolve;

use super::cell::{Cell, State, Why};

/// What is kept of a message, in characters.
const MAX_MESSAGE: usize = 500;

/// How the nodes of one Shim are, counted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) nodes: usize,
    pub(crate) ready: usize,
    pub(crate) updated: usize,
    pub(crate) pending: usize,
    pub(crate) failed: usize,
    pub(crate) unsupported: usize,
    /// Nodes that something is still to be taken away from.
    pub(crate) leaving: Vec<String>,
    leaving_failed: usize,
    failures: BTreeMap<String, NodeFailures>,
    /// What deserves a look, each once.
    pub(crate) warnings: Vec<String>,
}

impl Tally {
    pub(crate) fn add(&mut self, node: &str, cell: &Cell) {
        for warning in &cell.warnings {
            let text = warning.to_string();
            if !self.warnings.contains(&text) && self.warnings.len() < MAX_NAMES {
                self.warnings.push(text);
            }
        }
        let Some(state) = &cell.state else {
            // Also what is written on the node has to go.
            if cell.carries || cell.busy || !cell.patch.is_empty() {
                self.leaving.push(node.to_owned());
                if let Some(failed) = &cell.record.failed {
                    let (reason, message) = (failed.reason.clone(), failed.message.clone());
                    self.leaving_failed += 1;
                    self.fail(node, &Why { reason, message });
                }
            }
            return;
        };
        self.nodes += 1;
        match state {
            State::Ready { updated } => {
                self.ready += 1;
                self.updated += usize::from(*updated);
            }
            State::Pending => self.pending += 1,
            State::Failed(why) => {
                self.failed += 1;
                self.fail(node, why);
            }
            State::Unsupported(why) => {
                self.unsupported += 1;
                self.fail(node, why);
            }
        }
    }

    fn fail(&mut self, node: &str, why: &Why) {
        let entry = self.failures.entry(why.reason.clone()).or_insert_with(|| NodeFailures {
            reason: why.reason.clone(),
            count: 0,
            // It may quote a URL as long as anybody likes.
            message: why.message.chars().take(MAX_MESSAGE).collect(),
            nodes: Vec::new(),
        });
        entry.count += 1;
        if entry.nodes.len() < MAX_NAMES {
            entry.nodes.push(node.to_owned());
        }
    }

    fn failures(&self) -> Vec<NodeFailures> {
        let mut all: Vec<_> = self.failures.values().cloned().collect();
        all.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.reason.cmp(&b.reason)));
        all.truncate(MAX_FAILURES);
        all
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
        let same = condition::find(before.unwrap_or_default(), kind);
        let same = same.filter(|old| old.status == status);
        let since = same.and_then(|old| old.last_transition_time.clone());
        Condition {
            kind: kind.to_owned(),
            status,
            reason: reason.to_owned(),
            message,
            last_transition_time: since.or_else(|| Some(now.clone())),
            observed_generation: shim.metadata.generation,
        }
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
    let behind = tally.pending + (tally.ready - tally.updated);
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
