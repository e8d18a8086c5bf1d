//! The machine that an image's needs are held against.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use portolan_host::facts::{Facts, Wanted};

use crate::config::{CompatibilityOf, Config};
use crate::guest::{GuestConfig, view};
use crate::paths::Paths;
use crate::vmm::VmmConfig;

/// The machine that an image's needs are held against.
pub(super) enum Machine {
    /// The host; elsewhere than at `/` where it is mounted there.
    Host(Option<PathBuf>),
    /// A guest, as the configuration makes them.
    Guest(Box<Guest>),
}

/// A guest that does not run yet.
pub(super) struct Guest {
    config: GuestConfig,
    vmm: VmmConfig,
    host_root: PathBuf,
    view: PathBuf,
    /// Whether the view is there: it is made when it is first asked for, and once.
    made: Mutex<bool>,
}

impl Machine {
    pub(super) fn of(config: &Config) -> Self {
        let host_root = config.compatibility.host_root.clone();
        match config.compatibility.of {
            CompatibilityOf::Host => Self::Host(host_root),
            CompatibilityOf::Guest => Self::Guest(Box::new(Guest {
                config: config.guest.clone(),
                vmm: config.vmm.clone(),
                host_root: host_root.unwrap_or_else(|| PathBuf::from("/")),
                view: Paths::new(&config.root).guest(),
                made: Mutex::new(false),
            })),
        }
    }

    pub(super) fn facts(&self, wanted: &Wanted) -> Result<Facts, String> {
        let facts = match self {
            Self::Host(None) => Facts::here(wanted),
            Self::Host(Some(root)) => Facts::at(root, wanted),
            Self::Guest(guest) => Facts::at(guest.view()?, wanted),
        };
        facts.map_err(|error| portolan_core::causes::chain(&error))
    }

    /// Where a plugin finds the machine's own files: only the host's are here.
    pub(super) fn plugins_root(&self) -> Option<&'static str> {
        matches!(self, Self::Host(None)).then_some("/")
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Host(_) => "this host",
            Self::Guest(_) => "a machine of this agent",
        })
    }
}

impl Guest {
    fn view(&self) -> Result<&Path, String> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if !*made {
            view::make(&self.view, &self.config, &self.vmm, &self.host_root)
                .map_err(|error| portolan_core::causes::chain(&error))?;
            *made = true;
        }
        Ok(&self.view)
    }
}
