//! Why a configuration is left alone.

use portolan_registry::durable::DurableError;

use crate::report::Reason;

/// Why a configuration is left alone.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("the runtime's configuration cannot be read")]
    Read(#[from] DurableError),
    /// Not text.
    #[error("{path} is no UTF-8 text; it is left as it is")]
    NotText {
        /// The file.
        path: String,
    },
    /// Not TOML.
    #[error("{path} is no TOML, so containerd cannot read it either; it is left as it is")]
    NotToml {
        /// The file.
        path: String,
        /// Where and why.
        #[source]
        source: Box<toml_edit::TomlError>,
    },
    /// A version that is not known.
    #[error(
        "{path} is of version {version}; known are 1 to 4, and a wrong guess would be ignored by containerd"
    )]
    Version {
        /// The file.
        path: String,
        /// As it says.
        version: String,
    },
    /// Too many files import each other.
    #[error("{path} imports more than {limit} files")]
    Imports {
        /// The main file.
        path: String,
        /// The bound.
        limit: usize,
    },
    /// Somebody else's table.
    #[error(
        "{path} has a runtime {handler} of its own; remove it there, or give another --handler"
    )]
    Taken {
        /// The file.
        path: String,
        /// The handler.
        handler: String,
    },
    /// The runtime's own.
    #[error("the handler {handler} is one of containerd's own; give another --handler")]
    BuiltIn {
        /// The handler.
        handler: String,
    },
    /// Plugins under two kinds of names, of which containerd takes either.
    #[error(
        "{path} says no version and names plugins as version 2 does; write `version = 2` at its beginning if that is what it is"
    )]
    Unversioned {
        /// The file.
        path: String,
    },
    /// Something that a template would take for its own.
    #[error(
        "{path} is a template, in which {{{{ has a meaning: neither options nor --install-dir can have it"
    )]
    InTemplate {
        /// The file.
        path: String,
    },
    /// Another shim's.
    #[error("the handler {handler} is that of the shim {other}; give another --handler")]
    OthersHandler {
        /// The handler.
        handler: String,
        /// Whose it is.
        other: String,
    },
    /// Half a block of ours.
    #[error(
        "{path} has the beginning of our block for {name} and not its end; put the line back, or remove the block"
    )]
    Torn {
        /// The file.
        path: String,
        /// Whose block.
        name: String,
    },
    /// What would be left is no TOML.
    #[error(
        "{path} would be no TOML without what it says of {name}; it is left as it is: take that out by hand"
    )]
    CannotRemove {
        /// The file.
        path: String,
        /// Whose tables.
        name: String,
    },
    /// It has the tables in a form that cannot be added to.
    #[error(
        "a runtime cannot be added to {path}: the tables above it are written on one line there"
    )]
    CannotExtend {
        /// The file.
        path: String,
        /// What the parser says.
        #[source]
        source: Option<Box<toml_edit::TomlError>>,
    },
    /// A file with the name of our drop-in.
    #[error("{path} is not ours, and has the name that ours would have; move it away")]
    NotOurs {
        /// The file.
        path: String,
    },
    /// containerd itself says no.
    #[error("containerd does not take the new configuration: {said}; nothing was changed")]
    Rejected {
        /// Its words, cut.
        said: String,
    },
    /// containerd reads it and does not see the runtime.
    #[error(
        "containerd reads the new configuration and does not see the runtime {handler} in it; nothing was changed"
    )]
    NotSeen {
        /// The handler.
        handler: String,
    },
}

impl ConfigError {
    /// In the report's words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::HostTrouble,
            _ => Reason::ConfigRefused,
        }
    }
}
