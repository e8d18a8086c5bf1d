//! What the host API says, as types: the same for the server, the client, the OpenAPI document and
//! the status report.

mod cache;
mod instance;
mod status;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

pub use cache::{
    CacheReport, CachedDisk, GcReport, GcRequest, KindUse, PrefetchOutcome, PrefetchReport,
    PrefetchRequest, VerifyOutcome, VerifyReport,
};
pub use instance::{Exit, InstanceList, InstanceStatus, InstanceSummary, Phase, Progress};
pub use status::{
    AbsentRelease, Degradation, PoolStatus, PrefetchState, PrefetchStatus, Status, StatusReport,
};

/// What a sha256 digest looks like.
pub(crate) const SHA256: &str = "^sha256:[0-9a-f]{64}$";
/// What a rootdisk_key looks like.
pub(crate) const KEY: &str = "^[0-9a-f]{64}$";

/// Every answer that is not a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// What kind of refusal: a word of the table in docs/agent.md, to match on.
    pub reason: String,
    /// What failed, with which input and why, for people.
    pub message: String,
    /// What to try.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
}
