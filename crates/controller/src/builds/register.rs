//! Whether a Build can be used, and what its status says of that. Pure.

use std::collections::BTreeSet;

use portolan_api::build::{Build, BuildSpec, BuildStatus};
use portolan_api::keys;
use portolan_api::reason::outcome;
use portolan_build::plan;

use crate::runs::decide::World;

/// Secrets that a Build names, for its source and for its output.
pub fn secrets(spec: &BuildSpec) -> (Option<&str>, Option<&str>) {
    let source = spec.source.as_ref();
    let clone = source.and_then(|source| source.git.as_ref()?.clone_secret.as_deref());
    let pull = source.and_then(|source| source.oci_artifact.as_ref()?.pull_secret.as_deref());
    let push = spec.output.settings.push_secret.as_deref();
    (clone.or(pull).filter(|name| !name.is_empty()), push.filter(|name| !name.is_empty()))
}

/// What speaks against a Build: the first thing, in upstream's order.
///
/// # Errors
/// Reason and message.
pub fn check(build: &Build, world: &World) -> Result<(), (String, String)> {
    let (source, output) = secrets(&build.spec);
    let missing =
        |name: Option<&str>| name.filter(|name| !world.secrets.contains(*name)).map(str::to_owned);
    let (source, output) = (missing(source), missing(output));
    let all: BTreeSet<&String> = source.iter().chain(&output).collect();
    let names: Vec<&str> = all.into_iter().map(String::as_str).collect();
    match names.as_slice() {
        [] => {}
        [name] => {
            let reason = match source.is_some() {
                true => outcome::SOURCE_SECRET_NOT_FOUND,
                false => outcome::OUTPUT_SECRET_NOT_FOUND,
            };
            return Err((reason.to_owned(), format!("referenced secret {name} not found")));
        }
        many => {
            let message = format!("missing secrets are {}", many.join(","));
            return Err((outcome::SECRETS_NOT_FOUND.to_owned(), message));
        }
    }
    match plan::registration(build, &world.objects).into_iter().next() {
        Some(refusal) => Err((refusal.reason.to_string(), refusal.message)),
        None => Ok(()),
    }
}

/// The status of a Build.
pub fn status(build: &Build, world: &World) -> BuildStatus {
    let (registered, reason, message) = match check(build, world) {
        Ok(()) => ("True", outcome::SUCCEEDED.to_owned(), message(build)),
        Err((reason, message)) => ("False", reason, message),
    };
    BuildStatus {
        registered: Some(registered.to_owned()),
        reason: Some(reason),
        message: Some(message),
    }
}

/// A request that is not served must not look like one that was.
fn message(build: &Build) -> String {
    let annotations = build.metadata.annotations.as_ref();
    let asked = annotations.and_then(|all| all.get(keys::VERIFY_REPOSITORY));
    match asked.is_some_and(|value| value == "true") {
        true => format!(
            "all validations succeeded; {} is not looked at: a run says whether the repository can be reached",
            keys::VERIFY_REPOSITORY
        ),
        false => "all validations succeeded".to_owned(),
    }
}
