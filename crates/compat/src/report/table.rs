//! A report, or a spec, as a tree of text.
//!
//! Every namespace is drawn once; where it is referred to again, the tree says so. The walk keeps
//! its own stack.

use std::collections::BTreeSet;

use super::{Compatibility, NamespaceReport, Report};
use crate::document::{NamespaceId, Spec};
use crate::evaluate::{Answer, Reason};
use crate::text::shown;
use crate::verdict::Verdict;

/// Reasons of one plugin that are shown; the rest is counted.
const MAX_REASONS: usize = 50;
/// Characters of a plugin's data that are shown.
const MAX_DATA: usize = 100;

/// A line and what hangs below it.
struct Line<'a> {
    text: String,
    below: Below<'a>,
}

enum Below<'a> {
    Nothing,
    /// Lines that are known already.
    Texts(Vec<String>),
    Namespace(&'a str, Wish),
}

/// What is hoped of a namespace.
#[derive(Clone, Copy, PartialEq)]
enum Wish {
    /// To pass.
    Pass,
    /// Not to pass, or to be part of what must not: nothing should be done to make it.
    Fail,
}

/// Draws lines and what is below them, deepest first, without recursion.
fn tree<'a>(roots: Vec<Line<'a>>, mut below: impl FnMut(&'a str, Wish) -> Vec<Line<'a>>) -> String {
    let mut out = String::new();
    // What stands before a line, whether it is the last at its place, and the line.
    let mut todo: Vec<(String, Option<bool>, Line<'a>)> =
        roots.into_iter().rev().map(|line| (String::new(), None, line)).collect();
    while let Some((before, last, line)) = todo.pop() {
        let (branch, further) = match last {
            None => ("", ""),
            Some(false) => ("├─ ", "│  "),
            Some(true) => ("└─ ", "   "),
        };
        out.push_str(&before);
        out.push_str(branch);
        out.push_str(&line.text);
        out.push('\n');
        let children = match line.below {
            Below::Nothing => Vec::new(),
            Below::Texts(texts) => {
                texts.into_iter().map(|text| Line { text, below: Below::Nothing }).collect()
            }
            Below::Namespace(name, wish) => below(name, wish),
        };
        let before = before + further;
        let count = children.len();
        for (n, child) in children.into_iter().enumerate().rev() {
            todo.push((before.clone(), Some(n + 1 == count), child));
        }
    }
    out
}

fn mark(verdict: Verdict) -> char {
    match verdict {
        Verdict::Fail => '✗',
        Verdict::Unknown => '?',
        Verdict::Pass => '✓',
    }
}

pub(super) fn draw(report: &Report) -> String {
    let mut out = headline(report);
    let mut seen = BTreeSet::new();
    let roots = report.roots.iter().filter_map(|root| Some((root.name.as_str(), root.verdict?)));
    // Where the host fits there is nothing to be done.
    let fits = report.verdict == Compatibility::Compatible;
    let wish = if fits { Wish::Fail } else { Wish::Pass };
    let roots = roots.map(|(name, verdict)| namespace("", name, verdict, wish)).collect();
    out.push('\n');
    out.push_str(&tree(roots, |name, wish| match report.namespaces.get(name) {
        Some(_) if !seen.insert(name) => {
            vec![Line { text: "… as above".to_owned(), below: Below::Nothing }]
        }
        Some(found) => inside(report, found, wish),
        None => Vec::new(),
    }));
    if report.verdict == Compatibility::Compatible {
        out.push_str(&format!("\nby {}\n", report.solution.join(", ")));
    }
    if !report.skipped.is_empty() {
        out.push_str(&format!("\nnot looked at: {}\n", report.skipped.join(", ")));
    }
    for warning in &report.warnings {
        out.push_str(&format!("warning: {warning}\n"));
    }
    out
}

fn headline(report: &Report) -> String {
    let passed = report.roots.iter().find(|root| root.verdict == Some(Verdict::Pass));
    let why = match (report.verdict, passed) {
        (Compatibility::Compatible, Some(root)) => format!("{} passes", root.name),
        (Compatibility::Compatible, None) => "a root passes".to_owned(),
        (Compatibility::Incompatible, _) => "no root passes".to_owned(),
        (Compatibility::Unknown, _) => "not enough could be found out".to_owned(),
    };
    let mut out = format!("{}: {why}\n", report.verdict.as_str());
    let platform = report.platform.as_ref().map(|one| format!("{} on {}", one.image, one.host));
    for (what, value) in [
        ("host", &report.host),
        ("image", &report.image),
        ("platform", &platform),
        ("subject", &report.subject),
        ("artifact", &report.artifact),
    ] {
        if let Some(value) = value {
            out.push_str(&format!("{what:<9} {}\n", shown(value)));
        }
    }
    out
}

fn namespace<'a>(relation: &str, name: &'a str, verdict: Verdict, wish: Wish) -> Line<'a> {
    Line {
        text: format!("{relation}{} {name}", mark(verdict)),
        below: Below::Namespace(name, wish),
    }
}

/// One that may not pass: its mark says whether that is so.
fn forbidden(name: &str, verdict: Verdict) -> Line<'_> {
    let words = match verdict {
        Verdict::Fail => "does not pass, as it must not",
        Verdict::Unknown => "may pass, and must not",
        Verdict::Pass => "passes, and must not",
    };
    Line {
        text: format!("none of: {} {name} {words}", mark(verdict.not())),
        below: Below::Namespace(name, Wish::Fail),
    }
}

fn inside<'a>(report: &'a Report, found: &'a NamespaceReport, wish: Wish) -> Vec<Line<'a>> {
    let mut lines: Vec<Line<'_>> =
        found.plugins.iter().map(|(name, answer)| plugin(name, answer, wish)).collect();
    let refs = &found.refs;
    for (relation, names) in
        [("all of: ", &refs.all), ("one of: ", &refs.one_of), ("none of: ", &refs.none_of)]
    {
        for name in names {
            lines.push(match report.namespaces.get(name) {
                Some(other) if relation == "none of: " => forbidden(name, other.verdict),
                Some(other) => namespace(relation, name, other.verdict, wish),
                None => Line {
                    text: format!("{relation}- {name} (not looked at)"),
                    below: Below::Nothing,
                },
            });
        }
    }
    lines
}

fn plugin<'a>(name: &str, answer: &Answer, wish: Wish) -> Line<'a> {
    let open: Vec<&Reason> =
        answer.reasons.iter().filter(|reason| reason.verdict != Verdict::Pass).collect();
    let by = match answer.provider.as_str() {
        crate::plugins::BUILT_IN => String::new(),
        other => format!(" ({})", shown(other)),
    };
    let head = format!("{} {name}{by}", mark(answer.verdict));
    let met = answer.reasons.len() - open.len();
    match (open.as_slice(), answer.reasons.as_slice()) {
        ([], [one]) => {
            Line { text: format!("{head}: {}{}", one.message, from(one)), below: Below::Nothing }
        }
        ([], []) => Line { text: head, below: Below::Nothing },
        ([], _) => Line { text: format!("{head}: all {met} as asked for"), below: Below::Nothing },
        (open, reasons) => {
            let mut texts: Vec<String> =
                open.iter().take(MAX_REASONS).map(|reason| explained(reason, wish)).collect();
            if open.len() > MAX_REASONS {
                texts.push(format!("… and {} more", open.len() - MAX_REASONS));
            }
            let text = match reasons.len() {
                1 => head,
                all => format!("{head}: {met} of {all} as asked for"),
            };
            Line { text, below: Below::Texts(texts) }
        }
    }
}

/// Message, what was expected, where the fact came from, and what to do.
fn explained(reason: &Reason, wish: Wish) -> String {
    let mut text = format!("{} {}", mark(reason.verdict), reason.message);
    if let Some(expected) = &reason.expected {
        text.push_str(&format!("; expected {expected}"));
    }
    if let Some(found) = &reason.found
        && !reason.message.contains(found.as_str())
    {
        text.push_str(&format!(", found {found}"));
    }
    text.push_str(&from(reason));
    if let (Some(remedy), Wish::Pass) = (&reason.remedy, wish) {
        text.push_str(&format!("; try: {remedy}"));
    }
    text
}

fn from(reason: &Reason) -> String {
    match &reason.source {
        Some(source) if !source.is_empty() => format!(" ({source})"),
        _ => String::new(),
    }
}

/// A spec as a tree: what is asked for, before anybody answered.
pub(super) fn draw_spec(spec: &Spec) -> String {
    let mut out = format!("schema version {}\n\n", shown(&spec.schema_version));
    let mut seen = BTreeSet::new();
    let named = |id: &NamespaceId| spec.namespace(*id).name.as_str();
    let line = |relation: &str, id: &NamespaceId| Line {
        text: format!("{relation}{}", named(id)),
        below: Below::Namespace(named(id), Wish::Pass),
    };
    let roots = spec.roots().iter().map(|id| line("", id)).collect();
    out.push_str(&tree(roots, |name, _| {
        let Some(id) = spec.find(name) else { return Vec::new() };
        if !seen.insert(name) {
            return vec![Line { text: "… as above".to_owned(), below: Below::Nothing }];
        }
        let namespace = spec.namespace(id);
        let mut lines: Vec<Line<'_>> = namespace
            .plugins
            .iter()
            .map(|plugin| {
                let data = plugin.data.as_ref().map(|data| data.to_json().to_string());
                let data = data.unwrap_or_default();
                let cut: String = data.chars().take(MAX_DATA).collect();
                let more = if cut.len() < data.len() { "…" } else { "" };
                Line {
                    text: format!("{} {}{more}", plugin.name, shown(&cut)),
                    below: Below::Nothing,
                }
            })
            .collect();
        let refs = &namespace.refs;
        lines.extend(refs.all.iter().map(|id| line("all of: ", id)));
        lines.extend(refs.one_of.iter().flatten().map(|id| line("one of: ", id)));
        lines.extend(refs.none_of.iter().map(|id| line("none of: ", id)));
        lines
    }));
    out
}
