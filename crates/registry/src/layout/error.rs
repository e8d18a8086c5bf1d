//! What can go wrong with a layout on disk, told so that the reader knows what to do about it.

use std::io;
use std::path::{Path, PathBuf};

use portolan_core::{Digest, Tag};

use crate::ErrorClass;
use crate::durable::{self, DurableError};

/// Why an operation on an OCI layout failed.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// The directory holds no `oci-layout` file.
    #[error(
        "{} is not an OCI layout: it has no oci-layout file; give the directory that holds index.json",
        path.display()
    )]
    NotALayout {
        /// The directory.
        path: PathBuf,
    },
    /// `oci-layout` names a version we do not know.
    #[error("{} says layout version {found:?}, only 1.0.0 is known", path.display())]
    Version {
        /// The `oci-layout` file.
        path: PathBuf,
        /// What it says.
        found: String,
    },
    /// A JSON file of the layout itself cannot be read as what it should be.
    #[error("{} is not what a layout has there; repair it or write the layout anew", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What the parser found.
        #[source]
        source: serde_json::Error,
    },
    /// A file that is read whole is larger than anything sane.
    #[error("{} has {size} bytes, at most {limit} are read", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The bound.
        limit: u64,
    },
    /// The content is not there.
    #[error("{} has no blob {digest}", dir.display())]
    BlobNotFound {
        /// The layout.
        dir: PathBuf,
        /// What was asked for.
        digest: Digest,
    },
    /// No manifest with that digest is listed, or reachable from one that is.
    #[error("{} has no manifest {digest}", dir.display())]
    ManifestNotFound {
        /// The layout.
        dir: PathBuf,
        /// What was asked for.
        digest: Digest,
    },
    /// The tag is not there.
    #[error("{} has no tag {tag}; it has {}", dir.display(), list(known))]
    TagNotFound {
        /// The layout.
        dir: PathBuf,
        /// What was asked for.
        tag: Tag,
        /// What there is.
        known: Vec<String>,
    },
    /// Nothing was asked for by name and there is more than one thing to choose from.
    #[error("{} holds several images, name one: {}", dir.display(), list(names))]
    Ambiguous {
        /// The layout.
        dir: PathBuf,
        /// Tags, full names or digests that would be unambiguous.
        names: Vec<String>,
    },
    /// The layout has no image at all.
    #[error("{} holds no image", dir.display())]
    Empty {
        /// The layout.
        dir: PathBuf,
    },
    /// The bytes are not the ones the digest names.
    #[error("content has digest {actual}, not {expected}")]
    DigestMismatch {
        /// What was announced.
        expected: Digest,
        /// What the bytes hash to.
        actual: Digest,
    },
    /// More bytes came, or are on disk, than announced.
    #[error("{digest} goes on after the {size} bytes announced")]
    TooLong {
        /// Whose content.
        digest: Digest,
        /// The announced size.
        size: u64,
    },
    /// Fewer bytes came, or are on disk, than announced.
    #[error("{digest} ends after {written} of {size} bytes")]
    TooShort {
        /// Whose content.
        digest: Digest,
        /// The announced size.
        size: u64,
        /// What there was.
        written: u64,
    },
    /// The document cannot be a manifest.
    #[error("{digest} is not a manifest that can be listed")]
    NotAManifest {
        /// Whose content.
        digest: Digest,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// No space, quota or file size left.
    #[error("no room to write {}; free some space and try again", path.display())]
    DiskFull {
        /// What was written.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// The file system or the permissions forbid writing.
    #[error("{} cannot be written; choose another directory or change its permissions", path.display())]
    ReadOnly {
        /// What was written.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
    /// Another process holds the layout's lock.
    #[error("{} stayed locked by another process for {seconds} s; try again when it is done", dir.display())]
    Locked {
        /// The layout.
        dir: PathBuf,
        /// How long was waited.
        seconds: u64,
    },
    /// Any other trouble with a file.
    #[error("cannot {step} {}", path.display())]
    Io {
        /// What was tried, as a verb.
        step: &'static str,
        /// On what.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: io::Error,
    },
}

impl LayoutError {
    /// What kind of trouble it is, for exit codes and retry decisions.
    pub fn class(&self) -> ErrorClass {
        match self {
            Self::NotALayout { .. }
            | Self::BlobNotFound { .. }
            | Self::ManifestNotFound { .. }
            | Self::TagNotFound { .. }
            | Self::Empty { .. } => ErrorClass::NotFound,
            Self::Version { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::Ambiguous { .. }
            | Self::DigestMismatch { .. }
            | Self::TooLong { .. }
            | Self::TooShort { .. }
            | Self::NotAManifest { .. } => ErrorClass::BadInput,
            Self::DiskFull { .. }
            | Self::ReadOnly { .. }
            | Self::Locked { .. }
            | Self::Io { .. } => ErrorClass::Local,
        }
    }

    /// Sorts a system error: the two that people can act on get their own variant.
    pub(crate) fn io(step: &'static str, path: &Path, source: io::Error) -> Self {
        let path = path.to_path_buf();
        match source.kind() {
            _ if durable::is_full(&source) => Self::DiskFull { path, source },
            io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
                Self::ReadOnly { path, source }
            }
            _ => Self::Io { step, path, source },
        }
    }
}

impl From<DurableError> for LayoutError {
    fn from(error: DurableError) -> Self {
        match error {
            DurableError::Io { step, path, source } => Self::io(step, &path, source),
            DurableError::Unreadable { path, source } => Self::Io { step: "read", path, source },
            DurableError::TooLarge { path, size, limit } => Self::TooLarge { path, size, limit },
            DurableError::Locked { path, seconds } => Self::Locked { dir: path, seconds },
        }
    }
}

/// A sentence part of at most ten names; more would not be read.
fn list(names: &[String]) -> String {
    const SHOWN: usize = 10;
    match names.len() {
        0 => "none".to_owned(),
        n if n <= SHOWN => names.join(", "),
        n => format!("{} and {} more", names[..SHOWN].join(", "), n - SHOWN),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_cut() {
        let names: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
        assert_eq!(list(&[]), "none");
        assert_eq!(list(&names[..2]), "t0, t1");
        assert!(list(&names).ends_with("t9 and 2 more"));
    }

    #[test]
    fn a_full_disk_and_a_read_only_directory_are_told_apart() {
        let full = LayoutError::io("write", Path::new("x"), io::ErrorKind::StorageFull.into());
        assert!(matches!(full, LayoutError::DiskFull { .. }));
        let frozen =
            LayoutError::io("write", Path::new("x"), io::ErrorKind::ReadOnlyFilesystem.into());
        assert!(matches!(frozen, LayoutError::ReadOnly { .. }));
        let other = LayoutError::io("open", Path::new("x/y"), io::ErrorKind::NotADirectory.into());
        assert_eq!(other.to_string(), "cannot open x/y");
        assert!(
            [full.class(), frozen.class(), other.class()]
                .iter()
                .all(|class| *class == ErrorClass::Local)
        );
    }
}
