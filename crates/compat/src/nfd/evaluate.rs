//! Whether a host fits rules, and why.

use std::collections::{BTreeMap, BTreeSet};

use portolan_host::facts::{Facts, Feature, Found, Instance, Wanted};

use super::graph::{self, Node};
use super::words::{Names, judge, none_there, unread};
use super::{Rule, Rules, Set, Term};
use crate::document::Spec;
use crate::evaluate::{Answer, Evaluation, Reason};
use crate::expression::Input;
use crate::plugins::input as of_found;
use crate::verdict::Verdict;

/// The feature that holds what earlier rules found.
const MATCHED: &str = "rule.matched";
/// Who answers.
const PROVIDER: &str = "nfd";

/// The answer, as a graph of the sets, their rules and the rules' choices.
#[derive(Debug, Clone)]
pub struct Evaluated {
    /// The sets are the roots.
    pub spec: Spec,
    /// One set that passes is enough. The solution is that of the weightiest.
    pub evaluation: Evaluation,
    /// Sets that pass, the weightiest first: name, weight and description.
    pub passed: Vec<(String, i64, String)>,
}

/// No set has one of the tags asked for.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("no set of rules has the tag {}; there is: {}", asked.join(" or "), if known.is_empty() { "no tag".to_owned() } else { known.join(", ") })]
pub struct NoSuchTag {
    /// What was asked for.
    pub asked: Vec<String>,
    /// What there is.
    pub known: Vec<String>,
}

/// Evaluates every set that has one of `tags`, or all where none are given.
pub fn evaluate(rules: &Rules, tags: &[String], facts: &Facts) -> Result<Evaluated, NoSuchTag> {
    let sets: Vec<&Set> = rules.tagged(tags).collect();
    if sets.is_empty() {
        let known = rules.sets.iter().map(|set| set.tag.clone()).filter(|tag| !tag.is_empty());
        return Err(NoSuchTag { asked: tags.to_vec(), known: known.collect() });
    }
    let mut host = Host { facts, matched: Matched::default() };
    let mut nodes = Vec::new();
    let mut roots = Vec::new();
    for (n, set) in sets.into_iter().enumerate() {
        let name = graph::name(&format!("set{}", n + 1), &set.tag);
        let mut all = Vec::new();
        for (n, rule) in set.rules.iter().enumerate() {
            let inner = graph::name(&format!("{name}.rule{}", n + 1), &rule.name);
            let verdict = host.rule(rule, &inner, &mut nodes);
            host.matched.add(rule, verdict);
            all.push(inner);
        }
        nodes.push(Node { name: name.clone(), answers: Vec::new(), all, one_of: None });
        roots.push((set, name));
    }
    // The weightiest first, and between equals the author's order.
    roots.sort_by_key(|(set, _)| std::cmp::Reverse(set.weight));
    let order: Vec<&str> = roots.iter().map(|(_, name)| name.as_str()).collect();
    let (spec, evaluation) = graph::evaluate(nodes, &order);
    let passes: BTreeSet<&str> = evaluation
        .roots
        .iter()
        .filter(|(_, verdict)| *verdict == Some(Verdict::Pass))
        .map(|(id, _)| spec.namespace(*id).name.as_str())
        .collect();
    let passed = roots.iter().filter(|(_, name)| passes.contains(name.as_str()));
    let passed =
        passed.map(|(set, name)| (name.clone(), set.weight, set.description.clone())).collect();
    Ok(Evaluated { spec, evaluation, passed })
}

/// The facts that the rules look at.
pub fn needs(rules: &Rules, tags: &[String]) -> Wanted {
    let rules = rules.tagged(tags).flat_map(|set| &set.rules);
    let terms = rules.flat_map(Rule::terms).filter(|term| term.feature != MATCHED);
    terms.fold(Wanted::default(), |wanted, term| match &term.name {
        None if !term.expressions.is_empty() => {
            let keys = term.expressions.keys();
            keys.fold(wanted, |wanted, key| wanted.element(&term.feature, key))
        }
        _ => wanted.feature(&term.feature),
    })
}

/// What rules are asked about: the facts, and what rules before them found.
struct Host<'a> {
    facts: &'a Facts,
    matched: Matched,
}

/// What `rule.matched` holds so far.
#[derive(Default)]
struct Matched {
    values: BTreeMap<String, String>,
    /// Values of rules of which it is not known whether they hold.
    unknown: BTreeMap<String, String>,
    /// Why there may be values that nobody knows of.
    open: Option<String>,
}

impl Matched {
    fn add(&mut self, rule: &Rule, verdict: Verdict) {
        if verdict == Verdict::Fail {
            return;
        }
        if rule.has_template {
            self.open = Some(format!("rule {:?} makes values by a template", rule.name));
        }
        for (key, value) in &rule.vars {
            if verdict == Verdict::Pass {
                self.unknown.remove(key);
                self.values.insert(key.clone(), value.clone());
            } else if !self.values.contains_key(key) {
                let why = format!("it is not known whether rule {:?} holds", rule.name);
                self.unknown.insert(key.clone(), why);
            }
        }
    }

    fn input(&self, key: &str) -> Input<'_> {
        match (self.values.get(key), self.unknown.get(key), &self.open) {
            (Some(value), ..) => Input::Value(value),
            (None, Some(why), _) | (None, None, Some(why)) => Input::Unknown(why),
            (None, None, None) => Input::Absent,
        }
    }
}

impl Host<'_> {
    /// Adds the rule's nodes and returns whether it holds.
    fn rule(&self, rule: &Rule, name: &str, nodes: &mut Vec<Node>) -> Verdict {
        let mut choices = Vec::new();
        let mut any = Verdict::Fail;
        for (n, terms) in rule.any.iter().flatten().enumerate() {
            let inner = format!("{name}.any{}", n + 1);
            let answers = self.terms(terms);
            any = any.or(Verdict::all(answers.iter().map(|(_, answer)| answer.verdict)));
            choices.push(inner.clone());
            nodes.push(Node { name: inner, answers, all: Vec::new(), one_of: None });
        }
        let answers = self.terms(&rule.features);
        let own = Verdict::all(answers.iter().map(|(_, answer)| answer.verdict));
        let one_of = rule.any.as_ref().map(|_| choices);
        let verdict = if one_of.is_some() { own.and(any) } else { own };
        nodes.push(Node { name: name.to_owned(), answers, all: Vec::new(), one_of });
        verdict
    }

    /// The answers, by the feature's name.
    fn terms(&self, terms: &[Term]) -> Vec<(String, Answer)> {
        terms.iter().map(|term| (term.feature.clone(), self.term(term))).collect()
    }

    fn term(&self, term: &Term) -> Answer {
        let reasons = if term.feature == MATCHED {
            self.backreference(term)
        } else {
            match self.facts.feature(&term.feature) {
                Ok(feature) => over(term, self.facts, feature),
                Err(unknown) => unread(term, unknown.why),
            }
        };
        let verdict = Verdict::all(reasons.iter().map(|reason| reason.verdict));
        Answer {
            verdict,
            provider: PROVIDER.to_owned(),
            digest: None,
            duration_ms: None,
            sandbox: Vec::new(),
            reasons,
        }
    }

    fn backreference(&self, term: &Term) -> Vec<Reason> {
        let by_key = term.expressions.iter().map(|(key, expression)| {
            judge(&term.feature, key, expression, self.matched.input(key), "earlier rules")
        });
        let mut reasons: Vec<_> = by_key.collect();
        if let Some(expression) = &term.name {
            let known = self.matched.values.keys().map(String::as_str);
            let open = self.matched.unknown.keys().map(String::as_str);
            let names = Names { known, open, others: self.matched.open.is_some() };
            reasons.push(names.judge(&term.feature, expression, "earlier rules"));
        }
        reasons
    }
}

/// Flags and attributes are one set of elements: an expression may hold in either. Instances are
/// things of their own, and all expressions must hold for one of them.
fn over(term: &Term, facts: &Facts, feature: &Feature) -> Vec<Reason> {
    let has_elements = feature.flags.is_some() || feature.attributes.is_some();
    match &feature.instances {
        Some(_) if !has_elements => over_instances(term, feature),
        None => over_elements(term, facts, feature),
        Some(_) => {
            let elements = over_elements(term, facts, feature);
            let instances = over_instances(term, feature);
            let verdict = |reasons: &[Reason]| Verdict::all(reasons.iter().map(|one| one.verdict));
            if verdict(&elements) >= verdict(&instances) { elements } else { instances }
        }
    }
}

fn over_elements(term: &Term, facts: &Facts, feature: &Feature) -> Vec<Reason> {
    let by_key = term.expressions.iter().map(|(key, expression)| {
        let input = input(facts, &term.feature, key);
        judge(&term.feature, key, expression, input, feature.source_of(key))
    });
    let mut reasons: Vec<_> = by_key.collect();
    if let Some(expression) = &term.name {
        let flags = feature.flags.iter().flatten();
        let attributes = feature.attributes.iter().flat_map(BTreeMap::keys);
        let known = flags.chain(attributes).map(String::as_str);
        let open = feature.unknown.keys().map(String::as_str);
        let names = Names { known, open, others: feature.only.is_some() };
        reasons.push(names.judge(&term.feature, expression, &feature.source));
    }
    reasons
}

/// An element may be an attribute, a flag, or both.
fn input<'a>(facts: &'a Facts, feature: &str, key: &str) -> Input<'a> {
    match (facts.attribute(feature, key), facts.flag(feature, key)) {
        (Found::Value { value, .. }, _) => Input::Value(value),
        (_, Found::Present { .. }) | (Found::Present { .. }, _) => Input::Flag,
        (Found::Unknown { why }, _) | (_, Found::Unknown { why }) => Input::Unknown(why),
        (Found::Absent { .. }, Found::Absent { .. } | Found::Value { .. }) => Input::Absent,
    }
}

/// The marks are those of one instance, the one that fits best: marks of several would tell of a
/// device that does not exist. Only that one's are put into words: a host may have thousands.
fn over_instances(term: &Term, feature: &Feature) -> Vec<Reason> {
    let instances = feature.instances.as_deref().unwrap_or_default();
    let mut best: Option<(Verdict, usize, &Instance)> = None;
    for instance in instances {
        let (mut verdict, mut passed) = (Verdict::Pass, 0);
        for (key, expression) in &term.expressions {
            let own = expression.verdict(attribute(feature, instance, key));
            verdict = verdict.and(own);
            passed += usize::from(own == Verdict::Pass);
        }
        if best.is_none_or(|(v, p, _)| (verdict, passed) > (v, p)) {
            best = Some((verdict, passed, instance));
        }
    }
    // One that could not be read may be just the one.
    let unread_one = feature.unread_things();
    let unread_one = unread_one.first().filter(|_| feature.attributes.is_none());
    if let (Some(why), None | Some((Verdict::Fail, ..))) = (unread_one, best) {
        return unread(term, why);
    }
    let mut reasons = match best {
        Some((.., instance)) => {
            let each = term.expressions.iter().map(|(key, expression)| {
                let input = attribute(feature, instance, key);
                judge(&term.feature, key, expression, input, &feature.source)
            });
            each.collect()
        }
        None => vec![none_there(term, feature)],
    };
    if let Some(expression) = &term.name {
        let known = instances.iter().flat_map(BTreeMap::keys).map(String::as_str);
        let unread = feature.unknown.keys().filter_map(|element| element.split_once('/'));
        let names = Names { known, open: unread.map(|(_, name)| name), others: false };
        reasons.push(names.judge(&term.feature, expression, &feature.source));
    }
    reasons
}

/// What an instance has under this name.
fn attribute<'a>(feature: &'a Feature, instance: &'a Instance, key: &str) -> Input<'a> {
    of_found(&feature.of_instance(instance, key))
}
