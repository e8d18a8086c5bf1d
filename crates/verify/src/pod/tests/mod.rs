pub(crate) mod scheduler;

use serde_json::{Value, json};

use super::*;

pub(crate) fn host() -> Platform {
    Platform::new("linux", "amd64")
}

pub(crate) fn settings(default: &str) -> Settings {
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

fn both(mut one: Value, other: Value) -> Value {
    let Value::Object(other) = other else { panic!("an object") };
    one.as_object_mut().unwrap().extend(other);
    one
}

const OS: &str = "kubernetes.io/os";
const ARCH: &str = "kubernetes.io/arch";

/// A pod, and where it might run. `host` and `all` are with the nodes of [`settings`] known.
#[derive(Debug, serde::Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Row {
    pub(crate) pod: String,
    pub(crate) spec: Value,
    host: String,
    nodes: String,
    all: String,
    /// The same where no node is known, if that makes a difference.
    host_unseen: Option<String>,
    all_unseen: Option<String>,
}

impl Row {
    pub(crate) fn host_unseen(&self) -> &str {
        self.host_unseen.as_ref().unwrap_or(&self.host)
    }

    pub(crate) fn all_unseen(&self) -> &str {
        self.all_unseen.as_ref().unwrap_or(&self.all)
    }
}

/// The table that this function and the Rego of the template are both held to.
pub(crate) fn rows() -> Vec<Row> {
    let text = include_str!("../../../../../fixtures/pods.json");
    let rows: Vec<Row> = serde_json::from_str(text).unwrap();
    assert!(rows.len() >= 60, "{}", rows.len());
    rows
}

/// Case 30 of the acceptance list: what pods say, and what is then looked at with nothing known of
/// the cluster, with its nodes known, and with all.
#[test]
fn a_table_of_pods() {
    let unseen = |default| Settings { nodes: Vec::new(), ..settings(default) };
    for row in rows() {
        let what = &row.pod;
        assert_eq!(found(&row.spec, &settings("host")), row.host, "{what}, default host");
        assert_eq!(found(&row.spec, &settings("nodes")), row.nodes, "{what}, default nodes");
        assert_eq!(found(&row.spec, &settings("all")), row.all, "{what}, default all");
        assert_eq!(found(&row.spec, &unseen("host")), row.host_unseen(), "{what}, host, unseen");
        assert_eq!(found(&row.spec, &unseen("all")), row.all_unseen(), "{what}, all, unseen");
    }
}

/// However many there are: ways that are the same count once.
#[test]
fn many_expressions_on_pools_still_narrow() {
    let pools = expression("example.com/pool", "In", &["arm-pool", "win-pool"]);
    let mut expressions = vec![pools; 15];
    assert_eq!(
        found(&affinity(json!([{"matchExpressions": expressions}])), &settings("all")),
        "linux/arm64, windows/*"
    );
    expressions.push(expression("example.com/pool", "In", &["arm-pool"]));
    assert_eq!(
        found(&affinity(json!([{"matchExpressions": expressions}])), &settings("all")),
        "linux/arm64"
    );
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

/// The reader of YAML would take a minute for these.
#[test]
fn a_pod_or_node_that_nests_too_deep_is_refused_at_once() {
    let deep = "{\"a\":".repeat(60_000);
    assert!(matches!(PodSpec::from_yaml(deep.as_bytes()), Err(ReadPodError::TooDeep)));
    assert!(matches!(nodes_from_yaml(deep.as_bytes()), Err(ReadPodError::TooDeep)));
}

#[test]
fn nodes_are_what_the_kubelet_reports() {
    let list = json!({"kind": "List", "items": [
        {"metadata": {"name": "a", "labels": {ARCH: "arm64"}},
         "status": {"nodeInfo": {"operatingSystem": "linux", "architecture": "amd64"}}},
        {"metadata": {"name": "b", "labels": {ARCH: "arm64", OS: "linux"}}},
        {"metadata": {"name": "c", "labels": {ARCH: "arm64", OS: "linux"}},
         "status": {"nodeInfo": {"operatingSystem": "", "architecture": ""}}},
    ]});
    let nodes = nodes_from_yaml(list.to_string().as_bytes()).unwrap();
    let shown: Vec<_> =
        nodes.iter().map(|node| format!("{} {}", node.name, node.platform)).collect();
    assert_eq!(shown, ["a linux/amd64", "b linux/arm64", "c linux/arm64"]);
    let error = nodes_from_yaml(b"{items: [{metadata: {name: x}}]}").unwrap_err();
    assert!(matches!(error, ReadPodError::Node(1)), "{error}");
}
