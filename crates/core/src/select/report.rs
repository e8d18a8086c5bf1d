//! What [`super::select`] says: the choice, and for every other entry why it lost.

use std::fmt;

use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};

use super::candidates::{MAX_DEPTH, MAX_ENTRIES};
use crate::digest::Digest;
use crate::manifest::Descriptor;
use crate::platform::{HostPlatform, Mismatch, Platform};
use crate::quote::quote;

/// A message lists this many entries; an index may have thousands.
const LISTED: usize = 20;

/// The manifest to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Selection {
    /// For whom.
    pub host: HostPlatform,
    /// What the chosen entry runs on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// The entry chosen.
    pub chosen: Descriptor,
    /// Every entry, in the order of the index, the chosen one too.
    pub considered: Vec<Considered>,
}

/// No entry runs on the host: an answer, not a breakdown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NoMatch {
    /// For whom.
    pub host: HostPlatform,
    /// Every entry, in the order of the index.
    pub considered: Vec<Considered>,
}

/// One entry and what became of it. Written as a line: `linux/amd64/v4 lost: needs amd64/v4,
/// host is v3`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Considered {
    /// Which.
    pub digest: Digest,
    /// What it runs on, as far as that is known.
    pub platform: Option<Platform>,
    /// What became of it.
    pub outcome: Outcome,
}

/// What became of an entry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "result", rename_all = "camelCase")]
pub enum Outcome {
    /// It runs.
    Chosen,
    /// It would run, another runs better.
    Outranked {
        /// What the better one is for.
        by: Platform,
    },
    /// It would run as well as the chosen one, which is listed first.
    ListedLater {
        /// The chosen one.
        after: Digest,
    },
    /// It does not run on this host.
    Mismatch(Mismatch),
    /// It holds attestations of an image.
    Attestation,
    /// It is an artifact, not an image.
    Artifact {
        /// Of this type.
        #[serde(rename = "artifactType")]
        artifact_type: String,
    },
    /// Neither the index nor its config says what it runs on.
    NoPlatform,
    /// The index does not say what it runs on, and its config was not looked at.
    PlatformNotKnown,
    /// A nested index that was not looked into.
    IndexNotOpened,
    /// An index that contains itself.
    Cycle,
    /// An index nested too deep.
    TooDeep,
    /// An index that makes the whole too large.
    TooMany,
    /// A nested index listed before.
    Repeated,
    /// Neither an image nor an index.
    NotAnImage {
        /// What it is.
        #[serde(rename = "mediaType")]
        media_type: String,
    },
}

impl Outcome {
    /// Whether the entry could have run here.
    pub fn fits(&self) -> bool {
        matches!(self, Self::Chosen | Self::Outranked { .. } | Self::ListedLater { .. })
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chosen => f.write_str("chosen"),
            Self::Outranked { by } => write!(f, "lost: {by} fits better"),
            Self::ListedLater { after } => {
                write!(f, "lost: listed after {}, which fits as well", after.short())
            }
            Self::Mismatch(mismatch) => write!(f, "lost: {mismatch}"),
            Self::Attestation => f.write_str("lost: holds attestations, not an image"),
            Self::Artifact { artifact_type } => {
                write!(f, "lost: is an artifact ({}), not an image", shown(artifact_type))
            }
            Self::NoPlatform => f.write_str("lost: names no platform, nor does its config"),
            Self::PlatformNotKnown => {
                f.write_str("lost: names no platform, and its config was not read")
            }
            Self::IndexNotOpened => f.write_str("lost: a nested index that was not opened"),
            Self::Cycle => f.write_str("lost: this index contains itself"),
            Self::TooDeep => write!(f, "lost: an index nested more than {MAX_DEPTH} deep"),
            Self::TooMany => {
                write!(f, "lost: an index that makes more than {MAX_ENTRIES} entries")
            }
            Self::Repeated => f.write_str("lost: a nested index that is listed before"),
            Self::NotAnImage { media_type } => {
                write!(f, "lost: {} is not an image", shown(media_type))
            }
        }
    }
}

/// A stranger's text on one line of a terminal.
fn shown(text: &str) -> String {
    quote(text).escape_debug().to_string()
}

impl Considered {
    /// What the entry is called in a table: its platform, or its digest where it has none.
    fn name(&self) -> String {
        self.platform.as_ref().map_or_else(|| self.digest.short(), ToString::to_string)
    }
}

impl fmt::Display for Considered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.name(), self.outcome)
    }
}

impl Serialize for Considered {
    /// With the reason also as a sentence, so that a reader need not know every kind.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut fields = serializer.serialize_struct("Considered", 4)?;
        fields.serialize_field("digest", &self.digest)?;
        match &self.platform {
            Some(platform) => fields.serialize_field("platform", platform)?,
            None => fields.skip_field("platform")?,
        }
        fields.serialize_field("outcome", &self.outcome)?;
        fields.serialize_field("reason", &self.outcome.to_string())?;
        fields.end()
    }
}

impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} runs ", self.host)?;
        if let Some(platform) = &self.platform {
            write!(f, "{platform} ")?;
        }
        write!(f, "{}", self.chosen.digest)
    }
}

impl fmt::Display for NoMatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nothing in this image runs on {}", self.host)?;
        if self.considered.is_empty() {
            return f.write_str(": it has no entries");
        }
        f.write_str("; it has")?;
        for considered in self.considered.iter().take(LISTED) {
            write!(f, "\n  {considered}")?;
        }
        match self.considered.len().checked_sub(LISTED) {
            None | Some(0) => Ok(()),
            Some(more) => write!(f, "\n  and {more} more"),
        }
    }
}

impl std::error::Error for NoMatch {}
