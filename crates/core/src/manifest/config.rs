//! The one thing an image's configuration is asked here: what the image runs on, for index
//! entries that do not say.

use serde::Deserialize;

use super::MAX_MANIFEST_BYTES;
use crate::platform::Platform;

/// Why a configuration did not tell a platform.
#[derive(Debug, thiserror::Error)]
pub enum ParseConfigError {
    /// Larger than any real configuration.
    #[error(
        "the image config has {size} bytes, more than the {MAX_MANIFEST_BYTES} that are allowed"
    )]
    TooLarge {
        /// How many bytes there were.
        size: usize,
    },
    /// Not JSON, or `os` and the like are no strings.
    #[error("the image config is not valid JSON of its kind")]
    Json(#[source] serde_json::Error),
}

/// The platform that the image configuration in `bytes` names, or none where it names no
/// operating system or no architecture (an artifact's config, a legacy image).
pub fn config_platform(bytes: &[u8]) -> Result<Option<Platform>, ParseConfigError> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(ParseConfigError::TooLarge { size: bytes.len() });
    }
    let config: Config = serde_json::from_slice(bytes).map_err(ParseConfigError::Json)?;
    let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
    let (Some(os), Some(architecture)) = (filled(config.os), filled(config.architecture)) else {
        return Ok(None);
    };
    Ok(Some(Platform {
        os,
        architecture,
        variant: filled(config.variant),
        os_version: filled(config.os_version),
        os_features: config.os_features.unwrap_or_default(),
    }))
}

#[derive(Deserialize)]
struct Config {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
    #[serde(rename = "os.version")]
    os_version: Option<String>,
    #[serde(rename = "os.features")]
    os_features: Option<Vec<String>>,
}
