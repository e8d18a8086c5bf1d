//! Why the verdict is what it is: from the roots down, through what decided and nothing else.
//!
//! | a namespace | because of |
//! |---|---|
//! | fails | its plugins that fail, `all` that fail, `oneOf` of which none passes, `noneOf` that pass |
//! | is unknown | its plugins, `all`, `oneOf` and `noneOf` of which that is not known |
//! | passes | what its plugins found, and what it refers to |
//!
//! Each is a reason of its own; of a choice, and of what must not pass, one is told. A document may
//! be a thousand namespaces deep, each with several ways to the next, so the walk keeps its own
//! stack, explains a namespace once, and has an end.

use std::collections::BTreeSet;

use super::{Compatibility, NamespaceReport, Report};
use crate::evaluate::Answer;
use crate::verdict::Verdict;

/// Reasons that are told: nobody reads more, and the report has them all.
const MAX_REASONS: usize = 20;
/// Findings in one sentence, where only all together decide.
const MAX_TOGETHER: usize = 3;
/// Names of a choice in one sentence.
const MAX_NAMES: usize = 4;
/// Bytes before a finding: choices may lie in choices, hundreds deep.
const MAX_BEFORE: usize = 400;

/// What is still to be told.
enum Part<'a> {
    /// A reason, or the end of its sentence.
    Said(String),
    /// A namespace that decides.
    Of(Step<'a>),
}

/// A namespace to be explained.
struct Step<'a> {
    name: &'a str,
    /// What came of it.
    verdict: Verdict,
    /// The beginning of the sentence, which is said once: then one reason follows, and no more.
    before: Option<String>,
}

impl<'a> Step<'a> {
    fn plain(name: &'a str, verdict: Verdict) -> Part<'a> {
        Part::Of(Self { name, verdict, before: None })
    }

    fn after(before: String, name: &'a str, verdict: Verdict) -> Part<'a> {
        Part::Of(Self { name, verdict, before: Some(before) })
    }
}

/// The reasons, in the order of the report's tree.
pub(super) struct Why<'a> {
    report: &'a Report,
    /// The next one last.
    todo: Vec<Part<'a>>,
    /// Explained as a whole already.
    seen: BTreeSet<(&'a str, Verdict)>,
    left: usize,
}

impl<'a> Why<'a> {
    pub(super) fn of(report: &'a Report) -> Self {
        let verdict = match report.verdict {
            Compatibility::Incompatible => Verdict::Fail,
            Compatibility::Unknown => Verdict::Unknown,
            Compatibility::Compatible => Verdict::Pass,
        };
        // One root that passes is enough, so several are a choice.
        let roots: Vec<&str> = report.roots.iter().map(|root| root.name.as_str()).collect();
        let todo = choice(report, &roots, verdict).into_iter().collect();
        Self { report, todo, seen: BTreeSet::new(), left: MAX_REASONS }
    }

    /// Puts what decided about a namespace in its place.
    fn explain(&mut self, step: Step<'a>) {
        let Step { name, verdict, before } = step;
        let Some(found) = self.report.namespaces.get(name) else { return };
        let parts = deciders(self.report, found, verdict);
        let Some(before) = before else {
            if self.seen.insert((name, verdict)) {
                let mut parts: Vec<_> = parts.take(MAX_REASONS).collect();
                if parts.is_empty() {
                    parts.push(Part::Said(bare(name, verdict)));
                }
                self.todo.extend(parts.into_iter().rev());
            }
            return;
        };
        let mut parts = parts;
        let first = parts.next().unwrap_or_else(|| Part::Said(bare(name, verdict)));
        self.todo.push(match first {
            Part::Said(text) => Part::Said(before + &text),
            Part::Of(step) => {
                let before = match step.before {
                    Some(more) => joined(before, &more),
                    None => before,
                };
                Part::Of(Step { before: Some(before), ..step })
            }
        });
    }
}

impl Iterator for Why<'_> {
    type Item = String;

    fn next(&mut self) -> Option<String> {
        self.left = self.left.checked_sub(1)?;
        loop {
            match self.todo.pop()? {
                Part::Said(text) => return Some(text),
                Part::Of(step) => self.explain(step),
            }
        }
    }
}

fn of(report: &Report, name: &str) -> Option<Verdict> {
    report.namespaces.get(name).map(|one| one.verdict)
}

/// All that made a namespace what it is, its own plugins first.
fn deciders<'a>(
    report: &'a Report,
    found: &'a NamespaceReport,
    verdict: Verdict,
) -> impl Iterator<Item = Part<'a>> {
    let own = found.plugins.iter().filter(move |(_, answer)| answer.verdict == verdict);
    let (each, together) = match verdict {
        // No plugin alone lets a namespace pass.
        Verdict::Pass => (None, together(own)),
        _ => (Some(own.flat_map(|(name, answer)| messages(name, answer))), None),
    };
    let each = each.into_iter().flatten();
    let refs = &found.refs;
    let all = refs.all.iter().filter(move |name| of(report, name) == Some(verdict));
    let one_of: Vec<&str> = refs.one_of.iter().map(String::as_str).collect();
    let none_of =
        refs.none_of.iter().filter(move |name| of(report, name).map(Verdict::not) == Some(verdict));
    let forbidden = move |name: &'a String| {
        let words = match verdict {
            Verdict::Fail => "passes, and must not",
            Verdict::Unknown => "may pass, and must not",
            Verdict::Pass => "does not pass",
        };
        Step::after(format!("{name} {words}: "), name, verdict.not())
    };
    each.chain(together)
        .map(Part::Said)
        .chain(all.map(move |name| Step::plain(name, verdict)))
        .chain(choice(report, &one_of, verdict))
        .chain(none_of.map(forbidden))
}

/// What of a choice made it `verdict`, if it did: one of it.
fn choice<'a>(report: &Report, names: &[&'a str], verdict: Verdict) -> Option<Part<'a>> {
    // Where nobody looked at one, because something else had decided, this did not.
    let whole: Option<Vec<Verdict>> = match verdict {
        Verdict::Pass => Some(names.iter().filter_map(|name| of(report, name)).collect()),
        _ => names.iter().map(|name| of(report, name)).collect(),
    };
    if Verdict::any(whole?) != verdict {
        return None;
    }
    let first = *names.iter().find(|name| of(report, name) == Some(verdict))?;
    Some(match verdict {
        _ if names.len() == 1 => Step::plain(first, verdict),
        Verdict::Fail => Step::after(format!("none of {} passes: ", few(names)), first, verdict),
        Verdict::Unknown => {
            let before = format!("it is not known whether one of {} passes: ", few(names));
            Step::after(before, first, verdict)
        }
        Verdict::Pass => Step::plain(first, verdict),
    })
}

/// What a plugin found that says what its answer does.
fn messages(name: &str, answer: &Answer) -> impl Iterator<Item = String> {
    let said = answer.reasons.iter().filter(|reason| reason.verdict == answer.verdict);
    let mut said = said.map(|reason| reason.message.clone()).peekable();
    let silent = said.peek().is_none().then(|| bare(name, answer.verdict));
    said.chain(silent)
}

/// What several plugins found, of which each must pass.
fn together<'a>(own: impl Iterator<Item = (&'a String, &'a Answer)>) -> Option<String> {
    let all = own.flat_map(|(name, answer)| messages(name, answer));
    let first: Vec<String> = all.take(MAX_TOGETHER).collect();
    (!first.is_empty()).then(|| first.join(", "))
}

/// Where there is nothing to be told but the verdict.
fn bare(name: &str, verdict: Verdict) -> String {
    match verdict {
        Verdict::Fail => format!("{name} does not pass"),
        Verdict::Unknown => format!("it is not known whether {name} passes"),
        Verdict::Pass => format!("{name} passes"),
    }
}

fn few(names: &[&str]) -> String {
    let first = &names[..names.len().min(MAX_NAMES)];
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Two beginnings of a sentence, as far as anybody reads.
fn joined(before: String, more: &str) -> String {
    const CUT: &str = "…: ";
    if before.ends_with(CUT) {
        before
    } else if before.len() + more.len() > MAX_BEFORE {
        before + CUT
    } else {
        before + more
    }
}

#[cfg(test)]
mod tests;
