//! `kernelVersion`: `{"range": "[5.0.0,5.15.0)"}`.
//!
//! Only the numbers count: what distributions add (`5.15.0-91-generic`) and candidates
//! (`6.1.0-rc3`) is left out, and what they carried back from later kernels cannot be seen.

use portolan_host::facts::{Facts, Found, Wanted};

use super::builtin::UnknownField;
use super::finding::Finding;
use super::{Demand, Demands, Manner};
use crate::affinity::formula::Formula;
use crate::affinity::{Said, labels};
use crate::evaluate::Reason;
use crate::expression::UndecidedError;
use crate::json::{Spanned, Value};
use crate::range::{Range, RangeError};
use crate::text::shown;
use crate::value::{At, Test};
use crate::version::Version;

const FIELDS: [&str; 1] = ["range"];
const FEATURE: &str = "kernel.version";

pub(super) fn read(data: &Spanned, at: &mut At<'_>) -> Demands {
    let Some(members) = at.object(data, "an object with a range") else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for member in members {
        match member.key.as_str() {
            "range" => {
                demands.extend(at.below("range", |at| range(&member.value, at)));
            }
            _ => demands.push(UnknownField::read(member, &FIELDS, at)),
        }
    }
    if data.get("range").is_none() {
        let message = "the range is missing, such as \"range\": \"[5.0,5.15)\"".to_owned();
        at.wrong(data.place, message);
    }
    demands
}

fn range(value: &Spanned, at: &mut At<'_>) -> Option<Box<dyn Demand>> {
    let Value::String(text) = &value.value else {
        at.expected(value, "a range such as \"[5.0,5.15)\"");
        return None;
    };
    Some(Box::new(KernelVersion { asked: Asked::Range(parse(text, value, at)?) }))
}

fn parse(text: &str, value: &Spanned, at: &mut At<'_>) -> Option<Range> {
    match Range::parse(text) {
        Ok(range) => Some(range),
        Err(error) => {
            let near = match &error {
                RangeError::Notation { near, .. } => near.as_deref(),
                _ => None,
            };
            at.wrong_near(value.place, error.to_string(), near);
            None
        }
    }
}

/// `version` of the plugin `kernel`: a range, a version, several of them, or an expression.
pub(super) fn read_value(value: &Spanned, at: &mut At<'_>) -> Demands {
    let asked = match &value.value {
        Value::String(text) if text.trim_start().starts_with(['[', '(']) => {
            parse(text, value, at).map(Asked::Range)
        }
        Value::Object(_) if value.get("range").is_some() => return read(value, at),
        Value::Object(_) => Test::read(value, at, &crate::value::verbatim).map(Asked::Test),
        _ => Test::read(value, at, &exact).map(Asked::Test),
    };
    asked.map(|asked| Box::new(KernelVersion { asked }) as Box<dyn Demand>).into_iter().collect()
}

/// Versions are equal as versions: 5.10 is 5.10.0.
fn exact(text: &str) -> Result<String, String> {
    match Version::exact(text) {
        Some(version) => Ok(version.to_string()),
        None => Err(format!("{:?} is no version such as 5.10", crate::text::short(text))),
    }
}

#[derive(Debug)]
struct KernelVersion {
    asked: Asked,
}

#[derive(Debug)]
enum Asked {
    Range(Range),
    Test(Test),
}

impl KernelVersion {
    fn expected(&self) -> String {
        match &self.asked {
            Asked::Range(range) => range.to_string(),
            Asked::Test(test) => test.to_string(),
        }
    }
}

/// What labels say of a range.
fn in_range(range: &Range) -> Option<Formula> {
    let numbers = |(version, inclusive): (Version, bool)| (version.numbers(), inclusive);
    let mut any = Formula::never();
    for [lower, upper] in range.bounds() {
        let own = labels::kernel_between(lower.map(numbers), upper.map(numbers)).ok()?;
        any = any.or(own).ok()?;
    }
    Some(any)
}

impl Demand for KernelVersion {
    fn needs(&self, wanted: Wanted) -> Wanted {
        wanted.feature(FEATURE)
    }

    fn labels(&self) -> Said {
        let (formula, expected) = match &self.asked {
            Asked::Range(range) => (in_range(range), range.to_string()),
            Asked::Test(Test::OneOf(versions)) => {
                let exactly = versions.iter().map(|text| format!("[{}]", text.as_str()));
                let range = Range::parse(&exactly.collect::<Vec<_>>().join(","));
                (range.ok().and_then(|range| in_range(&range)), self.expected())
            }
            Asked::Test(_) => (None, self.expected()),
        };
        Said::of(formula, || format!("the kernel's version {expected}"))
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let found = facts.attribute(FEATURE, "full");
        let expected = self.expected();
        let finding = Finding { what: "the kernel's version", expected };
        let holds = match (&found, &self.asked) {
            (Found::Unknown { why }, _) => Err(UndecidedError::Unread { why: (*why).to_owned() }),
            (Found::Value { value, .. }, asked) => match (Version::leading(value), asked) {
                (Some(version), Asked::Range(range)) => Ok(range.contains(version)),
                (Some(version), Asked::Test(test)) if test.is_equality() => {
                    test.holds(crate::expression::Input::Value(&version.to_string()))
                }
                (Some(_), Asked::Test(test)) => test.holds(crate::expression::Input::Value(value)),
                (None, _) => Err(UndecidedError::Version { value: shown(value) }),
            },
            // A kernel has a version, even if a file is empty.
            _ => Err(UndecidedError::Unread { why: "no version was found".to_owned() }),
        };
        reasons.push(finding.judge(&found, holds));
    }
}
