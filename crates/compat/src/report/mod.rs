//! What came of a check, for people and for programs.
//!
//! | file | what it makes |
//! |---|---|
//! | `table` | a tree of text |
//! | `dot` | a graph for Graphviz |
//! | `picture` | an SVG, without any other program |
//! | `why` | what decided, in a few sentences |
//!
//! Every text of a document or a host in a report was made safe to print when it was put in.

mod dot;
mod layout;
mod picture;
mod table;
mod why;

use std::collections::BTreeMap;

use serde::Serialize;

use crate::document::{Namespace, NamespaceId, Spec};
use crate::evaluate::{Answer, Evaluation};
use crate::verdict::Verdict;

pub use layout::{Edge, EdgeKind, Graph, Node};

/// Whether a host fits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Compatibility {
    /// No root passes, and none could.
    Incompatible,
    /// Not enough is known.
    Unknown,
    /// A root passes.
    Compatible,
}

impl Compatibility {
    /// As in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Incompatible => "incompatible",
            Self::Unknown => "unknown",
            Self::Compatible => "compatible",
        }
    }
}

impl From<Verdict> for Compatibility {
    fn from(verdict: Verdict) -> Self {
        match verdict {
            Verdict::Fail => Self::Incompatible,
            Verdict::Unknown => Self::Unknown,
            Verdict::Pass => Self::Compatible,
        }
    }
}

/// What came of a check.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// Whether the host fits.
    pub verdict: Compatibility,
    /// The host, as far as it has a name: a root directory, or a file of facts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The image that was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// The digest of the manifest that the spec belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The digest of the artifact that holds the spec.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub artifact: Option<String>,
    /// Of the spec.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub schema_version: String,
    /// Host and image, where an image was asked about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub platform: Option<PlatformMatch>,
    /// Where evaluation began.
    pub roots: Vec<Root>,
    /// The namespaces that together make the host fit.
    pub solution: Vec<String>,
    /// All that were looked at.
    pub namespaces: BTreeMap<String, NamespaceReport>,
    /// Those that nobody looked at: no root leads there, or the verdict was clear before.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skipped: Vec<String>,
    /// What a reader should know besides.
    pub warnings: Vec<String>,
}

/// How the platforms of host and image go together.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct PlatformMatch {
    /// What the host is.
    pub host: String,
    /// What the image was built for.
    pub image: String,
    /// Whether the one runs the other.
    #[serde(rename = "match")]
    pub matches: bool,
}

/// Where evaluation began.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Root {
    /// The namespace.
    pub name: String,
    /// What came of it; none where an earlier root sufficed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
}

/// What came of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct NamespaceReport {
    /// Plugins and references together.
    pub verdict: Verdict,
    /// By name.
    pub plugins: BTreeMap<String, Answer>,
    /// What it refers to.
    #[serde(skip_serializing_if = "RefsReport::is_empty")]
    pub refs: RefsReport,
}

/// What a namespace refers to, by name.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct RefsReport {
    /// All must pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub all: Vec<String>,
    /// One must pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub one_of: Vec<String>,
    /// None may pass.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub none_of: Vec<String>,
}

impl RefsReport {
    fn is_empty(&self) -> bool {
        self.all.is_empty() && self.one_of.is_empty() && self.none_of.is_empty()
    }

    fn of(spec: &Spec, namespace: &Namespace) -> Self {
        let names =
            |ids: &[NamespaceId]| ids.iter().map(|id| spec.namespace(*id).name.clone()).collect();
        Self {
            all: names(&namespace.refs.all),
            one_of: names(namespace.refs.one_of.as_deref().unwrap_or_default()),
            none_of: names(&namespace.refs.none_of),
        }
    }
}

impl Report {
    /// Nothing in an image runs on a host of this platform, so nothing was asked.
    pub fn nothing_runs(host: String, why: String) -> Self {
        Self {
            verdict: Compatibility::Incompatible,
            host: None,
            image: None,
            subject: None,
            artifact: None,
            schema_version: String::new(),
            platform: Some(PlatformMatch { host, image: String::new(), matches: false }),
            roots: Vec::new(),
            solution: Vec::new(),
            namespaces: BTreeMap::new(),
            skipped: Vec::new(),
            warnings: vec![why],
        }
    }

    /// From what was evaluated. Image, subject, artifact and platform are for the caller to add.
    pub fn new(spec: &Spec, evaluation: Evaluation) -> Self {
        let name = |id: NamespaceId| spec.namespace(id).name.clone();
        let mut namespaces = BTreeMap::new();
        let mut skipped = Vec::new();
        for ((_, namespace), judged) in spec.namespaces().zip(evaluation.namespaces) {
            let Some(judged) = judged else {
                skipped.push(namespace.name.clone());
                continue;
            };
            let names = namespace.plugins.iter().map(|plugin| plugin.name.clone());
            let report = NamespaceReport {
                verdict: judged.verdict,
                plugins: names.zip(judged.answers).collect(),
                refs: RefsReport::of(spec, namespace),
            };
            namespaces.insert(namespace.name.clone(), report);
        }
        let roots = evaluation.roots.into_iter();
        Self {
            verdict: evaluation.verdict.into(),
            host: None,
            image: None,
            subject: None,
            artifact: None,
            schema_version: spec.schema_version.clone(),
            platform: None,
            roots: roots.map(|(id, verdict)| Root { name: name(id), verdict }).collect(),
            solution: evaluation.solution.into_iter().map(name).collect(),
            namespaces,
            skipped,
            warnings: Vec::new(),
        }
    }

    /// Why the verdict is what it is: what decided, from the roots down. A few sentences at most,
    /// and at least one of what was evaluated.
    pub fn why(&self) -> impl Iterator<Item = String> {
        why::Why::of(self)
    }

    /// The report as a tree of text.
    pub fn table(&self) -> String {
        table::draw(self)
    }

    /// The report as a graph for Graphviz.
    pub fn dot(&self) -> String {
        Graph::of_report(self).dot()
    }

    /// The report as a picture.
    pub fn svg(&self) -> String {
        Graph::of_report(self).svg()
    }
}

impl Graph {
    /// The graph for Graphviz.
    pub fn dot(&self) -> String {
        dot::draw(self)
    }

    /// The graph as a picture.
    pub fn svg(&self) -> String {
        picture::draw(self)
    }
}

/// What a spec asks for, as a tree of text.
pub fn outline(spec: &Spec) -> String {
    table::draw_spec(spec)
}
