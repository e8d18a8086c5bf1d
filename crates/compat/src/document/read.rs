//! From JSON to a [`Spec`], with a remark for everything that is not as it should be.

use std::collections::{BTreeMap, BTreeSet};

use super::graph::{Shape, shape};
use super::{MAX_EDGES, MAX_NAMESPACES, MAX_PLUGINS, Namespace, NamespaceId, Plugin, Refs, Spec};
use crate::diagnostic::{Code, Diagnostics, pointer};
use crate::json::{Member, Place, Spanned, Value};
use crate::suggest::nearest;

const SPEC_FIELDS: [&str; 2] = ["schemaVersion", "namespaces"];
const NAMESPACE_FIELDS: [&str; 2] = ["plugins", "refs"];
const PLUGIN_FIELDS: [&str; 3] = ["source", "digest", "data"];
const REFS_FIELDS: [&str; 3] = ["all", "oneOf", "noneOf"];

/// A name in a list, before it is looked up.
struct Named<'a> {
    name: &'a str,
    place: Place,
    path: String,
}

#[derive(Default)]
struct NamedRefs<'a> {
    all: Vec<Named<'a>>,
    one_of: Option<Vec<Named<'a>>>,
    none_of: Vec<Named<'a>>,
}

pub(super) fn spec(
    document: &Spanned,
    built_in: &dyn Fn(&str) -> bool,
    found: &mut Diagnostics,
) -> Option<Spec> {
    let members = object(document, "", "the document", found)?;
    let known = members.iter().any(|member| member.key == "schema");
    for member in members.iter().filter(|member| member.key != "schema" || !known) {
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
    let mut by_name: BTreeMap<&str, (&Member, Vec<Plugin>, NamedRefs<'_>)> = BTreeMap::new();
    let mut plugins = 0;
    for member in listed {
        let path = pointer("/namespaces", &member.key);
        name(member, &path, "namespace", found);
        let (own, refs) = namespace(member, &path, built_in, found);
        plugins += own.len();
        by_name.insert(&member.key, (member, own, refs));
    }
    if plugins > MAX_PLUGINS {
        let message = format!("{plugins} plugins, more than {MAX_PLUGINS}");
        found.add(Code::Limit, namespaces.place, "/namespaces", message);
        return None;
    }
    let namespaces = resolve(by_name, found)?;
    connect(schema_version?, namespaces, found)
}

/// Looks names up. What cannot be found is a remark; the rest goes on, so that one reading tells
/// everything.
fn resolve(
    by_name: BTreeMap<&str, (&Member, Vec<Plugin>, NamedRefs<'_>)>,
    found: &mut Diagnostics,
) -> Option<Vec<Namespace>> {
    let names: Vec<&str> = by_name.keys().copied().collect();
    let edges: usize = by_name
        .values()
        .map(|(_, _, refs)| {
            refs.all.len() + refs.one_of.as_ref().map_or(0, Vec::len) + refs.none_of.len()
        })
        .sum();
    if edges > MAX_EDGES {
        let place = Place { line: 1, column: 1 };
        let message = format!("{edges} references, more than {MAX_EDGES}");
        found.add(Code::Limit, place, "/namespaces", message);
        return None;
    }
    let mut namespaces = Vec::with_capacity(by_name.len());
    for (own_name, (member, plugins, refs)) in &by_name {
        let mut list = |what: &str, named: &[Named<'_>]| {
            let mut ids = Vec::with_capacity(named.len());
            let mut seen = BTreeSet::new();
            for one in named {
                let Ok(id) = names.binary_search(&one.name) else {
                    let message = format!(
                        "{own_name:?} refers to {:?} in `{what}`, and there is no such namespace",
                        short(one.name)
                    );
                    let near = nearest(one.name, names.iter().copied());
                    found.add_with(
                        Code::Dangling,
                        one.place,
                        &one.path,
                        message,
                        near.map(str::to_owned),
                    );
                    continue;
                };
                if seen.insert(id) {
                    ids.push(NamespaceId(id));
                } else {
                    let message = format!("{:?} is in `{what}` twice", one.name);
                    found.add(Code::DuplicateRef, one.place, &one.path, message);
                }
            }
            ids
        };
        let refs = Refs {
            all: list("all", &refs.all),
            one_of: refs.one_of.as_ref().map(|named| list("oneOf", named)),
            none_of: list("noneOf", &refs.none_of),
        };
        let wanted = refs.all.iter().chain(refs.one_of.iter().flatten());
        for id in wanted.filter(|id| refs.none_of.contains(id)) {
            let message = format!(
                "{own_name:?} both needs and forbids {:?}; no host can do that",
                names[id.0]
            );
            let path = pointer("/namespaces", own_name);
            found.add(Code::Contradiction, member.place, &path, message);
        }
        namespaces.push(Namespace {
            name: (*own_name).to_owned(),
            place: member.place,
            plugins: plugins.clone(),
            refs,
        });
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
    built_in: &dyn Fn(&str) -> bool,
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
        refs = read_refs(&field.value, &pointer(path, "refs"), found);
    }
    let Some(field) = member.value.get("plugins") else { return (plugins, refs) };
    let below = pointer(path, "plugins");
    let Some(listed) = object(&field.value, &below, "`plugins`", found) else {
        return (plugins, refs);
    };
    for plugin in listed {
        let at = pointer(&below, &plugin.key);
        if plugin.key != "refs" {
            name(plugin, &at, "plugin", found);
            plugins.extend(read_plugin(plugin, &at, built_in, found));
        } else if !looks_like_refs(&plugin.value) {
            let message = "a plugin cannot be called `refs`".to_owned();
            found.add(Code::Name, plugin.place, &at, message);
        } else if own.is_some() {
            let message = "`refs` is both beside and among the plugins; keep the former";
            found.add(Code::RefsTwice, plugin.place, &at, message.to_owned());
        } else {
            let message = "`refs` is among the plugins; it belongs beside them and is read so";
            found.add(Code::MisplacedRefs, plugin.place, &at, message.to_owned());
            refs = read_refs(&plugin.value, &at, found);
        }
    }
    plugins.sort_by(|a, b| a.name.cmp(&b.name));
    (plugins, refs)
}

fn looks_like_refs(value: &Spanned) -> bool {
    let strings = |list: &Spanned| match &list.value {
        Value::Array(items) => items.iter().all(|item| matches!(item.value, Value::String(_))),
        _ => false,
    };
    match &value.value {
        Value::Object(members) => members
            .iter()
            .all(|member| REFS_FIELDS.contains(&member.key.as_str()) && strings(&member.value)),
        _ => false,
    }
}

fn read_plugin(
    member: &Member,
    path: &str,
    built_in: &dyn Fn(&str) -> bool,
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
            Value::String(_) if built_in(&member.key) => {
                let message =
                    format!("{:?} is built in; its `source` is not used", short(&member.key));
                found.add(Code::SourceIgnored, field.place, &pointer(path, "source"), message);
            }
            Value::String(text) => source = Some(text.clone()),
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

fn read_refs<'a>(value: &'a Spanned, path: &str, found: &mut Diagnostics) -> NamedRefs<'a> {
    let mut refs = NamedRefs::default();
    let Some(fields) = object(value, path, "`refs`", found) else { return refs };
    for field in fields {
        let at = pointer(path, &field.key);
        let key = field.key.as_str();
        if !REFS_FIELDS.contains(&key) {
            unknown_field(field, path, &REFS_FIELDS, found);
            continue;
        }
        let Value::Array(items) = &field.value.value else {
            wrong_type(&field.value, &at, "an array of namespace names", found);
            continue;
        };
        let mut named = Vec::with_capacity(items.len());
        for (n, item) in items.iter().enumerate() {
            let path = pointer(&at, &n.to_string());
            match &item.value {
                Value::String(name) => named.push(Named { name, place: item.place, path }),
                _ => wrong_type(item, &path, "a namespace name", found),
            }
        }
        if items.is_empty() {
            let (code, message) = match key {
                "oneOf" => (Code::EmptyOneOf, "`oneOf` offers nothing, so it can never hold"),
                _ => (Code::EmptyList, "an empty list asks for nothing"),
            };
            found.add(code, field.place, &at, message.to_owned());
        }
        match key {
            "all" => refs.all = named,
            "oneOf" => refs.one_of = Some(named),
            _ => refs.none_of = named,
        }
    }
    refs
}

fn object<'a>(
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

fn wrong_type(value: &Spanned, path: &str, wanted: &str, found: &mut Diagnostics) {
    let message = format!("expected {wanted}, found {}", value.value.kind());
    found.add(Code::Type, value.place, path, message);
}

fn unknown_field(member: &Member, path: &str, known: &[&str], found: &mut Diagnostics) {
    if known.contains(&member.key.as_str()) {
        return;
    }
    let message = format!("the field {:?} means nothing here", short(&member.key));
    let near = nearest(&member.key, known.iter().copied()).map(str::to_owned);
    found.add_with(Code::UnknownField, member.place, &pointer(path, &member.key), message, near);
}

/// Names become file names and lines of reports.
fn name(member: &Member, path: &str, what: &str, found: &mut Diagnostics) {
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
}

fn short(text: &str) -> String {
    text.chars().take(80).collect()
}
