//! A platform that something is to run on: a machine, or one that a person named.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::level::Level;
use super::parse::shown;
use super::satisfies::{Fit, Mismatch, check_variant, missing_features};
use super::{Platform, windows};

/// Whether a host can do a thing. Unknown is neither yes nor no.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Support {
    /// It can. Not written as `yes`, which YAML readers take for a boolean.
    #[serde(rename = "supported")]
    Yes,
    /// It cannot.
    #[serde(rename = "unsupported")]
    No,
    /// Nothing readable says so.
    Unknown,
}

/// What a host runs.
///
/// `check` is consistent with [`Platform::satisfies`]: a host that runs an image runs
/// everything that image's platform satisfies.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostPlatform {
    /// The host's own platform, normalised, with the level that was detected as variant.
    pub platform: Platform,
    /// Whether an amd64 host runs 386 and an arm64 host runs 32-bit arm. Kernels without IA-32
    /// emulation and cores without AArch32 exist, so it is not assumed.
    pub compat32: Support,
}

impl HostPlatform {
    /// A platform that a person named: exactly that, nothing beyond the name assumed.
    pub fn named(platform: &Platform) -> Self {
        Self { platform: platform.normalised(), compat32: Support::Unknown }
    }

    /// Whether an image for `image` runs here.
    pub fn satisfies(&self, image: &Platform) -> bool {
        self.check(image).is_ok()
    }

    /// How well an image for `image` runs here, or why it does not.
    ///
    /// A host without a Windows version takes images of every version.
    pub fn check(&self, image: &Platform) -> Result<Fit, Mismatch> {
        let host = self.platform.normalised();
        let image = image.normalised();
        if host.os != image.os {
            return Err(Mismatch::Os { needs: shown(&image.os), has: shown(&host.os) });
        }
        let native = host.architecture == image.architecture;
        if native {
            check_variant(&host, &image)?;
        } else {
            self.check_compat32(&host, &image)?;
        }
        let missing = missing_features(&host, &image);
        if !missing.is_empty() {
            return Err(Mismatch::OsFeatures { missing });
        }
        let is_windows = host.os == "windows";
        if is_windows && !windows::fits(host.os_version.as_deref(), image.os_version.as_deref()) {
            return Err(Mismatch::OsVersion {
                needs: shown(image.os_version.as_deref().unwrap_or_default()),
                has: host.os_version.as_deref().map(shown),
            });
        }
        let level = Level::of(&image);
        Ok(Fit {
            native,
            exact_variant: level.is_none() && image.variant.is_some(),
            level,
            features: image.os_features.len(),
            windows_build: image
                .os_version
                .as_deref()
                .filter(|_| is_windows)
                .and_then(windows::Version::parse)
                .map(windows::Version::build),
        })
    }

    /// The same operating system, another architecture.
    fn check_compat32(&self, host: &Platform, image: &Platform) -> Result<(), Mismatch> {
        let narrow = match host.architecture.as_str() {
            "amd64" => Some(Platform::new(&host.os, "386")),
            "arm64" => Some(Platform::new(&host.os, "arm").with_variant("v8")),
            _ => None,
        };
        let (needs, has) = (shown(&image.architecture), shown(&host.architecture));
        match narrow {
            Some(narrow) if narrow.architecture == image.architecture => {
                if self.compat32 == Support::Yes {
                    check_variant(&narrow, image)
                } else {
                    Err(Mismatch::Compat32 { needs, has, support: self.compat32 })
                }
            }
            _ => Err(Mismatch::Architecture { needs, has }),
        }
    }
}

impl fmt::Display for HostPlatform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.platform.fmt(f)
    }
}
