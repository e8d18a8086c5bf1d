//! Which platforms run the programs of which others, and why not.

use serde::Serialize;

use super::level::Level;
use super::parse::shown;
use super::{Platform, Support, windows};

/// How an image runs on a host that can run it. A greater fit is a better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fit {
    /// In the host's own architecture, and not in the 32-bit one it also has.
    pub native: bool,
    /// The image is for the host's own variant, and that variant has no place in any order.
    pub exact_variant: bool,
    /// The level the image is built for; none where the architecture has no levels.
    pub level: Option<Level>,
    /// How many features of the operating system the image makes use of.
    pub features: usize,
    /// On Windows, the build the image was made for.
    pub windows_build: Option<u16>,
}

/// Why an image does not run on a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "kind", rename_all = "camelCase")]
pub enum Mismatch {
    /// Another operating system.
    #[error("needs {needs}, host is {has}")]
    Os {
        /// The image's.
        needs: String,
        /// The host's.
        has: String,
    },
    /// Another architecture.
    #[error("needs {needs}, host is {has}")]
    Architecture {
        /// The image's.
        needs: String,
        /// The host's.
        has: String,
    },
    /// The 32-bit side of the host's architecture, which the host lacks or may lack.
    #[error("needs 32-bit {needs}, {}", match support {
        Support::No => format!("which this {has} host does not run"),
        _ => format!("and whether this {has} host runs that is not known"),
    })]
    Compat32 {
        /// The image's.
        needs: String,
        /// The host's.
        has: String,
        /// What is known of the host.
        support: Support,
    },
    /// A level above the host's, or a variant that is not the host's.
    #[error("needs {architecture}/{needs}, host is {}", has.as_deref().unwrap_or("the baseline"))]
    Variant {
        /// Of both.
        architecture: String,
        /// The image's.
        needs: String,
        /// The host's; none is the baseline.
        has: Option<String>,
    },
    /// A Windows build that the host does not run.
    #[error("needs Windows {needs}, host is {}", has.as_deref().unwrap_or("of no named version"))]
    OsVersion {
        /// The image's.
        needs: String,
        /// The host's.
        has: Option<String>,
    },
    /// Features of the operating system that the host lacks.
    #[error("needs the os features {}, which the host lacks", missing.join(", "))]
    OsFeatures {
        /// Those that are not there.
        missing: Vec<String>,
    },
}

impl Platform {
    /// Whether every host that runs `self` also runs `image`.
    ///
    /// Reflexive and transitive, not symmetric: amd64/v3 satisfies amd64, not the reverse. An
    /// image without a variant needs only the baseline of its architecture. Windows versions
    /// must be of one build, because what a host runs besides depends on the host
    /// ([`super::HostPlatform::check`]) and is not transitive.
    pub fn satisfies(&self, image: &Platform) -> bool {
        let (own, image) = (self.normalised(), image.normalised());
        own.os == image.os
            && own.architecture == image.architecture
            && check_variant(&own, &image).is_ok()
            && missing_features(&own, &image).is_empty()
            && (own.os != "windows" || same_windows(&own, &image))
    }
}

fn same_windows(own: &Platform, image: &Platform) -> bool {
    match (&own.os_version, &image.os_version) {
        (_, None) => true,
        (None, Some(_)) => false,
        (Some(own), Some(image)) => {
            own == image
                || windows::Version::parse(own)
                    .is_some_and(|own| windows::Version::parse(image) == Some(own))
        }
    }
}

/// Both normalised and of one architecture.
pub(super) fn check_variant(host: &Platform, image: &Platform) -> Result<(), Mismatch> {
    let runs = host.variant == image.variant
        || match (Level::of(host), Level::of(image)) {
            (Some(host), Some(image)) => host.includes(image),
            // A variant without a place in the order runs itself and the baseline.
            (None, Some(image)) => Level::baseline(&host.architecture) == Some(image),
            (_, None) => image.variant.is_none(),
        };
    match &image.variant {
        Some(needs) if !runs => Err(Mismatch::Variant {
            architecture: shown(&image.architecture),
            needs: shown(needs),
            has: host.variant.as_deref().map(shown),
        }),
        _ => Ok(()),
    }
}

/// The features that `image` demands and `host` lacks; both normalised. `win32k` is in every
/// Windows that runs containers at all except Nano Server, and no runtime asks for it.
pub(super) fn missing_features(host: &Platform, image: &Platform) -> Vec<String> {
    let ignored = |feature: &str| image.os == "windows" && feature == "win32k";
    image
        .os_features
        .iter()
        .filter(|feature| !ignored(feature) && !host.os_features.contains(feature))
        .map(|feature| shown(feature))
        .collect()
}
