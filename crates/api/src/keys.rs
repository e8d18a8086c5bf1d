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

/// The PipelineRun that a TaskRun is part of; Tekton's.
pub const TEKTON_PIPELINE_RUN: &str = "tekton.dev/pipelineRun";
/// The task of the pipeline that a TaskRun does; Tekton's.
pub const TEKTON_PIPELINE_TASK: &str = "tekton.dev/pipelineTask";
/// The TaskRun that a pod belongs to; Tekton's.
pub const TEKTON_TASK_RUN: &str = "tekton.dev/taskRun";
/// Whether a Build's repository is asked for before it is registered.
pub const VERIFY_REPOSITORY: &str = "build.shipwright.io/verify.repository";
