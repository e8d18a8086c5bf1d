//! What a policy makes worth fetching, and where it is looked for.

use super::Use;
use crate::policy::Rule;

/// What is looked for. Signatures always are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sought {
    attestations: bool,
    documents: bool,
    /// What one more piece says may turn a yes into a no.
    more_may_hurt: bool,
}

/// Where it is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Carriers {
    /// In lists of what refers to the subject.
    pub referrers: bool,
    /// Under tags made of its digest.
    pub tags: bool,
}

impl Carriers {
    /// Everywhere.
    pub const ALL: Self = Self { referrers: true, tags: true };
    /// In the lists alone.
    pub const REFERRERS: Self = Self { referrers: true, tags: false };
    /// Under the tags alone.
    pub const TAGS: Self = Self { referrers: false, tags: true };

    /// The rest.
    #[must_use]
    pub fn others(self) -> Self {
        Self { referrers: !self.referrers, tags: !self.tags }
    }
}

impl Sought {
    /// All there is, for who wants to have a decision by `rule` explained.
    pub fn everything(rule: &Rule) -> Self {
        Self { attestations: true, documents: true, ..Self::of(rule) }
    }

    /// What a decision by `rule` can depend on.
    pub fn of(rule: &Rule) -> Self {
        // Each member is named here, so that whoever adds one is asked what it makes worth fetching,
        // and whether more of it could turn a yes into a no.
        let Rule {
            name: _,
            signers: _,
            require: _,
            attestations,
            sbom,
            vulnerabilities,
            index_policy: _,
            platforms: _,
            partial: _,
            missing: _,
            rego,
        } = rule;
        // What a program makes of more evidence nobody knows.
        let documents = rego.is_some() || sbom.is_some() || vulnerabilities.is_some();
        let attestations = documents || !attestations.is_empty();
        Self { attestations, documents, more_may_hurt: documents }
    }

    /// Whether more evidence can only help: then a yes by some of it is a yes by all of it. What a
    /// document says may turn a yes into a no, so all of them must be seen.
    pub fn more_only_helps(self) -> bool {
        !self.more_may_hurt
    }

    /// Whether a layer that is used so is looked for.
    pub(super) fn has(self, used: Use) -> bool {
        match used {
            // A bundle does not say from outside whether it is a signature or an attestation.
            Use::SimpleSigning | Use::Bundle | Use::Notation => true,
            Use::Attestation => self.attestations,
            Use::Document => self.documents,
        }
    }

    /// The suffixes of tags that may hold it.
    pub(super) fn suffixes(self) -> &'static [&'static str] {
        match self.attestations {
            true => &["sig", "att"],
            false => &["sig"],
        }
    }
}
