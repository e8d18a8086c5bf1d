//! Whether a value is what a structural schema asks for. Only what our definitions use is known:
//! types, fields, bounds, enumerations and patterns. Rules in CEL are for the planner to repeat.

use std::fmt;

use portolan_core::suggest;
use serde_json::{Map, Value};

/// Something wrong, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// `spec.output.image`.
    pub path: String,
    /// What is wrong there.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.what)
    }
}

/// All that is wrong.
pub(super) fn check(value: &Value, schema: &Value) -> Vec<Problem> {
    let mut found = Vec::new();
    Walk { found: &mut found }.value(value, schema, "");
    found
}

struct Walk<'a> {
    found: &'a mut Vec<Problem>,
}

impl Walk<'_> {
    fn add(&mut self, path: &str, what: impl Into<String>) {
        self.found
            .push(Problem { path: path.trim_start_matches('.').to_owned(), what: what.into() });
    }

    fn value(&mut self, value: &Value, schema: &Value, path: &str) {
        if schema["x-kubernetes-int-or-string"] == true {
            match value {
                Value::String(text) => self.text(text, schema, path),
                value if value.is_i64() || value.is_u64() => {}
                _ => self.add(path, "must be a whole number or a text"),
            }
            return;
        }
        match schema["type"].as_str() {
            Some("object") => match value {
                Value::Object(fields) => self.object(fields, schema, path),
                other => self.add(path, format!("must be an object, not {}", name(other))),
            },
            Some("array") => match value {
                Value::Array(items) => self.array(items, schema, path),
                other => self.add(path, format!("must be a list, not {}", name(other))),
            },
            Some("string") => match value {
                Value::String(text) => self.text(text, schema, path),
                other => {
                    self.add(path, format!("must be a text, not {}; put it in quotes", name(other)))
                }
            },
            Some("integer") => match value.as_i64() {
                Some(number) => self.number(number, schema, path),
                None => self.add(path, format!("must be a whole number, not {}", name(value))),
            },
            Some("boolean") if !value.is_boolean() => {
                self.add(path, format!("must be true or false, not {}", name(value)));
            }
            _ => {}
        }
    }

    fn object(&mut self, fields: &Map<String, Value>, schema: &Value, path: &str) {
        for required in schema["required"].as_array().into_iter().flatten() {
            let required = required.as_str().unwrap_or_default();
            if !fields.contains_key(required) {
                self.add(&format!("{path}.{required}"), "is required");
            }
        }
        if let Some(most) = schema["maxProperties"].as_u64()
            && fields.len() as u64 > most
        {
            self.add(path, format!("has {} entries, at most {most} are allowed", fields.len()));
        }
        let known = schema["properties"].as_object();
        let open = schema["x-kubernetes-preserve-unknown-fields"] == true
            || (known.is_none() && schema.get("additionalProperties").is_none());
        for (key, field) in fields {
            let path = format!("{path}.{key}");
            let inner = known.and_then(|known| known.get(key));
            match inner.or_else(|| schema.get("additionalProperties")) {
                Some(inner) => self.value(field, inner, &path),
                // What every object has is described nowhere in a definition.
                None if open || [".apiVersion", ".kind", ".metadata"].contains(&path.as_str()) => {}
                None => {
                    let known = known.into_iter().flat_map(Map::keys).map(String::as_str);
                    match suggest::nearest(key, known) {
                        Some(near) => {
                            self.add(&path, format!("is not known; did you mean {near}?"))
                        }
                        None => self.add(&path, "is not known"),
                    }
                }
            }
        }
    }

    fn array(&mut self, items: &[Value], schema: &Value, path: &str) {
        let count = items.len() as u64;
        if let Some(least) = schema["minItems"].as_u64().filter(|least| count < *least) {
            self.add(path, format!("has {count} entries, at least {least} are needed"));
        }
        if let Some(most) = schema["maxItems"].as_u64().filter(|most| count > *most) {
            self.add(path, format!("has {count} entries, at most {most} are allowed"));
        }
        for (at, item) in items.iter().enumerate() {
            self.value(item, &schema["items"], &format!("{path}[{at}]"));
        }
        self.unique(items, schema, path);
    }

    /// Lists that are maps have every key once.
    fn unique(&mut self, items: &[Value], schema: &Value, path: &str) {
        let Some(keys) = schema["x-kubernetes-list-map-keys"].as_array() else { return };
        let mut seen: Vec<Vec<&Value>> = Vec::new();
        for (at, item) in items.iter().enumerate() {
            let key: Vec<&Value> =
                keys.iter().map(|key| &item[key.as_str().unwrap_or_default()]).collect();
            if seen.contains(&key) {
                let shown: Vec<String> =
                    key.iter().map(|part| part.as_str().unwrap_or("?").to_owned()).collect();
                self.add(&format!("{path}[{at}]"), format!("{} is there twice", shown.join("/")));
            }
            seen.push(key);
        }
    }

    fn text(&mut self, text: &str, schema: &Value, path: &str) {
        if let Some(words) = schema["enum"].as_array()
            && !words.iter().any(|word| word == text)
        {
            let all: Vec<&str> = words.iter().filter_map(Value::as_str).collect();
            self.add(path, format!("is {text:?}, must be one of {}", all.join(", ")));
        }
        let length = text.chars().count() as u64;
        if schema["minLength"].as_u64().is_some_and(|least| length < least) {
            self.add(path, "must not be empty");
        }
        if let Some(most) = schema["maxLength"].as_u64().filter(|most| length > *most) {
            self.add(path, format!("has {length} characters, at most {most} are allowed"));
        }
        if let Some(pattern) = schema["pattern"].as_str() {
            let regex = regex::Regex::new(pattern).expect("patterns of the definitions are valid");
            if !regex.is_match(text) {
                self.add(path, format!("is {text:?}, which does not match {pattern}"));
            }
        }
    }

    #[allow(clippy::cast_precision_loss, reason = "bounds are small")]
    fn number(&mut self, number: i64, schema: &Value, path: &str) {
        let beyond = schema["minimum"].as_f64().is_some_and(|least| (number as f64) < least)
            || schema["maximum"].as_f64().is_some_and(|most| (number as f64) > most);
        if beyond {
            let bound = |key: &str| schema[key].to_string();
            self.add(
                path,
                format!("is {number}, must be from {} to {}", bound("minimum"), bound("maximum")),
            );
        }
    }
}

fn name(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
