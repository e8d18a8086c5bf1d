//! The compatibility spec as JSON Schema, for editors and for those who make specs with programs.
//!
//! It says what a spec should look like: what is only understood with a warning is not in it. What
//! a schema cannot say (names that resolve, no circles) is left to the linter.

use serde_json::{Map, Value, json};

use crate::document::MAX_NAMESPACES;
use crate::plugins::{builtin, schema as plugins};

/// What the schema is called.
const ID: &str = "https://portolan.dev/schemas/compatibility-spec.json";

/// The schema.
pub fn schema() -> Value {
    let mut definitions = plugins::definitions();
    definitions.extend([
        (
            "name".to_owned(),
            json!({"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"}),
        ),
        ("namespace".to_owned(), namespace()),
        ("refs".to_owned(), refs()),
        ("plugin".to_owned(), plugin(&json!({"type": "object"}))),
    ]);
    for name in builtin::NAMES {
        definitions.insert(format!("{name}Data"), plugins::data(name));
    }
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": ID,
        "title": "Compatibility spec",
        "description": "What an image needs of a host: a graph of namespaces.",
        "type": "object",
        "required": ["schemaVersion", "namespaces"],
        "additionalProperties": false,
        "properties": {
            "schemaVersion": {
                "type": "string",
                "description": "The version of the compatibility spec.",
                "pattern": "^0\\.1\\.(0|[1-9][0-9]{0,8})$",
            },
            "namespaces": {
                "type": "object",
                "minProperties": 1,
                "maxProperties": MAX_NAMESPACES,
                "propertyNames": {"$ref": "#/$defs/name"},
                "additionalProperties": {"$ref": "#/$defs/namespace"},
            },
        },
        "$defs": definitions,
    })
}

fn namespace() -> Value {
    let built_in = builtin::NAMES.iter().map(|name| {
        let data = json!({"$ref": format!("#/$defs/{name}Data")});
        // `source` of a plugin that is built in means nothing.
        let plugin = json!({
            "type": "object",
            "additionalProperties": false,
            "properties": {"data": data},
        });
        ((*name).to_owned(), plugin)
    });
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "plugins": {
                "type": "object",
                "propertyNames": {"$ref": "#/$defs/name", "not": {"const": "refs"}},
                "properties": built_in.collect::<Map<String, Value>>(),
                "additionalProperties": {"$ref": "#/$defs/plugin"},
            },
            "refs": {"$ref": "#/$defs/refs"},
        },
    })
}

fn plugin(data: &Value) -> Value {
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "source": {"type": "string", "description": "Where the program can be had, by https or oci."},
            "digest": {
                "description": "What the source is pinned to, or that for each platform.",
                "anyOf": [
                    {"type": "string"},
                    {"type": "object", "additionalProperties": {"type": "string"}},
                ],
            },
            "data": data,
        },
    })
}

fn refs() -> Value {
    let names = |least: u32, description: &str| {
        json!({
            "type": "array",
            "description": description,
            "minItems": least,
            "uniqueItems": true,
            "items": {"$ref": "#/$defs/name"},
        })
    };
    json!({
        "type": "object",
        "additionalProperties": false,
        "properties": {
            "all": names(0, "All must pass."),
            "oneOf": names(1, "At least one must pass."),
            "noneOf": names(0, "None may pass."),
        },
    })
}

#[cfg(test)]
pub(crate) mod tests;
