//! `kernelConfiguration`: options of the running kernel, with or without `CONFIG_`.
//!
//! | written | will do |
//! |---|---|
//! | `"y"` | `y` |
//! | `"m"` | `m` or `y`: the feature can be had |
//! | `"=m"` | `m` alone |
//! | `"n"` | not set, or not there at all |
//! | another text or number | the same, without one pair of quotes |
//! | a list | one of them |

use portolan_host::facts::{Facts, Found, Wanted, is_of_command_line};
use portolan_host::kernel::unquoted;

use super::finding::{Finding, NOT_SHOWN, without_value};
use super::{Demand, Demands, Manner, hazards};
use crate::affinity::{Said, labels};
use crate::evaluate::Reason;
use crate::expression::{Expression, Kind, Op, UndecidedError};
use crate::json::{Spanned, Value};
use crate::text::{listed, short, shown};
use crate::value::{At, Test};

const FEATURE: &str = "kernel.config";
/// Options that the kernel knows and that were left off.
const UNSET: &str = "kernel.configunset";
const PREFIX: &str = "CONFIG_";
/// Characters of an option's name. The longest of Linux has fewer than 60.
const MAX_NAME: usize = 128;

pub(super) fn read(data: &Spanned, at: &mut At<'_>) -> Demands {
    let wanted = "an object of options, such as {\"CONFIG_VFIO\": \"m\"}";
    let Some(members) = at.object(data, wanted) else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for member in members {
        at.below(&member.key, |at| {
            let name = member.key.strip_prefix(PREFIX).unwrap_or(&member.key);
            let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
            if name.is_empty() || name.len() > MAX_NAME || !name.chars().all(plain) {
                let message = format!("{:?} is no name of an option", short(&member.key));
                at.wrong(member.place, message);
                return;
            }
            if let Some(asked) = asked(&member.value, at) {
                hazards::option(name, &asked, member, at);
                demands.push(Box::new(KernelOption {
                    what: format!("{PREFIX}{name}"),
                    name: name.to_owned(),
                    asked,
                }));
            }
        });
    }
    demands
}

/// What will do.
#[derive(Debug)]
pub(super) enum Asked {
    OneOf(Vec<Expected>),
    Test(Test),
}

#[derive(Debug, PartialEq)]
pub(super) enum Expected {
    Yes,
    /// `y` will do as well.
    Module,
    ModuleOnly,
    No,
    Text(String),
}

fn asked(value: &Spanned, at: &mut At<'_>) -> Option<Asked> {
    match &value.value {
        Value::Object(_) => Test::read(value, at, &crate::value::verbatim).map(Asked::Test),
        Value::Array(_) => {
            let items = at.array(value, "a list of values")?;
            let mut all = Vec::with_capacity(items.len());
            for (n, item) in items.iter().enumerate() {
                all.push(at.below(&n.to_string(), |at| expected(item, at))?);
            }
            Some(Asked::OneOf(all))
        }
        _ => Some(Asked::OneOf(vec![expected(value, at)?])),
    }
}

fn expected(value: &Spanned, at: &mut At<'_>) -> Option<Expected> {
    match &value.value {
        Value::Number(number) => Some(Expected::Text(number.to_string())),
        Value::String(text) => {
            if let "Y" | "M" | "N" = text.as_str() {
                let message = format!("options are written in small letters, and {text:?} is not");
                at.unlikely(value.place, message, Some(&text.to_ascii_lowercase()));
            }
            Some(match text.as_str() {
                "y" | "=y" => Expected::Yes,
                "m" => Expected::Module,
                "=m" => Expected::ModuleOnly,
                "n" | "=n" => Expected::No,
                other => Expected::Text(unquoted(other).into_owned()),
            })
        }
        Value::Bool(value_is) => {
            let near = if *value_is { "\"y\"" } else { "\"n\"" };
            at.wrong_near(value.place, "options are y, m, n or a value".to_owned(), Some(near));
            None
        }
        _ => {
            at.expected(value, "\"y\", \"m\", \"n\" or a value");
            None
        }
    }
}

/// NFD takes the quotes off and leaves what was escaped between them.
fn without_escapes(value: &str) -> String {
    unquoted(&format!("\"{value}\"")).into_owned()
}

#[derive(Debug)]
struct KernelOption {
    /// With prefix, as kernels print it.
    what: String,
    name: String,
    asked: Asked,
}

impl Asked {
    fn holds(&self, found: &Found<'_>, manner: Manner) -> Result<bool, UndecidedError> {
        let any = match self {
            Self::Test(test) => return test.holds(super::finding::input(found)),
            Self::OneOf(any) => any,
        };
        match *found {
            Found::Unknown { why } => Err(UndecidedError::Unread { why: why.to_owned() }),
            Found::Absent { .. } => Ok(any.contains(&Expected::No)),
            Found::Present { .. } => Ok(any.contains(&Expected::Yes)),
            Found::Value { value, .. } => Ok(any.iter().any(|one| match one {
                Expected::Yes => value == "y",
                Expected::Module => value == "m" || (value == "y" && !manner.exact_options),
                Expected::ModuleOnly => value == "m",
                Expected::No => value == "n",
                Expected::Text(text) => text == value || *text == without_escapes(value),
            })),
        }
    }

    fn expected(&self, manner: Manner) -> String {
        let any = match self {
            Self::Test(test) => return test.to_string(),
            Self::OneOf(any) => any,
        };
        let words = any.iter().map(|one| match one {
            Expected::Yes => "y".to_owned(),
            Expected::Module if !manner.exact_options => "m or y".to_owned(),
            Expected::Module | Expected::ModuleOnly => "m".to_owned(),
            Expected::No => "not set".to_owned(),
            Expected::Text(text) => shown(text),
        });
        listed(words, " or ")
    }
}

impl Demand for KernelOption {
    fn needs(&self, wanted: Wanted) -> Wanted {
        wanted.element(FEATURE, &self.name).element(UNSET, &self.name)
    }

    fn labels(&self) -> Said {
        let op = match &self.asked {
            Asked::OneOf(any) => match any.as_slice() {
                [Expected::Yes | Expected::Module] => Some(Op::Exists),
                [Expected::No] => Some(Op::DoesNotExist),
                _ => None,
            },
            Asked::Test(_) => None,
        };
        let test = op.and_then(|op| Expression::of(op, Vec::new(), Kind::Integer).ok());
        let formula = test.and_then(|test| labels::say(FEATURE, &self.name, &test));
        let expected = || self.asked.expected(Manner::default());
        Said::of(formula, || format!("{} {}", self.what, expected()))
    }

    fn ask(&self, facts: &Facts, manner: Manner, reasons: &mut Vec<Reason>) {
        let found = facts.attribute(FEATURE, &self.name);
        let holds = self.asked.holds(&found, manner);
        let (found, holds) = match found {
            Found::Value { source, .. } if is_of_command_line(FEATURE, &self.name) => {
                (Found::Value { value: NOT_SHOWN, source }, holds.map_err(without_value))
            }
            found => (found, holds),
        };
        let finding = Finding { what: &self.what, expected: self.asked.expected(manner) };
        let mut reason = finding.judge(&found, holds);
        if let Found::Absent { .. } = found {
            // An option that is off and one that this kernel does not have read differently to
            // those who have to do something about it.
            let (state, remedy) = match facts.flag(UNSET, &self.name) {
                Found::Present { .. } => ("not set", "a kernel that was built with it"),
                Found::Absent { .. } => (
                    "unknown to this kernel, neither set nor \"is not set\"",
                    "look for its name in this version of the kernel",
                ),
                _ => ("not set", "a kernel that was built with it"),
            };
            reason.message = format!("{} is {state}", self.what);
            reason.found = Some("not set".to_owned());
            if reason.verdict == crate::Verdict::Fail {
                reason.remedy = Some(remedy.to_owned());
            }
        }
        reasons.push(reason);
    }
}
