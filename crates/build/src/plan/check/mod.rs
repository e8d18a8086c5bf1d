//! What may not be asked for, and under which reason it is refused.

mod env;
mod params;
mod pod;
mod trigger;
mod volumes;

pub(super) use env::{check as env, forbidden};
pub(super) use params::{check as params, is_reserved, missing};
pub(super) use pod::check as pod;
pub(super) use trigger::check as trigger;
pub(super) use volumes::{check as volumes, step_resources};

use portolan_api::build::{Source, SourceKind};
use portolan_api::reason::Reason;

use super::effective::Effective;
use super::refusal::Refusals;

/// A source says what its type says.
pub(super) fn source(source: &Source, refusals: &mut Refusals) {
    let (field, there) = match source.kind {
        SourceKind::Git => ("git", source.git.is_some()),
        SourceKind::Oci => ("ociArtifact", source.oci_artifact.is_some()),
        // Where nothing is said of it, the defaults are meant.
        SourceKind::Local => ("local", true),
    };
    if !there {
        refusals.add(
            Reason::SourceNotValid,
            format!("source.type is {:?}, but source.{field} is missing", source.kind),
        );
    }
    let others = [
        ("git", source.git.is_some()),
        ("ociArtifact", source.oci_artifact.is_some()),
        ("local", source.local.is_some()),
    ];
    for (other, _) in others.into_iter().filter(|(name, there)| *there && *name != field) {
        refusals.add(
            Reason::SourceNotValid,
            format!("source.type is {:?}, so source.{other} must not be there", source.kind),
        );
    }
    let context = source.context_dir.as_deref().unwrap_or_default();
    if context.split('/').any(|part| part == "..") {
        refusals.add(
            Reason::SourceNotValid,
            format!("source.contextDir {context:?} leads out of the source"),
        );
    }
}

/// When an image says it was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timestamp {
    /// As the tool that builds it says.
    #[default]
    Untouched,
    /// Then: seconds since 1970.
    At(i64),
    /// When the source was last changed.
    Source,
}

impl Timestamp {
    /// What `output.timestamp` means for a run that was made then; none where it means nothing.
    pub fn read(text: Option<&str>, created: i64) -> Option<Self> {
        Some(match text {
            None | Some("") => Self::Untouched,
            Some("Zero") => Self::At(0),
            Some("BuildTimestamp") => Self::At(created),
            Some("SourceTimestamp") => Self::Source,
            Some(text) => Self::At(text.parse().ok()?),
        })
    }
}

/// Reads `output.timestamp`.
pub(super) fn timestamp(effective: &Effective, created: i64, refusals: &mut Refusals) -> Timestamp {
    let text = effective.output.timestamp.as_deref();
    match Timestamp::read(text, created) {
        Some(Timestamp::Source) => {
            let timed = effective
                .source
                .as_ref()
                .is_some_and(|source| matches!(source.kind, SourceKind::Git | SourceKind::Oci));
            if !timed {
                refusals.add(
                    Reason::OutputTimestampNotSupported,
                    "output.timestamp is SourceTimestamp, which only sources of type Git and OCI have",
                );
            }
            Timestamp::Source
        }
        Some(found) => found,
        None => {
            let text = text.unwrap_or_default();
            refusals.add(
                Reason::OutputTimestampNotValid,
                format!(
                    "output.timestamp {text:?} is not Zero, SourceTimestamp, BuildTimestamp or a whole number of seconds since 1970"
                ),
            );
            Timestamp::Untouched
        }
    }
}

/// A scan that is not made must not be mistaken for one without findings.
pub(super) fn scan(effective: &Effective, refusals: &mut Refusals) {
    if effective.output.vulnerability_scan.as_ref().is_some_and(|scan| scan.enabled) {
        refusals.add(
            Reason::VulnerabilityScanNotSupported,
            "output.vulnerabilityScan is enabled, but there is no scanner with an offline database here; take it out and scan what is in the registry",
        );
    }
}
