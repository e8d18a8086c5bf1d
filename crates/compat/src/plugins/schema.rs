//! What the data of each built-in plugin looks like, as JSON Schema. The tables that read it say
//! which fields there are, so the two cannot differ.

use serde_json::{Map, Value, json};

use super::areas::{self, Form};
use super::things::{self, Kind, Way};

/// The schema of the data of the plugin `name`, which is built in.
pub(crate) fn data(name: &str) -> Value {
    match name {
        "kernelVersion" => range(),
        "kernelConfiguration" => configuration(),
        "kernelModules" => modules(),
        "kernelCmdline" => cmdline(),
        "hardware" => hardware(),
        area => {
            let fields = areas::fields(area).unwrap_or_default().iter();
            object(fields.map(|(name, form)| ((*name).to_owned(), field(*form))).collect())
        }
    }
}

/// What data refers to as `#/$defs/…`.
pub(crate) fn definitions() -> Map<String, Value> {
    let operators: Vec<&str> =
        crate::expression::Op::ALL.iter().map(|operator| operator.as_str()).collect();
    let scalar = json!({"type": ["string", "number", "boolean"]});
    let value = json!({"anyOf": [
        reference("scalar"),
        {"type": "array", "minItems": 1, "items": reference("scalar")},
        reference("expression"),
    ]});
    let expression = json!({
        "type": "object",
        "description": "An expression of Node Feature Discovery.",
        "required": ["op"],
        "additionalProperties": false,
        "properties": {
            "op": {"enum": operators},
            "value": {"anyOf": [
                reference("scalar"),
                {"type": "array", "items": reference("scalar")},
            ]},
            "type": {"enum": ["", "version"]},
        },
    });
    Map::from_iter([
        ("scalar".to_owned(), scalar),
        ("value".to_owned(), value),
        ("expression".to_owned(), expression),
    ])
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

fn object(properties: Map<String, Value>) -> Value {
    json!({"type": "object", "additionalProperties": false, "properties": properties})
}

fn map_of(value: &Value) -> Value {
    json!({"type": "object", "additionalProperties": value})
}

fn field(form: Form) -> Value {
    match form {
        Form::Value(..) | Form::Special(..) => reference("value"),
        Form::Map(..) => map_of(&reference("value")),
        Form::Things(kind) => {
            let thing = thing(kind);
            json!({"anyOf": [thing, {"type": "array", "minItems": 1, "items": thing}]})
        }
        Form::Level => {
            let level = json!({"type": "string", "pattern": "^(x86-64-)?(v[0-9]+(\\.[0-9])?|power[0-9]+|rva[0-9]+u64)$"});
            json!({"anyOf": [level, {"type": "array", "minItems": 1, "items": level}]})
        }
        Form::Flags => json!({"anyOf": [
            {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,64}$"}},
            map_of(&json!({"anyOf": [{"type": "boolean"}, reference("value")]})),
        ]}),
        Form::Version => json!({"anyOf": [
            {"type": "string"},
            {"type": "array", "minItems": 1, "items": reference("scalar")},
            range(),
            reference("expression"),
        ]}),
        Form::Configuration => configuration(),
        Form::Modules => json!({"anyOf": [
            modules(),
            {"type": "array", "minItems": 1, "items": {"type": "string", "pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$"}},
        ]}),
        Form::Cmdline => cmdline(),
    }
}

fn thing(kind: &Kind) -> Value {
    let attribute = |way: Way| match way {
        Way::Plain => reference("value"),
        Way::Hex(digits) => hexadecimal(&format!("{{{digits}}}")),
        Way::Class => hexadecimal("{2}([0-9A-Fa-f]{2})?"),
    };
    let named = kind.attributes.iter().map(|(name, way)| ((*name).to_owned(), attribute(*way)));
    let mut properties: Map<String, Value> = named.collect();
    let count = json!({"anyOf": [{"type": "integer", "minimum": 0}, reference("expression")]});
    properties.insert("count".to_owned(), count);
    object(properties)
}

fn hexadecimal(digits: &str) -> Value {
    let text = json!({"type": "string", "pattern": format!("^(0x)?[0-9A-Fa-f]{digits}$")});
    json!({"anyOf": [text, {"type": "array", "minItems": 1, "items": text}, reference("expression")]})
}

fn range() -> Value {
    json!({
        "type": "object",
        "required": ["range"],
        "additionalProperties": false,
        "properties": {"range": {
            "type": "string",
            "description": "Intervals: [5.0,5.15) is from 5.0, before 5.15; several are joined by commas.",
            "pattern": "^\\s*[\\[(].*[\\])]\\s*$",
        }},
    })
}

fn configuration() -> Value {
    let expected = json!({"type": ["string", "number"]});
    json!({
        "type": "object",
        "propertyNames": {"pattern": "^(CONFIG_)?[A-Za-z0-9_]{1,128}$"},
        "additionalProperties": {"anyOf": [
            expected,
            {"type": "array", "minItems": 1, "items": expected},
            reference("expression"),
        ]},
    })
}

fn modules() -> Value {
    json!({
        "type": "object",
        "propertyNames": {"pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$"},
        "additionalProperties": {"anyOf": [{"type": "null"}, {
            "type": "object",
            "properties": {"state": {"enum": ["loaded", "available"]}},
            "propertyNames": {"pattern": "^[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}$"},
            "additionalProperties": reference("value"),
        }]},
    })
}

fn cmdline() -> Value {
    json!({
        "type": "object",
        "propertyNames": {"pattern": "^[^\\s=\"]+$"},
        "additionalProperties": {"anyOf": [
            {"type": ["null", "string", "number"]},
            {"const": true},
            {"type": "array", "minItems": 1, "items": reference("scalar")},
            reference("expression"),
        ]},
    })
}

fn hardware() -> Value {
    let hex = |digits: &str| format!("(\\*|(0x)?[0-9A-Fa-f]{digits})");
    let (class, id) = (hex("{2}([0-9A-Fa-f]{2})?"), hex("{4}"));
    let pci = format!("^{class}:{id}(:{id}(:{id}:{id})?)?$");
    let usb = format!("^{}:{id}(:{id})?$", hex("{2}"));
    let devices = |pattern: String| {
        let one = json!({"type": "string", "pattern": pattern});
        json!({"anyOf": [one, {"type": "array", "minItems": 1, "items": one}]})
    };
    object(Map::from_iter([
        ("cpu".to_owned(), reference("value")),
        (kind_name(&things::PCI), devices(pci)),
        (kind_name(&things::USB), devices(usb)),
    ]))
}

/// `pci` of `pci.device`.
fn kind_name(kind: &Kind) -> String {
    kind.feature.split('.').next().unwrap_or_default().to_owned()
}
