//! The cache, as the API shows it.

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{KEY, PoolStatus, SHA256};
use crate::reason::Reason;
use crate::spec::ImageSpec;

/// `GET /v1/cache`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CacheReport {
    /// Every root disk, most recently used first.
    pub rootdisks: Vec<CachedDisk>,
    /// Manifests, configurations and layers together.
    pub blobs: KindUse,
    /// Work in progress and what crashes left.
    pub temporary: KindUse,
    /// All of it, in allocated bytes.
    pub allocated_bytes: u64,
    /// Eviction stops here; absent when only the file system bounds the cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<u64>,
    /// Eviction begins here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high_water_bytes: Option<u64>,
    /// The file system it is on.
    pub disk: PoolStatus,
}

/// So much of one kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct KindUse {
    /// How many.
    pub entries: u64,
    /// What they take on disk.
    pub allocated_bytes: u64,
}

/// One root disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CachedDisk {
    /// sha256 of resolved digest and format version.
    #[schemars(regex(pattern = KEY))]
    pub key: String,
    /// The manifest it was built from.
    #[schemars(regex(pattern = SHA256))]
    pub resolved_digest: String,
    /// The format it was built in.
    pub format_version: String,
    /// What the guest sees.
    pub size_bytes: u64,
    /// What it takes on disk.
    pub allocated_bytes: u64,
    /// How many instances hold it. Above 0 it is never evicted.
    pub pins: u64,
    /// When it was built.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub built_at: Timestamp,
    /// When an instance last asked for it.
    #[schemars(with = "String", extend("format" = "date-time"))]
    pub last_used_at: Timestamp,
}

/// `POST /v1/gc`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GcRequest {
    /// Evict until the cache takes at most this; absent: the configured target. 0 evicts
    /// everything that nobody holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_bytes: Option<u64>,
    /// Only say what would go.
    #[serde(default)]
    pub dry_run: bool,
}

/// What went.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct GcReport {
    /// Nothing went, this is what would.
    pub dry_run: bool,
    /// Root disks.
    pub rootdisks: KindUse,
    /// Manifests, configurations and layers.
    pub blobs: KindUse,
    /// Leftovers.
    pub temporary: KindUse,
    /// What the cache takes afterwards.
    pub remaining_bytes: u64,
    /// Whether the target was reached; what is held stays in any case.
    pub reached: bool,
}

/// `POST /v1/prefetch`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct PrefetchRequest {
    /// The images, each down to its digest.
    #[schemars(length(min = 1, max = 64))]
    pub images: Vec<ImageSpec>,
}

/// What came of each image, in the order of the request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefetchReport {
    /// One for each.
    pub images: Vec<PrefetchOutcome>,
}

/// What came of one image.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PrefetchOutcome {
    /// The manifest that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved_digest: Option<String>,
    /// The root disk that is there now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = KEY))]
    pub rootdisk_key: Option<String>,
    /// Whether it was there already.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached: Option<bool>,
    /// Why it is not there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Reason>,
    /// The same for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// What a checksum said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum VerifyOutcome {
    /// The disk is what was built.
    Ok,
    /// It was not, and was built again.
    Rebuilt,
    /// It is not. Nobody held it: it is gone from the cache and will be built when next asked for.
    Removed,
    /// It is not, and a running instance has it: it stays until that instance stops.
    CorruptInUse,
}

/// `POST /v1/cache/{key}/verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReport {
    /// The root disk.
    #[schemars(regex(pattern = KEY))]
    pub key: String,
    /// What was found, and done.
    pub outcome: VerifyOutcome,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}
