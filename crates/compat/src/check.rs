//! Whether a host fits a spec: pure, from facts that were collected.

use std::collections::HashMap;
use std::fmt::Write as _;

use portolan_host::facts::{Facts, Wanted};

use crate::document::{NamespaceId, Plugin, Spec};
use crate::evaluate::{Answer, Depth, evaluate, reached};
use crate::json::{Spanned, Value};
use crate::plugins::{External, Manner, builtin};
use crate::report::Report;

/// What is asked of a spec.
#[derive(Debug, Clone, Default)]
pub struct Options<'a> {
    /// Begin at these namespaces instead of those that nobody refers to.
    pub roots: &'a [String],
    /// How much is looked at.
    pub depth: Depth,
    /// How facts are compared.
    pub manner: Manner,
}

/// There is no such namespace to begin at.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the spec has no namespace {name:?} to begin at{}", near.as_ref().map(|near| format!("; did you mean {near}?")).unwrap_or_default())]
pub struct NoSuchRootError {
    /// As given.
    pub name: String,
    /// What was probably meant.
    pub near: Option<String>,
}

/// Where evaluation begins.
fn roots(spec: &Spec, options: &Options<'_>) -> Result<Vec<NamespaceId>, NoSuchRootError> {
    if options.roots.is_empty() {
        return Ok(spec.roots().to_vec());
    }
    let mut ids = Vec::with_capacity(options.roots.len());
    for name in options.roots {
        let id = spec.find(name).ok_or_else(|| {
            let names = spec.namespaces().map(|(_, namespace)| namespace.name.as_str());
            let near = portolan_core::suggest::nearest(name, names).map(str::to_owned);
            NoSuchRootError { name: crate::text::short(name), near }
        })?;
        if !ids.contains(&id) {
            ids.push(id);
        }
    }
    Ok(ids)
}

/// The facts that a check will look at: no others need to be collected. External plugins are
/// handed all that there are, so where one is asked for this is everything.
pub fn needs(spec: &Spec, options: &Options<'_>) -> Result<Wanted, NoSuchRootError> {
    let reached = reached(spec, &roots(spec, options)?);
    let mut wanted = Wanted::default();
    for (id, namespace) in spec.namespaces() {
        if reached[id.0] {
            for plugin in &namespace.plugins {
                wanted = wanted.and(builtin::needs(&plugin.name, plugin.data.as_ref()));
            }
        }
    }
    Ok(wanted)
}

/// Whether a spec asks for plugins that are not built in, or names a source for one that is, as far
/// as its roots lead.
pub fn asks_external(spec: &Spec, options: &Options<'_>) -> Result<bool, NoSuchRootError> {
    let reached = reached(spec, &roots(spec, options)?);
    let mut namespaces = spec.namespaces().filter(|(id, _)| reached[id.0]);
    let is_external = |plugin: &Plugin| !builtin::is(&plugin.name) || plugin.source.is_some();
    Ok(namespaces.any(|(_, one)| one.plugins.iter().any(is_external)))
}

/// Asks every plugin of the spec about the host that `facts` describe.
///
/// Plugins that are asked the same in several namespaces are asked once. Those that are not built
/// in, or that `external` overrides, go there.
pub fn check(
    spec: &Spec,
    facts: &Facts,
    options: &Options<'_>,
    external: &mut dyn External,
) -> Result<Report, NoSuchRootError> {
    let roots = roots(spec, options)?;
    let mut asked: HashMap<String, Answer> = HashMap::new();
    let evaluation = evaluate(spec, Some(&roots), options.depth, &mut |namespace, plugin| {
        let key = question(plugin);
        if let Some(answer) = asked.get(&key) {
            return answer.clone();
        }
        let built_in = if external.overrides(&namespace.name, plugin) {
            None
        } else {
            builtin::ask(&plugin.name, plugin.data.as_ref(), facts, options.manner)
        };
        let answer = built_in.unwrap_or_else(|| external.ask(&namespace.name, plugin, facts));
        asked.insert(key, answer.clone());
        answer
    });
    let mut report = Report::new(spec, evaluation);
    report.warnings.extend(facts.warnings().iter().map(|warning| crate::text::shown(warning)));
    Ok(report)
}

/// What a plugin is asked, in a form that is the same for the same question.
fn question(plugin: &Plugin) -> String {
    let mut key = plugin.name.clone();
    for part in [plugin.digest.as_ref(), plugin.data.as_ref()] {
        key.push('\0');
        if let Some(part) = part {
            canonical(part, &mut key);
        }
    }
    key.push('\0');
    key.push_str(plugin.source.as_deref().unwrap_or_default());
    key
}

/// JSON with sorted keys and no space. Recursion is bounded by [`crate::json::MAX_DEPTH`].
fn canonical(value: &Spanned, out: &mut String) {
    match &value.value {
        Value::Null => out.push_str("null"),
        Value::Bool(true) => out.push_str("true"),
        Value::Bool(false) => out.push_str("false"),
        Value::Number(number) => _ = write!(out, "{number}"),
        Value::String(text) => _ = write!(out, "{text:?}"),
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Object(members) => {
            let mut sorted: Vec<_> = members.iter().collect();
            sorted.sort_by(|a, b| a.key.cmp(&b.key));
            out.push('{');
            for member in sorted {
                _ = write!(out, "{:?}:", member.key);
                canonical(&member.value, out);
                out.push(',');
            }
            out.push('}');
        }
    }
}
