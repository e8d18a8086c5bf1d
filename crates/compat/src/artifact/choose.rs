//! Which of several artifacts of one image counts.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::fmt;

use jiff::Timestamp;
use portolan_core::{Descriptor, Digest};
use serde::Serialize;

use super::Kind;
use super::contents::created;

/// An artifact in a list of referrers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The artifact's manifest.
    pub digest: Digest,
    /// Whose artifact it is.
    pub kind: Kind,
    /// When it was made, where it says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// What it speaks of.
    pub subject: Digest,
}

/// The artifact that counts, and those that do not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Choice {
    /// The one that counts.
    pub chosen: Listed,
    /// The others, the one that would be next first.
    pub skipped: Vec<Listed>,
}

impl Listed {
    /// An entry of a list of what refers to `subject`; none for artifacts of other kinds.
    pub(super) fn of(entry: &Descriptor, subject: Digest) -> Option<Self> {
        let kind = Kind::of(entry.artifact_type.as_deref()?)?;
        Some(Self { digest: entry.digest, kind, created: created(&entry.annotations), subject })
    }
}

impl fmt::Display for Listed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.created {
            Some(created) => write!(f, "{} of {created}", self.digest),
            None => write!(f, "{} of unknown age", self.digest),
        }
    }
}

/// Chooses: a compatibility spec before rules of NFD, then the newest. One that does not say when
/// it was made is older than any that does, and between equals the greatest digest counts, so that
/// everybody chooses the same one.
pub fn choose(mut artifacts: Vec<Listed>) -> Option<Choice> {
    artifacts.sort_by_cached_key(|one| (one.kind, Reverse((one.created, one.digest.to_string()))));
    // A list may name one artifact twice, and with two times: only the first counts.
    let mut seen = HashSet::new();
    artifacts.retain(|artifact| seen.insert(artifact.digest));
    let mut artifacts = artifacts.into_iter();
    let chosen = artifacts.next()?;
    Some(Choice { chosen, skipped: artifacts.collect() })
}
