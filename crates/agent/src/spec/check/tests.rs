use serde_json::{Value, json};

use super::*;

fn good() -> Value {
    json!({
        "image": {
            "repository": "registry.example/team/app",
            "resolved_digest": format!("sha256:{}", "ab".repeat(32)),
            "os": "linux",
            "arch": "amd64",
        },
    })
}

fn with(change: impl FnOnce(&mut Value)) -> WorkloadSpec {
    let mut value = good();
    change(&mut value);
    serde_json::from_value(value).unwrap()
}

#[test]
fn the_smallest_spec_is_an_image_and_has_stated_defaults() {
    let spec = with(|_| {});
    assert!(spec.check().is_ok());
    assert_eq!((spec.vcpus, spec.memory_mib, spec.ephemeral_disk_bytes), (1, 256, 1 << 30));
    assert_eq!(spec.desired_state, super::super::DesiredState::Running);
}

#[test]
fn an_unknown_field_is_refused_everywhere() {
    for pointer in ["", "/image"] {
        let mut value = good();
        value.pointer_mut(pointer).unwrap()["memory_mb"] = json!(1);
        let error = serde_json::from_value::<WorkloadSpec>(value).unwrap_err();
        assert!(error.to_string().contains("memory_mb"), "{error}");
    }
}

#[test]
fn numbers_have_bounds_on_both_sides() {
    for (field, min, max) in BOUNDS {
        for (value, ok) in [(min, true), (max, true), (min - 1, false), (max + 1, false)] {
            let mut spec = with(|_| {});
            match field {
                "vcpus" => spec.vcpus = value.try_into().unwrap(),
                "memory_mib" => spec.memory_mib = value.try_into().unwrap(),
                _ => spec.ephemeral_disk_bytes = value,
            }
            let result = spec.check();
            assert_eq!(result.is_ok(), ok, "{field} {value}");
            if let Err(error) = result {
                assert_eq!(error.reason(), Reason::InvalidSpec);
                assert!(error.to_string().contains(field), "{error}");
            }
        }
    }
}

const BOUNDS: [(&str, u64, u64); 3] = [
    ("vcpus", 1, MAX_VCPUS as u64),
    ("memory_mib", MIN_MEMORY_MIB as u64, MAX_MEMORY_MIB as u64),
    ("ephemeral_disk_bytes", MIN_EPHEMERAL_DISK_BYTES, MAX_EPHEMERAL_DISK_BYTES),
];

#[test]
fn words_are_what_a_program_can_be_given() {
    let long = "x".repeat(MAX_WORD_BYTES);
    for (change, ok) in [
        (json!({"command": ["/bin/sh", "-c", "true"], "args": [], "env": {"A B": "é=\n"}}), true),
        (json!({"args": [long, long]}), true),
        (json!({"args": [long, long, "x"]}), false),
        (json!({"args": [format!("{long}x")]}), false),
        (json!({"args": ["a\u{0}b"]}), false),
        (json!({"command": []}), false),
        (json!({"command": [""]}), false),
        (json!({"args": vec!["x"; MAX_WORDS]}), true),
        (json!({"args": vec!["x"; MAX_WORDS + 1]}), false),
        (json!({"env": {"": "x"}}), false),
        (json!({"env": {"A=B": "x"}}), false),
        (json!({"env": {"A\nB": "x"}}), false),
        (json!({"env": {"É": "x"}}), false),
        (json!({"env": {"A": "x\u{0}"}}), false),
        (json!({"release": "team/app-7"}), true),
        (json!({"release": "a\nb"}), false),
        (json!({"release": "x".repeat(254)}), false),
    ] {
        let text: String = change.to_string().chars().take(60).collect();
        let spec = with(|v| v.as_object_mut().unwrap().extend(change.as_object().unwrap().clone()));
        assert_eq!(spec.check().is_ok(), ok, "{text}");
    }
}

#[test]
fn schema_and_checks_have_the_same_bounds() {
    let schema = serde_json::to_value(schemars::schema_for!(WorkloadSpec)).unwrap();
    for (field, min, max) in BOUNDS {
        let property = &schema["properties"][field];
        assert_eq!(
            (property["minimum"].as_u64(), property["maximum"].as_u64()),
            (Some(min), Some(max)),
            "{field}"
        );
    }
    for field in ["command", "args"] {
        assert_eq!(schema["properties"][field]["maxItems"], json!(MAX_WORDS), "{field}");
    }
    assert_eq!(schema["properties"]["env"]["maxProperties"], json!(MAX_WORDS));
    assert_eq!(schema["properties"]["release"]["maxLength"], json!(MAX_RELEASE_BYTES));
    assert_eq!(schema["additionalProperties"], json!(false));
    let image = &schema["$defs"]["ImageSpec"];
    let mut required: Vec<_> = image["required"].as_array().unwrap().clone();
    required.sort_by_key(Value::to_string);
    assert_eq!(
        required,
        [json!("arch"), json!("os"), json!("repository"), json!("resolved_digest")]
    );
    assert_eq!(image["properties"]["resolved_digest"]["pattern"], json!("^sha256:[0-9a-f]{64}$"));
    assert_eq!(image["properties"]["os"]["const"], json!("linux"));
}
