mod scheduler;

use serde_json::{Value, json};

use super::*;

fn host() -> Platform {
    Platform::new("linux", "amd64")
}

fn settings(default: &str) -> Settings {
    let default = match default {
        "host" => Default::Host,
        "nodes" => Default::Nodes,
        "all" => Default::All,
        list => Default::List(Wanted::of(list.split(',').map(|p| p.parse().unwrap())).unwrap()),
    };
    let mut settings = Settings::new(default, host());
    let node = |name: &str, os: &str, arch: &str| Node {
        name: name.to_owned(),
        platform: Platform::new(os, arch),
    };
    settings.nodes = vec![
        node("a1", "linux", "amd64"),
        node("g1", "linux", "arm64"),
        node("w1", "windows", "amd64"),
    ];
    settings.values.insert("graviton".to_owned(), "arm64".to_owned());
    let pools = [("arm-pool", "linux/arm64"), ("win-pool", "windows/*")];
    let pools = pools.map(|(pool, platform)| (pool.to_owned(), platform.parse().unwrap()));
    settings.labels.insert("example.com/pool".to_owned(), BTreeMap::from(pools));
    settings.arch_labels.push("example.com/cpu".to_owned());
    settings
}

fn found(spec: &Value, settings: &Settings) -> String {
    let pod = PodSpec::from_object(&json!({"kind": "Pod", "spec": spec})).unwrap();
    platforms(&pod, settings).to_string()
}

fn selector(arch: Option<&str>, os: Option<&str>) -> Value {
    let mut labels = serde_json::Map::new();
    labels.extend(arch.map(|arch| ("kubernetes.io/arch".to_owned(), json!(arch))));
    labels.extend(os.map(|os| ("kubernetes.io/os".to_owned(), json!(os))));
    json!({"nodeSelector": labels})
}

fn affinity(terms: Value) -> Value {
    json!({"affinity": {"nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms},
    }}})
}

fn expression(key: &str, operator: &str, values: &[&str]) -> Value {
    json!({"key": key, "operator": operator, "values": values})
}

fn on(key: &str, operator: &str, values: &[&str]) -> Value {
    affinity(json!([{"matchExpressions": [expression(key, operator, values)]}]))
}

fn tolerating(toleration: Value) -> Value {
    json!({"tolerations": [toleration]})
}

fn both(mut one: Value, other: Value) -> Value {
    let Value::Object(other) = other else { panic!("an object") };
    one.as_object_mut().unwrap().extend(other);
    one
}

const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";

/// Case 30 of the acceptance list: what pods say, and what is then looked at with nothing known of
/// the cluster, with its nodes known, and with all.
#[test]
fn a_table_of_pods() {
    let name_in = |names: &[&str]| {
        affinity(json!([{"matchFields": [expression("metadata.name", "In", names)]}]))
    };
    let table: Vec<(&str, Value, &str, &str, &str)> = vec![
        ("nothing", json!({}), "linux/amd64", "linux/amd64, linux/arm64, windows/amd64", "*"),
        (
            "null everywhere",
            json!({"nodeSelector": null, "affinity": null, "tolerations": null, "os": null}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "the seed's selector",
            selector(Some("arm64"), Some("linux")),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        ("only arch", selector(Some("arm64"), None), "*/arm64", "linux/arm64", "*/arm64"),
        ("only os", selector(None, Some("windows")), "windows/*", "windows/amd64", "windows/*"),
        (
            "only os, several nodes",
            selector(None, Some("linux")),
            "linux/*",
            "linux/amd64, linux/arm64",
            "linux/*",
        ),
        (
            "another name of the architecture",
            selector(Some("aarch64"), Some("linux")),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "a name of this cluster",
            selector(Some("graviton"), Some("linux")),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "no such node yet",
            selector(Some("s390x"), Some("linux")),
            "linux/s390x",
            "linux/s390x",
            "linux/s390x",
        ),
        (
            "deprecated labels",
            json!({"nodeSelector": {"beta.kubernetes.io/arch": "arm64", "beta.kubernetes.io/os": "linux"}}),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "labels that contradict each other",
            json!({"nodeSelector": {"beta.kubernetes.io/arch": "arm64", ARCH: "amd64"}}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "another label",
            json!({"nodeSelector": {"disk": "ssd"}}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a label of this cluster",
            json!({"nodeSelector": {"example.com/cpu": "arm64"}}),
            "*/arm64",
            "linux/arm64",
            "*/arm64",
        ),
        (
            "a pool",
            json!({"nodeSelector": {"example.com/pool": "arm-pool"}}),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "a pool of half a platform",
            json!({"nodeSelector": {"example.com/pool": "win-pool"}}),
            "windows/*",
            "windows/amd64",
            "windows/*",
        ),
        (
            "a pool nobody told of",
            json!({"nodeSelector": {"example.com/pool": "new"}}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "pools",
            on("example.com/pool", "In", &["arm-pool", "win-pool"]),
            "linux/arm64, windows/*",
            "linux/arm64, windows/amd64",
            "linux/arm64, windows/*",
        ),
        (
            "pools, one nobody told of",
            on("example.com/pool", "In", &["arm-pool", "new"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "not in a pool",
            on("example.com/pool", "NotIn", &["arm-pool"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "the seed's affinity",
            on(ARCH, "In", &["amd64"]),
            "*/amd64",
            "linux/amd64, windows/amd64",
            "*/amd64",
        ),
        (
            "several values",
            on(ARCH, "In", &["amd64", "arm64"]),
            "*/amd64, */arm64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*/amd64, */arm64",
        ),
        (
            "several values of both",
            affinity(
                json!([{"matchExpressions": [expression(ARCH, "In", &["amd64", "arm64"]), expression(OS, "In", &["linux", "windows"])]}]),
            ),
            "linux/amd64, linux/arm64, windows/amd64, windows/arm64",
            "linux/amd64, linux/arm64, windows/amd64",
            "linux/amd64, linux/arm64, windows/amd64, windows/arm64",
        ),
        ("NotIn", on(ARCH, "NotIn", &["arm64"]), "*", "linux/amd64, windows/amd64", "*"),
        ("NotIn what the host is", on(ARCH, "NotIn", &["amd64"]), "*", "linux/arm64", "*"),
        (
            "NotIn by a name that no node has",
            on(ARCH, "NotIn", &["x86_64"]),
            "*",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "NotIn on a label that nodes may lack",
            on("beta.kubernetes.io/arch", "NotIn", &["amd64"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "NotIn of both",
            affinity(
                json!([{"matchExpressions": [expression(ARCH, "NotIn", &["arm64"]), expression(OS, "NotIn", &["windows"])]}]),
            ),
            "*",
            "linux/amd64",
            "*",
        ),
        (
            "In and NotIn",
            affinity(
                json!([{"matchExpressions": [expression(ARCH, "In", &["amd64", "arm64"]), expression(ARCH, "NotIn", &["arm64"])]}]),
            ),
            "*/amd64",
            "linux/amd64, windows/amd64",
            "*/amd64",
        ),
        (
            "os and NotIn",
            both(selector(None, Some("linux")), on(ARCH, "NotIn", &["arm64"])),
            "linux/*",
            "linux/amd64",
            "linux/*",
        ),
        (
            "Exists",
            on(ARCH, "Exists", &[]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "DoesNotExist",
            on(ARCH, "DoesNotExist", &[]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "Gt",
            on(ARCH, "Gt", &["5"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "Lt",
            on("cores", "Lt", &["5"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "an operator of tomorrow",
            on(ARCH, "Near", &["arm64"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "an operator in other letters",
            on(ARCH, "in", &["arm64"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "In nothing",
            on(ARCH, "In", &[]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "several terms",
            affinity(
                json!([{"matchExpressions": [expression(ARCH, "In", &["arm64"])]}, {"matchExpressions": [expression(OS, "In", &["windows"])]}]),
            ),
            "*/arm64, windows/*",
            "linux/arm64, windows/amd64",
            "*/arm64, windows/*",
        ),
        (
            "a term that says nothing of platforms",
            affinity(
                json!([{"matchExpressions": [expression(ARCH, "In", &["arm64"])]}, {"matchExpressions": [expression("disk", "Exists", &[])]}]),
            ),
            "*/arm64, linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a term and an empty one",
            affinity(json!([{"matchExpressions": [expression(ARCH, "In", &["arm64"])]}, {}])),
            "*/arm64",
            "linux/arm64",
            "*/arm64",
        ),
        (
            "a term and one with empty lists",
            affinity(
                json!([{"matchExpressions": [expression(ARCH, "In", &["arm64"])]}, {"matchExpressions": [], "matchFields": []}]),
            ),
            "*/arm64",
            "linux/arm64",
            "*/arm64",
        ),
        (
            "only an empty term",
            affinity(json!([{}])),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "only an empty term, and a selector",
            both(selector(Some("arm64"), None), affinity(json!([{}]))),
            "*/arm64",
            "linux/arm64",
            "*/arm64",
        ),
        (
            "no terms",
            affinity(json!([])),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "selector and affinity agree",
            both(selector(Some("arm64"), None), on(OS, "In", &["linux"])),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "selector and affinity contradict",
            both(selector(Some("arm64"), None), on(ARCH, "In", &["amd64"])),
            "*/arm64",
            "linux/arm64",
            "*/arm64",
        ),
        (
            "selector narrows a term",
            both(selector(Some("arm64"), None), on(ARCH, "In", &["amd64", "arm64"])),
            "*/arm64",
            "linux/arm64",
            "*/arm64",
        ),
        (
            "one of two terms contradicts",
            both(
                selector(Some("arm64"), None),
                affinity(
                    json!([{"matchExpressions": [expression(ARCH, "In", &["amd64"])]}, {"matchExpressions": [expression(OS, "In", &["linux"])]}]),
                ),
            ),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "preferred",
            json!({"affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": {"matchExpressions": [expression(ARCH, "In", &["arm64"])]}}]}}}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "pod affinity",
            json!({"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": []}}}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        ("spec.os", json!({"os": {"name": "windows"}}), "windows/*", "windows/amd64", "windows/*"),
        (
            "spec.os and a selector",
            both(json!({"os": {"name": "linux"}}), selector(Some("arm64"), None)),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "spec.os against a selector",
            both(json!({"os": {"name": "linux"}}), selector(None, Some("windows"))),
            "windows/*",
            "windows/amd64",
            "windows/*",
        ),
        ("nodeName", json!({"nodeName": "g1"}), "linux/arm64", "linux/arm64", "linux/arm64"),
        (
            "nodeName that nobody knows",
            json!({"nodeName": "x9"}),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        ("a daemon set's term", name_in(&["g1"]), "linux/arm64", "linux/arm64", "linux/arm64"),
        (
            "names",
            name_in(&["g1", "w1"]),
            "linux/arm64, windows/amd64",
            "linux/arm64, windows/amd64",
            "linux/arm64, windows/amd64",
        ),
        (
            "a name that nobody knows",
            name_in(&["g1", "x9"]),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a name and a label",
            affinity(
                json!([{"matchFields": [expression("metadata.name", "In", &["a1", "g1"])], "matchExpressions": [expression(ARCH, "In", &["arm64"])]}]),
            ),
            "linux/arm64",
            "linux/arm64",
            "linux/arm64",
        ),
        (
            "not a name",
            affinity(json!([{"matchFields": [expression("metadata.name", "NotIn", &["g1"])]}])),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "the seed's toleration",
            tolerating(
                json!({"key": ARCH, "operator": "Equal", "value": "arm64", "effect": "NoSchedule"}),
            ),
            "linux/amd64, linux/arm64",
            "linux/amd64, linux/arm64, windows/amd64, windows/arm64",
            "*",
        ),
        (
            "a toleration without operator",
            tolerating(json!({"key": ARCH, "value": "arm64"})),
            "linux/amd64, linux/arm64",
            "linux/amd64, linux/arm64, windows/amd64, windows/arm64",
            "*",
        ),
        (
            "a toleration for an os",
            tolerating(json!({"key": OS, "operator": "Equal", "value": "windows"})),
            "linux/amd64, windows/amd64",
            "linux/amd64, linux/arm64, windows/amd64, windows/arm64",
            "*",
        ),
        (
            "a toleration for every architecture",
            tolerating(json!({"key": ARCH, "operator": "Exists"})),
            "linux/*",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a toleration for everything",
            tolerating(json!({"operator": "Exists"})),
            "*",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a toleration for another key",
            tolerating(json!({"key": "gpu", "operator": "Exists"})),
            "linux/amd64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a toleration for a pool",
            tolerating(
                json!({"key": "example.com/pool", "operator": "Equal", "value": "arm-pool"}),
            ),
            "linux/amd64, linux/arm64",
            "linux/amd64, linux/arm64, windows/amd64",
            "*",
        ),
        (
            "a toleration does not move what a selector says",
            both(
                selector(Some("amd64"), Some("linux")),
                tolerating(json!({"key": ARCH, "value": "arm64"})),
            ),
            "linux/amd64",
            "linux/amd64",
            "linux/amd64",
        ),
        (
            "nor a toleration for everything",
            both(selector(Some("amd64"), Some("linux")), tolerating(json!({"operator": "Exists"}))),
            "linux/amd64",
            "linux/amd64",
            "linux/amd64",
        ),
        (
            "half pinned and a toleration",
            both(selector(None, Some("linux")), tolerating(json!({"operator": "Exists"}))),
            "linux/*",
            "linux/amd64, linux/arm64",
            "linux/*",
        ),
    ];
    assert!(table.len() >= 60, "{}", table.len());
    let (with_host, with_nodes, with_all) = (settings("host"), settings("nodes"), settings("all"));
    for (what, pod, host, nodes, all) in table {
        assert_eq!(found(&pod, &with_host), host, "{what}, default host");
        assert_eq!(found(&pod, &with_nodes), nodes, "{what}, default nodes");
        assert_eq!(found(&pod, &with_all), all, "{what}, default all");
    }
}

#[test]
fn half_a_platform_is_filled_from_a_list_or_from_the_host_where_that_is_asked_for() {
    let list = settings("linux/amd64,linux/arm64/v9,windows/*");
    assert_eq!(found(&json!({}), &list), "linux/amd64, linux/arm64/v9, windows/*");
    assert_eq!(found(&selector(Some("arm64"), None), &list), "linux/arm64/v9, windows/arm64");
    assert_eq!(found(&selector(Some("arm64"), Some("linux")), &list), "linux/arm64/v9");
    assert_eq!(found(&selector(Some("s390x"), Some("linux")), &list), "linux/s390x");
    let literal = Settings { partial: PartialMeaning::Host, ..settings("host") };
    assert_eq!(found(&selector(Some("arm64"), None), &literal), "linux/arm64");
    assert_eq!(found(&selector(None, Some("windows")), &literal), "windows/amd64");
    assert_eq!(found(&on(ARCH, "NotIn", &["amd64"]), &literal), "*");
}

#[test]
fn without_nodes_a_pod_that_says_nothing_may_run_anywhere() {
    let unknown = Settings { nodes: Vec::new(), ..settings("nodes") };
    assert_eq!(found(&json!({}), &unknown), "*");
    assert_eq!(found(&json!({"nodeName": "g1"}), &unknown), "*");
    assert_eq!(found(&selector(Some("arm64"), None), &unknown), "*/arm64");
}

#[test]
fn many_platforms_become_a_wildcard() {
    let arches: Vec<_> = (0..20).map(|n| format!("cpu{n}")).collect();
    let arches: Vec<_> = arches.iter().map(String::as_str).collect();
    let spec = both(selector(None, Some("linux")), on(ARCH, "In", &arches));
    assert_eq!(found(&spec, &settings("host")), "linux/*");
    assert_eq!(found(&on(ARCH, "In", &arches), &settings("host")), "*");
    let oses: Vec<_> = arches.clone();
    let both_many = affinity(json!([{"matchExpressions": [
        expression(ARCH, "In", &arches), expression(OS, "In", &oses),
    ]}]));
    assert_eq!(found(&both_many, &settings("all")), "*");
}

#[test]
fn pods_are_found_in_workloads_and_cron_jobs() {
    let spec = selector(Some("arm64"), Some("linux"));
    for object in [
        json!({"kind": "Pod", "spec": spec}),
        json!({"kind": "Deployment", "spec": {"replicas": 2, "template": {"metadata": {}, "spec": spec}}}),
        json!({"kind": "CronJob", "spec": {"schedule": "", "jobTemplate": {"spec": {"template": {"spec": spec}}}}}),
        json!({"kind": "PodTemplate", "template": {"spec": spec}}),
        both(json!({"containers": []}), spec.clone()),
    ] {
        let yaml = serde_yaml_ng::to_string(&object).unwrap();
        let pod = PodSpec::from_yaml(yaml.as_bytes()).unwrap();
        assert_eq!(platforms(&pod, &settings("host")).to_string(), "linux/arm64", "{yaml}");
    }
    for (text, part) in [
        ("kind: Service", "no pod"),
        ("kind: Pod\nspec: 7", "no pod"),
        ("kind: Pod\nspec: {nodeSelector: [a]}", "/spec is not that of a pod"),
        ("a: [", "neither YAML nor JSON"),
    ] {
        let error = PodSpec::from_yaml(text.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn nodes_are_what_the_kubelet_reports() {
    let list = json!({"kind": "List", "items": [
        {"metadata": {"name": "a", "labels": {ARCH: "arm64"}},
         "status": {"nodeInfo": {"operatingSystem": "linux", "architecture": "amd64"}}},
        {"metadata": {"name": "b", "labels": {ARCH: "arm64", OS: "linux"}}},
    ]});
    let nodes = nodes_from_yaml(list.to_string().as_bytes()).unwrap();
    let shown: Vec<_> =
        nodes.iter().map(|node| format!("{} {}", node.name, node.platform)).collect();
    assert_eq!(shown, ["a linux/amd64", "b linux/arm64"]);
    let error = nodes_from_yaml(b"{items: [{metadata: {name: x}}]}").unwrap_err();
    assert!(matches!(error, ReadPodError::Node(1)), "{error}");
}
