//! How the agent itself is.

use std::collections::BTreeMap;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{InstanceSummary, Phase};
use crate::metrics::PoolUse;
use crate::reason::Reason;

/// `GET /v1/status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Status {
    /// The agent's version.
    pub version: String,
    /// What this host is called in reports.
    pub node: String,
    /// What it runs, such as `linux/amd64/v3`.
    pub platform: String,
    /// The root disk format that is built.
    pub rootdisk_format_version: String,
    /// When this agent process started.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub started_at: Timestamp,
    /// When this was said.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub time: Timestamp,
    /// Pins are rebuilt and instances are known: calls are answered.
    pub ready: bool,
    /// Why no new instance can start; empty when all is well.
    pub degraded: Vec<Degradation>,
    /// The cache's and the instances' file systems.
    pub pools: BTreeMap<String, PoolStatus>,
    /// How many instances are in each phase.
    pub instances: BTreeMap<Phase, u64>,
}

/// One thing that keeps new instances from starting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Degradation {
    /// What a start would fail with.
    pub reason: Reason,
    /// For people, with what to do.
    pub message: String,
}

/// How full a pool is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PoolStatus {
    /// What the pool itself holds, in allocated bytes.
    pub used_bytes: u64,
    /// What its file system still gives to the agent.
    pub free_bytes: u64,
    /// The size of its file system.
    pub size_bytes: u64,
    /// There is too little left to start something new.
    pub pressure: bool,
}

impl From<PoolUse> for PoolStatus {
    fn from(now: PoolUse) -> Self {
        let PoolUse { used_bytes, free_bytes, size_bytes, pressure } = now;
        Self { used_bytes, free_bytes, size_bytes, pressure }
    }
}

/// What is sent to the control plane.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct StatusReport {
    /// As `GET /v1/status` says it.
    pub status: Status,
    /// Every instance.
    pub instances: Vec<InstanceSummary>,
}
