//! What a platform is.

use serde::{Deserialize, Serialize};

/// Operating system and processor an image is made for, or a host has.
///
/// There is no `Default`: a platform nobody named is an error, or an explicit question to the
/// host. Fields are as written; compare through [`Platform::normalised`] or `satisfies`.
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
