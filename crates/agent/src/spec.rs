//! The WorkloadSpec: what the control plane asks an agent to run.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What to run. Unknown fields are refused: a misspelt one must not be ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Which image, down to the digest.
    pub image: ImageSpec,
    /// Size of the scratch disk that takes all writes of the workload, in bytes.
    #[serde(default = "default_ephemeral_disk_bytes")]
    pub ephemeral_disk_bytes: u64,
    /// Whether it should run.
    #[serde(default)]
    pub desired_state: DesiredState,
    /// Virtual processors.
    #[serde(default = "default_vcpus")]
    pub vcpus: u8,
    /// Memory of the machine in MiB.
    #[serde(default = "default_memory_mib")]
    pub memory_mib: u32,
    /// Replaces the image's entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// Replaces the image's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
    /// Set beside the image's environment, and over it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// The Release this came from; only recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub release: Option<String>,
}

/// The image, by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSpec {
    /// `registry/repository`, without tag and digest.
    pub repository: String,
    /// The index the image was resolved from; only recorded and verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index_digest: Option<String>,
    /// The one manifest that runs. Required; absent is refused with `resolved_digest_missing`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_digest: Option<String>,
    /// `linux`.
    pub os: String,
    /// `amd64`, `arm64`, …
    pub arch: String,
    /// `v3`, `v8`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
}

/// Whether an instance should run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum DesiredState {
    /// Yes.
    #[default]
    Running,
    /// No: what is being fetched for it is cancelled, its machine is stopped.
    Stopped,
}

fn default_ephemeral_disk_bytes() -> u64 {
    1 << 30
}

fn default_vcpus() -> u8 {
    1
}

fn default_memory_mib() -> u32 {
    256
}
