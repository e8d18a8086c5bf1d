//! Why a condition of a Release is what it is, in words that programs can rely on.

/// It is known which images these are.
pub const RESOLVED: &str = "Resolved";
/// The policy lets them in.
pub const VERIFIED: &str = "Verified";
/// They may be run.
pub const READY: &str = "Ready";
/// They may be run, and nobody asked for more.
pub const VERIFICATION_NOT_REQUIRED: &str = "VerificationNotRequired";
/// The spec names no image, or no platform.
pub const INVALID_SPEC: &str = "InvalidSpec";
/// There is no such image.
pub const IMAGE_NOT_FOUND: &str = "ImageNotFound";
/// The registry does not show it.
pub const ACCESS_DENIED: &str = "AccessDenied";
/// It has nothing for a platform that was asked for.
pub const PLATFORM_NOT_FOUND: &str = "PlatformNotFound";
/// An index lists what is not there.
pub const IMAGE_INCOMPLETE: &str = "ImageIncomplete";
/// What is there is no image, or more than is looked at.
pub const IMAGE_UNUSABLE: &str = "ImageUnusable";
/// The registry cannot be asked at the moment.
pub const REGISTRY_UNAVAILABLE: &str = "RegistryUnavailable";
/// A policy in Rego had no time to decide.
pub const POLICY_UNDECIDED: &str = "PolicyUndecided";
/// It is not known yet what has to be verified.
pub const NOT_RESOLVED: &str = "NotResolved";
/// The policy says no.
pub const NOT_VERIFIED: &str = "NotVerified";
/// There is no policy, or none that speaks of this image.
pub const NO_POLICY: &str = "NoPolicy";
/// The policy that is named is not there.
pub const POLICY_NOT_FOUND: &str = "PolicyNotFound";
/// It is there, and cannot be used.
pub const POLICY_INVALID: &str = "PolicyInvalid";
/// The tag of a Release moved, and the Release with it.
pub const MOVED: &str = "Moved";
/// The tag moved to what the Release does not follow.
pub const NOT_FOLLOWED: &str = "NotFollowed";

/// Whether what stands for this reason is waited for, and not anybody who mends something.
pub fn will_pass(reason: &str) -> bool {
    [REGISTRY_UNAVAILABLE, POLICY_UNDECIDED].contains(&reason)
}
