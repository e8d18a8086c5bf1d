//! What people write, so that nobody reads it as a reference.
//!
//! Tekton has no way to escape one: it replaces `$(params.x)`, `$(context.…)`, `$(results.…)` and more wherever
//! a step has them, in several goes, so also in what an earlier go put there. Pods replace `$(NAME)` by variables
//! of the container and `$$` by `$`; they do it last, and do not look again at what they put in. So a `$` that
//! somebody wrote becomes a variable, which means nothing to Tekton and `$` to the pod.

use portolan_api::k8s_openapi::api::core::v1::EnvVar;
use portolan_api::reason::Reason;
use serde::Serialize;

use super::refusal::Refusals;
use super::task::{Param, Step, Task, Value};
use super::values::{names, uses};

/// The variable that is a `$`.
const NAME: &str = "SHP_DOLLAR";
/// How it is put into a text.
const DOLLAR: &str = "$(SHP_DOLLAR)";
/// What references to Tekton begin with; a variable of a pod is hardly called so.
const TEKTON: [&str; 11] = [
    "params",
    "context",
    "results",
    "workspaces",
    "tasks",
    "steps",
    "step",
    "inputs",
    "outputs",
    "artifacts",
    "credentials",
];

/// A text for an argument or a parameter that arrives as it was written.
pub(super) fn literal(text: &str) -> String {
    text.replace('$', DOLLAR)
}

/// The value of a variable. Kubernetes itself says that `$(NAME)` in it is another variable and `$$` is `$`;
/// that holds, and Tekton replaces nothing.
pub(super) fn variable(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        rest = if let Some(escaped) = after.strip_prefix('$') {
            out.push_str(DOLLAR);
            escaped
        } else {
            out.push_str(if is_tektons(after) { DOLLAR } else { "$" });
            after
        };
    }
    out.push_str(rest);
    out
}

/// Whether what follows a `$` makes it a reference to Tekton.
fn is_tektons(after: &str) -> bool {
    let Some(name) = after.strip_prefix('(') else { return false };
    TEKTON
        .iter()
        .any(|word| name.strip_prefix(word).is_some_and(|rest| rest.starts_with(['.', '['])))
}

/// The task with the variable in every step that needs it: before all others, which may name it.
pub(super) fn supplied(mut task: Task) -> Task {
    let Task { steps, params, .. } = &mut task;
    for step in steps.iter_mut() {
        let env = step.env.iter().filter_map(|variable| variable.value.as_ref());
        let written =
            step.command.iter().chain(&step.args).chain(env).any(|text| text.contains(DOLLAR));
        if written || params.iter().any(|param| has_dollar(param) && uses(step, &param.name)) {
            let (name, value) = (NAME.to_owned(), Some("$".to_owned()));
            step.env.insert(0, EnvVar { name, value, value_from: None });
        }
    }
    task
}

fn has_dollar(param: &Param) -> bool {
    match &param.value {
        Some(Value::Text(text)) => text.contains(DOLLAR),
        Some(Value::List(items)) => items.iter().any(|item| item.contains(DOLLAR)),
        _ => false,
    }
}

/// Refuses what could only arrive changed: pods replace variables in commands, arguments and variables, so
/// what has a `$` must go nowhere else, and names of objects have none.
pub(super) fn check(task: &Task, kind: Reason, refusals: &mut Refusals) {
    let mut elsewhere = text(&task.volumes);
    for step in &task.steps {
        let (command, args, env) = Default::default();
        elsewhere.push_str(&text(&Step { command, args, env, ..step.clone() }));
        let named = step.env.iter().find(|one| one.value_from.as_ref().is_some_and(refers));
        if let Some(EnvVar { name, .. }) = named {
            let what = format!(
                "environment variable {name:?} comes from an object with a `$(` in its name"
            );
            refusals.add(kind, what);
        }
    }
    let outside = task.params.iter().find(|one| has_dollar(one) && names(&elsewhere, &one.name));
    if let Some(Param { name, .. }) = outside {
        refusals.add(
            kind,
            format!(
                "the value of {name:?} has a `$`, and the strategy uses it where that cannot be told from a reference; leave the `$` out"
            ),
        );
    }
}

/// Whether there is a reference in an object that somebody wrote, where none belongs.
pub(super) fn refers(object: &impl Serialize) -> bool {
    text(object).contains("$(")
}

/// An object as text. Names of parameters may be in quotes, which JSON escapes.
fn text(object: &impl Serialize) -> String {
    serde_json::to_string(object).unwrap_or_default().replace("\\\"", "\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_keep_what_kubernetes_says_and_lose_what_tekton_would() {
        for (text, expected) in [
            ("plain", "plain"),
            ("a$b", "a$b"),
            ("$(HOME)/x", "$(HOME)/x"),
            ("$(params.x)", "$(SHP_DOLLAR)(params.x)"),
            (
                "$(params['x'])$(context.taskRun.name)",
                "$(SHP_DOLLAR)(params['x'])$(SHP_DOLLAR)(context.taskRun.name)",
            ),
            // Escaped for Kubernetes, which Tekton would not mind.
            ("$$(params.x)", "$(SHP_DOLLAR)(params.x)"),
            ("$$$(HOME)", "$(SHP_DOLLAR)$(HOME)"),
            ("$(paramsX)", "$(paramsX)"),
            ("costs 5$", "costs 5$"),
        ] {
            assert_eq!(variable(text), expected, "{text}");
        }
    }
}
