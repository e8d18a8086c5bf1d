//! shipwright.io/v1beta1: what is built, how, and one run of it.

mod definition;
mod output;
mod param;
mod run;
mod source;
mod status;
mod strategy;
mod trigger;

pub use definition::{Build, BuildSpec, BuildStatus, Retention, StepResources, StrategyRef};
pub use output::{
    IgnoredVulnerabilities, MultiArch, Output, OutputOverride, OutputSettings, Severity,
    VulnerabilityScan,
};
pub use param::{KeyReference, ParamValue, SingleValue};
pub use run::{
    BuildRun, BuildRunSpec, BuildRunState, ReferencedBuild, RunRetention, RunSource, RunSourceKind,
};
pub use source::{Git, Local, OciArtifact, Prune, Source, SourceKind};
pub use status::{
    BuildRunStatus, Executor, ExecutorKind, Failure, FailureLocation, GitResult, OciArtifactResult,
    OutputStatus, PlatformState, PlatformStatus, SUCCEEDED, SourceStatus, Vulnerability,
};
pub use strategy::{
    BuildStrategy, ClusterBuildStrategy, Parameter, ParameterKind, Step, StrategySecurityContext,
    StrategySpec, StrategyVolume,
};
pub use trigger::{GitHubEvent, ObjectRef, Trigger, When, WhenGitHub, WhenImage};

/// The version of these resources.
pub const VERSION: &str = "v1beta1";
