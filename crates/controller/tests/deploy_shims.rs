//! What is shipped for Shims: the roles have every verb that is used, and no more; Jobs run apart.

use std::collections::BTreeSet;

use serde_json::Value;

fn documents() -> Vec<Value> {
    let path = format!("{}/../../deploy/shims/rbac.yaml", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| serde::Deserialize::deserialize(document).expect("YAML"))
        .collect()
}

/// What the code asks of API servers: watches of `shims/wire.rs`, writes of `shims/apply.rs`, looks of
/// `shims/upstream.rs`.
const USED: &[(&str, &str, &str, &str)] = &[
    ("Role", "batch", "jobs", "get list watch create delete"),
    ("Role", "", "pods", "list"),
    ("ClusterRole", "runtime.spinkube.dev", "shims", "list watch patch"),
    ("ClusterRole", "runtime.spinkube.dev", "shims/status", "patch"),
    ("ClusterRole", "runtime.spinkube.dev", "shims/finalizers", "update"),
    ("ClusterRole", "", "nodes", "list watch patch"),
    ("ClusterRole", "node.k8s.io", "runtimeclasses", "list watch create patch delete"),
    ("ClusterRole", "events.k8s.io", "events", "create patch"),
    ("ClusterRole", "apps", "deployments", "list"),
    ("ClusterRole", "coordination.k8s.io", "leases", "list"),
];

fn texts(value: &Value) -> Vec<String> {
    let items = value.as_array().into_iter().flatten();
    items.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn shim_roles_allow_what_is_used_and_nothing_else() {
    let mut allowed = BTreeSet::new();
    for role in documents() {
        let kind = role["kind"].as_str().unwrap().to_owned();
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        allowed.insert((kind.clone(), group.clone(), resource.clone(), verb));
                    }
                }
            }
        }
    }
    let used: BTreeSet<_> = USED
        .iter()
        .flat_map(|(kind, group, resource, verbs)| {
            let own = |text: &str| text.to_owned();
            verbs.split(' ').map(move |verb| (own(kind), own(group), own(resource), own(verb)))
        })
        .collect();
    assert_eq!(allowed, used);
}

#[test]
fn jobs_run_in_a_namespace_of_their_own_as_an_account_without_rights() {
    let all = documents();
    let find = |kind: &str| all.iter().find(|one| one["kind"] == kind).expect(kind);
    let namespace = find("Namespace");
    assert_eq!(namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"], "privileged");
    assert_ne!(namespace["metadata"]["name"], "portolan-system");
    let account = find("ServiceAccount");
    assert_eq!(account["automountServiceAccountToken"], false);
    let bound = all.iter().filter(|one| one["kind"].as_str().unwrap().ends_with("Binding"));
    for binding in bound {
        assert_eq!(
            binding["subjects"][0]["name"], "portolan-controller",
            "nobody binds the installer"
        );
    }
}
