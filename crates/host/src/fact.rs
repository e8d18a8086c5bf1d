//! A value and where it came from.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// Something known about a host.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Fact<T> {
    /// What is known.
    pub value: T,
    /// What says so.
    pub source: Source,
}

/// What a fact was read from.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "kind", content = "path", rename_all = "camelCase")]
pub enum Source {
    /// This file, as seen from inside the root.
    File(PathBuf),
    /// The absence of this file, where the rest of its directory is there.
    NoFile(PathBuf),
    /// The vector that the kernel hands to each program.
    AuxiliaryVector,
    /// What the kernel says of itself.
    Uname,
}

/// A file that is there and could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Unread {
    /// As seen from inside the root.
    pub path: PathBuf,
    /// Why not.
    pub reason: String,
}

impl<T> Fact<T> {
    /// A fact read from `path`.
    pub(crate) fn from_file(value: T, path: impl Into<PathBuf>) -> Self {
        Self { value, source: Source::File(path.into()) }
    }

    /// Another fact that follows from this one, or none.
    pub(crate) fn and_then<U>(&self, f: impl FnOnce(&T) -> Option<U>) -> Option<Fact<U>> {
        Some(Fact { value: f(&self.value)?, source: self.source.clone() })
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::NoFile(path) => write!(f, "no {}", path.display()),
            Self::AuxiliaryVector => f.write_str("auxiliary vector"),
            Self::Uname => f.write_str("uname"),
        }
    }
}
