//! The published schemas beside the code: what the one takes the other takes, and nothing else.

use std::path::Path;

use portolan_host::facts::Facts;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::external::policy;
use crate::plugins::{Manner, builtin};
use crate::schema::tests::valid;

fn schema(name: &str) -> Value {
    let path = format!("../../docs/schemas/plugin-{name}.schema.json");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(path);
    let text = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_slice(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Something of every kind, most of it wrong wherever it is put.
fn odd() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..70).prop_map(Value::from),
        Just(json!(1.5)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([null])),
        Just(json!([["layer"], null, ["x"]])),
        Just(json!("pass")),
        Just(json!("")),
        Just(json!("a/*")),
        Just(json!("te*")),
    ]
}

/// A member that is there and right, there and odd, or not there.
fn member(
    name: &'static str,
    right: impl Strategy<Value = Value>,
) -> impl Strategy<Value = Members> {
    let there = right.prop_map(move |value| vec![(name.to_owned(), value)]);
    let odd = odd().prop_map(move |value| vec![(name.to_owned(), value)]);
    prop_oneof![8 => there, 3 => Just(Vec::new()), 1 => odd]
}

type Members = Vec<(String, Value)>;

fn object(members: impl Strategy<Value = Vec<Members>>) -> impl Strategy<Value = Value> {
    members.prop_map(|all| Value::Object(all.into_iter().flatten().collect()))
}

fn list(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    prop::collection::vec(of, 0..3).prop_map(Value::from)
}

fn map(of: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let names =
        prop_oneof![6 => "[a-z.]{1,3}", 1 => Just("a/b".to_owned()), 1 => Just(String::new())];
    let members = prop::collection::btree_map(names, prop_oneof![9 => of, 1 => odd()], 0..3);
    members.prop_map(|map| Value::Object(map.into_iter().collect()))
}

fn text() -> impl Strategy<Value = Value> {
    "[a-z]{0,3}".prop_map(Value::from)
}

fn nullable() -> impl Strategy<Value = Value> {
    prop_oneof![text(), Just(Value::Null)]
}

fn verdict() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!("pass")), Just(json!("fail")), Just(json!("unknown"))]
}

fn api() -> impl Strategy<Value = Members> {
    let api = prop_oneof![30 => Just(json!(API)), 1 => Just(json!("imagecompat/v2"))];
    api.prop_map(|value| vec![("apiVersion".to_owned(), value)])
}

fn of_features(elements: impl Strategy<Value = Value> + 'static) -> impl Strategy<Value = Value> {
    map(object(vec![member("elements", elements).boxed()]))
}

fn answers() -> impl Strategy<Value = Value> {
    let texts = || map(text()).boxed();
    let reason = object(vec![
        member("code", text()).boxed(),
        member("message", text()).boxed(),
        member("expected", nullable()).boxed(),
        member("actual", nullable()).boxed(),
        member("source", nullable()).boxed(),
        member("remedy", nullable()).boxed(),
        member("result", prop_oneof![verdict(), Just(Value::Null)]).boxed(),
    ]);
    let instance = object(vec![member("attributes", texts()).boxed()]);
    let facts = object(vec![
        member("flags", of_features(map(Just(json!({}))))).boxed(),
        member("attributes", of_features(texts())).boxed(),
        member("instances", of_features(list(instance))).boxed(),
    ]);
    object(vec![
        api().boxed(),
        member("result", verdict()).boxed(),
        member("reasons", list(reason)).boxed(),
        member("facts", facts).boxed(),
        member("more", odd()).boxed(),
    ])
}

fn descriptions() -> impl Strategy<Value = Value> {
    let fact = prop_oneof![
        9 => prop_oneof![Just(json!("cpu.model")), Just(json!("plugin/x")), Just(json!("pci.device"))],
        1 => prop_oneof![Just(json!(1)), Just(Value::Null), Just(json!(["cpu.model"]))],
    ];
    let name = prop_oneof![
        9 => prop::sample::select(&builtin::NAMES[..]).prop_map(Value::from),
        1 => prop_oneof![Just(json!("gpu")), Just(json!(1))],
    ];
    let ask = object(vec![member("plugin", name).boxed(), member("data", odd()).boxed()]);
    object(vec![
        api().boxed(),
        member("name", text()).boxed(),
        member("version", text()).boxed(),
        member("facts", list(fact)).boxed(),
        member("asks", list(ask)).boxed(),
        member("dataSchema", odd()).boxed(),
    ])
}

fn policies() -> impl Strategy<Value = Value> {
    let provider =
        || prop::sample::select(&["layer", "directory", "http"][..]).prop_map(Value::from);
    let patterns = || {
        let all = &["*", "r.example/a", "r.example/a/*", "r.example/a*", "*/a", ""][..];
        list(prop::sample::select(all).prop_map(Value::from))
    };
    let digest = prop_oneof![
        8 => Just(json!(format!("sha256:{}", "a".repeat(64)))),
        1 => Just(json!(format!("sha512:{}", "a".repeat(128)))),
        1 => Just(json!("sha256:12")),
    ];
    let flag = || any::<bool>().prop_map(Value::from);
    let rule = object(vec![
        member("providers", list(provider())).boxed(),
        member("repositories", patterns()).boxed(),
        member("plugins", list(text())).boxed(),
        member("digests", list(digest)).boxed(),
        member("files", flag()).boxed(),
        member("libraries", flag()).boxed(),
        member("overrides", flag()).boxed(),
        member("timeoutSeconds", (0_i64..63).prop_map(Value::from)).boxed(),
    ]);
    let http = object(vec![
        member("redirectHosts", list(text())).boxed(),
        member("privateNetworks", list(Just(json!("10.0.0.0/8")))).boxed(),
        member("certificates", list(text())).boxed(),
        member("registries", patterns()).boxed(),
    ]);
    object(vec![
        member("version", Just(json!(1))).boxed(),
        member("rules", list(rule)).boxed(),
        member("http", http).boxed(),
    ])
}

/// Whether an answer is one, whatever its exit code.
fn is_answer(document: &Value) -> bool {
    let text = document.to_string();
    (0..3).any(|code| answer(text.as_bytes(), code).is_ok())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1024))]

    #[test]
    fn the_schema_of_answers_takes_what_the_code_takes(document in answers()) {
        let schema = schema("answer");
        prop_assert_eq!(valid(&schema, &schema, &document), is_answer(&document));
    }

    #[test]
    fn the_schema_of_descriptions_takes_what_the_code_takes(document in descriptions()) {
        let schema = schema("description");
        let taken = describe(document.to_string().as_bytes()).is_ok();
        prop_assert_eq!(valid(&schema, &schema, &document), taken);
    }

    #[test]
    fn the_schema_of_policies_takes_what_the_code_takes(document in policies()) {
        let schema = schema("policy");
        let taken = policy::parse(document.to_string().as_bytes()).is_ok();
        prop_assert_eq!(valid(&schema, &schema, &document), taken);
    }
}

/// Both kinds must come up, or the tests above say nothing.
#[test]
fn the_documents_of_these_tests_are_right_and_wrong() {
    use proptest::strategy::ValueTree as _;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut count = |documents: BoxedStrategy<Value>, taken: &dyn Fn(&Value) -> bool| {
        let drawn = (0..500).map(|_| documents.new_tree(&mut runner).unwrap().current());
        drawn.filter(|document| taken(document)).count()
    };
    let text = |document: &Value| document.to_string().into_bytes();
    for (name, right) in [
        ("answers", count(answers().boxed(), &is_answer)),
        ("descriptions", count(descriptions().boxed(), &|one| describe(&text(one)).is_ok())),
        ("policies", count(policies().boxed(), &|one| policy::parse(&text(one)).is_ok())),
    ] {
        assert!((25..475).contains(&right), "{right} of 500 {name} are right");
    }
}

/// Bounds that are numbers in both.
#[test]
fn the_schemas_bounds_are_the_codes() {
    let many = |n: usize, item: &Value| Value::from(vec![item.clone(); n]);
    let (answers, descriptions) = (schema("answer"), schema("description"));
    for (n, good) in [(MAX_ITEMS, true), (MAX_ITEMS + 1, false)] {
        let document = json!({"apiVersion": API, "result": "pass", "reasons": many(n, &json!({}))});
        assert_eq!((valid(&answers, &answers, &document), is_answer(&document)), (good, good));
        for document in [
            json!({"apiVersion": API, "facts": many(n, &json!("cpu.model"))}),
            json!({"apiVersion": API, "asks": many(n, &json!({"plugin": "cpu"}))}),
        ] {
            let taken = describe(document.to_string().as_bytes()).is_ok();
            assert_eq!((valid(&descriptions, &descriptions, &document), taken), (good, good));
        }
    }
    for n in [128, 129] {
        let facts = json!({"flags": {("x".repeat(n)): {"elements": {}}}});
        let document = json!({"apiVersion": API, "result": "pass", "facts": facts});
        assert_eq!(valid(&answers, &answers, &document), n == 128);
        assert_eq!(is_answer(&document), n == 128);
    }
}

/// What we ask is as the schema says, and there is nothing in the one that the other lacks.
#[test]
fn the_schema_of_questions_is_what_is_asked() {
    let schema = schema("question");
    let data = crate::json::parse(br#"{"modules": ["vfio"]}"#).unwrap();
    let question = Question { plugin: "x", namespace: "n", data: Some(&data) };
    let facts = Facts::builder()
        .attribute("kernel.version", "full", "6.1.0")
        .unknown("kernel.loadedmodule", "not readable")
        .build();
    let asked = crate::json::parse(br#"{"range": "[5.0,)"}"#).unwrap();
    let given = builtin::ask("kernelVersion", Some(&asked), &facts, Manner::default()).unwrap();
    let given = handed("kernelVersion", &asked.to_json(), &given);
    let host = Host {
        root: Some("/"),
        platform: Some("linux/amd64/v3"),
        facts: selected(&facts, &["kernel.version".to_owned(), "kernel.loadedmodule".to_owned()]),
    };
    let bare = Host { root: None, platform: None, facts: selected(&facts, &[]) };
    let check = question.check(&host, &[given]);
    let without = Question { data: None, ..question };
    for text in [question.describe(), without.describe(), check.clone(), without.check(&bare, &[])]
    {
        let document: Value = serde_json::from_slice(&text).unwrap();
        assert!(valid(&schema, &schema, &document), "{document:#}");
    }
    let document: Value = serde_json::from_slice(&check).unwrap();
    same_keys(&schema, &document, "");
}

/// Every member of a document is a property of its schema, and every property is a member.
fn same_keys(schema: &Value, document: &Value, path: &str) {
    match document {
        Value::Object(members) if schema["properties"].is_object() => {
            let named = schema["properties"].as_object().expect("just looked");
            let (a, b): (Vec<_>, Vec<_>) = (named.keys().collect(), members.keys().collect());
            assert_eq!(a, b, "{path}");
            for (key, value) in members {
                same_keys(&named[key], value, &format!("{path}/{key}"));
            }
        }
        Value::Array(items) => {
            assert!(!items.is_empty(), "{path}: nothing to compare");
            items.iter().for_each(|item| same_keys(&schema["items"], item, path));
        }
        _ => {}
    }
}
