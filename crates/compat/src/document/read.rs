//! From JSON to a [`Spec`], with a remark for everything that is not as it should be.

use std::collections::BTreeMap;

use super::graph::{Shape, shape};
use super::refs::{NamedRefs, looks_like_refs};
use super::{
    BuiltIn, MAX_EDGES, MAX_NAMESPACES, MAX_PLUGINS, Namespace, NamespaceId, Plugin, Spec,
};
use crate::diagnostic::{Code, Diagnostics, pointer};
use crate::json::{Member, Place, Spanned, Value};
use crate::plugins::builtin;
use crate::text::short;

const SPEC_FIELDS: [&str; 2] = ["schemaVersion", "namespaces"];
const NAMESPACE_FIELDS: [&str; 2] = ["plugins", "refs"];
const PLUGIN_FIELDS: [&str; 3] = ["source", "digest", "data"];
pub(super) fn spec(
    document: &Spanned,
    built_in: &dyn BuiltIn,
    found: &mut Diagnostics,
) -> Option<Spec> {
    let members = object(document, "", "the document", found)?;
    // `schema` is looked at with what it stands for.
    for member in members.iter().filter(|member| member.key != "schema") {
        unknown_field(member, "", &SPEC_FIELDS, found);
    }
    let schema_version = schema_version(document, found);
    let Some(namespaces) = document.get("namespaces") else {
        let message = "`namespaces` is missing; it holds what the image needs".to_owned();
        found.add(Code::Missing, document.place, "", message);
        return None;
    };
    let listed = object(&namespaces.value, "/namespaces", "`namespaces`", found)?;
    if listed.is_empty() {
        let message = "there are no namespaces, so nothing could ever pass".to_owned();
        found.add(Code::NoNamespaces, namespaces.place, "/namespaces", message);
        return None;
    }
    if listed.len() > MAX_NAMESPACES {
        let message = format!("{} namespaces, more than {MAX_NAMESPACES}", listed.len());
        found.add(Code::Limit, namespaces.place, "/namespaces", message);
        return None;
    }
    let mut by_name = ByName::new();
    let mut plugins = 0;
    for member in listed {
        let path = pointer("/namespaces", &member.key);
        // What is inside of something that cannot have its name is nobody's.
        let (own, refs) = match name(member, &path, "namespace", found) {
            true => namespace(member, &path, built_in, found),
            false => Default::default(),
        };
        plugins += own.len();
        by_name.insert(&member.key, (member.place, own, refs));
    }
    if plugins > MAX_PLUGINS {
        let message = format!("{plugins} plugins, more than {MAX_PLUGINS}");
        found.add(Code::Limit, namespaces.place, "/namespaces", message);
        return None;
    }
    let namespaces = resolve(by_name, namespaces.place, found)?;
    connect(schema_version?, namespaces, found)
}

/// Where a namespace is written, what it asks for, and what it refers to.
type ByName<'a> = BTreeMap<&'a str, (Place, Vec<Plugin>, NamedRefs<'a>)>;

/// Looks names up.
fn resolve(by_name: ByName<'_>, all_at: Place, found: &mut Diagnostics) -> Option<Vec<Namespace>> {
    let edges: usize = by_name.values().map(|(_, _, refs)| refs.len()).sum();
    if edges > MAX_EDGES {
        let message = format!("{edges} references, more than {MAX_EDGES}");
        found.add(Code::Limit, all_at, "/namespaces", message);
        return None;
    }
    let names: Vec<&str> = by_name.keys().copied().collect();
    let mut namespaces = Vec::with_capacity(by_name.len());
    for (name, (place, plugins, refs)) in by_name {
        let refs = refs.resolve(name, &names, found);
        let wanted = refs.all.iter().chain(refs.one_of.iter().flatten());
        for id in wanted.filter(|id| refs.none_of.contains(id)) {
            let message =
                format!("{name:?} both needs and forbids {:?}; no host can do that", names[id.0]);
            let path = pointer("/namespaces", name);
            found.add(Code::Contradiction, place, &path, message);
        }
        namespaces.push(Namespace { name: name.to_owned(), place, plugins, refs });
    }
    Some(namespaces)
}

fn connect(
    schema_version: String,
    namespaces: Vec<Namespace>,
    found: &mut Diagnostics,
) -> Option<Spec> {
    let (roots, order) = match shape(&namespaces) {
        Shape::Dag { roots, order } => (roots, order),
        Shape::Cycle(around) => {
            let mut names: Vec<&str> =
                around.iter().map(|id| namespaces[id.0].name.as_str()).collect();
            names.extend(names.first().copied());
            let place = around.first().map_or(namespaces[0].place, |id| namespaces[id.0].place);
            let message = format!("namespaces refer to each other: {}", names.join(" -> "));
            found.add(Code::Cycle, place, "/namespaces", message);
            return None;
        }
    };
    // What could not be read above may be just what makes a namespace look empty.
    let all_was_read = !found.failed();
    for (n, namespace) in namespaces.iter().enumerate().filter(|_| all_was_read) {
        if !namespace.plugins.is_empty() || namespace.refs.iter().next().is_some() {
            continue;
        }
        let path = pointer("/namespaces", &namespace.name);
        if roots.contains(&NamespaceId(n)) {
            let message = format!(
                "{:?} asks for nothing and nothing refers to it, so every host would fit",
                namespace.name
            );
            found.add(Code::EmptyRoot, namespace.place, &path, message);
        } else {
            let message = format!("{:?} asks for nothing and always passes", namespace.name);
            found.add(Code::EmptyNamespace, namespace.place, &path, message);
        }
    }
    Some(Spec { schema_version, namespaces, roots, order })
}

fn schema_version(document: &Spanned, found: &mut Diagnostics) -> Option<String> {
    let (own, alias) = (document.get("schemaVersion"), document.get("schema"));
    let member = match (own, alias) {
        (Some(own), Some(alias)) => {
            if own.value.value != alias.value.value {
                let message = "`schema` and `schemaVersion` disagree; keep `schemaVersion`";
                found.add(Code::SchemaVersion, alias.place, "/schema", message.to_owned());
                return None;
            }
            unknown_field(alias, "", &SPEC_FIELDS, found);
            own
        }
        (Some(own), None) => own,
        (None, Some(alias)) => {
            let message = "`schema` is taken for `schemaVersion`".to_owned();
            let meant = Some("schemaVersion".to_owned());
            found.add_with(Code::SchemaAlias, alias.place, "/schema", message, meant);
            alias
        }
        (None, None) => {
            let message = "`schemaVersion` is missing; write \"0.1.0\"".to_owned();
            found.add(Code::Missing, document.place, "", message);
            return None;
        }
    };
    let path = pointer("", &member.key);
    let Value::String(text) = &member.value.value else {
        wrong_type(&member.value, &path, "a string such as \"0.1.0\"", found);
        return None;
    };
    if is_supported(text) {
        Some(text.clone())
    } else {
        let message =
            format!("version {:?} of the compatibility spec is not known; 0.1.x is", short(text));
        found.add(Code::SchemaVersion, member.value.place, &path, message);
        None
    }
}

/// `0.1.x`: a later minor version may mean something else until there is a 1.0.
fn is_supported(version: &str) -> bool {
    let Some(patch) = version.strip_prefix("0.1.") else { return false };
    let digits = !patch.is_empty() && patch.len() <= 9 && patch.bytes().all(|c| c.is_ascii_digit());
    digits && (patch == "0" || !patch.starts_with('0'))
}

fn namespace<'a>(
    member: &'a Member,
    path: &str,
    built_in: &dyn BuiltIn,
    found: &mut Diagnostics,
) -> (Vec<Plugin>, NamedRefs<'a>) {
    let mut plugins = Vec::new();
    let mut refs = NamedRefs::default();
    let what = format!("namespace {:?}", short(&member.key));
    let Some(fields) = object(&member.value, path, &what, found) else { return (plugins, refs) };
    for field in fields {
        unknown_field(field, path, &NAMESPACE_FIELDS, found);
    }
    let own = member.value.get("refs");
    if let Some(field) = own {
        refs = NamedRefs::read(&field.value, &pointer(path, "refs"), found);
    }
    let Some(field) = member.value.get("plugins") else { return (plugins, refs) };
    let below = pointer(path, "plugins");
    let Some(listed) = object(&field.value, &below, "`plugins`", found) else {
        return (plugins, refs);
    };
    for plugin in listed {
        let at = pointer(&below, &plugin.key);
        if plugin.key != "refs" {
            if name(plugin, &at, "plugin", found)
                && let Some(plugin) = read_plugin(plugin, &at, built_in, found)
            {
                lint(&plugin, &at, built_in, found);
                plugins.push(plugin);
            }
        } else if !looks_like_refs(&plugin.value) {
            let message = "a plugin cannot be called `refs`".to_owned();
            found.add(Code::Name, plugin.place, &at, message);
        } else if own.is_some() {
            let message = "`refs` is both beside and among the plugins; keep the former";
            found.add(Code::RefsTwice, plugin.place, &at, message.to_owned());
        } else {
            let message = "`refs` is among the plugins; it belongs beside them and is read so";
            found.add(Code::MisplacedRefs, plugin.place, &at, message.to_owned());
            refs = NamedRefs::read(&plugin.value, &at, found);
        }
    }
    plugins.sort_by(|a, b| a.name.cmp(&b.name));
    (plugins, refs)
}

fn read_plugin(
    member: &Member,
    path: &str,
    built_in: &dyn BuiltIn,
    found: &mut Diagnostics,
) -> Option<Plugin> {
    let what = format!("plugin {:?}", short(&member.key));
    let fields = object(&member.value, path, &what, found)?;
    for field in fields {
        unknown_field(field, path, &PLUGIN_FIELDS, found);
    }
    let mut source = None;
    if let Some(field) = member.value.get("source") {
        match &field.value.value {
            Value::String(text) => {
                if built_in.has(&member.key) {
                    let message = format!(
                        "{:?} is built in; its `source` is not used unless the host's policy says so",
                        short(&member.key)
                    );
                    found.add(Code::SourceIgnored, field.place, &pointer(path, "source"), message);
                }
                source = Some(text.clone());
            }
            _ => wrong_type(&field.value, &pointer(path, "source"), "a string", found),
        }
    }
    if let Some(field) = member.value.get("data") {
        object(&field.value, &pointer(path, "data"), "`data`", found)?;
    }
    let value = |key: &str| member.value.get(key).map(|field| field.value.clone());
    Some(Plugin {
        name: member.key.clone(),
        place: member.place,
        source,
        digest: value("digest"),
        data: value("data"),
    })
}

fn lint(plugin: &Plugin, path: &str, built_in: &dyn BuiltIn, found: &mut Diagnostics) {
    if built_in.has(&plugin.name) {
        built_in.lint(plugin, pointer(path, "data"), found);
        return;
    }
    if let Err(why) = crate::external::lint_source(plugin) {
        let at = if plugin.source.is_some() { "source" } else { "digest" };
        found.add(Code::Source, plugin.place, &pointer(path, at), why.to_string());
    }
    let message = format!(
        "{:?} is not built in; it runs only where a policy allows it, and is unknown elsewhere",
        plugin.name
    );
    let near = found.guess(&plugin.name, builtin::NAMES).map(str::to_owned);
    found.add_with(Code::ExternalPlugin, plugin.place, path, message, near);
}

pub(super) fn object<'a>(
    value: &'a Spanned,
    path: &str,
    what: &str,
    found: &mut Diagnostics,
) -> Option<&'a [Member]> {
    match &value.value {
        Value::Object(members) => Some(members),
        other => {
            let message = format!("{what} must be an object, and is {}", other.kind());
            found.add(Code::Type, value.place, path, message);
            None
        }
    }
}

pub(super) fn wrong_type(value: &Spanned, path: &str, wanted: &str, found: &mut Diagnostics) {
    let message = format!("expected {wanted}, found {}", value.value.kind());
    found.add(Code::Type, value.place, path, message);
}

pub(super) fn unknown_field(member: &Member, path: &str, known: &[&str], found: &mut Diagnostics) {
    if known.contains(&member.key.as_str()) {
        return;
    }
    let message = format!("the field {:?} means nothing here", short(&member.key));
    let near = found.guess(&member.key, known.iter().copied()).map(str::to_owned);
    found.add_with(Code::UnknownField, member.place, &pointer(path, &member.key), message, near);
}

/// Names become file names and lines of reports.
fn name(member: &Member, path: &str, what: &str, found: &mut Diagnostics) -> bool {
    let bytes = member.key.as_bytes();
    let plain = |c: &u8| c.is_ascii_alphanumeric();
    let fits = bytes.first().is_some_and(plain)
        && bytes.len() <= 128
        && bytes.iter().all(|c| plain(c) || matches!(c, b'.' | b'_' | b'-'));
    if !fits {
        let message = format!(
            "{:?} cannot be the name of a {what}; use 1 to 128 of A-Z a-z 0-9 . _ -, and begin with a letter or digit",
            short(&member.key)
        );
        found.add(Code::Name, member.place, path, message);
    }
    fits
}
