//! `kernelCmdline`: parameters the kernel was booted with.
//!
//! Any occurrence may match, by its whole value or by one of its elements between commas:
//! `intel_iommu=on,sm_on` is on. `""`, `null` and `true` ask for the parameter alone. That one is
//! not there is said by `noneOf`.
//!
//! Only the value of the parameter that was asked for is ever shown, and not even that where its
//! name says that it is a secret.

use portolan_host::facts::{Facts, Found, Wanted};

use super::finding::{Finding, NOT_SHOWN, code, without_value};
use super::{Demand, Demands, Manner, hazards};
use crate::affinity::Said;
use crate::evaluate::Reason;
use crate::expression::{Input, Op};
use crate::json::{Spanned, Value};
use crate::text::{short, shown};
use crate::value::{At, Scalar, Test, verbatim};
use crate::verdict::Verdict;

const FEATURE: &str = "kernel.cmdline";

/// What people call parameters with secrets in them.
const SECRET: [&str; 10] =
    ["pass", "secret", "token", "key", "cred", "auth", "pwd", "psk", "bearer", "cookie"];

/// The same, where it is a word of its own: it is in the middle of others.
const SECRET_WORD: &str = "pw";

pub(super) fn read(data: &Spanned, at: &mut At<'_>) -> Demands {
    let wanted = "an object of boot parameters, such as {\"intel_iommu\": \"on\"}";
    let Some(members) = at.object(data, wanted) else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for member in members {
        at.below(&member.key, |at| {
            let odd = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '=' | '"');
            if member.key.is_empty() || member.key.contains(odd) {
                let message = format!("{:?} is no name of a boot parameter", short(&member.key));
                at.wrong(member.place, message);
            } else if let Some(asked) = asked(&member.value, at) {
                hazards::boot_parameter(member, at);
                demands.push(Box::new(BootParameter {
                    what: format!("boot parameter {}", shown(&member.key)),
                    name: member.key.clone(),
                    asked,
                }));
            }
        });
    }
    demands
}

#[derive(Debug)]
enum Asked {
    /// To be there.
    Present,
    Value(Test),
}

fn asked(value: &Spanned, at: &mut At<'_>) -> Option<Asked> {
    match &value.value {
        Value::Null | Value::Bool(true) => Some(Asked::Present),
        Value::String(text) if text.is_empty() => Some(Asked::Present),
        Value::Bool(false) => {
            let message = "that a boot parameter is not there is said by a namespace in `noneOf`";
            at.wrong(value.place, message.to_owned());
            None
        }
        _ => Test::read(value, at, &verbatim).map(Asked::Value),
    }
}

#[derive(Debug)]
struct BootParameter {
    what: String,
    name: String,
    asked: Asked,
}

impl Asked {
    fn holds(
        &self,
        occurrences: &[Option<&str>],
    ) -> Result<bool, crate::expression::UndecidedError> {
        let test = match self {
            Self::Present => return Ok(!occurrences.is_empty()),
            Self::Value(test) => test,
        };
        let expression = match test {
            Test::OneOf(scalars) => {
                let mut pieces = occurrences.iter().flatten().flat_map(|value| pieces(value));
                return Ok(pieces.any(|piece| scalars.iter().any(|one| equal(one, piece))));
            }
            Test::Expression(expression) => expression,
        };
        if occurrences.is_empty() {
            return expression.holds(Input::Absent);
        }
        let inputs: Vec<Input<'_>> = occurrences
            .iter()
            .flat_map(|value| match value {
                Some(value) => pieces(value).map(Input::Value).collect(),
                None => vec![Input::Flag],
            })
            .collect();
        let mut answers = inputs.into_iter().map(|input| expression.holds(input));
        // "None of these" must be so of every piece; all others of one.
        match expression.op() {
            Op::NotIn => answers.try_fold(true, |all, one| Ok(one? && all)),
            _ => {
                let mut undecided = None;
                for answer in answers {
                    match answer {
                        Ok(true) => return Ok(true),
                        Ok(false) => {}
                        Err(error) => undecided = Some(error),
                    }
                }
                undecided.map_or(Ok(false), Err)
            }
        }
    }

    fn expected(&self) -> String {
        match self {
            Self::Present => "there".to_owned(),
            Self::Value(test) => test.to_string(),
        }
    }
}

fn equal(expected: &Scalar, piece: &str) -> bool {
    match expected {
        Scalar::Bool(true) => matches!(piece, "1" | "true" | "on" | "y" | "Y"),
        other => other.as_str() == piece,
    }
}

/// The whole value, and its elements if there is a comma.
fn pieces(value: &str) -> impl Iterator<Item = &str> {
    let elements = value.contains(',').then(|| value.split(','));
    std::iter::once(value).chain(elements.into_iter().flatten())
}

impl Demand for BootParameter {
    fn needs(&self, wanted: Wanted) -> Wanted {
        wanted.feature(FEATURE)
    }

    fn labels(&self) -> Said {
        Said::of(None, || format!("{} {}", self.what, self.asked.expected()))
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let finding = Finding { what: &self.what, expected: self.asked.expected() };
        let occurrences = match facts.boot_parameter(&self.name) {
            Ok(occurrences) => occurrences,
            Err(unknown) => return reasons.push(finding.unread(unknown.why)),
        };
        let source = facts.feature(FEATURE).map_or("", |feature| feature.source.as_str());
        let values = self.shown_values(&occurrences);
        let found = match (occurrences.is_empty(), values.as_deref()) {
            (true, _) => Found::Absent { source },
            (false, Some(value)) => Found::Value { value, source },
            (false, None) => Found::Present { source },
        };
        let holds = self.asked.holds(&occurrences);
        let login = || occurrences.iter().flatten().any(|value| without_logins(value) != **value);
        let hide = self.is_secret() || login();
        let holds = if hide { holds.map_err(without_value) } else { holds };
        let mut reason = finding.judge(&found, holds);
        if reason.verdict == Verdict::Fail && reason.code == code::ABSENT {
            reason.remedy = Some(format!("boot with {}", self.written()));
        }
        reasons.push(reason);
    }
}

/// The text without the passwords of addresses such as `http://user:password@proxy`.
fn without_logins(text: &str) -> String {
    let hidden = |word: &str| {
        let begin = word.find("//").map_or(0, |at| at + 2);
        let password = word[begin..].find(':').map(|at| begin + at + 1);
        // Whoever forgot to escape an `@` has a password, too.
        match (password, word.rfind('@')) {
            (Some(from), Some(to)) if from < to => {
                format!("{}{NOT_SHOWN}{}", &word[..from], &word[to..])
            }
            _ => word.to_owned(),
        }
    };
    text.split_inclusive([' ', ',']).map(hidden).collect()
}

impl BootParameter {
    /// Whether its name says that its value is nobody's business.
    fn is_secret(&self) -> bool {
        let name = self.name.to_ascii_lowercase();
        let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
        SECRET.iter().any(|word| name.contains(word)) || words.any(|word| word == SECRET_WORD)
    }

    /// What may be shown of the values; none if there are no values.
    fn shown_values(&self, occurrences: &[Option<&str>]) -> Option<String> {
        let values: Vec<&str> = occurrences.iter().copied().flatten().collect();
        match values.as_slice() {
            [] => None,
            _ if self.is_secret() => Some(NOT_SHOWN.to_owned()),
            values => Some(without_logins(&values.join(" and "))),
        }
    }

    /// As it would be written to a boot loader.
    fn written(&self) -> String {
        match &self.asked {
            Asked::Value(Test::OneOf(scalars)) if scalars.len() == 1 => {
                format!("{}={}", shown(&self.name), shown(scalars[0].as_str()))
            }
            _ => shown(&self.name),
        }
    }
}
