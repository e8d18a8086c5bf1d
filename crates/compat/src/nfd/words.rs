//! How the answers to rules are put into words.

use std::collections::HashSet;

use portolan_host::facts::{Feature, is_of_command_line};

use super::Term;
use crate::evaluate::Reason;
use crate::expression::{Expression, Input, Op};
use crate::plugins::{NOT_SHOWN, code, without_value};
use crate::text::shown;
use crate::verdict::Verdict;

/// Nothing is known of the feature, so nothing is known of its elements: not even that they are
/// not there.
pub(super) fn unread(term: &Term, why: &str) -> Vec<Reason> {
    let keys = term.expressions.iter().map(|(key, expression)| (key.as_str(), Some(expression)));
    let names = term.name.iter().map(|expression| ("names", Some(expression)));
    let mut all: Vec<_> = keys.chain(names).collect();
    if all.is_empty() {
        all.push(("", None));
    }
    let reason = |(key, expression): (&str, Option<&Expression>)| Reason {
        verdict: Verdict::Unknown,
        code: code::UNREAD.into(),
        message: shown(&format!("{} could not be found out: {why}", element(&term.feature, key))),
        expected: expression.map(asked),
        found: None,
        source: None,
        remedy: None,
    };
    all.into_iter().map(reason).collect()
}

/// There is no instance that could be asked.
pub(super) fn none_there(term: &Term, feature: &Feature) -> Reason {
    let expected =
        term.expressions.iter().map(|(key, one)| format!("{} {}", shown(key), asked(one)));
    Reason {
        verdict: Verdict::Fail,
        code: code::ABSENT.into(),
        message: shown(&format!("the host has no {}", term.feature)),
        expected: Some(shown(&expected.collect::<Vec<_>>().join(", "))),
        found: None,
        source: Some(shown(&feature.source)),
        remedy: None,
    }
}

/// Names of elements, and those of which it is not known whether they are there.
pub(super) struct Names<Known, Open> {
    pub(super) known: Known,
    pub(super) open: Open,
    /// Whether there may be others.
    pub(super) others: bool,
}

impl<'a, Known, Open> Names<Known, Open>
where
    Known: Iterator<Item = &'a str>,
    Open: Iterator<Item = &'a str>,
{
    /// Whether the expression holds for one of the names.
    pub(super) fn judge(mut self, feature: &str, expression: &Expression, source: &str) -> Reason {
        // Both lists may have thousands: each name is looked up, not compared with every value.
        let listed: Option<HashSet<&str>> = (expression.op() == Op::In)
            .then(|| expression.values().iter().map(String::as_str).collect());
        let fits = |name: &&str| match &listed {
            Some(listed) => listed.contains(name),
            None => expression.verdict(Input::Value(name)) == Verdict::Pass,
        };
        let (verdict, found) = match (self.known.find(fits), self.open.find(fits), self.others) {
            (Some(name), ..) => (Verdict::Pass, Some(shown(name))),
            (None, Some(name), _) => (Verdict::Unknown, Some(format!("perhaps {}", shown(name)))),
            (None, None, true) => (Verdict::Unknown, None),
            (None, None, false) => (Verdict::Fail, None),
        };
        let (code, message) = match verdict {
            Verdict::Pass => (code::MET, format!("a name in {feature} fits")),
            Verdict::Fail => (code::ABSENT, format!("no name in {feature} fits")),
            Verdict::Unknown => {
                (code::UNREAD, format!("it is not known whether a name in {feature} fits"))
            }
        };
        Reason {
            verdict,
            code: code.into(),
            message: shown(&message),
            expected: Some(format!("a name {}", asked(expression))),
            found,
            source: Some(shown(source)),
            remedy: None,
        }
    }
}

/// Whether the expression holds for one element.
pub(super) fn judge(
    feature: &str,
    key: &str,
    expression: &Expression,
    input: Input<'_>,
    source: &str,
) -> Reason {
    let name = element(feature, key);
    let secret = is_of_command_line(feature, key);
    let holds = expression.holds(input);
    let holds = if secret { holds.map_err(without_value) } else { holds };
    let (verdict, code, message) = match (holds, input) {
        (Ok(true), _) => (Verdict::Pass, code::MET, format!("{name} is as asked for")),
        (Ok(false), Input::Absent) => (Verdict::Fail, code::ABSENT, format!("{name} is not there")),
        (Ok(false), _) => (Verdict::Fail, code::DIFFERENT, format!("{name} is not as asked for")),
        (Err(error), Input::Unknown(_)) => {
            (Verdict::Unknown, code::UNREAD, format!("{name} could not be found out: {error}"))
        }
        (Err(error), _) => {
            (Verdict::Unknown, code::UNDECIDED, format!("{name} cannot be compared: {error}"))
        }
    };
    let found = match input {
        Input::Value(_) if secret => Some(NOT_SHOWN.to_owned()),
        Input::Value(value) => Some(shown(value)),
        Input::Flag => Some("there".to_owned()),
        Input::Absent => Some("not there".to_owned()),
        Input::Unknown(_) => None,
    };
    Reason {
        verdict,
        code: code.into(),
        message: shown(&message),
        expected: Some(asked(expression)),
        found,
        source: Some(shown(source)),
        remedy: None,
    }
}

fn element(feature: &str, key: &str) -> String {
    if key.is_empty() { feature.to_owned() } else { format!("{feature} {key}") }
}

/// `In Intel, AMD`, for people.
fn asked(expression: &Expression) -> String {
    let op = match expression.op().as_str() {
        "" => "whatever it is",
        op => op,
    };
    let values = expression.values().join(", ");
    if values.is_empty() { op.to_owned() } else { format!("{op} {}", shown(&values)) }
}
