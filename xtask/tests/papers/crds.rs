//! A page for each custom resource, from the definition that is checked in.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::page::{MARK, cell, root};
use super::{read, source};

/// A kind, and two places.
type Words = (&'static str, [&'static str; 2], Option<[&'static str; 2]>);

/// Where the words of a kind's conditions are: the constant that names the condition with its file, and the function that
/// gives reasons with its file; none where they are in a table of their own.
const CONDITIONS: [Words; 8] = [
    (
        "ImagePlatformClass",
        ["AVAILABLE", "crates/api/src/platform/mod.rs"],
        Some(["status", "crates/build/src/plan/class.rs"]),
    ),
    (
        "Shim",
        ["AVAILABLE", "crates/api/src/shim/status.rs"],
        Some(["available", "crates/controller/src/shims/status.rs"]),
    ),
    (
        "Shim",
        ["PROGRESSING", "crates/api/src/shim/status.rs"],
        Some(["progressing", "crates/controller/src/shims/status.rs"]),
    ),
    (
        "Shim",
        ["DEGRADED", "crates/api/src/shim/status.rs"],
        Some(["degraded", "crates/controller/src/shims/status.rs"]),
    ),
    (
        "Shim",
        ["RUNTIME_CLASS_READY", "crates/api/src/shim/status.rs"],
        Some(["class_ready", "crates/controller/src/shims/status.rs"]),
    ),
    ("Release", ["RESOLVED", "crates/api/src/release/status.rs"], None),
    ("Release", ["VERIFIED", "crates/api/src/release/status.rs"], None),
    ("Release", ["READY", "crates/api/src/release/status.rs"], None),
];

/// Kinds whose reasons are those of builds.
const BUILDS: [&str; 2] = ["Build", "BuildRun"];
const BUILD_REASONS: &str = "crates/api/src/reason.rs";
const RELEASE_REASONS: &str = "crates/release/src/reason.rs";

/// So many fields below another are told once, and referred to elsewhere.
const LARGE: usize = 4;

/// What was told where, by the schema without its own description: page and path.
type Told = BTreeMap<String, (String, String)>;

pub(crate) fn pages() -> BTreeMap<String, String> {
    let mut files: Vec<_> = std::fs::read_dir(root().join("deploy/crds"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    // Builds before what repeats them.
    files.sort();
    files.sort_by_key(|name| !name.starts_with("builds."));
    let mut told = Told::new();
    files.iter().map(|file| page(file, &mut told)).collect()
}

fn text<'a>(value: &'a Value, key: &str) -> &'a str {
    value[key].as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn codes(value: &Value) -> String {
    let all = list(value).map(|one| match one.as_str() {
        Some(text) => format!("`{text}`"),
        None => format!("`{one}`"),
    });
    all.collect::<Vec<_>>().join(", ")
}

fn page(file: &str, told: &mut Told) -> (String, String) {
    let definition: Value = serde_yaml_ng::from_str(&read(&format!("deploy/crds/{file}"))).unwrap();
    let spec = &definition["spec"];
    let names = &spec["names"];
    let kind = text(names, "kind");
    let own = format!("{}.md", kind.to_lowercase());
    let mut page = format!("{MARK}# {kind}\n\n");
    for version in list(&spec["versions"]) {
        let schema = &version["schema"]["openAPIV3Schema"];
        let _ = writeln!(page, "{}\n", text(schema, "description"));
        let _ = writeln!(
            page,
            "| | |\n|---|---|\n| `apiVersion` | `{}/{}` |",
            text(spec, "group"),
            text(version, "name")
        );
        let _ = writeln!(
            page,
            "| scope | {} |\n| plural | `{}` |",
            text(spec, "scope"),
            text(names, "plural")
        );
        if list(&names["shortNames"]).next().is_some() {
            let _ = writeln!(page, "| short names | {} |", codes(&names["shortNames"]));
        }
        let _ = writeln!(page, "| definition | [{file}](../../../deploy/crds/{file}) |");
        rules(schema, &mut page);
        columns(version, &mut page);
        for (part, inner) in schema["properties"].as_object().into_iter().flatten() {
            if !["apiVersion", "kind", "metadata"].contains(&part.as_str()) {
                let _ = writeln!(page, "\n## {part}\n\n{}\n", text(inner, "description"));
                let mut table = Table { page: &mut page, own: &own, told: &mut *told };
                table.fields(part, inner);
            }
        }
        conditions(kind, &mut page);
    }
    (own, format!("{}\n", page.trim_end()))
}

/// Rules for the whole object.
fn rules(schema: &Value, page: &mut String) {
    for rule in list(&schema["x-kubernetes-validations"]) {
        let _ =
            writeln!(page, "| rule | `{}`: {} |", text(rule, "rule"), cell(text(rule, "message")));
    }
}

fn columns(version: &Value, page: &mut String) {
    let mut all = list(&version["additionalPrinterColumns"]).peekable();
    if all.peek().is_none() {
        return;
    }
    page.push_str(
        "\n## Columns\n\nWhat `kubectl get` shows.\n\n| column | type | from |\n|---|---|---|\n",
    );
    for column in all {
        let [name, kind, path] = ["name", "type", "jsonPath"].map(|key| text(column, key));
        let _ = writeln!(page, "| {name} | {kind} | `{}` |", path.replace('|', "\\|"));
    }
}

struct Table<'a> {
    page: &'a mut String,
    own: &'a str,
    told: &'a mut Told,
}

impl Table<'_> {
    fn fields(&mut self, path: &str, schema: &Value) {
        self.page.push_str("| field | type | required, default, rules | |\n|---|---|---|---|\n");
        self.told.insert(shape(schema), (self.own.to_owned(), path.to_owned()));
        self.below(path, schema);
    }

    fn below(&mut self, path: &str, schema: &Value) {
        let required: Vec<&str> = list(&schema["required"]).filter_map(Value::as_str).collect();
        for (name, field) in schema["properties"].as_object().into_iter().flatten() {
            let path = format!("{path}.{name}");
            self.field(&path, field, required.contains(&name.as_str()));
        }
    }

    fn field(&mut self, path: &str, field: &Value, required: bool) {
        let (inner, ending) = descend(field);
        let below = format!("{path}{ending}");
        let mut about = text(field, "description").to_owned();
        let goes_on = match count(inner) {
            0 => false,
            _ if !described(inner) => {
                about.push_str(" As Kubernetes has it.");
                false
            }
            many => match self.told.get(&shape(inner)) {
                Some((page, known)) if many >= LARGE => {
                    let link = if page == self.own {
                        String::new()
                    } else {
                        format!(" of [{page}]({page})")
                    };
                    let _ = write!(about, " The fields are those of `{known}`{link}.");
                    false
                }
                _ => true,
            },
        };
        let rules = validation(field, required);
        let _ = writeln!(self.page, "| `{path}` | {} | {rules} | {} |", kind(field), cell(&about));
        if goes_on {
            self.told.entry(shape(inner)).or_insert_with(|| (self.own.to_owned(), below.clone()));
            self.below(&below, inner);
        }
    }
}

/// What a list or a map is of, and how its path goes on.
fn descend(field: &Value) -> (&Value, &'static str) {
    match (field["items"].is_object(), field["additionalProperties"].is_object()) {
        (true, _) => (&field["items"], "[]"),
        (_, true) => (&field["additionalProperties"], ".*"),
        _ => (field, ""),
    }
}

/// How many fields there are, at any depth.
fn count(schema: &Value) -> usize {
    let fields = schema["properties"].as_object().into_iter().flatten();
    fields.map(|(_, field)| 1 + count(descend(field).0)).sum()
}

/// Whether anything below says what it is for; what Kubernetes itself describes does not.
fn described(schema: &Value) -> bool {
    let fields = schema["properties"].as_object().into_iter().flatten();
    let said = |field: &Value| field["description"].is_string();
    fields.map(|(_, field)| field).any(|field| said(field) || described(descend(field).0))
}

/// Equal for schemas with the same fields, whatever is said of the whole.
fn shape(schema: &Value) -> String {
    format!("{} {}", schema["properties"], schema["required"])
}

fn kind(field: &Value) -> String {
    if field["x-kubernetes-int-or-string"] == true {
        return "integer or string".to_owned();
    }
    if field["x-kubernetes-preserve-unknown-fields"] == true && field["type"].is_null() {
        return "any".to_owned();
    }
    match (text(field, "type"), descend(field)) {
        ("array", (items, _)) => format!("list of {}", kind(items)),
        ("object", (values, ".*")) => format!("map to {}", kind(values)),
        (plain, _) => match field["format"].as_str() {
            Some(format) => format!("{plain} ({format})"),
            None => plain.to_owned(),
        },
    }
}

/// Bounds by their name in the schema, and how they are told.
const BOUNDS: [(&str, &str); 8] = [
    ("minimum", "at least"),
    ("maximum", "at most"),
    ("minLength", "characters at least"),
    ("maxLength", "characters at most"),
    ("minItems", "entries at least"),
    ("maxItems", "entries at most"),
    ("pattern", "matches"),
    ("x-kubernetes-list-map-keys", "one for each"),
];

fn validation(field: &Value, required: bool) -> String {
    let mut told: Vec<String> = Vec::new();
    told.extend(required.then(|| "**required**".to_owned()));
    if !field["default"].is_null() {
        told.push(format!("default `{}`", field["default"]));
    }
    for of in [field, &field["items"]] {
        if of["enum"].is_array() {
            told.push(format!("one of {}", codes(&of["enum"])));
        }
        for (key, words) in BOUNDS {
            match &of[key] {
                Value::Null => {}
                Value::Array(_) => told.push(format!("{words} {}", codes(&of[key]))),
                Value::String(text) => told.push(format!("{words} `{text}`")),
                number => told.push(format!("{words} {number}")),
            }
        }
        for rule in list(&of["x-kubernetes-validations"]) {
            told.push(format!("{} (`{}`)", text(rule, "message"), text(rule, "rule")));
        }
    }
    cell(&told.join("; "))
}

fn conditions(kind: &str, page: &mut String) {
    let known: Vec<_> = CONDITIONS.iter().filter(|(of, ..)| *of == kind).collect();
    if !known.is_empty() {
        page.push_str("\n## Conditions\n\n| condition | | reasons |\n|---|---|---|\n");
    }
    for (_, [name, file], reasons) in known {
        let words = source::constants(file);
        let (condition, meaning) =
            words.get(*name).unwrap_or_else(|| panic!("{file} has no {name}"));
        let reasons = reasons.map(|[function, at]| source::verdicts(at, function));
        let reasons = reasons.unwrap_or_default();
        let of = |status: &str| {
            let own = reasons.iter().filter(|(of, _)| of == status);
            let own: Vec<String> = own.map(|(_, word)| format!("`{word}`")).collect();
            (!own.is_empty()).then(|| format!("{status}: {}", own.join(", ")))
        };
        let told: Vec<String> = ["True", "False", "Unknown"].into_iter().filter_map(of).collect();
        let _ = writeln!(page, "| `{condition}` | {} | {} |", cell(meaning), told.join("; "));
    }
    let reasons: Vec<(String, String)> = match kind {
        _ if BUILDS.contains(&kind) => {
            let outcomes = source::constants(BUILD_REASONS).into_values();
            outcomes.chain(source::reasons(BUILD_REASONS)).collect()
        }
        "Release" => source::constants(RELEASE_REASONS).into_values().collect(),
        _ => return,
    };
    page.push_str("\n## Reasons\n\n| reason | |\n|---|---|\n");
    for (word, meaning) in reasons {
        let _ = writeln!(page, "| `{word}` | {} |", cell(&meaning));
    }
    if BUILDS.contains(&kind) {
        page.push_str("\nAny other word is Tekton's own, as it is.\n");
    }
}
