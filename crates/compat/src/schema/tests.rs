use std::path::Path;

use regex::Regex;

use super::*;
use crate::document::{Mode, read};

#[test]
fn the_checked_in_spec_schema_is_what_the_code_says() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/schemas/compatibility-spec.json");
    let text = serde_json::to_string_pretty(&schema()).unwrap() + "\n";
    if std::env::var_os("PORTOLAN_UPDATE_SCHEMAS").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == text, "docs/schemas/compatibility-spec.json is old; run cargo xtask schemas");
}

/// As much of a validator as this schema needs; a keyword it does not know is a failure.
pub(crate) fn valid(root: &Value, schema: &Value, value: &Value) -> bool {
    let Value::Object(keywords) = schema else { panic!("{schema} is no schema") };
    keywords.iter().all(|(keyword, argument)| match keyword.as_str() {
        "$schema" | "$id" | "title" | "description" | "default" | "$defs" => true,
        "$ref" => {
            let path = argument.as_str().unwrap().strip_prefix('#').unwrap();
            valid(root, root.pointer(path).unwrap_or_else(|| panic!("no {path}")), value)
        }
        "type" => match argument {
            Value::Array(kinds) => kinds.iter().any(|kind| is(value, kind.as_str().unwrap())),
            kind => is(value, kind.as_str().unwrap()),
        },
        "anyOf" => argument.as_array().unwrap().iter().any(|one| valid(root, one, value)),
        "not" => !valid(root, argument, value),
        "const" => argument == value,
        "enum" => argument.as_array().unwrap().contains(value),
        "pattern" => value
            .as_str()
            .is_none_or(|text| Regex::new(argument.as_str().unwrap()).unwrap().is_match(text)),
        "minimum" => value.as_i64().is_none_or(|number| number >= argument.as_i64().unwrap()),
        "maximum" => value.as_i64().is_none_or(|number| number <= argument.as_i64().unwrap()),
        "required" => value.as_object().is_none_or(|object| {
            argument
                .as_array()
                .unwrap()
                .iter()
                .all(|key| object.contains_key(key.as_str().unwrap()))
        }),
        "minItems" => {
            value.as_array().is_none_or(|list| list.len() as u64 >= argument.as_u64().unwrap())
        }
        "maxItems" => {
            value.as_array().is_none_or(|list| list.len() as u64 <= argument.as_u64().unwrap())
        }
        "uniqueItems" => value
            .as_array()
            .is_none_or(|list| (1..list.len()).all(|n| !list[..n].contains(&list[n]))),
        "minProperties" => {
            value.as_object().is_none_or(|o| o.len() as u64 >= argument.as_u64().unwrap())
        }
        "maxProperties" => {
            value.as_object().is_none_or(|o| o.len() as u64 <= argument.as_u64().unwrap())
        }
        "items" => {
            value.as_array().is_none_or(|list| list.iter().all(|one| valid(root, argument, one)))
        }
        "propertyNames" => value.as_object().is_none_or(|object| {
            object.keys().all(|key| valid(root, argument, &Value::String(key.clone())))
        }),
        "properties" => value.as_object().is_none_or(|object| {
            let named = argument.as_object().unwrap();
            object
                .iter()
                .all(|(key, one)| named.get(key).is_none_or(|schema| valid(root, schema, one)))
        }),
        "additionalProperties" => value.as_object().is_none_or(|object| {
            let named = keywords.get("properties").and_then(Value::as_object);
            let mut others =
                object.iter().filter(|(key, _)| !named.is_some_and(|n| n.contains_key(*key)));
            others.all(|(_, one)| match argument {
                Value::Bool(allowed) => *allowed,
                schema => valid(root, schema, one),
            })
        }),
        other => panic!("a keyword that this validator does not know: {other}"),
    })
}

fn is(value: &Value, kind: &str) -> bool {
    match kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "number" => value.is_number(),
        "integer" => value.is_i64() || value.is_u64(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        other => panic!("no type {other}"),
    }
}

fn fits(document: &Value) -> bool {
    let schema = schema();
    valid(&schema, &schema, document)
}

fn fixture(name: &str) -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/compat").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn with(plugin: &str, data: &Value) -> Value {
    let plugins = json!({plugin: {"data": data}});
    json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": plugins}}})
}

#[test]
fn the_corrected_example_fits_and_the_printed_one_does_not() {
    assert!(fits(&fixture("corrected.json")));
    assert!(!fits(&fixture("example.json")));
}

/// Every form of the guide's table of data.
fn forms() -> Vec<(&'static str, Value)> {
    vec![
        ("kernelVersion", json!({"range": "[5.0.0,5.15.0),[6.1]"})),
        (
            "kernelConfiguration",
            json!({"CONFIG_VFIO": "m", "HZ": [100, 250], "LSM": {"op": "InRegexp", "value": "x"}}),
        ),
        (
            "kernelModules",
            json!({"vfio-pci": {}, "kvm": null, "i915": {"state": "available", "enable_guc": [1, "2", true]}}),
        ),
        (
            "kernelCmdline",
            json!({"intel_iommu": "on", "quiet": null, "a": true, "b": 1, "c": ["x"], "d": {"op": "Exists"}}),
        ),
        (
            "hardware",
            json!({"cpu": ["GenuineIntel"], "pci": ["03:10de", "*:8086:1592"], "usb": ["0e:046d"]}),
        ),
        (
            "cpu",
            json!({"vendor": "AMD", "family": 6, "model": {"op": "Gt", "value": 5}, "level": ["v3", "v8.2"], "flags": ["AVX2"], "sockets": 2, "multithreading": true, "hypervisor": "none"}),
        ),
        (
            "cpu",
            json!({"level": "x86-64-v3", "flags": {"AVX2": true, "SGX": {"op": "DoesNotExist"}}}),
        ),
        (
            "kernel",
            json!({"version": "[6.1,)", "config": {"KVM": "y"}, "modules": ["kvm"], "cmdline": {"quiet": true}, "selinux": true, "kvm": true}),
        ),
        (
            "kernel",
            json!({"version": {"op": "Ge", "value": ["5.10"], "type": "version"}, "modules": {"kvm": {}}}),
        ),
        (
            "memory",
            json!({"total": {"op": "Ge", "value": "16Gi"}, "numaNodes": 2, "swap": false, "hugepages": {"2Mi": {"op": "Ge", "value": 512}}, "nv": [{"mode": "fsdax"}]}),
        ),
        (
            "network",
            json!({"device": [{"operstate": "up", "count": 2}], "virtual": {"name": "lo"}}),
        ),
        (
            "pci",
            json!({"device": [{"class": "03", "vendor": ["10de", "0x1002"], "count": {"op": "Ge", "value": 1}}]}),
        ),
        ("usb", json!({"device": [{"class": "0e", "vendor": "046d"}]})),
        ("storage", json!({"block": [{"rotational": false, "zoned": "none"}]})),
        (
            "system",
            json!({"osRelease": {"ID": ["debian", "ubuntu"]}, "dmi": {"sys_vendor": "x"}, "arch": "amd64"}),
        ),
    ]
}

#[test]
fn schema_and_reader_take_the_same_forms() {
    for (plugin, data) in forms() {
        let document = with(plugin, &data);
        let found = read(document.to_string().as_bytes(), Mode::Strict);
        assert!(found.spec.is_some(), "{plugin} {data}: {:?}", found.diagnostics);
        assert!(fits(&document), "{plugin} {data}");
    }
    let named: std::collections::BTreeSet<_> = forms().iter().map(|(name, _)| *name).collect();
    assert_eq!(named.len(), builtin::NAMES.len());
}

#[test]
fn schema_and_reader_refuse_the_same() {
    for (plugin, data) in [
        ("kernelVersion", json!({})),
        ("kernelVersion", json!({"range": "5.10"})),
        ("kernelVersion", json!({"range": "[5,)", "extra": 1})),
        ("kernelConfiguration", json!({"CONFIG_X": true})),
        ("kernelConfiguration", json!({"CONFIG_X": null})),
        ("kernelConfiguration", json!({"a b": "y"})),
        ("kernelModules", json!({"../x": {}})),
        ("kernelModules", json!({"vfio": []})),
        ("kernelModules", json!({"vfio": {"state": "gone"}})),
        ("kernelCmdline", json!({"a": false})),
        ("kernelCmdline", json!({"a=b": true})),
        ("hardware", json!({"pci": ["10de"]})),
        ("hardware", json!({"pci": []})),
        ("hardware", json!({"fpga": []})),
        ("cpu", json!({"level": 3})),
        ("cpu", json!({"flags": []})),
        ("cpu", json!({"sockets": null})),
        ("cpu", json!({"sockets": {"op": "ge", "value": 1}})),
        ("cpu", json!({"sockets": {"value": 1}})),
        ("pci", json!({"device": [{"vendor": "nvidia"}]})),
        ("pci", json!({"device": [{"count": -1}]})),
        ("memory", json!({"hugepages": 5})),
        ("network", json!({"device": [{"colour": "red"}]})),
    ] {
        let document = with(plugin, &data);
        let found = read(document.to_string().as_bytes(), Mode::Strict);
        assert!(found.spec.is_none(), "{plugin} {data}");
        assert!(!fits(&document), "{plugin} {data}");
    }
    for document in [
        json!({}),
        json!({"schemaVersion": "0.2.0", "namespaces": {"a": {}}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {"a/b": {}}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"refs": {"oneOf": []}}}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"refs": {"all": "b"}}}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": {"refs": {}}}}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"plugins": {"cpu": {"source": "x"}}}}}),
        json!({"schemaVersion": "0.1.0", "namespaces": {"a": {"extra": 1}}}),
    ] {
        assert!(read(document.to_string().as_bytes(), Mode::Strict).spec.is_none(), "{document}");
        assert!(!fits(&document), "{document}");
    }
}
