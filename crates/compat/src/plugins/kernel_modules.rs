//! `kernelModules`: modules that are loaded or built in, and their parameters.
//!
//! A built-in module counts: a kernel that has VFIO inside needs nothing loaded. A module that is
//! only on disk does not, unless `"state": "available"` says that this is enough. `-` and `_` are
//! the same in names, as they are to the kernel.

use std::cell::OnceCell;
use std::collections::BTreeMap;

use portolan_host::facts::{Facts, Found, Wanted, same_but_for_dashes};

use super::finding::{self, Finding, code};
use super::{Demand, Demands, Manner, hazards};
use crate::affinity::Said;
use crate::evaluate::Reason;
use crate::expression::{Input, UndecidedError};
use crate::json::{Member, Spanned, Value};
use crate::text::{short, shown};
use crate::value::{At, Scalar, Test, verbatim};
use crate::verdict::Verdict;

const LOADED: &str = "kernel.loadedmodule";
const BUILT_IN: &str = "kernel.builtinmodule";
/// Loaded or built in: what NFD records instead of the latter.
const ENABLED: &str = "kernel.enabledmodule";
const AVAILABLE: &str = "kernel.availablemodule";
const PARAMETER: &str = "kernel.moduleparameter";

pub(super) fn read(data: &Spanned, at: &mut At<'_>) -> Demands {
    let wanted = "an object of modules, such as {\"vfio_pci\": {}}";
    let Some(members) = at.object(data, wanted) else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for member in members {
        demands.extend(at.below(&member.key, |at| module(member, at)));
    }
    demands
}

/// `modules` of the plugin `kernel`: the same, or a list of names.
pub(super) fn read_value(value: &Spanned, at: &mut At<'_>) -> Demands {
    let Value::Array(_) = &value.value else { return read(value, at) };
    let Some(items) = at.array(value, "a list of modules") else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for (n, item) in items.iter().enumerate() {
        at.below(&n.to_string(), |at| match &item.value {
            Value::String(name) if name_fits(name, item, at) => {
                demands.push(Box::new(Module::present(name)));
            }
            Value::String(_) => {}
            _ => at.expected(item, "the name of a module"),
        });
    }
    demands
}

fn module(member: &Member, at: &mut At<'_>) -> Option<Box<dyn Demand>> {
    let key = Spanned { place: member.place, value: Value::Null };
    if !name_fits(&member.key, &key, at) {
        return None;
    }
    let mut module = Module::present(&member.key);
    let fields = match &member.value.value {
        Value::Null => &[][..],
        Value::Object(fields) => fields,
        _ => {
            at.expected(&member.value, "an object of parameters, or {} for the module alone");
            return None;
        }
    };
    for field in fields {
        at.below(&field.key, |at| {
            if field.key == "state" {
                module.available = state(&field.value, at);
            } else if !plain(&field.key) {
                let message = format!("{:?} is no name of a parameter", short(&field.key));
                at.wrong(field.place, message);
            } else if let Some(test) = Test::read(&field.value, at, &verbatim) {
                hazards::parameter(&member.key, field, at);
                module.parameters.push(Parameter {
                    what: format!("parameter {} of module {}", field.key, member.key),
                    name: field.key.clone(),
                    test,
                });
            }
        });
    }
    Some(Box::new(module))
}

fn state(value: &Spanned, at: &mut At<'_>) -> bool {
    match &value.value {
        Value::String(state) if state == "available" => true,
        Value::String(state) if state == "loaded" => false,
        Value::String(state) => {
            let message =
                format!("a module's state is loaded or available, not {:?}", short(state));
            let near = at.guess(state, ["loaded", "available"]);
            at.wrong_near(value.place, message, near);
            false
        }
        _ => {
            at.expected(value, "\"loaded\" or \"available\"");
            false
        }
    }
}

fn name_fits(name: &str, at_value: &Spanned, at: &mut At<'_>) -> bool {
    let stem = name.split_once(".ko").map(|(stem, _)| stem);
    if plain(name) && stem.is_none() {
        return true;
    }
    let message = format!("{:?} is no name of a module", short(name));
    at.wrong_near(at_value.place, message, stem.and_then(|stem| stem.rsplit('/').next()));
    false
}

/// Names become paths below `/sys/module`.
fn plain(name: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    !name.is_empty() && name.len() <= 128 && !name.starts_with('.') && name.chars().all(fits)
}

#[derive(Debug)]
struct Module {
    what: String,
    name: String,
    /// Whether it is enough that it could be loaded.
    available: bool,
    parameters: Vec<Parameter>,
}

#[derive(Debug)]
struct Parameter {
    what: String,
    name: String,
    test: Test,
}

impl Module {
    fn present(name: &str) -> Self {
        let what = format!("module {name}");
        Self { what, name: name.to_owned(), available: false, parameters: Vec::new() }
    }

    fn presence(&self, facts: &Facts) -> Reason {
        let loaded = facts.flag(LOADED, &self.name);
        let built_in = match facts.flag(BUILT_IN, &self.name) {
            // What others exported may know only this. It knows nothing of what is in no list,
            // so where we looked ourselves it cannot say no.
            Found::Unknown { why } => match facts.flag(ENABLED, &self.name) {
                found @ Found::Present { .. } => found,
                found @ Found::Absent { .. } if facts.feature(BUILT_IN).is_err() => found,
                _ => Found::Unknown { why },
            },
            found => found,
        };
        let available = facts.flag(AVAILABLE, &self.name);
        let expected =
            if self.available { "loaded, built in or available" } else { "loaded or built in" };
        let finding = Finding { what: &self.what, expected: expected.to_owned() };
        let met = |state: &str, found: &Found<'_>, finding: Finding<'_>| {
            let message = format!("{} is {state}", finding.what);
            let found_text = Some(state.to_owned());
            let reason = finding.reason(Verdict::Pass, code::MET, found);
            Reason { message, found: found_text, ..reason }
        };
        match (loaded, built_in, available) {
            (found @ Found::Present { .. }, ..) => met("loaded", &found, finding),
            (_, found @ Found::Present { .. }, _) => met("built in", &found, finding),
            (.., found @ Found::Present { .. }) if self.available => {
                met("available", &found, finding)
            }
            (Found::Unknown { why }, ..) | (_, Found::Unknown { why }, _) => finding.unread(why),
            (.., Found::Unknown { why }) if self.available => finding.unread(why),
            (found, _, available) => {
                let reason = finding.reason(Verdict::Fail, code::ABSENT, &found);
                match available {
                    Found::Present { source } => Reason {
                        message: format!("{} is on disk and not loaded", self.what),
                        found: Some("available".to_owned()),
                        source: Some(shown(source)),
                        remedy: Some(format!("modprobe {}", self.name)),
                        ..reason
                    },
                    _ => Reason {
                        message: format!("{} is neither loaded nor built in", self.what),
                        ..reason
                    },
                }
            }
        }
    }

    fn parameter(&self, parameter: &Parameter, facts: &Facts, owners: &Owners<'_>) -> Reason {
        let found = facts.attribute(PARAMETER, &format!("{}.{}", self.name, parameter.name));
        let finding = Finding { what: &parameter.what, expected: parameter.test.to_string() };
        if let Found::Absent { .. } = found {
            let others = owners.of(&parameter.name, &self.name);
            let reason = finding.judge(&found, parameter.test.holds(Input::Absent));
            let message = format!("parameter {} not found on {}", parameter.name, self.name);
            return match others.is_empty() {
                true => Reason { message, ..reason },
                false => Reason {
                    message: format!("{message}; exists on: {}", others.join(", ")),
                    remedy: Some(format!("ask for it on {}", others.join(" or "))),
                    ..reason
                },
            };
        }
        let holds = match (&parameter.test, &found) {
            (_, Found::Unknown { why }) => Err(UndecidedError::Unread { why: (*why).to_owned() }),
            (Test::OneOf(scalars), Found::Value { value, .. }) => {
                Ok(scalars.iter().any(|scalar| equal(scalar, value)))
            }
            (test, Found::Value { value, .. }) => test.holds(Input::Value(value.trim())),
            (test, found) => test.holds(finding::input(found)),
        };
        finding.judge(&found, holds)
    }
}

impl Demand for Module {
    fn needs(&self, wanted: Wanted) -> Wanted {
        let wanted = wanted
            .element(LOADED, &self.name)
            .element(BUILT_IN, &self.name)
            .element(AVAILABLE, &self.name);
        let parameters = self.parameters.iter();
        parameters.fold(wanted, |wanted, one| wanted.parameter(&self.name, &one.name))
    }

    fn labels(&self) -> Said {
        let parameters = self.parameters.iter().map(|one| format!(", {} {}", one.name, one.test));
        Said::of(None, || format!("{}{}", self.what, parameters.collect::<String>()))
    }

    fn ask(&self, facts: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let presence = self.presence(facts);
        // The parameters of a module that is not there are not there either; once is enough.
        let absent = presence.verdict == Verdict::Fail;
        reasons.push(presence);
        if !absent && !self.parameters.is_empty() {
            let owners = Owners::new(facts);
            reasons.extend(self.parameters.iter().map(|one| self.parameter(one, facts, &owners)));
        }
    }
}

/// Which modules have a parameter, as far as the facts tell. Put together when one is missing:
/// a document may ask for many, and a host have thousands.
struct Owners<'f> {
    facts: &'f Facts,
    by_parameter: OnceCell<BTreeMap<String, Vec<&'f str>>>,
}

impl<'f> Owners<'f> {
    fn new(facts: &'f Facts) -> Self {
        Self { facts, by_parameter: OnceCell::new() }
    }

    /// Some of the modules other than `module` that have it.
    fn of(&self, parameter: &str, module: &str) -> Vec<String> {
        let known = self.by_parameter.get_or_init(|| self.collect());
        let owners = known.get(&parameter.replace('-', "_")).into_iter().flatten();
        owners
            .filter(|owner| !same_but_for_dashes(owner, module))
            .take(5)
            .map(|o| shown(o))
            .collect()
    }

    fn collect(&self) -> BTreeMap<String, Vec<&'f str>> {
        let mut owners: BTreeMap<String, Vec<&str>> = BTreeMap::new();
        if let Ok(feature) = self.facts.feature(PARAMETER) {
            let known = feature.attributes.iter().flat_map(|attributes| attributes.keys());
            let names = known.chain(feature.unknown.keys());
            for (owner, parameter) in names.filter_map(|name| name.split_once('.')) {
                owners.entry(parameter.replace('-', "_")).or_default().push(owner);
            }
        }
        owners
    }
}

/// Parameters are texts that drivers print: `Y` is 1, and lists have commas.
fn equal(expected: &Scalar, found: &str) -> bool {
    let expected = match expected {
        Scalar::Bool(true) => "Y",
        Scalar::Bool(false) => "N",
        other => other.as_str(),
    };
    let (expected, found) = (expected.trim(), found.trim());
    if !expected.contains(',') && !found.contains(',') {
        return equal_items(expected, found);
    }
    let (mut a, mut b) = (expected.split(','), found.split(','));
    loop {
        match (a.next(), b.next()) {
            (None, None) => return true,
            (Some(a), Some(b)) if equal_items(a.trim(), b.trim()) => {}
            _ => return false,
        }
    }
}

fn equal_items(a: &str, b: &str) -> bool {
    let prints_boolean = |text: &str| matches!(text, "Y" | "N");
    a == b
        // Only where one of them is certainly a boolean: 1 and on may be different elsewhere.
        || ((prints_boolean(a) || prints_boolean(b)) && boolean(a).is_some() && boolean(a) == boolean(b))
        || (integer(a).is_some() && integer(a) == integer(b))
}

fn boolean(text: &str) -> Option<bool> {
    match text {
        "Y" | "y" | "1" | "on" | "true" => Some(true),
        "N" | "n" | "0" | "off" | "false" => Some(false),
        _ => None,
    }
}

fn integer(text: &str) -> Option<i128> {
    let (negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    let hex = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    // `from_str_radix` takes a sign of its own, and one is enough.
    let number = match hex {
        Some(hex) if hex.starts_with(['+', '-']) => return None,
        Some(hex) => i128::from_str_radix(hex, 16).ok()?,
        None if digits.starts_with(['+', '-']) => return None,
        None => digits.parse().ok()?,
    };
    Some(if negative { -number } else { number })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_compared_as_drivers_print_them() {
        for (expected, found, same) in [
            ("1", "Y", true),
            ("on", "Y", true),
            ("true", "N", false),
            ("Y", "1", true),
            ("0", "N", true),
            ("off", "N", true),
            // Neither is certainly a boolean.
            ("on", "1", false),
            ("true", "1", false),
            ("yes", "Y", false),
            ("1", "1\n", true),
            ("0x10", "16", true),
            ("16", "0x10", true),
            ("-1", "-1", true),
            ("--1", "1", false),
            ("0x-1", "-1", false),
            ("performance", "performance", true),
            ("performance", "powersave", false),
            ("1,0,Y", "Y,N,1", true),
            ("1,2", "1,2,3", false),
            ("1,2,3", "1,2", false),
            ("1, 2", "1,2", true),
            ("", "", true),
            ("", "x", false),
        ] {
            assert_eq!(
                equal(&Scalar::Text(expected.to_owned()), found),
                same,
                "{expected} {found}"
            );
        }
        assert!(equal(&Scalar::Bool(true), "Y") && equal(&Scalar::Bool(true), "1"));
        assert!(equal(&Scalar::Bool(false), "N") && !equal(&Scalar::Bool(false), "Y"));
    }
}
