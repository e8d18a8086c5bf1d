//! Values for parameters of a strategy.

use portolan_api::build::{KeyReference, ParamValue, Parameter, ParameterKind, SingleValue};
use portolan_api::reason::Reason;

use super::super::refusal::Refusals;

/// Names that the system sets, and that nobody else may.
pub(crate) fn is_reserved(name: &str) -> bool {
    name.starts_with("shp-") || ["BUILDER_IMAGE", "DOCKERFILE", "CONTEXT_DIR"].contains(&name)
}

/// `values` against what a strategy declares. `whose` is put before messages: empty for those of
/// a Build, else who sets them.
pub(crate) fn check(
    values: &[ParamValue],
    declared: &[Parameter],
    whose: &str,
    refusals: &mut Refusals,
) {
    let named = |names: Vec<&str>| names.join(", ");
    let reserved: Vec<&str> = names(values).filter(|name| is_reserved(name)).collect();
    if !reserved.is_empty() {
        refusals.add(
            Reason::RestrictedParametersInUse,
            format!(
                "{whose}The following parameters are restricted and cannot be set: {}",
                named(reserved)
            ),
        );
    }
    let find = |name: &str| declared.iter().find(|parameter| parameter.name == name);
    let undefined: Vec<&str> =
        names(values).filter(|name| !is_reserved(name) && find(name).is_none()).collect();
    if !undefined.is_empty() {
        refusals.add(
            Reason::UndefinedParameter,
            format!(
                "{whose}The following parameters are not defined in the build strategy: {}",
                named(undefined)
            ),
        );
    }
    for value in values {
        if let Some(parameter) = find(&value.name) {
            kind(value, parameter, whose, refusals);
        }
        singles(value, whose, refusals);
    }
}

/// Parameters that nobody gives a value, over all who may give one.
pub(crate) fn missing(given: &[&str], declared: &[Parameter], refusals: &mut Refusals) {
    let missing: Vec<&str> = declared
        .iter()
        .filter(|parameter| parameter.default.is_none() && parameter.defaults.is_none())
        .map(|parameter| parameter.name.as_str())
        .filter(|name| !given.contains(name))
        .collect();
    if !missing.is_empty() {
        refusals.add(
            Reason::MissingParameterValues,
            format!(
                "The following parameters are required but no value has been provided: {}",
                missing.join(", ")
            ),
        );
    }
}

fn names(values: &[ParamValue]) -> impl Iterator<Item = &str> {
    values.iter().map(|value| value.name.as_str())
}

fn kind(value: &ParamValue, parameter: &Parameter, whose: &str, refusals: &mut Refusals) {
    let is_single = count(&value.single) > 0;
    let wrong = match parameter.kind {
        ParameterKind::String => value.values.is_some(),
        ParameterKind::Array => is_single,
    };
    if wrong {
        let (wanted, given) = match parameter.kind {
            ParameterKind::String => ("one value", "values"),
            ParameterKind::Array => ("values", "one value"),
        };
        refusals.add(
            Reason::WrongParameterValueType,
            format!("{whose}parameter {:?} takes {wanted}, not {given}", value.name),
        );
    }
}

fn count(value: &SingleValue) -> usize {
    [value.value.is_some(), value.config_map_value.is_some(), value.secret_value.is_some()]
        .into_iter()
        .filter(|there| *there)
        .count()
}

fn singles(value: &ParamValue, whose: &str, refusals: &mut Refusals) {
    let name = &value.name;
    let items = value.values.iter().flatten();
    if items.clone().any(|item| count(item) == 0) {
        refusals.add(
            Reason::EmptyArrayItemParameterValues,
            format!("{whose}parameter {name:?} has an item without any value"),
        );
    }
    let all: Vec<&SingleValue> = items.chain([&value.single]).collect();
    if all.iter().any(|item| count(item) > 1) {
        refusals.add(
            Reason::InconsistentParameterValues,
            format!(
                "{whose}parameter {name:?} has more than one of value, configMapValue and secretValue"
            ),
        );
    }
    let incomplete = |reference: Option<&KeyReference>| {
        reference.is_some_and(|reference| reference.name.is_empty() || reference.key.is_empty())
    };
    if all.iter().any(|item| incomplete(item.config_map_value.as_ref())) {
        refusals.add(
            Reason::IncompleteConfigMapValueParameterValues,
            format!("{whose}parameter {name:?} names a config map without its name or key"),
        );
    }
    if all.iter().any(|item| incomplete(item.secret_value.as_ref())) {
        refusals.add(
            Reason::IncompleteSecretValueParameterValues,
            format!("{whose}parameter {name:?} names a secret without its name or key"),
        );
    }
}
