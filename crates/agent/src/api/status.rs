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
    /// Whether schedulers are told that the cache has no room: at once, and until there was room for a while
    /// (`cache.settle`).
    #[serde(default)]
    pub cache_pressure: bool,
    /// What is fetched for Releases of the cluster; absent where they are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prefetch: Option<PrefetchStatus>,
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

/// What is fetched for Releases of the cluster.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct PrefetchStatus {
    /// The Releases are known as they are now.
    pub current: bool,
    /// Why not, as the last try ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// How many Releases are in each state.
    pub releases: BTreeMap<PrefetchState, u64>,
    /// Those that are not here, and why; the first of them.
    pub absent: Vec<AbsentRelease>,
}

/// How it stands with the image of a Release.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum PrefetchState {
    /// Its root disk is in the cache.
    Here,
    /// It is being fetched.
    Fetching,
    /// Its turn comes.
    Waiting,
    /// It could not be fetched and is tried again.
    Failed,
    /// It is not for this host, not Ready, or one too many.
    Skipped,
}

impl PrefetchState {
    /// Every one.
    pub const ALL: [Self; 5] =
        [Self::Here, Self::Fetching, Self::Waiting, Self::Failed, Self::Skipped];

    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Here => "here",
            Self::Fetching => "fetching",
            Self::Waiting => "waiting",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }
}

/// A Release whose image is not here.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AbsentRelease {
    /// `namespace/name`.
    pub release: String,
    /// How it stands.
    pub state: PrefetchState,
    /// Why.
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
