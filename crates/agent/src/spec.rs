//! The WorkloadSpec: what the control plane asks an agent to run.

mod check;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::api::SHA256;

pub use check::{
    MAX_EPHEMERAL_DISK_BYTES, MAX_MEMORY_MIB, MAX_RELEASE_BYTES, MAX_VCPUS, MAX_WORD_BYTES,
    MAX_WORDS, MAX_WORDS_BYTES, MIN_EPHEMERAL_DISK_BYTES, MIN_MEMORY_MIB, SpecError,
};

/// What to run. Unknown fields are refused: a misspelt one must not be ignored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WorkloadSpec {
    /// Which image, down to the digest.
    pub image: ImageSpec,
    /// Size of the scratch disk that takes all writes of the workload, in bytes.
    #[serde(default = "default_ephemeral_disk_bytes")]
    #[schemars(range(min = MIN_EPHEMERAL_DISK_BYTES, max = MAX_EPHEMERAL_DISK_BYTES))]
    pub ephemeral_disk_bytes: u64,
    /// Whether it should run.
    #[serde(default)]
    pub desired_state: DesiredState,
    /// Virtual processors.
    #[serde(default = "default_vcpus")]
    #[schemars(range(min = 1, max = MAX_VCPUS))]
    pub vcpus: u8,
    /// Memory of the machine in MiB.
    #[serde(default = "default_memory_mib")]
    #[schemars(range(min = MIN_MEMORY_MIB, max = MAX_MEMORY_MIB))]
    pub memory_mib: u32,
    /// Replaces the image's entrypoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = MAX_WORDS))]
    pub command: Option<Vec<String>>,
    /// Replaces the image's command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_WORDS))]
    pub args: Option<Vec<String>>,
    /// Set beside the image's environment, and over it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("maxProperties" = MAX_WORDS, "propertyNames" = {"pattern": "^[ -<>-~]+$"}))]
    pub env: BTreeMap<String, String>,
    /// The Release this came from; only recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = MAX_RELEASE_BYTES))]
    pub release: Option<String>,
}

/// What a Release has for a host.
impl From<&portolan_release::choose::Chosen> for ImageSpec {
    fn from(chosen: &portolan_release::choose::Chosen) -> Self {
        let platform = &chosen.platform;
        Self {
            repository: chosen.repository.clone(),
            index_digest: chosen.index_digest.map(|digest| digest.to_string()),
            resolved_digest: Some(chosen.resolved_digest.to_string()),
            os: platform.os.clone(),
            arch: platform.architecture.clone(),
            variant: platform.variant.clone(),
        }
    }
}

/// The image, by digest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ImageSpec {
    /// `registry/repository`, without tag and digest.
    #[schemars(length(min = 1, max = 255), regex(pattern = "^[^@]+$"))]
    pub repository: String,
    /// The index the image was resolved from; only recorded and verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = SHA256))]
    pub index_digest: Option<String>,
    /// The one manifest that runs. Required; absent is refused with `resolved_digest_missing`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(required, regex(pattern = SHA256))]
    pub resolved_digest: Option<String>,
    /// `linux`.
    #[schemars(extend("const" = "linux"))]
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
