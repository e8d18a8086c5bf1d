//! What requirements mean for the labels of a cluster's nodes, so that a scheduler can choose the
//! hosts that a check would let pass.
//!
//! Labels tell less than facts. What they cannot say is left out, so that nodes are let through
//! that do not fit, but none is shut out that does; and it is listed, never dropped in silence.
//!
//! | file | what it holds |
//! |---|---|
//! | `formula` | conditions, put together |
//! | `labels` | which label of NFD tells a fact |

pub mod formula;
pub mod labels;

use portolan_core::Platform;
use portolan_core::platform::Level;
use serde::Serialize;

use self::formula::{Formula, TooMany, Work};
use crate::document::{Namespace, Spec};
use crate::expression::Expression;
use crate::nfd::{NoSuchTag, Rule, Rules, Term};
use crate::plugins::builtin;
use crate::requirements::Requirements;

/// What requirements mean for labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Affinity {
    /// For the scheduler.
    pub formula: Formula,
    /// What labels cannot say.
    pub unsaid: Vec<Unsaid>,
}

/// A requirement that labels cannot say.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Unsaid {
    /// The namespace and the plugin, or the rule and the feature.
    pub place: String,
    /// What is asked for there.
    pub requirement: String,
}

/// What one thing that a plugin is asked for means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) formula: Formula,
    /// What of it cannot be said.
    pub(crate) unsaid: Option<String>,
}

impl Said {
    /// As labels say it, or not at all.
    pub(crate) fn of(formula: Option<Formula>, requirement: impl FnOnce() -> String) -> Self {
        match formula {
            Some(formula) => Self { formula, unsaid: None },
            None => Self { formula: Formula::always(), unsaid: Some(requirement()) },
        }
    }
}

/// What is collected on the way, and what is left to spend on it.
#[derive(Default)]
struct Remarks {
    unsaid: Vec<Unsaid>,
    work: Work,
}

impl Remarks {
    /// Goes on with what was collected before.
    fn with(unsaid: Vec<Unsaid>) -> Self {
        Self { unsaid, work: Work::default() }
    }

    fn add(&mut self, place: &str, requirement: String) {
        let requirement = crate::text::shown(&requirement);
        self.unsaid.push(Unsaid { place: crate::text::shown(place), requirement });
    }

    fn and(&mut self, place: &str, a: &Formula, b: &Formula) -> Formula {
        let both = a.and_within(b, &mut self.work);
        self.or_always(place, both)
    }

    fn or(&mut self, place: &str, a: Formula, b: Formula) -> Formula {
        let either = a.or_within(b, &mut self.work);
        self.or_always(place, either)
    }

    fn not(&mut self, place: &str, formula: &Formula) -> Formula {
        let contrary = formula.negated_within(&mut self.work);
        self.or_always(place, contrary)
    }

    /// The formula, or where there would be too many alternatives none at all.
    fn or_always(&mut self, place: &str, formula: Result<Formula, TooMany>) -> Formula {
        formula.unwrap_or_else(|TooMany| {
            self.add(place, "more alternatives than a scheduler takes".to_owned());
            Formula::always()
        })
    }

    fn finished(mut self) -> Vec<Unsaid> {
        self.unsaid.sort();
        self.unsaid.dedup();
        self.unsaid
    }
}

impl Affinity {
    /// Of requirements of either kind; `tags` are of rules of NFD.
    pub fn of(requirements: &Requirements, tags: &[String]) -> Result<Self, NoSuchTag> {
        let mut remarks = Remarks::default();
        let formula = match requirements {
            Requirements::Spec(spec) => of_spec(spec, &mut remarks),
            Requirements::Nfd(rules) => of_rules(rules, tags, &mut remarks)?,
        };
        Ok(Self { formula, unsaid: remarks.finished() })
    }

    /// Of an image that asks for nothing.
    pub fn anywhere() -> Self {
        Self { formula: Formula::always(), unsaid: Vec::new() }
    }

    /// The same on hosts that run images for `platform`.
    #[must_use]
    pub fn on(self, platform: &Platform) -> Self {
        let mut remarks = Remarks::with(self.unsaid);
        let own = of_platform(platform, &mut remarks);
        let formula = remarks.and("platform", &own, &self.formula);
        Self { formula, unsaid: remarks.finished() }
    }

    /// Either will do.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        let mut remarks = Remarks::with(self.unsaid);
        remarks.unsaid.extend(other.unsaid);
        let formula = remarks.or("platforms", self.formula, other.formula);
        Self { formula, unsaid: remarks.finished() }
    }
}

/// Every namespace after all it refers to, so that depth costs no stack.
fn of_spec(spec: &Spec, remarks: &mut Remarks) -> Formula {
    let mut known: Vec<Formula> = vec![Formula::always(); spec.namespaces().len()];
    // Of which labels say only a part.
    let mut partly = vec![false; known.len()];
    for id in spec.order() {
        let namespace = spec.namespace(*id);
        let place = namespace.name.as_str();
        let before = remarks.unsaid.len();
        let mut all = of_plugins(namespace, remarks);
        for below in &namespace.refs.all {
            all = remarks.and(place, &all, &known[below.0]);
        }
        if let Some(choice) = &namespace.refs.one_of {
            let none = Formula::never();
            let any =
                choice.iter().fold(none, |any, id| remarks.or(place, any, known[id.0].clone()));
            all = remarks.and(place, &all, &any);
        }
        for forbidden in &namespace.refs.none_of {
            // What cannot be said of it is in neither of the two, so its contrary would say too much.
            if partly[forbidden.0] {
                let name = &spec.namespace(*forbidden).name;
                remarks.add(place, format!("not {name}, of which labels say only a part"));
            } else {
                let contrary = remarks.not(place, &known[forbidden.0]);
                all = remarks.and(place, &all, &contrary);
            }
        }
        known[id.0] = all;
        partly[id.0] =
            remarks.unsaid.len() > before || namespace.refs.iter().any(|below| partly[below.0]);
    }
    let roots = spec.roots().iter();
    roots.fold(Formula::never(), |any, id| remarks.or("roots", any, known[id.0].clone()))
}

/// What a namespace's own plugins mean.
fn of_plugins(namespace: &Namespace, remarks: &mut Remarks) -> Formula {
    let mut all = Formula::always();
    for plugin in &namespace.plugins {
        let place = format!("{}/{}", namespace.name, plugin.name);
        let Some(said) = builtin::labels(&plugin.name, plugin.data.as_ref()) else {
            remarks.add(&place, "a plugin that is not built in".to_owned());
            continue;
        };
        for one in said {
            if let Some(requirement) = one.unsaid {
                remarks.add(&place, requirement);
            }
            all = remarks.and(&place, &all, &one.formula);
        }
    }
    all
}

fn of_rules(rules: &Rules, tags: &[String], remarks: &mut Remarks) -> Result<Formula, NoSuchTag> {
    let mut any = Formula::never();
    let mut sets = rules.tagged(tags).peekable();
    if sets.peek().is_none() {
        let known = rules.sets.iter().map(|set| set.tag.clone()).filter(|tag| !tag.is_empty());
        return Err(NoSuchTag { asked: tags.to_vec(), known: known.collect() });
    }
    for (n, set) in sets.enumerate() {
        let mut all = Formula::always();
        for rule in &set.rules {
            let place = format!("set{} {}", n + 1, rule.name);
            let own = of_rule(rule, &place, remarks);
            all = remarks.and(&place, &all, &own);
        }
        any = remarks.or("sets", any, all);
    }
    Ok(any)
}

fn of_rule(rule: &Rule, place: &str, remarks: &mut Remarks) -> Formula {
    let mut all = of_terms(&rule.features, place, remarks);
    if let Some(choices) = &rule.any {
        let mut any = Formula::never();
        for terms in choices {
            let own = of_terms(terms, place, remarks);
            any = remarks.or(place, any, own);
        }
        all = remarks.and(place, &all, &any);
    }
    all
}

fn of_terms(terms: &[Term], place: &str, remarks: &mut Remarks) -> Formula {
    let mut all = Formula::always();
    for term in terms {
        let own = of_term(term, place, remarks);
        all = remarks.and(place, &all, &own);
    }
    all
}

fn of_term(term: &Term, place: &str, remarks: &mut Remarks) -> Formula {
    let feature = term.feature.as_str();
    if let Some(name) = &term.name {
        remarks.add(place, format!("{feature}: a name {}", name.op().as_str()));
    }
    // All expressions of a device must hold for one, so labels say all of them or none.
    if let Some(formula) = device(term) {
        return formula;
    }
    let mut all = Formula::always();
    for (element, expression) in &term.expressions {
        match labels::say(feature, element, expression) {
            Some(own) => all = remarks.and(place, &all, &own),
            None => {
                let values = expression.values().join(", ");
                let op = expression.op().as_str();
                remarks
                    .add(place, format!("{feature} {element} {op} {values}").trim_end().to_owned());
            }
        }
    }
    all
}

fn device(term: &Term) -> Option<Formula> {
    let one = |name: &str| -> Option<&str> {
        let expression: &Expression = term.expressions.get(name)?;
        match (expression.op().as_str(), expression.values()) {
            ("In", [only]) => Some(only),
            _ => None,
        }
    };
    match (term.feature.as_str(), term.expressions.len()) {
        ("pci.device", 2) => labels::pci(one("class")?, one("vendor")?),
        ("usb.device", 3) => labels::usb(one("class")?, one("vendor")?, one("device")?),
        ("storage.block", 1) if one("rotational") == Some("0") => Some(labels::solid_disk()),
        _ => None,
    }
}

fn of_platform(platform: &Platform, remarks: &mut Remarks) -> Formula {
    let platform = platform.normalised();
    let (os, arch) = (labels::os(&platform.os), labels::arch(&platform.architecture));
    let own = remarks.and("platform", &os, &arch);
    match Level::of(&platform) {
        Some(Level::Amd64(level)) if level > 1 => {
            remarks.and("platform", &own, &labels::amd64_level(level))
        }
        _ => {
            if let Some(variant) = &platform.variant {
                remarks.add("platform", format!("{} {variant}", platform.architecture));
            }
            own
        }
    }
}

#[cfg(test)]
mod tests;
