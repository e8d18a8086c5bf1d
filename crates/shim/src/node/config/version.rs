//! Which version a file is of, and where that version keeps runtimes.

use toml_edit::{Document, Item, TableLike};

use super::ConfigError;

/// A version of the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Version {
    /// What a file without a version is.
    V1,
    /// The same, with plugins under their whole names: containerd 2 takes them so, too.
    V1Full,
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
            Self::V1Full | Self::V2 => "io.containerd.grpc.v1.cri",
            Self::V3 | Self::V4 => "io.containerd.cri.v1.runtime",
        }
    }

    /// As a file writes it.
    #[must_use]
    pub const fn number(self) -> u8 {
        match self {
            Self::V1 | Self::V1Full => 1,
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

/// A table of plugins by name.
pub(super) fn plugin<'a>(document: &'a Document<String>, name: &str) -> Option<&'a dyn TableLike> {
    document.get("plugins")?.as_table_like()?.get(name)?.as_table_like()
}

/// The tables of the plugin that holds the runtimes. A file without a version may have it under two names.
fn plugin_tables(
    document: &Document<String>,
    version: Version,
) -> impl Iterator<Item = &dyn TableLike> {
    let other = match version {
        Version::V1 => Some(Version::V1Full),
        Version::V1Full => Some(Version::V1),
        _ => None,
    };
    let names = [Some(version), other].into_iter().flatten().map(Version::plugin);
    names.filter_map(|name| plugin(document, name))
}

/// The table of the plugin that holds the runtimes.
pub(super) fn plugin_table(
    document: &Document<String>,
    version: Version,
) -> Option<&dyn TableLike> {
    plugin_tables(document, version).next()
}

/// The runtime that pods get which ask for none.
pub(super) fn default_runtime(document: &Document<String>, version: Version) -> Option<&str> {
    plugin_tables(document, version)
        .find_map(|plugin| plugin.get("containerd")?.get("default_runtime_name")?.as_str())
}

fn runtimes_in(plugin: &dyn TableLike) -> Option<&dyn TableLike> {
    plugin.get("containerd")?.as_table_like()?.get("runtimes")?.as_table_like()
}

/// The table of all runtimes.
pub(super) fn runtimes(document: &Document<String>, version: Version) -> Option<&dyn TableLike> {
    plugin_tables(document, version).find_map(runtimes_in)
}

/// What a file says of one runtime, exactly that one.
#[must_use]
pub fn handler_table<'a>(
    document: &'a Document<String>,
    version: Version,
    handler: &str,
) -> Option<&'a Item> {
    plugin_tables(document, version).find_map(|plugin| runtimes_in(plugin)?.get(handler))
}
