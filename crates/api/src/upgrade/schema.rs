//! Two schemas of one version: what objects could say by the old one and cannot by the new.

use serde_json::{Map, Value, json};

use super::{Change, Weight, list};

/// Deeper than any schema that is structural and can be stored.
const MAX_DEPTH: usize = 64;

/// Finds what `new` takes away from what `old` allows, below `at`.
pub(super) fn compare(version: &str, old: &Value, new: &Value, found: &mut Vec<Change>) {
    let mut walk = Walk { found, version };
    walk.node("", old, new, 0);
}

struct Walk<'a> {
    found: &'a mut Vec<Change>,
    version: &'a str,
}

impl Walk<'_> {
    fn tell(&mut self, path: &str, what: impl Into<String>, weight: Weight) {
        let at = format!("{} {}", self.version, if path.is_empty() { "." } else { path });
        self.found.push(Change::new(&at, what, weight));
    }

    fn node(&mut self, path: &str, old: &Value, new: &Value, depth: usize) {
        if depth > MAX_DEPTH {
            return self.tell(path, "it is too deep to be compared", Weight::MayBreak);
        }
        if is_free(new) && new.get("properties").is_none() {
            // Whatever was said may still be said.
            return;
        }
        if is_free(old) && !is_free(new) {
            let what = "it took everything; what the new schema does not name is dropped";
            self.tell(path, what, Weight::MayBreak);
        }
        self.kind(path, old, new);
        self.values(path, old, new);
        self.bounds(path, old, new);
        self.properties(path, old, new, depth);
        if let (Some(old), Some(new)) = (old.get("items"), new.get("items")) {
            self.node(&format!("{path}[]"), old, new, depth + 1);
        }
        let (was, is) = (old.get("additionalProperties"), new.get("additionalProperties"));
        match (was, is) {
            (Some(was), Some(is)) if was.is_object() && is.is_object() => {
                self.node(&format!("{path}[*]"), was, is, depth + 1);
            }
            (Some(was), None) if *was != json!(false) && !is_free(new) => {
                self.tell(path, "its keys were free, and are dropped unless named", Weight::Breaks);
            }
            _ => {}
        }
        self.rules(path, old, new);
    }

    fn kind(&mut self, path: &str, old: &Value, new: &Value) {
        let kind = |schema: &Value| match schema["x-kubernetes-int-or-string"] == true {
            true => "a number or a text".to_owned(),
            false => schema["type"].as_str().unwrap_or_default().to_owned(),
        };
        let (was, is) = (kind(old), kind(new));
        let widened = matches!(
            (was.as_str(), is.as_str()),
            ("integer", "number") | ("integer" | "string", "a number or a text")
        );
        if was != is && !was.is_empty() && !widened {
            self.tell(path, format!("it was {was} and is {is}"), Weight::Breaks);
        }
        if old["nullable"] == true && new["nullable"] != true {
            self.tell(path, "null was allowed", Weight::MayBreak);
        }
    }

    fn values(&mut self, path: &str, old: &Value, new: &Value) {
        match (old.get("enum"), new.get("enum")) {
            (Some(was), Some(is)) => {
                for gone in list(was).iter().filter(|value| !list(is).contains(value)) {
                    self.tell(path, format!("the value {gone} is gone"), Weight::Breaks);
                }
            }
            (None, Some(is)) => {
                let what = format!("any value was allowed, and now only {is}");
                self.tell(path, what, Weight::MayBreak);
            }
            _ => {}
        }
    }

    fn bounds(&mut self, path: &str, old: &Value, new: &Value) {
        for (key, is_tighter) in [
            ("minimum", f64::lt as fn(&f64, &f64) -> bool),
            ("minLength", f64::lt),
            ("minItems", f64::lt),
            ("minProperties", f64::lt),
            ("maximum", f64::gt),
            ("maxLength", f64::gt),
            ("maxItems", f64::gt),
            ("maxProperties", f64::gt),
        ] {
            let number = |schema: &Value| schema[key].as_f64();
            let what = match (number(old), number(new)) {
                (Some(was), Some(is)) if is_tighter(&was, &is) => {
                    format!("{key} was {was} and is {is}")
                }
                (None, Some(is)) => format!("{key} is {is}, and there was none"),
                _ => continue,
            };
            self.tell(path, what, Weight::MayBreak);
        }
        for key in ["pattern", "format"] {
            if new.get(key).is_some() && old.get(key) != new.get(key) {
                self.tell(path, format!("{key} is another: {}", new[key]), Weight::MayBreak);
            }
        }
    }

    fn properties(&mut self, path: &str, old: &Value, new: &Value, depth: usize) {
        let none = Map::new();
        let of = |schema: &'_ Value| schema["properties"].as_object().cloned();
        let (was, is) = (of(old).unwrap_or_else(|| none.clone()), of(new).unwrap_or(none));
        for (name, old) in &was {
            let below = format!("{path}.{name}");
            match is.get(name) {
                Some(new) => self.node(&below, old, new, depth + 1),
                None if is_free(new) => {}
                None => self.tell(
                    &below,
                    "the field is gone: what objects say there is dropped",
                    Weight::Breaks,
                ),
            }
        }
        for name in
            list(&new["required"]).iter().filter(|name| !list(&old["required"]).contains(name))
        {
            let below = format!("{path}.{}", name.as_str().unwrap_or_default());
            let has_default = is
                .get(name.as_str().unwrap_or_default())
                .is_some_and(|schema| schema.get("default").is_some());
            if !has_default {
                self.tell(&below, "it has to be said, and had not", Weight::MayBreak);
            }
        }
    }

    /// Rules in CEL: whether one is tighter than another cannot be told.
    fn rules(&mut self, path: &str, old: &Value, new: &Value) {
        const KEY: &str = "x-kubernetes-validations";
        let rules = |schema: &Value| -> Vec<String> {
            let rules = list(&schema[KEY]).iter().filter_map(|one| one["rule"].as_str());
            rules.map(str::to_owned).collect()
        };
        let was = rules(old);
        for rule in rules(new).into_iter().filter(|rule| !was.contains(rule)) {
            self.tell(path, format!("a new rule: {rule}"), Weight::MayBreak);
        }
    }
}

/// Whether it keeps what it does not name.
fn is_free(schema: &Value) -> bool {
    schema["x-kubernetes-preserve-unknown-fields"] == true
}

/// What a part of a definition says, without what is the same as saying nothing.
pub(super) fn said(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let fields = fields.iter().filter(|(key, value)| {
                let nothing = value.is_null() || **value == json!([]) || **value == json!("");
                // Columns are of priority 0 unless they say otherwise.
                !(nothing || *key == "priority" && **value == json!(0))
            });
            Value::Object(fields.map(|(key, value)| (key.clone(), said(value))).collect())
        }
        Value::Array(all) => Value::Array(all.iter().map(said).collect()),
        // Numbers may come back as whole ones.
        Value::Number(number) => json!(number.as_f64()),
        other => other.clone(),
    }
}
