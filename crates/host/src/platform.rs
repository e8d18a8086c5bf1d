//! The facts of a host as the platform that images are chosen for.

use std::path::PathBuf;

use portolan_core::platform::{HostPlatform, Platform, Support};

use crate::Host;

/// Why it is not known what images run on a host. Naming the platform helps in every case.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlatformError {
    /// Nothing tells the operating system.
    #[error("cannot tell the operating system of {}: neither /proc nor its programs say it; name the platform", root.display())]
    Os {
        /// The root looked at.
        root: PathBuf,
    },
    /// Nothing tells the architecture.
    #[error("cannot tell the architecture of {}: neither /proc nor its programs say it; name the platform", root.display())]
    Architecture {
        /// The root looked at.
        root: PathBuf,
    },
    /// 32-bit ARM without a level, which has no baseline that all of them run.
    #[error("{} is 32-bit arm, but nothing tells which version; name the platform, such as linux/arm/v7", root.display())]
    ArmVersion {
        /// The root looked at.
        root: PathBuf,
    },
}

impl Host {
    /// What runs on this host. A level that is not known is the baseline of the architecture,
    /// which every machine of it has.
    pub fn platform(&self) -> Result<HostPlatform, PlatformError> {
        let root = || self.root.clone();
        let os = self.os.as_ref().ok_or_else(|| PlatformError::Os { root: root() })?;
        let architecture = self
            .architecture
            .as_ref()
            .ok_or_else(|| PlatformError::Architecture { root: root() })?;
        let platform = Platform::new(&os.value, &architecture.value);
        let platform = match self.level.as_ref().and_then(|fact| fact.value.level) {
            Some(level) => platform.with_level(level),
            None if architecture.value == "arm" => {
                return Err(PlatformError::ArmVersion { root: root() });
            }
            None => platform,
        };
        let compat32 = match self.compat32.as_ref().map(|fact| fact.value) {
            Some(true) => Support::Yes,
            Some(false) => Support::No,
            None => Support::Unknown,
        };
        Ok(HostPlatform { platform: platform.normalised(), compat32 })
    }
}
