//! How an operation went, told while it goes on.

use std::collections::BTreeMap;
use std::time::Instant;

use super::error::NodeError;
use super::request;
use super::settle::Settled;
use crate::report::{Operation, Part, Phase, Report};

/// An operation's report, and the error where it failed.
#[derive(Debug)]
pub struct Outcome {
    /// For the controller.
    pub report: Report,
    /// For the person.
    pub error: Option<NodeError>,
}

impl Outcome {
    /// Of something that was refused before it began.
    #[must_use]
    pub fn refused(operation: Operation, error: NodeError) -> Self {
        let first = if matches!(operation, Operation::Fetch | Operation::Install) {
            Phase::Fetch
        } else {
            Phase::Detect
        };
        Progress::new(operation, first).end(Err(error))
    }

    /// As that of one of several, by its name: who reads it must not take its trouble for that of the others.
    #[must_use]
    pub fn of_one(mut self, name: &str) -> Self {
        let report = &mut self.report;
        if let Some(reason) = report.reason {
            let name = request::shown(name);
            let message = std::mem::take(&mut report.message);
            report.message = format!("{name}: {message}");
            report.parts = vec![Part { name, reason: Some(reason), message, ..Part::default() }];
        }
        self
    }
}

/// Watches an operation go on.
pub(crate) struct Progress {
    pub(crate) report: Report,
    since: Instant,
}

impl Progress {
    pub(crate) fn new(operation: Operation, phase: Phase) -> Self {
        let report = Report {
            operation,
            phase,
            reason: None,
            message: String::new(),
            archive_sha256: None,
            binary_sha256: None,
            distro: None,
            runtime_version: None,
            changed: false,
            restarted: false,
            as_before: false,
            took_ms: BTreeMap::new(),
            warnings: Vec::new(),
            parts: Vec::new(),
        };
        Self { report, since: Instant::now() }
    }

    pub(crate) fn phase(&mut self, phase: Phase) {
        let took = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        *self.report.took_ms.entry(self.report.phase).or_default() += took;
        self.since = Instant::now();
        self.report.phase = phase;
    }

    pub(crate) fn settled(&mut self, settled: Settled) {
        self.report.changed |= settled.changed;
        self.report.restarted |= settled.restarted;
        self.report.runtime_version = settled.version;
        self.report.warnings.extend(settled.warnings);
    }

    pub(crate) fn end(mut self, result: Result<(), NodeError>) -> Outcome {
        let error = result.err();
        // Undone is unchanged, though the runtime was started twice for it.
        match &error {
            Some(NodeError::RolledBack(_)) => {
                (self.report.changed, self.report.restarted) = (false, true)
            }
            Some(NodeError::RuntimeDown(_)) => self.report.restarted = true,
            Some(NodeError::InPart { .. }) => {}
            Some(_) => self.report.changed = false,
            None => {}
        }
        self.report.as_before = error.as_ref().is_some_and(NodeError::leaves_all_as_before);
        let last = if error.is_none() { Phase::Done } else { self.report.phase };
        self.phase(last);
        self.report.reason = error.as_ref().map(NodeError::reason);
        self.report.message =
            error.as_ref().map(|e| portolan_core::causes::chain(e)).unwrap_or_default();
        Outcome { report: self.report, error }
    }
}
