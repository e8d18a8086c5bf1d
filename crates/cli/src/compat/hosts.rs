//! The machines that images are checked against: this one, another one's root, recorded facts.

use std::cell::OnceCell;
use std::path::{Path, PathBuf};

use portolan_core::platform::HostPlatform;
use portolan_host::Look;
use portolan_host::facts::{Facts, Wanted};

use crate::context::root_failure;
use crate::exit::{Exit, Failure};

/// Recorded facts of one machine are a few hundred kilobytes; all modules and options are in them.
const MAX_FACTS: u64 = 64 * 1024 * 1024;

/// A machine.
#[derive(Debug)]
pub(crate) enum Machine {
    /// This one.
    Here(Looked),
    /// The one whose root directory this is.
    At(PathBuf, Looked),
    /// One whose facts were recorded.
    Recorded { name: String, facts: Box<Facts> },
}

/// A machine that was looked at, once somebody asked.
#[derive(Debug, Default)]
pub(crate) struct Looked(OnceCell<Look>);

impl Looked {
    /// The platform and the facts come from the same look: the longest files are read for both.
    fn at(&self, root: Option<&Path>) -> Result<&Look, Failure> {
        if let Some(look) = self.0.get() {
            return Ok(look);
        }
        let look = root.map_or_else(Look::here, Look::at).map_err(root_failure)?;
        Ok(self.0.get_or_init(|| look))
    }
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
        let looked = Looked::default();
        match root {
            None => Self::Here(looked),
            Some(root) => Self::At(root.to_owned(), looked),
        }
    }

    /// What reports call it; none for this machine.
    pub(super) fn name(&self) -> Option<String> {
        match self {
            Self::Here(_) => None,
            Self::At(root, _) => Some(root.display().to_string()),
            Self::Recorded { name, .. } => Some(name.clone()),
        }
    }

    /// What images run on it.
    pub(crate) fn platform(&self) -> Result<HostPlatform, Failure> {
        let unknown = |error| Failure::new(Exit::CannotTell, error);
        let platform = match self {
            Self::Here(looked) => looked.at(None)?.host().platform(),
            Self::At(root, looked) => looked.at(Some(root))?.host().platform(),
            Self::Recorded { facts, .. } => {
                return facts.platform().map_err(|error| Failure::new(Exit::CannotTell, error));
            }
        };
        platform.map_err(unknown)
    }

    /// What is wanted of it, or all that was recorded.
    pub(super) fn facts(&self, wanted: &Wanted) -> Result<Facts, Failure> {
        match self {
            Self::Here(looked) => Ok(looked.at(None)?.facts(wanted)),
            Self::At(root, looked) => Ok(looked.at(Some(root))?.facts(wanted)),
            Self::Recorded { facts, .. } => Ok(facts.as_ref().clone()),
        }
    }
}
