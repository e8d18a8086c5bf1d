//! Who must have signed what.
//!
//! | file | what it holds |
//! |---|---|
//! | `document` | the file as it is written, and its JSON Schema |
//! | `read` | from the file, and the files that it names, to a [`Policy`] |
//! | `signer` | from a signer in the file to an [`Authority`]: a new kind of authority goes here |
//! | `scope` | which images a rule is for |
//! | `condition` | what a predicate must say |

pub mod condition;
pub mod document;
mod notation;
mod read;
pub mod scope;
mod signer;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use jiff::SignedDuration;
use portolan_core::platform::PartialPlatform;
use portolan_core::{Host, Platform, Reference};

pub use condition::Condition;
pub use document::{IndexPolicy, Package, PartialMeaning, Severity};
pub use read::{
    LoadPolicyError, PolicyContentError, load, load_with_fingerprint, parse, parse_with_fingerprint,
};
pub use scope::Pattern;

use crate::authority::Authority;
use crate::rego::RegoPolicy;
use crate::subjects::{Missing, Wanted};

/// What is asked of images.
#[derive(Debug, Clone)]
pub struct Policy {
    scopes: Vec<Scope>,
    default: Option<Arc<Rule>>,
}

#[derive(Debug, Clone)]
struct Scope {
    patterns: Vec<Pattern>,
    rule: Arc<Rule>,
}

/// What is asked of an image.
#[derive(Debug, Clone)]
pub struct Rule {
    /// For reports.
    pub name: String,
    /// Everybody whom a requirement of this rule names.
    pub signers: Vec<NamedSigner>,
    /// Who must have signed.
    pub require: Option<Requirement>,
    /// What must be attested.
    pub attestations: Vec<AttestationRule>,
    /// What lists of parts may not have.
    pub sbom: Option<SbomRule>,
    /// What the newest list of weaknesses may not have.
    pub vulnerabilities: Option<VulnerabilityRule>,
    /// What of an image with an index must pass.
    pub index_policy: IndexPolicy,
    /// For which machines, where a question does not say.
    pub platforms: PlatformDefault,
    /// What half a platform means.
    pub partial: PartialMeaning,
    /// What to do about machines that the image has nothing for.
    pub missing: Missing,
    /// Who decides instead of all of the above that asks for something.
    pub rego: Option<Arc<RegoPolicy>>,
}

/// Somebody who may vouch, by the name that requirements use.
#[derive(Debug, Clone)]
pub struct NamedSigner {
    /// In the policy.
    pub name: String,
    /// Who judges what is said to be signed by them.
    pub authority: Arc<dyn Authority>,
}

/// Who must have signed: everybody of some, and a number of others. There is at least one of the two.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Requirement {
    all_of: Vec<String>,
    any_of: Option<Threshold>,
}

/// So many of these signers, each with another key or identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Threshold {
    of: Vec<String>,
    count: usize,
}

impl Threshold {
    /// `count` of `of`; none where nobody or more than there are is asked for.
    pub fn new(of: Vec<String>, count: usize) -> Option<Self> {
        (count > 0 && count <= of.len()).then_some(Self { of, count })
    }

    /// Whom.
    pub fn of(&self) -> &[String] {
        &self.of
    }

    /// How many of them.
    pub fn count(&self) -> usize {
        self.count
    }
}

impl Requirement {
    /// All of these, and so many of those; none where nobody is named.
    pub fn new(all_of: Vec<String>, any_of: Option<Threshold>) -> Option<Self> {
        (!all_of.is_empty() || any_of.is_some()).then_some(Self { all_of, any_of })
    }

    /// Each of them.
    pub fn all_of(&self) -> &[String] {
        &self.all_of
    }

    /// And a number of these.
    pub fn any_of(&self) -> Option<&Threshold> {
        self.any_of.as_ref()
    }

    /// Everybody who is named.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.all_of.iter().chain(self.any_of.iter().flat_map(Threshold::of))
    }
}

/// A statement that must be there.
#[derive(Debug, Clone)]
pub struct AttestationRule {
    /// Its kind.
    pub predicate_type: String,
    /// Who must have made it.
    pub require: Requirement,
    /// What it must say.
    pub conditions: Vec<Condition>,
}

/// What a list of parts may not have.
#[derive(Debug, Clone)]
pub struct SbomRule {
    /// Lower case.
    pub licenses: Vec<String>,
    /// Of any version or one.
    pub packages: Vec<Package>,
    /// Whether it may come without a signature.
    pub allow_unsigned: bool,
}

/// What a list of weaknesses may not have.
#[derive(Debug, Clone)]
pub struct VulnerabilityRule {
    /// These.
    pub severities: Vec<Severity>,
    /// Upper case.
    pub ids: Vec<String>,
    /// How old it may be.
    pub maximum_age: Option<SignedDuration>,
    /// Whether it may come without a signature.
    pub allow_unsigned: bool,
}

/// For which machines, where a question does not say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlatformDefault {
    /// Those like the one that verifies.
    Host,
    /// Those of the cluster.
    Nodes,
    /// All that the image has something for.
    All,
    /// These.
    List(Wanted),
}

impl Policy {
    /// The rule for `reference`: of the narrowest scope that matches, else the default. None means
    /// that nothing was said of this image, and nothing said is never a yes.
    pub fn rule(&self, reference: &Reference) -> Option<&Arc<Rule>> {
        let narrowest = |scope: &Scope| {
            scope.patterns.iter().filter_map(|pattern| pattern.matches(reference)).max()
        };
        let matching =
            self.scopes.iter().filter_map(|scope| Some((narrowest(scope)?, &scope.rule)));
        matching
            .max_by_key(|(narrowness, _)| *narrowness)
            .map(|(_, rule)| rule)
            .or(self.default.as_ref())
    }

    /// Whether a scope is of this registry.
    pub fn names(&self, host: &str) -> bool {
        let Ok(host) = host.parse::<Host>() else { return false };
        self.scopes.iter().flat_map(|scope| &scope.patterns).any(|pattern| pattern.is_of(&host))
    }

    /// All rules.
    pub fn rules(&self) -> impl Iterator<Item = &Arc<Rule>> {
        self.scopes.iter().map(|scope| &scope.rule).chain(&self.default)
    }
}

impl Rule {
    /// One rule without a file: any one of these signers, for an index and what could run of it.
    /// None where there is nobody.
    pub fn any_of(signers: Vec<NamedSigner>) -> Option<Self> {
        let names = signers.iter().map(|signer| signer.name.clone()).collect();
        let require = Requirement::new(Vec::new(), Some(Threshold::new(names, 1)?));
        Some(Self {
            name: "command line".to_owned(),
            signers,
            require,
            attestations: Vec::new(),
            sbom: None,
            vulnerabilities: None,
            index_policy: IndexPolicy::default(),
            platforms: PlatformDefault::Host,
            partial: PartialMeaning::default(),
            missing: Missing::default(),
            rego: None,
        })
    }

    /// One rule without a file: what these signers say is put before `rego`, which decides.
    pub fn by_rego(signers: Vec<NamedSigner>, rego: RegoPolicy) -> Option<Self> {
        let rule = Self::any_of(signers)?;
        Some(Self { require: None, rego: Some(Arc::new(rego)), ..rule })
    }

    /// The machines that a question means: what it names, else this rule's own. `nodes` are those of
    /// the cluster where that is known; without them it is all that the image has. `host` is only
    /// asked where it matters. Every machine is not half a platform: it stays every machine.
    pub fn wanted<E>(
        &self,
        named: &[PartialPlatform],
        nodes: Option<&Wanted>,
        host: impl FnOnce() -> Result<Platform, E>,
    ) -> Result<Wanted, E> {
        let is_half = |one: &PartialPlatform| !one.is_whole() && !one.is_any();
        let fill = self.partial == PartialMeaning::Host && named.iter().any(is_half);
        let all = Wanted::all;
        if !named.is_empty() {
            let host = if fill { Some(host()?) } else { None };
            let meant = named.iter().map(|one| match &host {
                Some(host) if is_half(one) => PartialPlatform::from(&one.filled_from(host)),
                _ => one.clone(),
            });
            return Ok(Wanted::of(meant).unwrap_or_else(all));
        }
        Ok(match &self.platforms {
            PlatformDefault::Host => {
                Wanted::of([PartialPlatform::from(&host()?)]).unwrap_or_else(all)
            }
            PlatformDefault::Nodes => nodes.cloned().unwrap_or_else(all),
            PlatformDefault::All => all(),
            PlatformDefault::List(list) => list.clone(),
        })
    }
}
