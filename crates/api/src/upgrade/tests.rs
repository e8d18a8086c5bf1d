use serde_json::json;

use super::*;
use crate::definitions;

fn definition(schema: Value) -> Value {
    json!({
        "spec": {
            "group": "example.dev", "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}}}],
        },
        "status": {"storedVersions": ["v1"]},
    })
}

fn object(properties: Value) -> Value {
    json!({"type": "object", "properties": properties})
}

fn of_field(old: Value, new: Value) -> Vec<Change> {
    let wrap = |field: Value| definition(object(json!({"spec": object(json!({"a": field}))})));
    changes(&wrap(old), &wrap(new))
}

#[test]
fn what_objects_could_say_and_cannot_any_more_is_told_with_its_place() {
    let text = || json!({"type": "string"});
    for (old, new, what, weight) in [
        (
            json!({"type": "string"}),
            json!({"type": "integer"}),
            "it was string and is integer",
            Weight::Breaks,
        ),
        (
            json!({"type": "string", "enum": ["x", "y"]}),
            json!({"type": "string", "enum": ["x"]}),
            "\"y\" is gone",
            Weight::Breaks,
        ),
        (text(), json!({"type": "string", "enum": ["x"]}), "now only", Weight::MayBreak),
        (text(), json!({"type": "string", "maxLength": 5}), "there was none", Weight::MayBreak),
        (
            json!({"type": "string", "maxLength": 9}),
            json!({"type": "string", "maxLength": 5}),
            "was 9 and is 5",
            Weight::MayBreak,
        ),
        (
            json!({"type": "integer", "minimum": 0}),
            json!({"type": "integer", "minimum": 1}),
            "was 0 and is 1",
            Weight::MayBreak,
        ),
        (
            text(),
            json!({"type": "string", "pattern": "^a"}),
            "pattern is another",
            Weight::MayBreak,
        ),
        (json!({"type": "string", "nullable": true}), text(), "null was allowed", Weight::MayBreak),
        (
            text(),
            json!({"type": "string", "x-kubernetes-validations": [{"rule": "self != ''"}]}),
            "a new rule",
            Weight::MayBreak,
        ),
        (
            json!({"type": "array", "items": {"type": "string"}}),
            json!({"type": "array", "items": {"type": "integer"}}),
            "it was string",
            Weight::Breaks,
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "string"}}),
            json!({"type": "object"}),
            "keys were free",
            Weight::Breaks,
        ),
        (
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
            json!({"type": "object"}),
            "took everything",
            Weight::MayBreak,
        ),
        (
            object(json!({"b": {"type": "string"}})),
            object(json!({})),
            "the field is gone",
            Weight::Breaks,
        ),
        (
            object(json!({"b": {"type": "string"}})),
            json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}),
            "has to be said",
            Weight::MayBreak,
        ),
    ] {
        let found = of_field(old.clone(), new.clone());
        assert_eq!(found.len(), 1, "{old} -> {new}: {found:?}");
        assert!(found[0].what.contains(what), "{found:?}");
        assert!(found[0].at.starts_with("v1 .spec.a"), "{found:?}");
        assert_eq!(found[0].weight, weight, "{found:?}");
    }
}

#[test]
fn what_allows_more_or_the_same_is_no_loss() {
    for (old, new) in [
        (json!({"type": "string"}), json!({"type": "string", "description": "said better"})),
        (json!({"type": "string", "enum": ["x"]}), json!({"type": "string", "enum": ["x", "y"]})),
        (json!({"type": "string", "enum": ["x"]}), json!({"type": "string"})),
        (json!({"type": "string", "maxLength": 5}), json!({"type": "string", "maxLength": 9})),
        (json!({"type": "integer"}), json!({"x-kubernetes-int-or-string": true})),
        (object(json!({})), object(json!({"b": {"type": "string"}}))),
        (
            object(json!({"b": {"type": "string"}})),
            json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true}),
        ),
        (
            object(json!({"b": {"type": "string"}})),
            json!({"type": "object", "required": ["b"], "properties": {"b": {"type": "string", "default": "x"}}}),
        ),
    ] {
        assert_eq!(of_field(old.clone(), new.clone()), [], "{old} -> {new}");
    }
}

#[test]
fn a_version_that_objects_are_stored_in_cannot_go() {
    let old = definition(object(json!({})));
    let mut new = old.clone();
    new["spec"]["versions"][0]["name"] = json!("v2");
    let found = changes(&old, &new);
    assert!(found.iter().any(|one| one.at == "v1" && one.what.contains("stored")), "{found:?}");
    assert!(found.iter().any(|one| one.what.contains("not served")), "{found:?}");
    let mut hidden = old.clone();
    hidden["spec"]["versions"][0]["served"] = json!(false);
    assert_eq!(changes(&old, &hidden).len(), 1);
    let mut unsplit = old.clone();
    unsplit["spec"]["versions"][0]["subresources"] = json!({});
    assert!(changes(&old, &unsplit)[0].what.contains("status"));
    let mut other = old.clone();
    other["spec"]["scope"] = json!("Cluster");
    assert!(changes(&old, &other)[0].what.contains("another resource"));
}

#[test]
fn our_definitions_lose_nothing_against_themselves_and_a_field_less_is_seen_in_each() {
    for definition in definitions::all() {
        let ours = &definition.value;
        assert_eq!(standing(Some(ours), ours), Standing::Current, "{}", definition.file);
        assert_eq!(standing(None, ours), Standing::Missing);
        let mut newer = ours.clone();
        let root =
            &mut newer["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
        root["properties"]["fromTheFuture"] = json!({"type": "string"});
        assert_eq!(standing(Some(ours), &newer), Standing::Older, "{}", definition.file);
        let Standing::Loses(lost) = standing(Some(&newer), ours) else {
            panic!("{}", definition.file)
        };
        assert!(lost[0].at.ends_with(".spec.fromTheFuture"), "{lost:?}");
    }
}

/// What API servers add to a definition by themselves.
#[test]
fn what_a_server_adds_to_a_definition_does_not_make_it_another() {
    let ours = &definitions::of("Shim").unwrap().value;
    let mut there = ours.clone();
    there["spec"]["conversion"] = json!({"strategy": "None"});
    there["spec"]["names"]["listKind"] = json!("ShimList");
    there["status"] = json!({"storedVersions": ["v1alpha1"], "conditions": []});
    there["metadata"]["uid"] = json!("x");
    assert_eq!(standing(Some(&there), ours), Standing::Current);
    there["spec"]["versions"][0]["additionalPrinterColumns"] = json!([]);
    assert_eq!(standing(Some(&there), ours), Standing::Older);
}

#[test]
fn a_schema_without_end_ends() {
    let mut deep = json!({"type": "string"});
    for _ in 0..200 {
        deep = object(json!({"a": deep}));
    }
    let mut other = deep.clone();
    other["properties"]["b"] = json!({"type": "string"});
    let found = changes(&definition(deep), &definition(other));
    assert!(found.iter().all(|one| one.what.contains("too deep")), "{found:?}");
}

/// Every place of a document.
fn places(value: &Value, at: &str, out: &mut Vec<String>) {
    out.push(at.to_owned());
    match value {
        Value::Object(fields) => fields.iter().for_each(|(key, inner)| {
            let key = key.replace('~', "~0").replace('/', "~1");
            places(inner, &format!("{at}/{key}"), out);
        }),
        Value::Array(all) => {
            all.iter().enumerate().for_each(|(n, inner)| places(inner, &format!("{at}/{n}"), out));
        }
        _ => {}
    }
}

/// What a cluster lists is a stranger's: whatever stands anywhere, there is an answer.
#[test]
fn whatever_a_cluster_has_there_is_an_answer() {
    let ours = &definitions::of("Shim").unwrap().value;
    let mut all = Vec::new();
    places(ours, "", &mut all);
    assert!(all.len() > 200);
    for place in all {
        for odd in
            [json!(null), json!(7), json!("x"), json!([]), json!({}), json!([null, {"a": 1}])]
        {
            let mut there = ours.clone();
            *there.pointer_mut(&place).unwrap() = odd;
            standing(Some(&there), ours);
            standing(Some(ours), &there);
        }
    }
}
