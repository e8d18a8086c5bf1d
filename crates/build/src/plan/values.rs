//! From values in resources to values of parameters, and to variables where a value is kept in a
//! config map or secret.

use portolan_api::build::{KeyReference, ParamValue, Parameter, ParameterKind, SingleValue};
use portolan_api::k8s_openapi::api::core::v1::{
    ConfigMapKeySelector, EnvVar, EnvVarSource, SecretKeySelector,
};

use super::literal::literal;
use super::task::{Param, Step, Value};
use crate::names::short_hash;

/// Parameters with their values, and the variables that some of them stand on.
#[derive(Debug, Default)]
pub(super) struct Bound {
    pub(super) params: Vec<Param>,
    variables: Vec<(String, EnvVar)>,
}

/// Gives every parameter of a strategy its value: the last of `given` that has one.
pub(super) fn bind(declared: &[Parameter], given: &[&ParamValue]) -> Bound {
    let mut bound = Bound::default();
    for parameter in declared {
        let value = given
            .iter()
            .rev()
            .find(|value| value.name == parameter.name)
            .and_then(|value| value_of(value, &mut bound.variables));
        bound.params.push(Param {
            name: parameter.name.clone(),
            description: parameter.description.clone(),
            default: default(parameter),
            value,
        });
    }
    bound
}

fn default(parameter: &Parameter) -> Option<Value> {
    match parameter.kind {
        ParameterKind::String => parameter.default.clone().map(Value::Text),
        ParameterKind::Array => parameter.defaults.clone().map(Value::List),
    }
}

fn value_of(given: &ParamValue, variables: &mut Vec<(String, EnvVar)>) -> Option<Value> {
    match &given.values {
        Some(items) => Some(Value::List(
            items.iter().filter_map(|item| single(&given.name, item, variables)).collect(),
        )),
        None => single(&given.name, &given.single, variables).map(Value::Text),
    }
}

fn single(
    param: &str,
    value: &SingleValue,
    variables: &mut Vec<(String, EnvVar)>,
) -> Option<String> {
    let (reference, place, word) = match value {
        SingleValue { config_map_value: Some(reference), .. } => {
            (reference, "CONFIGMAP", "${CONFIGMAP_VALUE}")
        }
        SingleValue { secret_value: Some(reference), .. } => {
            (reference, "SECRET", "${SECRET_VALUE}")
        }
        SingleValue { value, .. } => return value.as_deref().map(literal),
    };
    let variable = variable(place, reference);
    let inserted = format!("$({})", variable.name);
    variables.push((param.to_owned(), variable));
    Some(match &reference.format {
        Some(format) => format.split(word).map(literal).collect::<Vec<_>>().join(&inserted),
        None => inserted,
    })
}

/// One variable for each key, however many parameters name it.
fn variable(place: &str, reference: &KeyReference) -> EnvVar {
    let KeyReference { name, key, .. } = reference;
    let hash = short_hash(&format!("{place}/{name}/{key}"), 8).to_uppercase();
    let source = match place {
        "SECRET" => EnvVarSource {
            secret_key_ref: Some(SecretKeySelector {
                name: name.clone(),
                key: key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        },
        _ => EnvVarSource {
            config_map_key_ref: Some(ConfigMapKeySelector {
                name: name.clone(),
                key: key.clone(),
                optional: None,
            }),
            ..EnvVarSource::default()
        },
    };
    EnvVar { name: format!("SHP_{place}_PARAM_{hash}"), value: None, value_from: Some(source) }
}

impl Bound {
    /// Puts variables before those of every step that uses their parameter.
    pub(super) fn inject(&self, steps: &mut [Step]) {
        for step in steps {
            let mut first: Vec<EnvVar> = Vec::new();
            for (param, variable) in &self.variables {
                if uses(step, param) && !first.contains(variable) {
                    first.push(variable.clone());
                }
            }
            step.env.splice(0..0, first);
        }
    }
}

/// Whether a step names a parameter, in any of Tekton's spellings.
pub(super) fn uses(step: &Step, param: &str) -> bool {
    texts(step).any(|text| names(text, param))
}

/// Everything of a step in which a parameter or a result can be named.
pub(super) fn texts(step: &Step) -> impl Iterator<Item = &str> {
    let env = step.env.iter().filter_map(|variable| variable.value.as_deref());
    step.command.iter().chain(&step.args).map(String::as_str).chain(env)
}

/// Whether a text names a parameter, in any of Tekton's spellings.
pub(super) fn names(text: &str, param: &str) -> bool {
    let forms = [
        format!("$(params.{param}"),
        format!("$(params['{param}']"),
        format!("$(params[\"{param}\"]"),
    ];
    forms.iter().any(|form| {
        text.match_indices(form.as_str()).any(|(at, _)| {
            // `$(params.a)` must not be found in `$(params.ab)`.
            let next = text[at + form.len()..].chars().next();
            matches!(next, Some(')' | '['))
        })
    })
}
