//! Why an archive is refused.

use std::io;

use portolan_registry::durable::DurableError;
use portolan_rootdisk::codec::CodecError;
use portolan_rootdisk::tar::TarError;

use crate::report::Reason;

/// Why no program was taken out of an archive.
#[derive(Debug, thiserror::Error)]
pub enum ArchiveError {
    /// No bytes.
    #[error("the archive is empty (0 bytes); is the location right?")]
    Empty,
    /// What a server shows people.
    #[error(
        "the location leads to a web page, not to an archive; use the address of the file itself"
    )]
    WebPage,
    /// Packed as something else.
    #[error(
        "the archive is packed with {what}; tar.gz, tar.zst, tar.xz, tar, zip and the program itself are read"
    )]
    Unknown {
        /// With what.
        what: &'static str,
    },
    /// Not one of those that are read, or damaged.
    #[error("the archive cannot be read: {what}")]
    Damaged {
        /// How.
        what: &'static str,
        /// What its reader says, where that is more.
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    /// Something that a program's archive has no business with.
    #[error("the archive is refused: {path} is {what}")]
    Refused {
        /// Which entry.
        path: String,
        /// What it is.
        what: &'static str,
    },
    /// The wanted name more than once.
    #[error("the archive has more than one {name}: which of them is meant?")]
    Twice {
        /// The name.
        name: String,
    },
    /// The wanted name not at all.
    #[error("the archive has no file called {name}{}; name it by --binary", listed(found))]
    NotFound {
        /// The name.
        name: String,
        /// Some that it has.
        found: Vec<String>,
    },
    /// A bomb, or more than anybody needs.
    #[error("{what} has more than {limit} bytes")]
    TooLarge {
        /// What.
        what: &'static str,
        /// The bound.
        limit: u64,
    },
    /// A bomb.
    #[error("the archive unpacks to more than {ratio} times its size, which no program does")]
    Bomb {
        /// The bound.
        ratio: u64,
    },
    /// Too many names.
    #[error("the archive has more than {limit} entries")]
    Entries {
        /// The bound.
        limit: u64,
    },
    /// Our own copy cannot be read.
    #[error("the fetched archive cannot be read back")]
    Read(#[source] io::Error),
    /// The program cannot be kept.
    #[error("the program cannot be written")]
    Disk(#[from] DurableError),
}

impl ArchiveError {
    /// In the report's words.
    #[must_use]
    pub fn reason(&self) -> Reason {
        match self {
            Self::NotFound { .. } | Self::Twice { .. } => Reason::BinaryNotFound,
            Self::Read(_) | Self::Disk(_) => Reason::HostTrouble,
            Self::TooLarge { .. } => Reason::TooLarge,
            _ => Reason::ArchiveRefused,
        }
    }

    pub(super) fn damaged(what: &'static str) -> Self {
        Self::Damaged { what, source: None }
    }
}

fn listed(found: &[String]) -> String {
    match found {
        [] => ", nor any other".to_owned(),
        names => format!("; it has {}", names.join(", ")),
    }
}

/// What the readers of layers say, in words that fit an archive.
impl From<CodecError> for ArchiveError {
    fn from(error: CodecError) -> Self {
        match error {
            CodecError::UnsupportedPacking { packing } => Self::Unknown { what: packing },
            CodecError::Truncated { .. } => Self::damaged("it is cut off"),
            CodecError::Corrupt { what, .. } => Self::damaged(what),
            CodecError::Limit(exceeded) if exceeded.setting == "max_ratio" => {
                Self::Bomb { ratio: exceeded.limit }
            }
            CodecError::Limit(exceeded) => {
                Self::TooLarge { what: "the archive, unpacked,", limit: exceeded.limit }
            }
            CodecError::Deflate { source } => {
                Self::Damaged { what: "its gzip is corrupt", source: Some(source.into()) }
            }
            CodecError::Zstd { source } => {
                Self::Damaged { what: "its zstd is corrupt", source: Some(source.into()) }
            }
            CodecError::UnknownType { .. } | CodecError::Cancelled => {
                Self::damaged("it is of no known kind")
            }
        }
    }
}

impl From<TarError> for ArchiveError {
    fn from(error: TarError) -> Self {
        match error {
            TarError::Truncated { .. } => Self::damaged("its tar is cut off"),
            TarError::NotAHeader { at: 0 } => {
                Self::damaged("it is neither a program nor an archive of a known kind")
            }
            TarError::NotAHeader { .. } | TarError::HalfAnEnd { .. } => {
                Self::damaged("its tar is damaged")
            }
            TarError::Limit { source, .. } if source.setting == "max_entries" => {
                Self::Entries { limit: source.limit }
            }
            TarError::Limit { source, .. } if source.setting == "max_file_bytes" => {
                Self::TooLarge { what: "one file of the archive", limit: source.limit }
            }
            TarError::UnknownType { path, .. } => Self::Refused {
                path: path.to_string(),
                what: "of a type that no program's archive has",
            },
            TarError::ZeroInName { .. } => Self::damaged("a name in its tar has a zero byte"),
            _ => Self::damaged("its tar cannot be read"),
        }
    }
}
