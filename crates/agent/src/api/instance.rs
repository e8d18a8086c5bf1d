//! Instances, as the API shows them.

use std::fmt;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KEY, SHA256};
use crate::id::InstanceId;
use crate::reason::Reason;
use crate::spec::WorkloadSpec;

/// Where an instance stands.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Known, and nothing done for it yet.
    Pending,
    /// Its root disk is being fetched and built.
    Fetching,
    /// The disk is there, the machine is being started.
    Starting,
    /// The machine runs.
    Running,
    /// No machine, because none is wanted or because the workload ended well.
    Stopped,
    /// It did not work; `reason` says why.
    Failed,
}

impl Phase {
    /// Every one.
    pub const ALL: [Self; 6] =
        [Self::Pending, Self::Fetching, Self::Starting, Self::Running, Self::Stopped, Self::Failed];

    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Fetching => "fetching",
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }
}

impl fmt::Display for Phase {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How a workload ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Exit {
    /// Its exit code.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<i32>,
    /// The signal that ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
}

/// How far a fetch is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// Compressed bytes that have arrived.
    pub bytes_done: u64,
    /// Compressed bytes of all layers.
    pub bytes_total: u64,
}

/// One instance: what was asked for and what came of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceStatus {
    /// Its name.
    pub id: InstanceId,
    /// What was asked for, with the defaults filled in.
    pub spec: WorkloadSpec,
    /// Where it stands.
    pub phase: Phase,
    /// Why it is where it should not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same for people, with the causes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The manifest that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SHA256))]
    pub resolved_digest: Option<String>,
    /// The root disk it holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = KEY))]
    pub rootdisk_key: Option<String>,
    /// Whether the root disk was in the cache when it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// While fetching.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// When it was first put.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub created_at: Timestamp,
    /// When its machine was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub started_at: Option<Timestamp>,
    /// When its machine ended last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub ended_at: Option<Timestamp>,
    /// How the workload ended, where the guest could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit: Option<Exit>,
}

/// One instance in a list or a report.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceSummary {
    /// Its name.
    pub id: InstanceId,
    /// Where it stands.
    pub phase: Phase,
    /// Why it is where it should not be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The manifest that runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SHA256))]
    pub resolved_digest: Option<String>,
    /// The Release it came from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
    /// When its machine was started last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>", extend("format" = "date-time"))]
    pub started_at: Option<Timestamp>,
}

impl From<&InstanceStatus> for InstanceSummary {
    fn from(status: &InstanceStatus) -> Self {
        Self {
            id: status.id.clone(),
            phase: status.phase,
            reason: status.reason,
            resolved_digest: status.resolved_digest.clone(),
            release: status.spec.release.clone(),
            started_at: status.started_at,
        }
    }
}

/// A page of `GET /v1/instances`, ordered by id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct InstanceList {
    /// This page.
    pub instances: Vec<InstanceSummary>,
    /// Ask again with `after` set to this for the next page; absent on the last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<InstanceId>,
}
