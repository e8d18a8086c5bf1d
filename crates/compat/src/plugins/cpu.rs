//! What a processor is able to do: levels of its architecture, and single flags.

use portolan_core::platform::{Level, Platform};
use portolan_host::facts::{Facts, Found, Wanted, flags};

use super::finding::{Finding, input};
use super::{Demand, Demands, Manner};
use crate::affinity::formula::Formula;
use crate::affinity::{Said, labels};
use crate::evaluate::Reason;
use crate::expression::{Expression, Kind, Op};
use crate::json::{Spanned, Value};
use crate::text::short;
use crate::value::{At, Test, verbatim};

const FLAGS: &str = "cpu.cpuid";
const PLATFORM: &str = "system.platform";

/// Architectures that have levels.
const ARCHITECTURES: [&str; 5] = ["amd64", "arm64", "arm", "ppc64le", "riscv64"];
/// Levels that are, for those who misspell one.
const LEVELS: [&str; 12] =
    ["v1", "v2", "v3", "v4", "v8", "v8.1", "v8.2", "v8.4", "v9", "power9", "power10", "rva22u64"];

/// `level`: the least that will do, or a list with one for each architecture.
pub(super) fn level(value: &Spanned, at: &mut At<'_>) -> Option<Box<dyn Demand>> {
    let alone = std::slice::from_ref(value);
    let items = match &value.value {
        Value::Array(_) => at.array(value, "a list of levels")?,
        _ => alone,
    };
    let mut least = Vec::with_capacity(items.len());
    for item in items {
        let Value::String(text) = &item.value else {
            at.expected(item, "a level such as \"v3\"");
            return None;
        };
        // The psABI calls them x86-64-v3.
        let name = text.strip_prefix("x86-64-").unwrap_or(text);
        if ARCHITECTURES.iter().all(|architecture| named(architecture, name).is_none()) {
            let message = format!("no architecture has a level {:?}", short(text));
            let near = at.guess(text, LEVELS);
            at.wrong_near(item.place, message, near);
            return None;
        }
        least.push(name.to_owned());
    }
    Some(Box::new(AtLeast { least }))
}

/// The level of this name, if the architecture has it.
fn named(architecture: &str, name: &str) -> Option<Level> {
    let level = Level::of(&Platform::new("linux", architecture).with_variant(name))?;
    // There may be a v5 one day; until then it is a mistake.
    (!matches!(level, Level::Amd64(n) if n > 4)).then_some(level)
}

#[derive(Debug)]
struct AtLeast {
    least: Vec<String>,
}

impl Demand for AtLeast {
    fn needs(&self, wanted: Wanted) -> Wanted {
        ["os", "arch", "variant"].iter().fold(wanted, |wanted, part| wanted.element(PLATFORM, part))
    }

    fn labels(&self) -> Said {
        let mut any = Formula::never();
        let mut unsaid = Vec::new();
        for name in &self.least {
            for architecture in ARCHITECTURES {
                let own = match named(architecture, name) {
                    Some(Level::Amd64(level)) => labels::amd64_level(level),
                    // ARMv3 and v4, which no cluster has and nothing newer includes.
                    Some(Level::Arm(..=4)) => continue,
                    Some(level) => {
                        unsaid.push(format!("{architecture}/{level} or above"));
                        labels::arch(architecture)
                    }
                    None => continue,
                };
                any = any.clone().or(own).unwrap_or(any);
            }
        }
        let unsaid = (!unsaid.is_empty()).then(|| unsaid.join(" or "));
        Said { formula: any, unsaid }
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let expected = format!("{} or above", self.least.join(" or "));
        let finding = Finding { what: "the processor's level", expected };
        // A variant that could not be found out is not the first one.
        if let Found::Unknown { why } = facts.attribute(PLATFORM, "variant")
            && facts.feature(PLATFORM).is_ok()
        {
            return reasons.push(finding.unread(why));
        }
        let host = match facts.platform() {
            Ok(host) => host.platform,
            Err(error) => return reasons.push(finding.unread(&error.why)),
        };
        let source = facts.feature(PLATFORM).or_else(|_| facts.feature(FLAGS));
        let source = source.map_or("", |feature| feature.source_of("variant"));
        let Some(own) = Level::of(&host) else {
            return reasons.push(finding.unread(&format!("{host} has no levels that are known")));
        };
        let value = format!("{}/{own}", host.architecture);
        let meets = |name: &String| {
            named(&host.architecture, name).is_some_and(|least| own.includes(least))
        };
        let holds = self.least.iter().any(meets);
        let found = Found::Value { value: &value, source };
        let mut reason = finding.judge(&found, Ok(holds));
        let same = self.least.iter().any(|name| named(&host.architecture, name).is_some());
        if !holds && same {
            let remedy = "a newer processor; on a virtual machine, a CPU model that passes the host's features on";
            reason.remedy = Some(remedy.to_owned());
        }
        reasons.push(reason);
    }
}

/// `flags`: a list of names that must all be there, or an object of expressions by name.
pub(super) fn read_flags(value: &Spanned, at: &mut At<'_>) -> Demands {
    let mut demands: Demands = Vec::new();
    if let Value::Object(members) = &value.value {
        for member in members {
            at.below(&member.key, |at| {
                let test = match &member.value.value {
                    Value::Bool(wanted) => {
                        presence(if *wanted { Op::Exists } else { Op::DoesNotExist })
                    }
                    _ => Test::read(&member.value, at, &verbatim),
                };
                let place = member.place;
                demands.extend(test.and_then(|test| Flag::read(&member.key, place, test, at)));
            });
        }
        return demands;
    }
    let Some(items) = at.array(value, "a list of flags such as [\"AVX2\"]") else { return demands };
    for (n, item) in items.iter().enumerate() {
        at.below(&n.to_string(), |at| match &item.value {
            Value::String(name) => {
                let test = presence(Op::Exists);
                demands.extend(test.and_then(|test| Flag::read(name, item.place, test, at)));
            }
            _ => at.expected(item, "the name of a flag"),
        });
    }
    demands
}

fn presence(op: Op) -> Option<Test> {
    Expression::of(op, Vec::new(), Kind::Integer).ok().map(Test::Expression)
}

/// A flag of the processor.
#[derive(Debug)]
struct Flag {
    what: String,
    /// The names in NFD's words. A word of kernels may have one for each architecture.
    names: Vec<String>,
    test: Test,
}

impl Flag {
    fn read(
        written: &str,
        place: crate::json::Place,
        test: Test,
        at: &mut At<'_>,
    ) -> Option<Box<dyn Demand>> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-');
        if written.is_empty() || written.len() > 64 || !written.chars().all(fits) {
            at.wrong(place, format!("{:?} is no name of a flag", short(written)));
            return None;
        }
        let names = flags::named(written);
        if let Some(name) = names.iter().find(|name| !flags::is_known(name)) {
            let message = format!("no processor is known to have the flag {written:?}");
            let near = at.guess_among(name, flags::all);
            at.unlikely(place, message, near.as_deref());
        }
        let what = format!("processor flag {}", names.join(" or "));
        Some(Box::new(Self { what, names, test }))
    }

    /// What the host has under one of the names.
    fn find<'f>(&self, facts: &'f Facts) -> Found<'f> {
        let mut missing = None;
        for name in &self.names {
            let found = match facts.flag(FLAGS, name) {
                // A few have a value: AVX10_VERSION.
                Found::Absent { .. } => facts.attribute(FLAGS, name),
                found => found,
            };
            missing = match (found, missing) {
                (found @ (Found::Present { .. } | Found::Value { .. }), _) => return found,
                (_, Some(unknown @ Found::Unknown { .. })) => Some(unknown),
                // Facts have only names that are known: that of another says nothing.
                (Found::Absent { .. }, _) if !flags::is_known(name) => {
                    Some(Found::Unknown { why: "no source of facts knows a flag of this name" })
                }
                (found, _) => Some(found),
            };
        }
        missing.unwrap_or(Found::Unknown { why: "it has no name" })
    }

    fn expected(&self) -> String {
        match &self.test {
            Test::Expression(expression) if expression.op() == Op::Exists => "there".to_owned(),
            Test::Expression(expression) if expression.op() == Op::DoesNotExist => {
                "not there".to_owned()
            }
            test => test.to_string(),
        }
    }
}

impl Demand for Flag {
    fn needs(&self, wanted: Wanted) -> Wanted {
        self.names.iter().fold(wanted, |wanted, name| wanted.element(FLAGS, name))
    }

    fn labels(&self) -> Said {
        // One name has a label; what two may be called is left to the check.
        let formula = match self.names.as_slice() {
            [name] => self.test.as_expression().and_then(|test| labels::say(FLAGS, name, &test)),
            _ => None,
        };
        Said::of(formula, || format!("{} {}", self.what, self.expected()))
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let found = self.find(facts);
        let finding = Finding { what: &self.what, expected: self.expected() };
        reasons.push(finding.judge(&found, self.test.holds(input(&found))));
    }
}
