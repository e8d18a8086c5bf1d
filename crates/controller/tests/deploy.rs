//! What is shipped for a cluster: the roles have every verb that is used, and no more.

use std::collections::BTreeSet;

use serde_json::Value;

fn documents(name: &str) -> Vec<Value> {
    let path = format!("{}/../../deploy/controller/{name}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| serde::Deserialize::deserialize(document).expect("YAML"))
        .collect()
}

/// What the code asks of API servers: kinds of `wire.rs`, reads of `world.rs`, writes of `write.rs`,
/// `begin.rs`, `account.rs`, `lease` and `prerequisites.rs`.
const USED: &[(&str, &str, &str)] = &[
    ("shipwright.io", "builds", "get list watch"),
    ("shipwright.io", "builds/status", "patch"),
    ("shipwright.io", "builds/finalizers", "update"),
    ("shipwright.io", "buildruns", "get list watch patch delete"),
    ("shipwright.io", "buildruns/status", "patch"),
    ("shipwright.io", "buildruns/finalizers", "update"),
    ("shipwright.io", "buildstrategies", "get list watch"),
    ("shipwright.io", "clusterbuildstrategies", "get list watch"),
    ("shipwright.io", "imageplatforms", "get list watch"),
    ("shipwright.io", "imageplatformclasses", "get list watch"),
    ("shipwright.io", "imageplatformclasses/status", "patch"),
    ("tekton.dev", "taskruns", "get list watch create patch"),
    ("tekton.dev", "pipelineruns", "get list watch create patch"),
    ("", "pods", "list watch"),
    ("", "secrets", "get list watch"),
    ("", "configmaps", "get"),
    ("", "serviceaccounts", "get list watch create patch delete"),
    ("apps", "deployments", "list"),
    ("coordination.k8s.io", "leases", "create get update list"),
];

fn texts(value: &Value) -> impl Iterator<Item = &str> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str)
}

#[test]
fn the_roles_allow_what_is_used_and_nothing_else() {
    let mut allowed = BTreeSet::new();
    for role in documents("rbac.yaml") {
        for rule in role["rules"].as_array().into_iter().flatten() {
            for group in texts(&rule["apiGroups"]) {
                for resource in texts(&rule["resources"]) {
                    for verb in texts(&rule["verbs"]) {
                        allowed.insert((group.to_owned(), resource.to_owned(), verb.to_owned()));
                    }
                }
            }
        }
    }
    let used: BTreeSet<_> = USED
        .iter()
        .flat_map(|(group, resource, verbs)| {
            verbs
                .split(' ')
                .map(|verb| ((*group).to_owned(), (*resource).to_owned(), verb.to_owned()))
        })
        .collect();
    assert_eq!(allowed, used);
}

/// Where objects are asked for and written, of all that is done for builds. A new place is a new line here, in
/// `USED` and in the roles; what is used without a role shows in tests on a cluster, and what is allowed and not
/// used shows here.
const PLACES: &[(&str, &str)] = &[
    ("caches.rs", "watcher"),
    ("classes/mod.rs", "get_opt"),
    ("lease/mod.rs", "create get_opt replace"),
    ("prerequisites.rs", "list"),
    ("runs/account.rs", "create patch"),
    ("runs/begin.rs", "create get_opt list"),
    ("runs/mod.rs", "get_opt patch"),
    ("runs/world.rs", "get_opt"),
    ("write.rs", "delete patch patch_status"),
];

#[test]
fn the_table_of_what_is_used_is_that_of_the_code() {
    let calls = ["create", "delete", "get_opt", "list", "patch", "patch_status", "replace"];
    let mut found = Vec::new();
    let folders = ["", "builds", "classes", "lease", "runs", "runs/mirror"];
    for folder in folders {
        let dir = format!("{}/src/{folder}", env!("CARGO_MANIFEST_DIR"));
        for entry in std::fs::read_dir(&dir).unwrap_or_else(|error| panic!("{dir}: {error}")) {
            let path = entry.expect("an entry").path();
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if !name.ends_with(".rs") || name.contains("test") {
                continue;
            }
            let text = std::fs::read_to_string(&path).expect("a source file");
            let text = text.split("\nmod tests {").next().unwrap_or_default();
            // Whatever holds an API is called after what it is for, in the singular or plural.
            let holders = ["api", "deployments", "leases", "pipelines", "tasks"];
            let calls = calls
                .iter()
                .filter(|call| holders.iter().any(|api| text.contains(&format!("{api}.{call}("))));
            let mut calls: Vec<&str> = calls.copied().collect();
            calls.extend(text.contains("watcher::watcher(").then_some("watcher"));
            if !calls.is_empty() {
                let name =
                    if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
                found.push((name, calls.join(" ")));
            }
        }
    }
    found.sort();
    let expected: Vec<(String, String)> =
        PLACES.iter().map(|(file, calls)| ((*file).to_owned(), (*calls).to_owned())).collect();
    assert_eq!(found, expected);
}

#[test]
fn others_leases_and_deployments_are_read_by_name_alone() {
    for role in documents("rbac.yaml").iter().filter(|role| role["kind"] == "ClusterRole") {
        for rule in role["rules"].as_array().expect("rules") {
            let named =
                texts(&rule["resources"]).any(|one| ["leases", "deployments"].contains(&one));
            assert_eq!(rule["resourceNames"].is_array(), named, "{rule}");
        }
    }
}

#[test]
fn two_copies_run_without_privilege_and_are_probed() {
    let all = documents("controller.yaml");
    let deployment = all.iter().find(|one| one["kind"] == "Deployment").expect("a Deployment");
    assert_eq!(deployment["spec"]["replicas"], 2);
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["serviceAccountName"], "portolan-controller");
    let container = &pod["containers"][0];
    let security = &container["securityContext"];
    assert_eq!(security["runAsNonRoot"], true);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(container["livenessProbe"]["httpGet"]["path"], "/healthz");
    assert_eq!(container["readinessProbe"]["httpGet"]["path"], "/readyz");
    assert!(container["resources"]["limits"]["memory"].is_string());
    let account = documents("rbac.yaml");
    assert!(
        account.iter().any(|one| one["kind"] == "ServiceAccount"
            && one["metadata"]["name"] == "portolan-controller")
    );
}

#[test]
fn the_shipped_configuration_is_one_that_controllers_take_and_what_it_names_is_mounted() {
    let all = documents("controller.yaml");
    let one = |kind: &str| all.iter().find(|object| object["kind"] == kind).expect("it is there");
    let map = one("ConfigMap");
    let text = map["data"]["controller.toml"].as_str().expect("a text");
    let path = std::path::Path::new("controller.toml");
    let options: portolan_controller::Options =
        portolan_registry::serving::program::parse(text, path).expect("it is taken");
    let pod = &one("Deployment")["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let (volume, mount) = (&pod["volumes"][0], &container["volumeMounts"][0]);
    assert_eq!(volume["configMap"]["name"], map["metadata"]["name"]);
    assert_eq!((&volume["name"], &mount["readOnly"]), (&mount["name"], &Value::Bool(true)));
    let at = std::path::Path::new(mount["mountPath"].as_str().expect("a path"));
    let args: Vec<&str> = texts(&container["args"]).collect();
    let config = args.iter().position(|arg| *arg == "--config").map(|at| args[at + 1]);
    assert_eq!(config.map(std::path::Path::new), Some(at.join("controller.toml").as_path()));
    // Each file that is named is a key of the same map.
    let named = options.registries.expect("a file");
    let key = named.strip_prefix(at).expect("it is mounted").to_str().expect("a text");
    assert!(map["data"].get(key).is_some(), "{key}");
}
