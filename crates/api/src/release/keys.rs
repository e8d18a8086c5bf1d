//! Labels and annotations of runs that become Releases, and of Releases.

/// On a BuildRun: the Release that is made when it succeeds. A label, so that only such runs are watched.
pub const RELEASE: &str = "portolan.dev/release";
/// On the same run: the ConfigMap with the policy of that Release.
pub const RELEASE_POLICY: &str = "portolan.dev/release-policy";
/// On the same run: `false` where the Release is Ready without being verified.
pub const RELEASE_REQUIRE_VERIFICATION: &str = "portolan.dev/release-require-verification";
/// On the same run, by the controller: the Release that it became, as `NAME@DIGEST`. It becomes that once: a Release that
/// somebody deleted does not come back.
pub const RELEASED: &str = "portolan.dev/released";
/// On the same run, by the controller: which Release it did not become, and why. That is told once, too.
pub const NOT_RELEASED: &str = "portolan.dev/not-released";
/// On a Release: the run that it was made of.
pub const BUILD_RUN: &str = "portolan.dev/build-run";
/// On a Release: when that run ended, so that an older one takes nothing back.
pub const BUILD_RUN_COMPLETED: &str = "portolan.dev/build-run-completed";
/// On a Release: `true` where agents of nodes fetch it before anybody asks for it. A label, so that only such Releases are watched.
pub const PREFETCH: &str = "portolan.dev/prefetch";
