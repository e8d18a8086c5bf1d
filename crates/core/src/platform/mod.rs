//! What a platform is: how one is written, what its names mean, which levels its processor has,
//! and which platforms run the programs of which others.
//!
//! This is the only place where "does this platform match" is written.
//!
//! | question | answer |
//! |---|---|
//! | what does this text name? | [`Platform::from_str`](std::str::FromStr), [`Platform::parse_on`] |
//! | which machines does half a name mean? | [`PartialPlatform`] |
//! | are these two names the same thing? | [`Platform::normalised`] |
//! | how far does this processor go? | [`level`] |
//! | does what runs this also run that? | [`Platform::satisfies`] |
//! | can this host run that, and if not, why? | [`HostPlatform::check`] |
//! | what would containerd take? | [`containerd`] |

pub mod containerd;
mod host;
pub mod level;
mod normalise;
mod parse;
mod partial;
mod satisfies;
pub(crate) mod windows;

use serde::{Deserialize, Serialize};

pub use host::{HostPlatform, Support};
pub use level::{Level, UnknownLevel};
pub use normalise::NormaliseWarning;
pub use parse::ParsePlatformError;
pub use partial::PartialPlatform;
pub use satisfies::{Fit, Mismatch};

/// Operating system and processor an image is made for, or a host has.
///
/// There is no `Default`: a platform nobody named is an error, or an explicit question to the
/// host. Fields are as written; compare through [`Platform::normalised`] or
/// [`Platform::satisfies`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Platform {
    /// `linux`, `windows`, …
    pub os: String,
    /// `amd64`, `arm64`, …
    pub architecture: String,
    /// `v8`, `v3`, …
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub variant: Option<String>,
    /// Only Windows gives it a meaning that matching looks at.
    #[serde(default, rename = "os.version", skip_serializing_if = "Option::is_none")]
    pub os_version: Option<String>,
    /// What the image demands of the operating system.
    #[serde(
        default,
        rename = "os.features",
        deserialize_with = "crate::manifest::null_is_empty",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub os_features: Vec<String>,
}

impl Platform {
    /// A platform with nothing but an operating system and an architecture.
    pub fn new(os: &str, architecture: &str) -> Self {
        Self {
            os: os.to_owned(),
            architecture: architecture.to_owned(),
            variant: None,
            os_version: None,
            os_features: Vec::new(),
        }
    }

    /// The same with this variant.
    #[must_use]
    pub fn with_variant(self, variant: &str) -> Self {
        Self { variant: Some(variant.to_owned()), ..self }
    }

    /// `unknown/unknown`: what BuildKit writes on attestations, so that no host takes them.
    pub fn is_unknown(&self) -> bool {
        self.os == "unknown" && self.architecture == "unknown"
    }
}
