//! Variables for steps.

use portolan_api::k8s_openapi::api::core::v1::EnvVar;
use portolan_api::reason::Reason;

use super::super::refusal::Refusals;

/// Variables that change how programs are loaded or start; `*` at the end means every name that
/// begins so.
const FORBIDDEN: [&str; 11] = [
    "LD_*",
    "BASH_FUNC_*",
    "BASH_ENV",
    "ENV",
    "CDPATH",
    "PYTHONSTARTUP",
    "PERL5OPT",
    "PERLLIB",
    "PERL5LIB",
    "RUBYOPT",
    "NODE_OPTIONS",
];

/// Whether steps must not have a variable of this name.
pub(crate) fn forbidden(name: &str) -> bool {
    FORBIDDEN.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(prefix) => name.starts_with(prefix),
        None => name == *pattern,
    })
}

/// The variables of a Build and its run.
pub(crate) fn check(env: &[EnvVar], refusals: &mut Refusals) {
    for variable in env {
        let name = &variable.name;
        if name.is_empty() {
            refusals.add(
                Reason::SpecEnvNameCanNotBeBlank,
                "name for environment variable must not be blank",
            );
        }
        if variable.value.is_some() && variable.value_from.is_some() {
            refusals.add(
                Reason::SpecEnvOnlyOneOfValueOrValueFromMustBeSpecified,
                format!(
                    "environment variable {name:?} has value and valueFrom; leave one of them out"
                ),
            );
        }
        if forbidden(name) {
            refusals.add(
                Reason::SpecEnvNameForbidden,
                format!("environment variable {name:?} is forbidden for security reasons"),
            );
        }
    }
}
