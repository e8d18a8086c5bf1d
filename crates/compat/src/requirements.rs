//! What an image needs, whoever's language it is written in.

use portolan_host::facts::{Facts, Wanted};

use crate::artifact::Kind;
use crate::check::{self, NoSuchRootError, Options};
use crate::diagnostic::{Diagnostic, Severity};
use crate::document::{self, Mode, Spec};
use crate::nfd::{self, NoSuchTag, ReadNfdError, Rules};
use crate::plugins::External;
use crate::report::Report;
use crate::text::shown;

/// Requirements that were read and mean something.
#[derive(Debug, Clone)]
pub enum Requirements {
    /// A compatibility spec.
    Spec(Spec),
    /// Rules of NFD.
    Nfd(Rules),
}

/// Requirements, and what their author should know about them.
#[derive(Debug, Clone)]
pub struct ReadRequirements {
    /// What was read.
    pub requirements: Requirements,
    /// On one line each.
    pub warnings: Vec<String>,
}

/// Why requirements mean nothing.
#[derive(Debug, thiserror::Error)]
pub enum RequirementsError {
    /// Everything that is wrong with a spec.
    #[error("the compatibility spec is not valid:{}", diagnostics.iter().filter(|one| one.severity == Severity::Error).take(20).map(|one| format!("\n  {one}")).collect::<String>())]
    Spec {
        /// In the order of the document.
        diagnostics: Vec<Diagnostic>,
    },
    /// The first thing that is wrong with rules.
    #[error("the rules of NFD are not valid")]
    Nfd(#[source] ReadNfdError),
}

/// What is asked of requirements.
#[derive(Debug, Clone, Default)]
pub struct Question<'a> {
    /// Of a spec.
    pub options: Options<'a>,
    /// Of rules: only the sets with one of these tags.
    pub tags: &'a [String],
}

/// A question that these requirements cannot be asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum QuestionError {
    /// There is no such namespace.
    #[error(transparent)]
    Root(#[from] NoSuchRootError),
    /// There is no such tag.
    #[error(transparent)]
    Tag(#[from] NoSuchTag),
    /// A spec has no tags.
    #[error("a compatibility spec has no tags; they are of rules of NFD")]
    TagsOfSpec,
    /// Rules have no namespaces.
    #[error("rules of NFD have no namespace to begin at; ask for a tag")]
    RootsOfRules,
}

impl Requirements {
    /// Reads requirements of this kind. What is wrong in a spec and can be understood is, with a warning.
    pub fn read(kind: Kind, bytes: &[u8]) -> Result<ReadRequirements, RequirementsError> {
        Self::read_in(Mode::Lenient, kind, bytes)
    }

    /// [`Requirements::read`], in a mode that counts for specs alone.
    pub fn read_in(
        mode: Mode,
        kind: Kind,
        bytes: &[u8],
    ) -> Result<ReadRequirements, RequirementsError> {
        match kind {
            Kind::Spec => {
                let read = document::read(bytes, mode);
                let Some(spec) = read.spec else {
                    return Err(RequirementsError::Spec { diagnostics: read.diagnostics });
                };
                let warnings = read.diagnostics.iter().map(ToString::to_string).collect();
                Ok(ReadRequirements { requirements: Self::Spec(spec), warnings })
            }
            Kind::Nfd => {
                let rules = nfd::read(bytes).map_err(RequirementsError::Nfd)?;
                let warnings = rules.warnings.iter().map(|text| shown(text)).collect();
                Ok(ReadRequirements { requirements: Self::Nfd(rules), warnings })
            }
        }
    }

    /// Whose language it is.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Spec(_) => Kind::Spec,
            Self::Nfd(_) => Kind::Nfd,
        }
    }

    /// The facts that a check looks at.
    pub fn needs(&self, question: &Question<'_>) -> Result<Wanted, QuestionError> {
        self.fits(question)?;
        match self {
            Self::Spec(spec) => Ok(check::needs(spec, &question.options)?),
            Self::Nfd(rules) => Ok(nfd::needs(rules, question.tags)),
        }
    }

    /// Whether the host that `facts` describe meets them.
    pub fn check(
        &self,
        facts: &Facts,
        question: &Question<'_>,
        external: &mut dyn External,
    ) -> Result<Report, QuestionError> {
        self.fits(question)?;
        match self {
            Self::Spec(spec) => Ok(check::check(spec, facts, &question.options, external)?),
            Self::Nfd(rules) => {
                let found = nfd::evaluate(rules, question.tags, facts)?;
                let mut report = Report::new(&found.spec, found.evaluation);
                report.warnings.extend(rules.warnings.iter().map(|text| shown(text)));
                report.warnings.extend(facts.warnings().iter().map(|text| shown(text)));
                Ok(report)
            }
        }
    }

    fn fits(&self, question: &Question<'_>) -> Result<(), QuestionError> {
        match self {
            Self::Spec(_) if !question.tags.is_empty() => Err(QuestionError::TagsOfSpec),
            Self::Nfd(_) if !question.options.roots.is_empty() => Err(QuestionError::RootsOfRules),
            _ => Ok(()),
        }
    }
}
