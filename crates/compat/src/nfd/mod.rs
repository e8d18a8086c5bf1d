//! Rules of Node Feature Discovery, `v1alpha1`, as they are attached to images: read, and evaluated
//! over the same facts, with the same three values and the same report as a compatibility spec.
//!
//! One set of rules that holds as a whole makes the host fit. NFD itself gives no verdict; where it
//! gives an answer that its rules do not mean, ours differs:
//!
//! | NFD | here |
//! |---|---|
//! | a source that cannot be read ends everything | what it would have told is unknown |
//! | `DoesNotExist` fails where the whole feature is missing | unknown, or it holds where the source proves it |
//! | the name of a term after one that failed is shown as failed | every term is evaluated |
//! | a feature in mixed case is shown as failed although it matched | case does not matter |
//! | marks of several devices add up | the marks are those of one device, the one that fits best |
//! | a host's value that is no number ends everything | that expression is unknown |
//!
//! Templates (`varsTemplate`, `labelsTemplate`) are not evaluated: they only make names for later
//! rules to look at, and where a later rule does so its answer is unknown.

mod evaluate;
mod graph;
mod read;
mod tree;
mod words;

use std::collections::BTreeMap;

use crate::expression::Expression;

pub use evaluate::{Evaluated, NoSuchTag, evaluate, needs};
pub use read::{ReadNfdError, read};

/// A document that was read.
#[derive(Debug, Clone)]
pub struct Rules {
    /// In the author's order.
    pub sets: Vec<Set>,
    /// What was understood but does not do what its author may think.
    pub warnings: Vec<String>,
}

/// Rules that must hold together.
#[derive(Debug, Clone)]
pub struct Set {
    /// In the author's order: a rule may look at what earlier ones found.
    pub rules: Vec<Rule>,
    /// How much the author prefers it.
    pub weight: i64,
    /// What it can be asked for by; empty where it has none.
    pub tag: String,
    /// For people.
    pub description: String,
}

/// One rule.
#[derive(Debug, Clone)]
pub struct Rule {
    /// For people.
    pub name: String,
    /// What later rules find in `rule.matched` if this one holds.
    pub vars: BTreeMap<String, String>,
    /// Whether a template makes more of these.
    pub has_template: bool,
    /// All must hold.
    pub features: Vec<Term>,
    /// All terms of one of these must hold; none where there is no such list.
    pub any: Option<Vec<Vec<Term>>>,
}

/// What is asked of one feature.
#[derive(Debug, Clone)]
pub struct Term {
    /// `domain.feature`, in lower case.
    pub feature: String,
    /// By the name of an element.
    pub expressions: BTreeMap<String, Expression>,
    /// Asked of the names themselves.
    pub name: Option<Expression>,
}

impl Rules {
    /// The sets with one of these tags, or all where none are given. A set without a tag is never
    /// asked for by one.
    pub fn tagged<'a>(&'a self, tags: &'a [String]) -> impl Iterator<Item = &'a Set> {
        self.sets.iter().filter(move |set| tags.is_empty() || tags.contains(&set.tag))
    }
}

impl Rule {
    fn terms(&self) -> impl Iterator<Item = &Term> {
        self.features.iter().chain(self.any.iter().flatten().flatten())
    }
}

/// Whether the bytes look like rules of NFD rather than a compatibility spec. Only a guess, for a
/// file whose kind nobody told.
pub fn looks_like_rules(bytes: &[u8]) -> bool {
    let text = String::from_utf8_lossy(&bytes[..bytes.len().min(64 * 1024)]);
    text.contains("compatibilities") && !text.contains("\"namespaces\"")
}

#[cfg(test)]
mod tests;
