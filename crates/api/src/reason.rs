//! Reasons, by the names that users see in `status` and that scripts compare.

use std::fmt;

use serde::{Serialize, Serializer};

macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Why a Build or a BuildRun is refused before anything runs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Reason {
            $($(#[$doc])* $name,)*
        }

        impl Reason {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// As it is written in a status.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }
        }
    };
}

reasons! {
    /// A namespaced strategy is missing.
    BuildStrategyNotFound,
    /// A cluster's strategy is missing.
    ClusterBuildStrategyNotFound,
    /// A strategy of no known kind.
    UnknownBuildStrategyKind,
    /// The same, of a Build that a BuildRun brings with it.
    UnknownStrategyKind,
    /// A BuildRun's Build is missing.
    BuildNotFound,
    /// A name that is no label value.
    BuildNameInvalid,
    /// A name that is no label value.
    BuildRunNameInvalid,
    /// Neither a Build's name nor a Build's spec.
    BuildRunNoRefOrSpec,
    /// Both of them.
    BuildRunAmbiguousBuild,
    /// Something that only a named Build lets a BuildRun say.
    BuildRunBuildFieldOverrideForbidden,
    /// The kind of source and what is said of it do not agree.
    SourceNotValid,
    /// A value for a parameter that the system sets.
    RestrictedParametersInUse,
    /// A parameter that the strategy does not have.
    UndefinedParameter,
    /// One value for a list, or a list for one value.
    WrongParameterValueType,
    /// No value and no default.
    MissingParameterValues,
    /// More than one of value, config map and secret.
    InconsistentParameterValues,
    /// An item of a list with no value.
    EmptyArrayItemParameterValues,
    /// A config map without name or key.
    IncompleteConfigMapValueParameterValues,
    /// A secret without name or key.
    IncompleteSecretValueParameterValues,
    /// A volume that the strategy does not have.
    UndefinedVolume,
    /// A volume that the strategy keeps for itself.
    VolumeNotOverridable,
    /// Resources for a step that the strategy does not have.
    UndefinedStepResource,
    /// The source's time, of no source.
    OutputTimestampNotSupported,
    /// A time that is none.
    OutputTimestampNotValid,
    /// An image that nothing can be pushed to.
    OutputImageNotValid,
    /// A scan that cannot be made here.
    VulnerabilityScanNotSupported,
    /// A variable without a name.
    SpecEnvNameCanNotBeBlank,
    /// A variable with two values.
    SpecEnvOnlyOneOfValueOrValueFromMustBeSpecified,
    /// A variable that would change how programs are loaded.
    SpecEnvNameForbidden,
    /// A trigger without a name.
    TriggerNameCanNotBeBlank,
    /// A trigger of no known type.
    TriggerInvalidType,
    /// A GitHub trigger without its part.
    TriggerInvalidGitHubWebHook,
    /// An image trigger without its part.
    TriggerInvalidImage,
    /// A pipeline trigger without its part.
    TriggerInvalidPipeline,
    /// A node selector that no node can have.
    NodeSelectorNotValid,
    /// A toleration outside of what builds may say.
    TolerationNotValid,
    /// A scheduler's name that is none.
    SchedulerNameNotValid,
    /// A runtime class's name that is none.
    RuntimeClassNameNotValid,
    /// A platform that is none, twice there, or no platform at all.
    InvalidPlatform,
    /// Platforms and a node selector that both say which nodes.
    NodeSelectorPlatformConflict,
    /// The class is missing.
    ImagePlatformClassNotFound,
    /// The class says that it is not to be used.
    ImagePlatformClassNotAvailable,
    /// The class has nothing for a platform.
    PlatformNotSupported,
    /// An ImagePlatform that the class names is gone.
    ImagePlatformNotFound,
    /// An ImagePlatform that cannot be used.
    InvalidImagePlatform,
    /// Node selectors of build and platform meet.
    NodeSelectorCollision,
    /// Tolerations of build and platform meet.
    TolerationCollision,
    /// Two runtime classes for one pod.
    RuntimeClassCollision,
    /// Parameters of build and platform meet.
    ParamValueCollision,
    /// What was asked for cannot be put into a TaskRun.
    TaskRunGenerationFailed,
    /// What was asked for cannot be put into a PipelineRun.
    PipelineRunGenerationFailed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

/// Words for how a Build or a run goes, beside those that refuse one.
pub mod outcome {
    /// A Build can be used; a run made its image.
    pub const SUCCEEDED: &str = "Succeeded";
    /// The executor waits.
    pub const PENDING: &str = "Pending";
    /// A step or a platform failed.
    pub const FAILED: &str = "Failed";
    /// It took too long.
    pub const TIMEOUT: &str = "BuildRunTimeout";
    /// Somebody stopped it.
    pub const CANCELED: &str = "BuildRunCanceled";
    /// Its executor is gone.
    pub const EXECUTOR_MISSING: &str = "TaskRunIsMissing";
    /// A pod was sent away from its node.
    pub const POD_EVICTED: &str = "PodEvicted";
    /// A step wanted more memory than it may have.
    pub const OUT_OF_MEMORY: &str = "StepOutOfMemory";
    /// A scan found something.
    pub const VULNERABILITIES: &str = "VulnerabilitiesFound";
    /// The Build that is run cannot be used.
    pub const BUILD_REGISTRATION_FAILED: &str = "BuildRegistrationFailed";
    /// The account that is to run it is missing.
    pub const ACCOUNT_NOT_FOUND: &str = "ServiceAccountNotFound";
    /// A config map or secret that is to be mounted is missing.
    pub const VOLUME_NOT_FOUND: &str = "VolumeDoesNotExist";
    /// The secret of the source is missing.
    pub const SOURCE_SECRET_NOT_FOUND: &str = "SpecSourceSecretRefNotFound";
    /// The secret of the output is missing.
    pub const OUTPUT_SECRET_NOT_FOUND: &str = "SpecOutputSecretRefNotFound";
    /// More than one secret is missing.
    pub const SECRETS_NOT_FOUND: &str = "MultipleSecretRefNotFound";
}
