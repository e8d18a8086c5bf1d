//! Why an operation on a node failed, each kind with the word that the report has for it.

use std::path::PathBuf;

use portolan_registry::durable::DurableError;

use super::archive::ArchiveError;
use super::config::ConfigError;
use super::elf::ElfError;
use super::exec::ExecError;
use super::fetch::FetchError;
use super::place::PlaceError;
use super::preset::DetectError;
use super::ready::ReadyError;
use super::request::RequestError;
use super::restart::RestartError;
use super::state::StateError;
use crate::report::Reason;

/// Why an operation on a node failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// What was asked for makes no sense.
    #[error(transparent)]
    Request(#[from] RequestError),
    /// The host's root is no directory.
    #[error("{} cannot be used as a host's root", path.display())]
    Root {
        /// As it was given.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The machine does not say what it is.
    #[error("it is not known which programs run on this node")]
    Platform(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// Nothing was fetched.
    #[error(transparent)]
    Fetch(#[from] FetchError),
    /// Nothing was taken out.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// It does not run here.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// What the fetching stage left is not what it said.
    #[error("{} is not what was fetched: it has SHA-256 {actual}, not {expected}", path.display())]
    Assets {
        /// The file.
        path: PathBuf,
        /// As it was noted.
        expected: String,
        /// As it is.
        actual: String,
    },
    /// What the fetching stage should have left is not there.
    #[error("{} cannot be read; did the fetching stage run?", path.display())]
    NoAssets {
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What the fetching stage refused, in its words.
    #[error("{message}")]
    NotFetched {
        /// Why, in the report's words.
        reason: Reason,
        /// For a person.
        message: String,
    },
    /// Of several shims, some are refused and the others installed.
    #[error("{refused} of {asked} shims could not be installed; {name} is the first of them")]
    InPart {
        /// How many.
        refused: usize,
        /// Of how many.
        asked: usize,
        /// The first of them.
        name: String,
        /// Why that one.
        #[source]
        source: Box<NodeError>,
    },
    /// The node is not one of those that are known.
    #[error(transparent)]
    Detect(#[from] DetectError),
    /// Somebody else is at work.
    #[error("another installer is at work on this node")]
    Locked(#[source] DurableError),
    /// What was done cannot be kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The program has no place.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The configuration is left alone.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Nobody knows how to start it again: all is as before.
    #[error("the runtime cannot be started again from here; its configuration is as before")]
    NoRestart(#[source] RestartError),
    /// It was not started again; all is as before.
    #[error("the runtime could not be started again; its configuration is as before, and it runs")]
    NotRestarted(#[source] RestartError),
    /// It is not as it should be, and it was not we who made it so.
    #[error(
        "the runtime is not as it should be; nothing was changed, and it was not started again"
    )]
    Unanswered(#[source] ReadyError),
    /// It did not take the configuration; all is as before.
    #[error(
        "the runtime did not take the new configuration; the one from before is back, and it runs"
    )]
    RolledBack(#[source] ReadyError),
    /// It did not take the configuration, nor the one from before.
    #[error(
        "the runtime did not take the new configuration, and does not run with the one from before either; look at its log"
    )]
    RuntimeDown(#[source] Untaken),
    /// A look found something else than was asked for.
    #[error("{what}")]
    Drifted {
        /// What.
        what: String,
    },
}

/// How a runtime did not take a configuration.
#[derive(Debug, thiserror::Error)]
pub enum Untaken {
    /// It was not started again.
    #[error(transparent)]
    Restart(#[from] RestartError),
    /// It is not as it should be.
    #[error(transparent)]
    Ready(#[from] ReadyError),
}

impl Untaken {
    /// What it is where the configuration from before is back, and the runtime runs.
    pub(crate) fn rolled_back(self) -> NodeError {
        match self {
            Self::Restart(error) => NodeError::NotRestarted(error),
            Self::Ready(error) => NodeError::RolledBack(error),
        }
    }
}

impl From<DurableError> for NodeError {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Locked { .. } => Self::Locked(error),
            error => Self::State(StateError::Disk(error)),
        }
    }
}

impl NodeError {
    /// In the report's words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Request(_) | Self::Root { .. } => Reason::BadRequest,
            Self::Platform(_) => Reason::NodeNotSupported,
            Self::Fetch(error) => error.reason(),
            Self::Archive(error) => error.reason(),
            Self::Elf(_) => Reason::WrongArchitecture,
            Self::Assets { .. } => Reason::DigestMismatch,
            Self::NoAssets { .. } => Reason::BinaryNotFound,
            Self::NotFetched { reason, .. } => *reason,
            Self::InPart { source, .. } => source.reason(),
            Self::Detect(DetectError::UnknownPreset { .. }) => Reason::BadRequest,
            Self::Detect(_) => Reason::NodeNotSupported,
            Self::Locked(_) => Reason::Locked,
            Self::State(_) => Reason::HostTrouble,
            Self::Place(error) => error.reason(),
            Self::Config(error) => error.reason(),
            // Nothing was changed, and who was asked may answer the next time; but for one that is not there.
            Self::NoRestart(
                RestartError::Unasked(ExecError::Late { .. } | ExecError::Failed { .. })
                | RestartError::Processes { count: 0 },
            ) => Reason::HostTrouble,
            Self::NoRestart(_) | Self::NotRestarted(_) | Self::RolledBack(_) => Reason::RolledBack,
            Self::Unanswered(_) => Reason::HostTrouble,
            Self::RuntimeDown(_) => Reason::RuntimeDown,
            Self::Drifted { .. } => Reason::Drifted,
        }
    }

    /// Whether what the runtime goes by is what it was, and it was not started again, though the install had begun: what was
    /// there before can be used. One that answers and does not know the handler cannot.
    pub(crate) const fn leaves_all_as_before(&self) -> bool {
        matches!(
            self,
            Self::Config(ConfigError::Rejected { .. } | ConfigError::NotSeen { .. })
                | Self::Unanswered(ReadyError::Silent { .. } | ReadyError::NotReady { .. })
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_there_can_be_used_where_nothing_that_the_runtime_reads_was_changed() {
        let handler = || "spin".to_owned();
        let rejected = ConfigError::Rejected { said: "no".into() };
        let unseen = ConfigError::NotSeen { handler: handler() };
        let ill = ReadyError::NotReady { why: "x".into() };
        let unknown = || ReadyError::Unknown { handler: handler(), known: String::new() };
        for (error, kept) in [
            (rejected.into(), true),
            (unseen.into(), true),
            (NodeError::Unanswered(ill), true),
            (NodeError::Unanswered(unknown()), false),
            (NodeError::RolledBack(unknown()), false),
            (ConfigError::BuiltIn { handler: handler() }.into(), false),
        ] {
            assert_eq!(error.leaves_all_as_before(), kept, "{error:?}");
        }
        assert!(!NodeError::Unanswered(unknown()).reason().is_permanent());
    }

    /// Before anything was changed, a service manager that is slow or a runtime that is just starting may be well the
    /// next time; afterwards every try would start the runtime twice.
    #[test]
    fn a_restart_that_cannot_be_chosen_now_may_pass_and_one_that_failed_is_rolled_back() {
        let limit = std::time::Duration::from_secs(1);
        let late = || ExecError::Late { program: "systemctl".into(), limit };
        let failed = || ExecError::Failed {
            program: "systemctl".into(),
            status: "exit status: 1".into(),
            said: "Failed to connect to bus".into(),
        };
        let missing = || ExecError::Start {
            program: "systemctl".into(),
            source: std::io::ErrorKind::NotFound.into(),
        };
        let signal = || RestartError::Signal { pid: 1, source: std::io::Error::other("x") };
        for (error, passes) in [
            (RestartError::Unasked(late()), true),
            (RestartError::Unasked(failed()), true),
            (RestartError::Unasked(missing()), false),
            (RestartError::Processes { count: 0 }, true),
            (RestartError::Processes { count: 2 }, false),
            (RestartError::NoUnit { wanted: "containerd.service".into() }, false),
            (RestartError::Unreachable, false),
            (RestartError::OtherNumbers { pid: 1 }, false),
            (signal(), false),
        ] {
            let reason = NodeError::NoRestart(error).reason();
            let expected = if passes { Reason::HostTrouble } else { Reason::RolledBack };
            assert_eq!(reason, expected);
            assert_eq!(reason.is_permanent(), !passes);
        }
        for error in [late(), failed(), missing()] {
            let text =
                portolan_core::causes::chain(&NodeError::NoRestart(RestartError::Unasked(error)));
            assert!(text.contains("give --restart-command"), "{text}");
        }
        for error in [late().into(), RestartError::Processes { count: 0 }, signal()] {
            assert_eq!(NodeError::NotRestarted(error).reason(), Reason::RolledBack);
        }
    }
}
