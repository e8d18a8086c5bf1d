//! Labels and annotations, on our resources and on those of Tekton.

/// The Build that a BuildRun or an executor belongs to.
pub const BUILD_NAME: &str = "build.shipwright.io/name";
/// Its generation at that time.
pub const BUILD_GENERATION: &str = "build.shipwright.io/generation";
/// The BuildRun that an executor belongs to.
pub const BUILD_RUN_NAME: &str = "buildrun.shipwright.io/name";
/// Its generation at that time.
pub const BUILD_RUN_GENERATION: &str = "buildrun.shipwright.io/generation";
/// Whether the source artifact is deleted once every platform is built.
pub const PRUNE_SOURCE: &str = "buildrun.shipwright.io/prune-source-bundle";
/// Which ImagePlatforms were used, at which generation: what a class meant when a run began.
pub const IMAGE_PLATFORMS: &str = "buildrun.shipwright.io/image-platforms";
/// A line of `/etc/group` for the user of a strategy.
pub const SECURITY_CONTEXT_GROUP: &str = "buildrun.shipwright.io/security-context-group";
/// A line of `/etc/passwd` for the user of a strategy.
pub const SECURITY_CONTEXT_PASSWD: &str = "buildrun.shipwright.io/security-context-passwd";
/// What kubectl keeps; never copied.
pub const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Prefixes of annotations that say something of one object only.
pub const OWN_PREFIXES: [&str; 4] = [
    "clusterbuildstrategy.shipwright.io/",
    "buildstrategy.shipwright.io/",
    "build.shipwright.io/",
    "buildrun.shipwright.io/",
];
