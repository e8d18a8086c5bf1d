//! What is shipped for agents on nodes: a configuration that agents take, roles with every verb that is used and no other, and
//! an admission policy that speaks of what the agent writes.

use std::collections::BTreeSet;
use std::path::Path;

use portolan_agent::config::{CompatibilityMode, CompatibilityOf, Config};
use portolan_agent::report::{DEGRADED, PRESSURE, TAINT};
use portolan_host::facts::labels::{LEVEL, PREFIX};
use serde_json::{Value, json};

fn documents(file: &str) -> Vec<Value> {
    let path = format!("{}/../../deploy/agent/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    serde_yaml_ng::Deserializer::from_str(&text)
        .map(|document| serde::Deserialize::deserialize(document).expect("YAML"))
        .collect()
}

fn one(file: &str, kind: &str) -> Value {
    let all = documents(file);
    all.into_iter().find(|one| one["kind"] == kind).unwrap_or_else(|| panic!("no {kind} in {file}"))
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

/// What the code asks of API servers, and where it is allowed. `PLACES` has the calls: a watch is one that is read by lines.
const USED: &[(&str, &str, &str, &str)] = &[
    ("rbac.yaml", "", "nodes", "get"),
    ("rbac.yaml", "", "nodes/status", "patch"),
    ("rbac.yaml", "portolan.dev", "releases", "list watch"),
    ("nodes.yaml", "", "nodes", "patch"),
];

#[test]
fn agents_are_allowed_what_they_use_and_nothing_else() {
    let mut allowed = BTreeSet::new();
    for file in ["rbac.yaml", "nodes.yaml"] {
        for rule in list(&one(file, "ClusterRole")["rules"]) {
            for (group, resource) in list(&rule["apiGroups"])
                .flat_map(|group| list(&rule["resources"]).map(move |resource| (group, resource)))
            {
                for verb in list(&rule["verbs"]) {
                    let text = |value: &Value| value.as_str().unwrap().to_owned();
                    allowed.insert((file.to_owned(), text(group), text(resource), text(verb)));
                }
            }
        }
    }
    let own = |text: &str| text.to_owned();
    let used: BTreeSet<_> = USED
        .iter()
        .flat_map(|(file, group, resource, verbs)| {
            verbs.split(' ').map(move |verb| (own(file), own(group), own(resource), own(verb)))
        })
        .collect();
    assert_eq!(allowed, used);
}

/// Where servers are asked, by which methods and for what, of all that is done: a new one is a new line here, in `USED` and in
/// the roles. What is used without a role shows in tests on a cluster, and what is allowed and not used shows here.
const PLACES: &[(&str, &str, &str)] = &[
    ("releases/follow.rs", "GET lines", "/apis/{GROUP}/v1alpha1/{within}releases"),
    // The control plane, which is no API server.
    ("report/control_plane.rs", "POST", ""),
    ("report/node.rs", "GET PATCH", "/api/v1/nodes/{name} {}/status"),
];

#[test]
fn the_table_of_what_is_used_is_that_of_the_code() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    let mut folders = vec![dir.clone()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = std::fs::read_to_string(&path).unwrap();
            let text = text.split("\nmod tests {").next().unwrap_or_default();
            let called = text.contains("endpoint.call(");
            let watched = text.contains("endpoint.lines(");
            if !called && !watched {
                continue;
            }
            let methods = ["DELETE", "GET", "PATCH", "POST", "PUT"].into_iter();
            let mut calls: Vec<_> =
                methods.filter(|method| text.contains(&format!("Method::{method}"))).collect();
            calls.extend(watched.then_some("lines"));
            // Texts between quotes that are paths.
            let paths =
                text.split('"').filter(|one| one.starts_with("/api") || one.starts_with("{}/"));
            let name = path.strip_prefix(&dir).unwrap().to_str().unwrap().to_owned();
            found.push((name, calls.join(" "), paths.collect::<Vec<_>>().join(" ")));
        }
    }
    found.sort();
    let found: Vec<_> =
        found.iter().map(|(a, b, c)| (a.as_str(), b.as_str(), c.as_str())).collect();
    assert_eq!(found, PLACES);
}

#[test]
fn the_shipped_configuration_is_one_that_agents_take_and_what_it_names_is_mounted() {
    let map = one("agent.yaml", "ConfigMap");
    let text = map["data"]["agent.toml"].as_str().unwrap();
    let config = Config::parse(text, Path::new("agent.toml")).unwrap();
    assert!(config.prefetch.releases);
    let node = config.report.node.unwrap();
    assert!(!node.taint && !node.labels, "nobody asked for them");
    let set = one("agent.yaml", "DaemonSet");
    let pod = &set["spec"]["template"]["spec"];
    let container = &pod["containers"][0];
    let mounts: Vec<_> = list(&container["volumeMounts"]).collect();
    let mounted =
        |path: &Path| mounts.iter().any(|one| path.starts_with(one["mountPath"].as_str().unwrap()));
    assert!(mounted(&config.root));
    assert!(mounted(&config.registries.unwrap()) && mounted(&config.credentials.unwrap()));
    for mount in &mounts {
        assert_eq!(mount["readOnly"] == true, mount["name"] != "state", "{mount}");
        let volume = list(&pod["volumes"]).find(|one| one["name"] == mount["name"]);
        assert!(volume.is_some(), "{mount}");
    }
    let port = list(&container["ports"]).find(|one| one["name"] == "health").unwrap();
    assert_eq!(port["containerPort"], config.health.unwrap().port());
    // One folder of the node, and no power of root's.
    let of_host: Vec<_> = list(&pod["volumes"]).filter(|one| one["hostPath"].is_object()).collect();
    assert_eq!(of_host.len(), 1);
    for flag in ["hostNetwork", "hostPID", "hostIPC"] {
        assert!(pod[flag].is_null(), "{flag}");
    }
    let security = &container["securityContext"];
    assert_eq!(security["capabilities"], json!({ "drop": ["ALL"] }));
    assert_eq!(security["allowPrivilegeEscalation"], false);
    assert_eq!(security["readOnlyRootFilesystem"], true);
    assert!(security["privileged"].is_null());
    assert!(list(&pod["tolerations"]).any(|one| one["key"] == TAINT), "its own taint");
}

/// No machine runs in a pod: an image is for the containers of the node, and for its kernel.
#[test]
fn as_shipped_only_images_whose_needs_the_node_meets_are_fetched() {
    let map = one("agent.yaml", "ConfigMap");
    let text = map["data"]["agent.toml"].as_str().unwrap();
    let compatibility = Config::parse(text, Path::new("agent.toml")).unwrap().compatibility;
    let shipped = (compatibility.mode, compatibility.of);
    assert_eq!(shipped, (CompatibilityMode::Enforce, CompatibilityOf::Host));
}

#[test]
fn the_admission_policy_speaks_of_what_agents_write() {
    let policy = one("policy.yaml", "ValidatingAdmissionPolicy");
    assert_eq!(policy["spec"]["failurePolicy"], "Fail");
    let rules = &policy["spec"]["matchConstraints"]["resourceRules"][0]["resources"];
    assert_eq!(*rules, json!(["nodes", "nodes/status"]));
    let account = one("agent.yaml", "ServiceAccount");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let user = format!(
        "system:serviceaccount:{}:{}",
        text(&account["metadata"]["namespace"]),
        text(&account["metadata"]["name"])
    );
    let condition = text(&policy["spec"]["matchConditions"][0]["expression"]);
    assert!(condition.contains(&user), "{condition}");
    let rules: String =
        list(&policy["spec"]["validations"]).map(|one| text(&one["expression"])).collect();
    for word in [DEGRADED, PRESSURE, TAINT, PREFIX, LEVEL] {
        assert!(rules.contains(&format!("\"{word}\"")), "{word}");
    }
    let binding = one("policy.yaml", "ValidatingAdmissionPolicyBinding");
    assert_eq!(binding["spec"]["policyName"], policy["metadata"]["name"]);
    assert_eq!(binding["spec"]["validationActions"], json!(["Deny"]));
}
