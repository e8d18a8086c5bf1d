//! What an image's configuration says: what the image runs on, how it is started, and what its
//! layers are once unpacked.

use serde::Deserialize;

use super::{MAX_MANIFEST_BYTES, null_is_empty, strict};
use crate::digest::Digest;
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
    /// A field of the platform occurs twice or in other letters: readers differ in which they take.
    #[error(
        "the image config has {found:?} beside or instead of {field:?}, which only some readers take for the field"
    )]
    Ambiguous {
        /// As written.
        found: String,
        /// The field it is, or resembles.
        field: &'static str,
    },
}

/// That everybody reads the same platform in `bytes`.
fn check(bytes: &[u8]) -> Result<(), ParseConfigError> {
    if bytes.len() > MAX_MANIFEST_BYTES {
        return Err(ParseConfigError::TooLarge { size: bytes.len() });
    }
    match strict::ambiguous_platform(bytes).map_err(ParseConfigError::Json)? {
        Some((found, field)) => Err(ParseConfigError::Ambiguous { found, field }),
        None => Ok(()),
    }
}

/// The platform that the image configuration in `bytes` names, or none where it names no
/// operating system or no architecture (an artifact's config, a legacy image).
pub fn config_platform(bytes: &[u8]) -> Result<Option<Platform>, ParseConfigError> {
    check(bytes)?;
    let config: PlatformPart = serde_json::from_slice(bytes).map_err(ParseConfigError::Json)?;
    Ok(config.platform())
}

/// What it takes to start an image, from its configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ImageConfig {
    /// What it runs on, where it says so.
    pub platform: Option<Platform>,
    /// The digests of the layers once unpacked, bottom first.
    pub diff_ids: Vec<Digest>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Further arguments, or program and arguments where there is no entrypoint.
    pub cmd: Vec<String>,
    /// `NAME=value`, in the order of the file.
    pub env: Vec<String>,
    /// `user`, `uid`, `user:group`, … or empty for root.
    pub user: String,
    /// Where it starts; empty for `/`.
    pub working_dir: String,
    /// The signal that asks it to end; empty for SIGTERM.
    pub stop_signal: String,
}

impl ImageConfig {
    /// Reads a configuration of at most [`MAX_MANIFEST_BYTES`].
    pub fn parse(bytes: &[u8]) -> Result<Self, ParseConfigError> {
        #[derive(Deserialize)]
        struct Whole {
            #[serde(flatten)]
            platform: PlatformPart,
            #[serde(default, deserialize_with = "null_is_empty")]
            config: Start,
            #[serde(default, deserialize_with = "null_is_empty")]
            rootfs: RootFs,
        }
        #[derive(Default, Deserialize)]
        #[serde(rename_all = "PascalCase", default)]
        struct Start {
            #[serde(deserialize_with = "null_is_empty")]
            entrypoint: Vec<String>,
            #[serde(deserialize_with = "null_is_empty")]
            cmd: Vec<String>,
            #[serde(deserialize_with = "null_is_empty")]
            env: Vec<String>,
            #[serde(deserialize_with = "null_is_empty")]
            user: String,
            #[serde(deserialize_with = "null_is_empty")]
            working_dir: String,
            #[serde(deserialize_with = "null_is_empty")]
            stop_signal: String,
        }
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct RootFs {
            #[serde(deserialize_with = "null_is_empty")]
            diff_ids: Vec<Digest>,
        }
        check(bytes)?;
        let Whole { platform, config, rootfs } =
            serde_json::from_slice(bytes).map_err(ParseConfigError::Json)?;
        Ok(Self {
            platform: platform.platform(),
            diff_ids: rootfs.diff_ids,
            entrypoint: config.entrypoint,
            cmd: config.cmd,
            env: config.env,
            user: config.user,
            working_dir: config.working_dir,
            stop_signal: config.stop_signal,
        })
    }
}

#[derive(Deserialize)]
struct PlatformPart {
    os: Option<String>,
    architecture: Option<String>,
    variant: Option<String>,
    #[serde(rename = "os.version")]
    os_version: Option<String>,
    #[serde(rename = "os.features")]
    os_features: Option<Vec<String>>,
}

impl PlatformPart {
    fn platform(self) -> Option<Platform> {
        let filled = |text: Option<String>| text.filter(|text| !text.is_empty());
        Some(Platform {
            os: filled(self.os)?,
            architecture: filled(self.architecture)?,
            variant: filled(self.variant),
            os_version: filled(self.os_version),
            os_features: self.os_features.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_config_tells_how_the_image_is_started() {
        let json = r#"{"os":"linux","architecture":"arm64","variant":"v8","config":{"Entrypoint":["/a"],
            "Cmd":null,"Env":["A=1"],"User":"65532:65532","WorkingDir":"/w","StopSignal":"SIGQUIT"},
            "rootfs":{"type":"layers","diff_ids":["sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"]}}"#;
        let config = ImageConfig::parse(json.as_bytes()).unwrap();
        assert_eq!(config.platform.unwrap().to_string(), "linux/arm64/v8");
        assert_eq!(config.diff_ids, [Digest::sha256(b"")]);
        assert_eq!((config.entrypoint, config.cmd), (vec!["/a".to_owned()], vec![]));
        assert_eq!((config.user.as_str(), config.working_dir.as_str()), ("65532:65532", "/w"));
        assert_eq!((config.env, config.stop_signal.as_str()), (vec!["A=1".to_owned()], "SIGQUIT"));
        let bare = ImageConfig::parse(b"{\"config\":null}").unwrap();
        assert_eq!((bare.platform, bare.diff_ids, bare.user), (None, vec![], String::new()));
    }
}
