//! A question, what comes of it, and what that rests on.

use std::sync::Arc;
use std::time::Instant;

use portolan_core::Reference;
use portolan_core::platform::PartialPlatform;

use super::cluster::nodes::Known;
use super::metrics::Outcome;
use super::readers::Asker;
use crate::decision::{Answer, Verdict, Warning};
use crate::pod::PodSpec;
use crate::policy::{PlatformDefault, Rule};

/// A question.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked<'a> {
    /// Where from.
    pub(super) namespace: Option<&'a str>,
    /// Whether that may exempt an image.
    pub(super) may_exempt: bool,
    /// About which image.
    pub(super) reference: &'a Reference,
    /// For which machines.
    pub(super) machines: Machines<'a>,
    /// Whose logins may be used, beside the operator's; none where who asks is not believed.
    pub(super) asker: Option<Asker<'a>>,
}

/// The machines that are meant.
#[derive(Debug, Clone, Copy)]
pub(super) enum Machines<'a> {
    /// These; where there are none, the policy's own.
    Named(&'a [PartialPlatform]),
    /// Those that this pod might run on.
    Pod(&'a PodSpec),
}

impl Machines<'_> {
    /// Where they come from, in a word.
    pub(super) fn word(self, rule: &Rule) -> &'static str {
        match (self, &rule.platforms) {
            (Self::Pod(_), _) => "pod",
            (Self::Named([_, ..]), _) => "named",
            (Self::Named([]), PlatformDefault::Host) => "host",
            (Self::Named([]), PlatformDefault::Nodes) => "nodes",
            (Self::Named([]), PlatformDefault::All) => "all",
            (Self::Named([]), PlatformDefault::List(_)) => "list",
        }
    }
}

/// What came of a question.
#[derive(Debug, Clone)]
pub(super) enum Told {
    /// Nobody looked, and why.
    Exempt(String),
    /// Somebody did.
    Answer {
        answer: Box<Answer>,
        /// What the reference named is of this type; none where nothing was resolved.
        media_type: Option<String>,
        /// How long it may be told again to whoever asks, and on which ground; none where it may not.
        kept: Option<(Instant, Ground)>,
    },
}

/// What an answer rests on beside what is in registries.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    pub(super) generation: u64,
    /// The cluster's nodes, where they are watched.
    pub(super) nodes: Option<Arc<Known>>,
}

impl PartialEq for Ground {
    fn eq(&self, other: &Self) -> bool {
        let same_nodes = match (&self.nodes, &other.nodes) {
            (None, None) => true,
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            _ => false,
        };
        self.generation == other.generation && same_nodes
    }
}

impl Told {
    pub(super) fn is_yes(&self) -> bool {
        match self {
            Self::Exempt(_) => true,
            Self::Answer { answer, .. } => answer.verdict == Verdict::Verified,
        }
    }

    /// For who counts.
    pub(super) fn outcome(&self) -> Outcome {
        match self {
            Self::Exempt(_) => Outcome::Exempt,
            Self::Answer { answer, .. } => match answer.verdict {
                Verdict::Verified => Outcome::Verified,
                Verdict::Refused => Outcome::Refused,
                Verdict::NoPolicy => Outcome::NoPolicy,
            },
        }
    }

    /// Says what the index has beside the one platform of the host. Who asks is told as well, but of an
    /// answer to Gatekeeper nobody sees more than yes or no. What is kept does not come here again.
    pub(super) fn warn_of_others(&self) {
        let Self::Answer { answer, .. } = self else { return };
        let unseen = |one: &&Warning| matches!(one, Warning::OtherPlatforms(_));
        if let Some(warning) = answer.warnings.iter().find(unseen) {
            let reference = &answer.reference;
            tracing::warn!(reference, %warning, "only the host's platform was verified; where nodes have others, set platforms: nodes in the policy");
        }
    }

    /// Why not, in one line.
    pub(super) fn reasons(&self) -> String {
        let Self::Answer { answer, .. } = self else { return String::new() };
        let subjects = answer.subjects.iter().flat_map(|subject| &subject.reasons);
        let all: Vec<_> =
            answer.reasons.iter().chain(subjects).map(|one| one.message.as_str()).collect();
        all.join("; ")
    }
}
