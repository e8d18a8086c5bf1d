//! Which version a file is of, and where that version keeps runtimes.

use toml_edit::{Document, Item, TableLike};

use super::ConfigError;

/// A version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// What a file without a version is.
    V1,
    /// containerd 1.3 to 1.7, and later ones read it.
    V2,
    /// containerd 2.0.
    V3,
    /// containerd 2.3; runtimes are where version 3 has them.
    V4,
}

impl Version {
    /// The version a file says it is of.
    ///
    /// # Errors
    /// One that is not known.
    pub fn of(path: &str, document: &Document<String>) -> Result<Self, ConfigError> {
        let Some(item) = document.get("version") else { return Ok(Self::V1) };
        match item.as_integer() {
            Some(0 | 1) => Ok(Self::V1),
            Some(2) => Ok(Self::V2),
            Some(3) => Ok(Self::V3),
            Some(4) => Ok(Self::V4),
            _ => {
                let version = item.to_string().trim().chars().take(40).collect();
                Err(ConfigError::Version { path: path.to_owned(), version })
            }
        }
    }

    /// The plugin whose table holds the runtimes.
    #[must_use]
    pub const fn plugin(self) -> &'static str {
        match self {
            Self::V1 => "cri",
            Self::V2 => "io.containerd.grpc.v1.cri",
            Self::V3 | Self::V4 => "io.containerd.cri.v1.runtime",
        }
    }

    /// As a file writes it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 => 1,
            Self::V2 => 2,
            Self::V3 => 3,
            Self::V4 => 4,
        }
    }
}

/// A file as TOML.
///
/// # Errors
/// It is none.
pub fn parse(path: &str, text: &str) -> Result<Document<String>, ConfigError> {
    // containerd passes over the mark that some editors put first, and so must we.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    let not = |source| ConfigError::NotToml { path: path.to_owned(), source: Box::new(source) };
    Document::parse(text.to_owned()).map_err(not)
}

/// The table of the plugin that holds the runtimes.
pub(super) fn plugin_table(
    document: &Document<String>,
    version: Version,
) -> Option<&dyn TableLike> {
    document.get("plugins")?.as_table_like()?.get(version.plugin())?.as_table_like()
}

/// The table of all runtimes.
pub(super) fn runtimes(document: &Document<String>, version: Version) -> Option<&dyn TableLike> {
    let plugin = plugin_table(document, version)?;
    plugin.get("containerd")?.as_table_like()?.get("runtimes")?.as_table_like()
}

/// What a file says of one runtime, exactly that one.
#[must_use]
pub fn handler_table<'a>(
    document: &'a Document<String>,
    version: Version,
    handler: &str,
) -> Option<&'a Item> {
    runtimes(document, version)?.get(handler)
}
