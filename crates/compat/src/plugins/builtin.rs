//! The plugins that need no program: their names, and the way in.

use portolan_host::facts::{Facts, Wanted};

use super::finding::{BUILT_IN, not_understood};
use super::{Demand, Demands, Manner, areas, hardware, kernel_cmdline, kernel_configuration};
use super::{kernel_modules, kernel_version};
use crate::affinity::Said;
use crate::diagnostic::{Diagnostics, Severity};
use crate::evaluate::{Answer, Reason};
use crate::json::{Member, Place, Spanned, Value};
use crate::text::shown;
use crate::value::At;
use crate::verdict::Verdict;

/// Five of the proposal's example, then its eight areas.
pub const NAMES: [&str; 13] = [
    "kernelVersion",
    "kernelConfiguration",
    "kernelModules",
    "kernelCmdline",
    "hardware",
    "cpu",
    "kernel",
    "memory",
    "network",
    "pci",
    "usb",
    "storage",
    "system",
];

/// More things that are wrong with one plugin's data help nobody.
const MAX_WRONG: usize = 10;

/// Whether a plugin of this name is built in.
pub fn is(name: &str) -> bool {
    NAMES.contains(&name)
}

/// Reads the data of the plugin `name`, which is built in.
fn demands(name: &str, data: &Spanned, at: &mut At<'_>) -> Demands {
    match name {
        "kernelVersion" => kernel_version::read(data, at),
        "kernelConfiguration" => kernel_configuration::read(data, at),
        "kernelModules" => kernel_modules::read(data, at),
        "kernelCmdline" => kernel_cmdline::read(data, at),
        "hardware" => hardware::read(data, at),
        area => areas::read(area, data, at),
    }
}

/// [`demands`] of data that has no place in a document to remark on.
fn read(name: &str, data: Option<&Spanned>) -> (Demands, Diagnostics) {
    let mut wrong = Diagnostics::new(false);
    let empty = nothing(Place { line: 1, column: 1 });
    let demands = demands(name, data.unwrap_or(&empty), &mut At::new(String::new(), &mut wrong));
    (demands, wrong)
}

/// Adds a remark for all that is wrong with a plugin's data. `place` is where the plugin is
/// written, and `path` leads to its data.
pub fn lint(
    name: &str,
    place: Place,
    data: Option<&Spanned>,
    path: String,
    found: &mut Diagnostics,
) {
    if !is(name) {
        return;
    }
    let mut at = At::new(path, found);
    let empty = nothing(place);
    let data = data.unwrap_or(&empty);
    demands(name, data, &mut at);
    if let Value::Object(members) = &data.value
        && members.is_empty()
        && name != "kernelVersion"
    {
        at.unlikely(place, format!("{name} is asked for nothing, so it always passes"), None);
    }
}

/// The facts that the plugin would look at; none for one that is not built in.
pub fn needs(name: &str, data: Option<&Spanned>) -> Wanted {
    if !is(name) {
        return Wanted::default();
    }
    let (demands, _) = read(name, data);
    demands.iter().fold(Wanted::default(), |wanted, demand| demand.needs(wanted))
}

/// What the plugin's data means for the labels of a node; none for one that is not built in.
pub(crate) fn labels(name: &str, data: Option<&Spanned>) -> Option<Vec<Said>> {
    if !is(name) {
        return None;
    }
    let (demands, _) = read(name, data);
    Some(demands.iter().map(|demand| demand.labels()).collect())
}

/// What the facts say to the plugin's data; none for one that is not built in.
///
/// Data that cannot be read is unknown, never a reason to panic: documents that were linted have
/// none, but external plugins hand over their own.
pub fn ask(name: &str, data: Option<&Spanned>, facts: &Facts, manner: Manner) -> Option<Answer> {
    if !is(name) {
        return None;
    }
    let (demands, wrong) = read(name, data);
    let mut reasons = Vec::with_capacity(demands.len());
    for demand in &demands {
        demand.ask(facts, manner, &mut reasons);
    }
    // What is partly not understood is not answered at all.
    let failed = wrong.failed();
    if failed {
        let (wrong, _) = wrong.finish();
        let errors = wrong.into_iter().filter(|one| one.severity == Severity::Error);
        reasons.extend(errors.take(MAX_WRONG).map(|one| not_understood(shown(&one.message))));
    }
    let verdict = match failed {
        true => Verdict::Unknown,
        false => Verdict::all(reasons.iter().map(|reason| reason.verdict)),
    };
    let provider = BUILT_IN.to_owned();
    Some(Answer {
        verdict,
        provider,
        digest: None,
        duration_ms: None,
        sandbox: Vec::new(),
        reasons,
    })
}

/// Data that is left out is empty.
fn nothing(place: Place) -> Spanned {
    Spanned { place, value: Value::Object(Vec::new()) }
}

/// A field that the plugin does not know. What it would ask for cannot be said to be there.
#[derive(Debug)]
pub(super) struct UnknownField {
    name: String,
}

impl UnknownField {
    /// With its remark.
    pub(super) fn read(member: &Member, known: &[&str], at: &mut At<'_>) -> Box<dyn Demand> {
        at.unknown_field(member, known);
        Box::new(Self { name: member.key.clone() })
    }
}

impl Demand for UnknownField {
    fn needs(&self, wanted: Wanted) -> Wanted {
        wanted
    }

    fn labels(&self) -> Said {
        Said::of(None, || format!("the field {}", shown(&self.name)))
    }

    fn ask(&self, _: &Facts, _: Manner, reasons: &mut Vec<Reason>) {
        let message = format!("the field {} is not known to this plugin", shown(&self.name));
        reasons.push(not_understood(message));
    }
}
