//! For which machine: this one, another one's root, or a platform that was named.

use std::path::PathBuf;

use portolan_core::Platform;
use portolan_core::platform::{HostPlatform, ParsePlatformError};
use portolan_host::Host;

use crate::context::root_failure;
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Wanted {
    /// For this platform instead of this machine, as os/arch[/variant]; half of it (arm64, linux)
    /// takes the rest from this machine
    #[arg(long, value_name = "PLATFORM", value_parser = platform)]
    pub(crate) platform: Option<Platform>,
    /// For the machine whose root directory this is
    #[arg(long, value_name = "ROOT")]
    pub(crate) host: Option<PathBuf>,
}

impl Wanted {
    /// The machine meant.
    pub(crate) fn host(&self) -> Result<HostPlatform, Failure> {
        if let Some(platform) = &self.platform {
            warn(platform);
            return Ok(HostPlatform::named(platform));
        }
        let host = match &self.host {
            Some(root) => Host::at(root),
            None => Host::here(),
        };
        host.map_err(root_failure)?
            .platform()
            .map_err(|error| Failure::new(Exit::CannotTell, error))
    }

    /// Whether the machine was given rather than taken to be this one.
    pub(crate) fn is_given(&self) -> bool {
        self.platform.is_some() || self.host.is_some()
    }
}

/// A platform as a person at this machine means it. The machine is only looked at when half of the
/// name is missing.
pub(crate) fn platform(text: &str) -> anyhow::Result<Platform> {
    match text.parse() {
        Err(ParsePlatformError::OnePart(_)) => {
            let host = Host::here()?.platform()?;
            Ok(Platform::parse_on(text, &host.platform)?)
        }
        result => Ok(result?),
    }
}

/// Says what a misspelt name was taken for, and that a level is none that is known.
pub(crate) fn warn(platform: &Platform) {
    let misspelt = platform.normalised_with_warnings().1;
    let odd = platform.unknown_level().map(|odd| odd.to_string());
    for warning in misspelt.iter().map(ToString::to_string).chain(odd) {
        crate::format::tell(&format!("warning: {warning}"));
    }
}
