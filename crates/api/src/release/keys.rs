//! Labels and annotations of runs that become Releases, and of Releases that were made of one.

/// On a BuildRun: the Release that is made when it succeeds. A label, so that only such runs are watched.
pub const RELEASE: &str = "portolan.dev/release";
/// On the same run: the ConfigMap with the policy of that Release.
pub const RELEASE_POLICY: &str = "portolan.dev/release-policy";
/// On the same run: `false` where the Release is Ready without being verified.
pub const RELEASE_REQUIRE_VERIFICATION: &str = "portolan.dev/release-require-verification";
/// On a Release: the run that it was made of.
pub const BUILD_RUN: &str = "portolan.dev/build-run";
/// On a Release: when that run ended, so that an older one takes nothing back.
pub const BUILD_RUN_COMPLETED: &str = "portolan.dev/build-run-completed";
