//! What is shipped for Releases: the roles have every verb that is used, and no more; the sample is a Release.

use std::collections::BTreeSet;

use portolan_api::document::{self, Resource};
use serde_json::Value;

fn read(path: &str) -> String {
    let path = format!("{}/../../{path}", env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn documents() -> Vec<Value> {
    serde_yaml_ng::Deserializer::from_str(&read("deploy/releases/rbac.yaml"))
        .map(|document| serde::Deserialize::deserialize(document).expect("YAML"))
        .collect()
}

/// What the code asks of API servers.
const USED: &[(&str, &str, &str, &str)] = &[
    ("portolan-controller-releases", "portolan.dev", "releases", "get list watch create patch"),
    ("portolan-controller-releases", "portolan.dev", "releases/status", "patch"),
    ("portolan-controller-releases", "shipwright.io", "buildruns", "list watch patch"),
    ("portolan-controller-releases", "events.k8s.io", "events", "create patch"),
    ("portolan-controller-release-inputs", "", "configmaps", "get"),
    ("portolan-controller-release-inputs", "", "secrets", "get"),
];

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn release_roles_allow_what_is_used_and_nothing_else() {
    let mut allowed = BTreeSet::new();
    for role in documents() {
        let name = role["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        allowed.insert((name.clone(), group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    let own = |text: &str| text.to_owned();
    let used: BTreeSet<_> = USED
        .iter()
        .flat_map(|(role, group, resource, verbs)| {
            verbs.split(' ').map(move |verb| (own(role), own(group), own(resource), own(verb)))
        })
        .collect();
    assert_eq!(allowed, used);
}

/// Where objects are asked for and written. A new place is a new line here, in `USED` and in the roles.
const PLACES: &[(&str, &str)] =
    &[("gather.rs", "get_opt"), ("runs.rs", "create get_opt patch"), ("wire.rs", "list")];

#[test]
fn the_table_of_what_releases_use_is_that_of_the_code() {
    let calls = ["create", "delete", "get_opt", "list", "patch", "patch_status", "replace"];
    let dir = format!("{}/src/releases", env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    for entry in std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir}: {error}")) {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        let text = std::fs::read_to_string(&path).expect("a source file");
        let text = text.split("\nmod tests {").next().unwrap_or_default();
        let used = |call: &&&str| {
            ["api", "releases"].iter().any(|api| text.contains(&format!("{api}.{call}(")))
        };
        let used: Vec<&str> = calls.iter().filter(used).copied().collect();
        if !used.is_empty() {
            found.push((name, used.join(" ")));
        }
    }
    found.sort();
    let expected: Vec<(String, String)> =
        PLACES.iter().map(|(file, calls)| ((*file).to_owned(), (*calls).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn the_sample_is_a_release_as_its_definition_says() {
    let read = document::read(read("deploy/releases/samples/release.yaml").as_bytes());
    let read = read.unwrap_or_else(|error| panic!("{error}"));
    let [Resource::Release(release)] = &read[..] else { panic!("{read:?}") };
    assert!(release.spec.require_verification && !release.spec.track);
}
