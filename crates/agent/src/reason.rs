//! Why an instance does not run, in words that control planes and dashboards match on.

use std::fmt;

/// The wire names never change meaning.
#[derive(
    Debug,
    Clone,
    Copy,
    PartialEq,
    Eq,
    Hash,
    PartialOrd,
    Ord,
    serde::Serialize,
    serde::Deserialize,
    schemars::JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// The manifest or a layer could not be fetched, or is not what its digest or diff_id says.
    ImagePullFailed,
    /// The layers are here and do not make a root disk.
    RootfsBuildFailed,
    /// No room, and nothing that may be evicted.
    DiskFull,
    /// The spec names no resolved digest. Nothing is ever resolved by tag here.
    ResolvedDigestMissing,
    /// The image is for another platform than the spec or the host.
    PlatformMismatch,
    /// The policy does not let this image run.
    VerificationFailed,
    /// The policy had no time to decide: later, or on another host, it may.
    VerificationUndecided,
    /// The image asks for what this host does not have.
    HostIncompatible,
    /// The spec itself cannot be carried out.
    InvalidSpec,
    /// The disk is there and the machine did not start, or ended by itself with an error.
    StartFailed,
}

impl Reason {
    /// Every one.
    pub const ALL: [Self; 10] = [
        Self::ImagePullFailed,
        Self::RootfsBuildFailed,
        Self::DiskFull,
        Self::ResolvedDigestMissing,
        Self::PlatformMismatch,
        Self::VerificationFailed,
        Self::VerificationUndecided,
        Self::HostIncompatible,
        Self::InvalidSpec,
        Self::StartFailed,
    ];

    /// The wire name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ImagePullFailed => "image_pull_failed",
            Self::RootfsBuildFailed => "rootfs_build_failed",
            Self::DiskFull => "disk_full",
            Self::ResolvedDigestMissing => "resolved_digest_missing",
            Self::PlatformMismatch => "platform_mismatch",
            Self::VerificationFailed => "verification_failed",
            Self::VerificationUndecided => "verification_undecided",
            Self::HostIncompatible => "host_incompatible",
            Self::InvalidSpec => "invalid_spec",
            Self::StartFailed => "start_failed",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways_of_writing_a_reason_agree() {
        for reason in Reason::ALL {
            assert_eq!(serde_json::to_value(reason).unwrap(), reason.as_str());
        }
    }
}
