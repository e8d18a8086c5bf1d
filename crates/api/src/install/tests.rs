//! What an installation consists of, whatever is asked for.

use std::collections::BTreeMap;

use super::*;

const VERSION: &str = "1.2.3";

fn options(components: &[Component]) -> Options {
    let mut options = Options::new(VERSION);
    options.components = components.iter().copied().collect();
    options
}

fn find<'a>(all: &'a [Value], kind: &str, name: &str) -> Option<&'a Value> {
    all.iter().find(|one| one["kind"] == kind && one["metadata"]["name"] == name)
}

fn kinds(all: &[Value]) -> Vec<&str> {
    all.iter().filter_map(|one| one["kind"].as_str()).collect()
}

#[test]
fn everything_is_labelled_and_says_its_version() {
    let all = objects(&Options::new(VERSION)).unwrap();
    assert!(all.len() > 40, "{}", all.len());
    for object in &all {
        // Definitions are what `cargo xtask crds` wrote.
        let made = object["kind"] != "CustomResourceDefinition";
        assert!(!(made && object.to_string().contains(":null")), "made by looking: {object}");
        let labels = &object["metadata"]["labels"];
        assert_eq!(labels["app.kubernetes.io/part-of"], "portolan", "{object}");
        assert_eq!(labels["app.kubernetes.io/version"], VERSION, "{object}");
    }
}

#[test]
fn what_is_named_comes_before_what_names_it() {
    let all = objects(&Options::new(VERSION)).unwrap();
    let kinds = kinds(&all);
    let at = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap();
    let last = |kind: &str| kinds.iter().rposition(|one| *one == kind).unwrap();
    for pair in [
        ["Namespace", "CustomResourceDefinition"],
        ["CustomResourceDefinition", "ServiceAccount"],
        ["ServiceAccount", "ClusterRole"],
        ["ClusterRole", "ClusterRoleBinding"],
        ["ClusterRoleBinding", "ConfigMap"],
        ["ConfigMap", "ClusterBuildStrategy"],
        ["ClusterBuildStrategy", "Service"],
        ["Service", "Deployment"],
        ["Deployment", "ConstraintTemplate"],
        ["ConstraintTemplate", "PortolanVerifiedImages"],
    ] {
        assert!(last(pair[0]) < at(pair[1]), "{pair:?}: {kinds:?}");
    }
    let mut gate = Options::new(VERSION);
    gate.trust.gate = Gate::Webhook;
    let all = objects(&gate).unwrap();
    let last = all.last().unwrap();
    assert_eq!(last["kind"], "ValidatingWebhookConfiguration");
    assert!(last["webhooks"][0]["clientConfig"]["caBundle"].is_null());
    assert!(find(&all, "Provider", "portolan-verifier").is_none());
}

/// No path of an object with a namespace in it is forgotten: not one text of all has the shipped names.
#[test]
fn another_namespace_is_another_namespace_everywhere() {
    let mut options = Options::new(VERSION);
    options.namespace = "images".parse().unwrap();
    options.shim_namespace = "images-shims".parse().unwrap();
    options.agent.namespace = "images-nodes".parse().unwrap();
    options.agent.taint = true;
    for (gate, pin) in [(Gate::Gatekeeper, true), (Gate::Webhook, false)] {
        options.trust.gate = gate;
        options.trust.pin = pin;
        for object in objects(&options).unwrap() {
            if object["kind"] == "CustomResourceDefinition" {
                continue;
            }
            let text = object.to_string();
            assert!(!text.contains("portolan-system"), "{text}");
            assert!(!text.contains("portolan-shims"), "{text}");
            assert!(!text.contains("portolan-nodes"), "{text}");
        }
    }
}

#[test]
fn namespaces_of_others_and_one_for_both_are_refused() {
    for (text, word) in [
        ("kube-system", "belongs to others"),
        ("default", "belongs to others"),
        ("gatekeeper-system", "belongs to others"),
        ("Images", "no name"),
        ("-a", "no name"),
        ("", "no name"),
        (&"a".repeat(64), "no name"),
        ("a/b", "no name"),
    ] {
        let error = text.parse::<Namespace>().unwrap_err().to_string();
        assert!(error.contains(word), "{text}: {error}");
    }
    let mut options = Options::new(VERSION);
    options.agent.namespace = options.shim_namespace.clone();
    assert!(objects(&options).unwrap_err().to_string().contains("owns every node"));
    let mut options = Options::new(VERSION);
    options.shim_namespace = options.namespace.clone();
    assert!(objects(&options).unwrap_err().to_string().contains("owns every node"));
    let error = "everything".parse::<Component>().unwrap_err().to_string();
    assert!(error.contains("build, shims, verify"), "{error}");
}

#[test]
fn a_component_brings_what_it_needs_and_no_rights_of_others() {
    let shims = objects(&options(&[Component::Shims])).unwrap();
    assert!(find(&shims, "ClusterRole", "portolan-controller").is_none(), "of builds");
    assert!(find(&shims, "ClusterRoleBinding", "portolan-controller").is_none());
    for (kind, name) in [
        ("Deployment", "portolan-controller"),
        ("Role", "portolan-controller-lease"),
        ("ClusterRole", "portolan-controller-shims"),
        ("Namespace", "portolan-shims"),
        ("CustomResourceDefinition", "shims.runtime.spinkube.dev"),
    ] {
        assert!(find(&shims, kind, name).is_some(), "{kind} {name}");
    }
    assert!(!kinds(&shims).contains(&"ClusterBuildStrategy"));
    let build = objects(&options(&[Component::Build])).unwrap();
    assert!(find(&build, "ClusterRole", "portolan-controller").is_some());
    assert!(find(&build, "Namespace", "portolan-shims").is_none());
    let verify = objects(&options(&[Component::Verify])).unwrap();
    assert!(find(&verify, "Deployment", "portolan-controller").is_none());
    assert!(!kinds(&verify).contains(&"CustomResourceDefinition"));
    for (all, served) in [(&shims, "shims"), (&build, "builds")] {
        let deployment = find(all, "Deployment", "portolan-controller").unwrap();
        let env = &deployment["spec"]["template"]["spec"]["containers"][0]["env"];
        let serve = env.as_array().unwrap().iter().find(|one| one["name"] == "PORTOLAN_SERVE");
        assert_eq!(serve.unwrap()["value"], served);
    }
}

/// What agents on nodes may, and where: nothing more than was asked for.
#[test]
fn agents_get_the_rights_that_were_asked_for_and_one_folder_of_the_node() {
    let mut options = options(&[Component::Agent]);
    let toml = |all: &[Value]| -> toml_edit::DocumentMut {
        let map = find(all, "ConfigMap", "portolan-agent").unwrap();
        map["data"]["agent.toml"].as_str().unwrap().parse().unwrap()
    };
    let bare = objects(&options).unwrap();
    assert!(find(&bare, "ClusterRole", "portolan-agent-nodes").is_none());
    assert!(find(&bare, "Deployment", "portolan-controller").is_none());
    assert!(!kinds(&bare).contains(&"CustomResourceDefinition"));
    let config = toml(&bare);
    assert_eq!(config["report"]["node"]["taint"].as_bool(), Some(false));
    assert_eq!(config["prefetch"]["releases"].as_bool(), Some(false), "there are none");
    // What holds an account to its own is there before what the account may.
    let kinds = kinds(&bare);
    let at = |kind: &str| kinds.iter().position(|one| *one == kind).unwrap();
    assert!(at("ValidatingAdmissionPolicyBinding") < at("ClusterRoleBinding"));
    options.components.insert(Component::Releases);
    options.agent.labels = true;
    options.agent.root = "/mnt/images".to_owned();
    let all = objects(&options).unwrap();
    assert!(find(&all, "ClusterRoleBinding", "portolan-agent-nodes").is_some());
    let config = toml(&all);
    assert_eq!(config["report"]["node"]["labels"].as_bool(), Some(true));
    assert_eq!(config["report"]["node"]["taint"].as_bool(), Some(false));
    assert_eq!(config["prefetch"]["releases"].as_bool(), Some(true));
    assert_eq!(config["root"].as_str(), Some("/var/lib/portolan"), "as the pod sees it");
    let set = find(&all, "DaemonSet", "portolan-agent").unwrap();
    let pod = &set["spec"]["template"]["spec"];
    assert_eq!(pod["containers"][0]["image"], options.image);
    let folders: Vec<_> = pod["volumes"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|one| one.pointer("/hostPath/path")?.as_str())
        .collect();
    assert_eq!(folders, ["/mnt/images"]);
    // A right that may have been given is taken away by who does not know of it.
    options.agent.labels = false;
    let gone = leavings(&options, false, true).unwrap();
    assert!(find(&gone, "ClusterRole", "portolan-agent-nodes").is_some());
}

#[test]
fn one_image_is_named_wherever_one_has_to_be() {
    let mut options = Options::new(VERSION);
    assert_eq!(options.image, "ghcr.io/portolan-dev/portolan:1.2.3");
    options.image = "registry.example/portolan@sha256:0".to_owned();
    let all = objects(&options).unwrap();
    assert!(all.iter().all(|one| !one.to_string().contains("registry.invalid")));
    for name in ["portolan-controller", "portolan-verifier"] {
        let deployment = find(&all, "Deployment", name).unwrap();
        let container = &deployment["spec"]["template"]["spec"]["containers"][0];
        assert_eq!(container["image"], options.image);
        // The image's own entry point is another program.
        assert_eq!(container["command"], json!([name]));
    }
    let strategy = find(&all, "ClusterBuildStrategy", "portolan").unwrap();
    assert!(strategy.to_string().contains("registry.example/portolan@sha256:0"));
}

/// What every program of an installation is held to, also those that are added later.
#[test]
fn workloads_have_no_privilege_probes_limits_and_a_policy_of_the_network() {
    let all = objects(&Options::new(VERSION)).unwrap();
    let mut seen = 0;
    for deployment in all.iter().filter(|one| one["kind"] == "Deployment") {
        seen += 1;
        let name = deployment["metadata"]["name"].as_str().unwrap();
        let pod = &deployment["spec"]["template"]["spec"];
        assert_eq!(pod["serviceAccountName"], name);
        for container in pod["containers"].as_array().unwrap() {
            let security = &container["securityContext"];
            assert_eq!(security["runAsNonRoot"], true, "{name}");
            assert_eq!(security["readOnlyRootFilesystem"], true, "{name}");
            assert_eq!(security["allowPrivilegeEscalation"], false, "{name}");
            assert_eq!(security["capabilities"]["drop"], json!(["ALL"]), "{name}");
            assert_eq!(security["seccompProfile"]["type"], "RuntimeDefault", "{name}");
            assert!(container["resources"]["limits"]["memory"].is_string(), "{name}");
            assert!(container["livenessProbe"].is_object(), "{name}");
            assert!(container["readinessProbe"].is_object(), "{name}");
        }
        assert!(find(&all, "PodDisruptionBudget", name).is_some(), "{name}");
        let selector = &deployment["spec"]["selector"];
        let policy = find(&all, "NetworkPolicy", name).unwrap();
        assert_eq!(policy["spec"]["podSelector"], *selector, "{name}");
    }
    assert_eq!(seen, 2);
}

#[test]
fn one_copy_has_no_budget_that_would_hold_its_node() {
    let mut options = Options::new(VERSION);
    options.replicas = Some(1);
    let all = objects(&options).unwrap();
    assert!(!kinds(&all).contains(&"PodDisruptionBudget"));
    let all = all.iter().filter(|one| one["kind"] == "Deployment");
    assert!(all.clone().count() == 2 && all.into_iter().all(|one| one["spec"]["replicas"] == 1));
}

#[test]
fn the_verifier_makes_its_certificate_and_a_provider_trusts_nobody_until_then() {
    let mut options = options(&[Component::Verify]);
    options.namespace = "images".parse().unwrap();
    options.trust.pin = true;
    let all = objects(&options).unwrap();
    let config = find(&all, "ConfigMap", "portolan-verifier").unwrap();
    let toml = config["data"]["verifier.toml"].as_str().unwrap();
    let toml: toml_edit::DocumentMut = toml.parse().unwrap();
    let tls = toml["tls"].as_table().unwrap();
    assert!(!tls.contains_key("certificate") && !tls.contains_key("key"));
    assert!(!tls.contains_key("client_ca"), "there is no such file");
    let names = tls["generate"]["names"].as_array().unwrap();
    let names: Vec<_> = names.iter().filter_map(|one| one.as_str()).collect();
    assert_eq!(names, ["portolan-verifier.images", "portolan-verifier.images.svc"]);
    for name in ["portolan-verifier", "portolan-mutator"] {
        let provider = find(&all, "Provider", name).unwrap();
        assert!(provider["spec"]["url"].as_str().unwrap().contains(".images:6001/"));
        let bundle = provider["spec"]["caBundle"].clone();
        let bundle: k8s_openapi::ByteString = serde_json::from_value(bundle).unwrap();
        assert_eq!(bundle.0, NOBODY.as_bytes());
        let told = tls["generate"]["providers"].as_array().unwrap();
        assert!(told.iter().any(|one| one.as_str() == Some(name)));
    }
    options.trust.gatekeeper_ca = Some("PEM".to_owned());
    let all = objects(&options).unwrap();
    assert_eq!(find(&all, "ConfigMap", "gatekeeper-ca").unwrap()["data"]["ca.crt"], "PEM");
    let config = find(&all, "ConfigMap", "portolan-verifier").unwrap();
    assert!(config.to_string().contains("client_ca"));
}

#[test]
fn nothing_is_refused_until_somebody_says_so_and_an_upgrade_puts_nothing_back() {
    let mut options = options(&[Component::Verify]);
    let action = |all: &[Value]| {
        let found = find(all, "PortolanVerifiedImages", "verified-images");
        found.map(|one| one["spec"]["enforcementAction"].clone())
    };
    let first = objects(&options).unwrap();
    assert_eq!(action(&first), Some(json!("dryrun")));
    let policy = find(&first, "ConfigMap", "portolan-policy").unwrap();
    assert!(policy["data"]["policy.yaml"].as_str().unwrap().contains("platforms: nodes"));
    options.upgrade = true;
    let next = objects(&options).unwrap();
    assert_eq!(action(&next), None, "whatever it is, it stays");
    assert!(find(&next, "ConfigMap", "portolan-policy").is_none());
    assert!(find(&next, "ConfigMap", "portolan-verifier").is_none(), "settings are the operator's");
    let provider = find(&next, "Provider", "portolan-verifier").unwrap();
    assert!(provider["spec"].get("caBundle").is_none(), "it is the verifier's now");
    options.trust.action = Some(Action::Deny);
    options.trust.policy = BTreeMap::from([("policy.yaml".to_owned(), "version: 1".to_owned())]);
    let next = objects(&options).unwrap();
    assert_eq!(action(&next), Some(json!("deny")));
    let policy = find(&next, "ConfigMap", "portolan-policy").unwrap();
    assert_eq!(policy["data"], json!({"policy.yaml": "version: 1"}));
}

/// Flags are repeated with every upgrade, and what the operator made of a file is lost with the file.
#[test]
fn an_upgrade_leaves_the_settings_of_programs_alone_whatever_is_repeated() {
    let mut options = Options::new(VERSION);
    options.agent.taint = true;
    options.agent.labels = true;
    options.trust.gatekeeper_ca = Some("PEM".to_owned());
    let settings = |options: &Options| {
        let all = objects(options).unwrap();
        let names = ["portolan-controller", "portolan-verifier", "portolan-agent", "gatekeeper-ca"];
        names.map(|name| find(&all, "ConfigMap", name).is_some())
    };
    assert_eq!(settings(&options), [true; 4]);
    options.upgrade = true;
    assert_eq!(settings(&options), [false, false, false, true], "only what nobody edits");
    let all = objects(&options).unwrap();
    assert!(
        find(&all, "ClusterRole", "portolan-agent-nodes").is_some(),
        "what it has to be able to"
    );
}

#[test]
fn what_is_left_behind_is_deleted_backwards_and_definitions_only_when_asked() {
    let options = Options::new(VERSION);
    // Whatever may have been installed, also what nobody says any more.
    let mut most = options.clone();
    most.trust.gatekeeper_ca = Some(String::new());
    most.trust.pin = true;
    most.agent.taint = true;
    let all = objects(&most).unwrap();
    let gone = leavings(&options, true, true).unwrap();
    // A webhook that fails closed, and whose verifier is gone, would refuse every pod.
    let (first, rest) = gone.split_first().unwrap();
    assert_eq!(first["kind"], "ValidatingWebhookConfiguration", "what asks goes first");
    let names = |all: &[Value]| all.iter().map(|one| json!(identity(one))).collect::<Vec<_>>();
    let mut reversed = names(&all);
    reversed.reverse();
    assert_eq!(names(rest), reversed);
    let kept = leavings(&options, false, false).unwrap();
    let left = kinds(&kept);
    assert!(!left.contains(&"CustomResourceDefinition") && !left.contains(&"Namespace"));
    assert_eq!(left[1..4], ["Assign", "Assign", "PortolanVerifiedImages"]);
    // A cluster without Gatekeeper does not know its kinds.
    let mut webhook = options.clone();
    webhook.trust.gate = Gate::Webhook;
    let gone = leavings(&webhook, true, true).unwrap();
    assert_eq!(gone[0], *first);
    assert!(gone.iter().all(|one| !one["apiVersion"].as_str().unwrap().contains("gatekeeper.sh")));
}

#[test]
fn what_other_components_share_stays_until_all_of_them_go() {
    let gone = |components: &[Component]| leavings(&options(components), true, true).unwrap();
    let controller = ("Deployment", "portolan-controller");
    let settings = ("ConfigMap", "portolan-controller");
    let namespace = ("Namespace", NAMESPACE);
    let has = |all: &[Value], (kind, name): (&str, &str)| find(all, kind, name).is_some();
    let releases = gone(&[Component::Releases]);
    assert!(has(&releases, ("ClusterRole", "portolan-controller-releases")));
    assert!(has(&releases, ("CustomResourceDefinition", "releases.portolan.dev")));
    for shared in [controller, settings, namespace, ("ServiceAccount", "portolan-controller")] {
        assert!(!has(&releases, shared), "{shared:?}");
    }
    // The verifier is in the same namespace.
    let controlled = gone(&[Component::Build, Component::Shims, Component::Releases]);
    assert!(has(&controlled, controller) && has(&controlled, settings));
    assert!(has(&controlled, ("Namespace", SHIM_NAMESPACE)) && !has(&controlled, namespace));
    let verify = gone(&[Component::Verify]);
    assert!(has(&verify, ("Deployment", "portolan-verifier")) && !has(&verify, namespace));
    assert!(has(&gone(&[Component::Agent]), ("Namespace", AGENT_NAMESPACE)));
    assert!(has(&gone(&Component::ALL), controller) && has(&gone(&Component::ALL), namespace));
}

#[test]
fn agents_get_a_folder_of_nodes_and_neither_the_root_nor_one_of_the_system() {
    for path in [
        "/var/lib/portolan",
        "/var/lib/x/y",
        "/var/./lib//x/",
        "/mnt",
        "/srv//images/",
        "/variable",
        "/tmp/images",
        "/opt/x",
        "/home/user/images",
        "/optional",
        "/devices/x",
        "/library",
        "/data/etc",
        "/var/lib/etcdata",
        "/var/lib/docker-images/x",
        "/mnt/var/lib/docker",
    ] {
        assert!(is_agent_root(path), "{path}");
    }
    for path in [
        "",
        "images",
        "/",
        "//",
        "/.",
        "/a/../etc",
        "//etc/",
        "/./var",
        "/var",
        "/var/lib",
        "/var//lib/",
        "/opt",
        "/opt/",
        "/root",
        "/tmp",
        "/home",
        "/home/user",
    ] {
        assert!(!is_agent_root(path), "{path}");
    }
    // All of it, to the last file.
    let system = "bin boot dev etc lib lib64 proc run sbin sys usr var/run var/lock var/lib/kubelet var/lib/containerd \
        var/lib/docker var/lib/containers var/lib/crio var/lib/etcd var/lib/cni var/lib/rancher var/lib/k0s \
        var/lib/dpkg var/lib/rpm var/lib/systemd";
    for one in system.split(' ') {
        for below in ["", "/", "/x", "/./x", "/x/y/z", "/\n"] {
            let path = format!("/{one}{below}");
            assert!(!is_agent_root(&path), "{path:?}");
        }
    }
}
