//! The machines that images are checked against: this one, another one's root, recorded facts.

use std::path::{Path, PathBuf};

use portolan_core::platform::HostPlatform;
use portolan_host::Host;
use portolan_host::facts::{Facts, Wanted};

use crate::context::root_failure;
use crate::exit::{Exit, Failure};

/// Recorded facts of one machine are a few hundred kilobytes; all modules and options are in them.
const MAX_FACTS: u64 = 64 * 1024 * 1024;

/// A machine.
#[derive(Debug)]
pub(crate) enum Machine {
    /// This one.
    Here,
    /// The one whose root directory this is.
    At(PathBuf),
    /// One whose facts were recorded.
    Recorded { name: String, facts: Box<Facts> },
}

/// The machines that the command line names: this one, where it names none.
pub(super) fn machines(host: Option<&Path>, facts: &[PathBuf]) -> Result<Vec<Machine>, Failure> {
    if facts.is_empty() {
        return Ok(vec![Machine::of(host)]);
    }
    facts.iter().map(|path| recorded(path)).collect()
}

fn recorded(path: &Path) -> Result<Machine, Failure> {
    let name = path.display().to_string();
    let bytes = super::read_file(path, MAX_FACTS)?;
    let facts = serde_json::from_slice(&bytes).map_err(|error| {
        let error = anyhow::Error::new(error);
        Failure::usage(error.context(format!(
            "{name} holds no facts of a host; record them with `portolan host facts -o json`"
        )))
    })?;
    Ok(Machine::Recorded { name, facts: Box::new(facts) })
}

impl Machine {
    /// The machine with this root directory, or this one.
    pub(crate) fn of(root: Option<&Path>) -> Self {
        root.map_or(Self::Here, |root| Self::At(root.to_owned()))
    }

    /// What reports call it; none for this machine.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Here => None,
            Self::At(root) => Some(root.display().to_string()),
            Self::Recorded { name, .. } => Some(name.clone()),
        }
    }

    /// What images run on it.
    pub(super) fn platform(&self) -> Result<HostPlatform, Failure> {
        let host = match self {
            Self::Here => Host::here(),
            Self::At(root) => Host::at(root),
            Self::Recorded { facts, .. } => {
                let platform = facts.platform();
                return platform.map_err(|error| Failure::new(Exit::CannotTell, error));
            }
        };
        let platform = host.map_err(root_failure)?.platform();
        platform.map_err(|error| Failure::new(Exit::CannotTell, error))
    }

    /// What is wanted of it, or all that was recorded.
    pub(super) fn facts(&self, wanted: &Wanted) -> Result<Facts, Failure> {
        match self {
            Self::Here => Facts::here(wanted).map_err(root_failure),
            Self::At(root) => Facts::at(root, wanted).map_err(root_failure),
            Self::Recorded { facts, .. } => Ok(facts.as_ref().clone()),
        }
    }
}
