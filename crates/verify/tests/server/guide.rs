//! `docs/verifier.md` names everything that an operator can set, match on or draw.

use std::error::Error as _;
use std::path::Path;

use portolan_verify::server::Config;

use crate::harness::{Bench, V1};

const GUIDE: &str = include_str!("../../../../docs/verifier.md");

fn parse(text: &str) -> Result<Config, String> {
    Config::parse(text, Path::new("x")).map_err(|error| match error.source() {
        Some(cause) => cause.to_string(),
        None => error.to_string(),
    })
}

const LEAST: &str =
    "listen = \"127.0.0.1:1\"\npolicy = \"p\"\n[tls]\ncertificate = \"c\"\nkey = \"k\"\n";

/// The keys of a section, from the parser's own words about a key that is none.
fn keys(section: &str) -> Vec<String> {
    let text = match section {
        "" => format!("zzz = 1\n{LEAST}"),
        "tls" => format!("{LEAST}zzz = 1\n"),
        section => format!("{LEAST}[{section}]\nzzz = 1\n"),
    };
    let error = parse(&text).unwrap_err();
    let (_, expected) = error.split_once("expected").expect("it lists the keys");
    expected.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

#[test]
fn every_key_of_the_verifiers_configuration_is_in_the_guide() {
    let mut seen = 0;
    for section in [
        "",
        "tls",
        "tls.generate",
        "admission",
        "timeouts",
        "limits",
        "cache",
        "exempt",
        "pods",
        "cluster",
    ] {
        for key in keys(section) {
            let is_section = section.is_empty() && parse(&format!("{LEAST}[{key}]\n")).is_ok();
            let wanted = match is_section || key == "tls" {
                true => format!("**[{key}]**"),
                false => format!("`{key}`"),
            };
            assert!(GUIDE.contains(&wanted), "docs/verifier.md does not speak of {section} {key}");
            seen += 1;
        }
    }
    assert!(seen > 58, "{seen}");
}

#[test]
fn the_configuration_in_the_guide_can_be_used() {
    let (_, rest) = GUIDE.split_once("```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let config = parse(text).unwrap();
    assert_eq!(config.exempt.namespaces, ["kube-system", "gatekeeper-system"]);
    assert!(
        config.admission.listen.is_some() && config.tls.is_some_and(|tls| tls.client_ca.is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_of_the_verifier_is_in_the_guide() {
    let bench = Bench::new();
    let (_, text) = bench.start().await.health("/metrics").await;
    let names: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(names.len() > 10, "{names:?}");
    for line in names {
        let (name, kind) = line.split_once(' ').unwrap();
        let total = if kind == "counter" { "_total" } else { "" };
        assert!(
            GUIDE.contains(&format!("`{name}{total}`")),
            "docs/verifier.md lacks {name}{total}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_checked_in_reference_has_the_metrics_of_the_verifier() {
    let bench = Bench::new();
    let verifier = bench.start().await;
    // Requests to registries are counted from the first one on.
    verifier.ask(V1, &[&bench.image(":v1")]).await;
    let (_, text) = verifier.health("/metrics").await;
    crate::reference::check("portolan-verifier", &text, &["registry_host", "status_code"]);
}

fn documents(name: &str) -> Vec<serde_json::Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy").join(name);
    let text = std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    portolan_verify::template::read::documents(&text).unwrap()
}

/// The names of all objects of a kind.
fn names(all: &[serde_json::Value], kind: &str) -> Vec<String> {
    let own = all.iter().filter(|one| one["kind"] == kind);
    own.map(|one| one["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// What is shipped can be applied together, in any order, with each configuration in the guide.
#[test]
fn what_is_shipped_for_a_cluster_fits_together() {
    let (verifier, rbac) = (documents("verifier/verifier.yaml"), documents("verifier/rbac.yaml"));
    let all: Vec<_> = verifier.iter().chain(&rbac).cloned().collect();
    // Nothing twice: what is applied last would win.
    let name = |one: &serde_json::Value| format!("{} {}", one["kind"], one["metadata"]["name"]);
    let mut seen = std::collections::BTreeSet::new();
    for one in &all {
        assert!(seen.insert(name(one)), "{} twice", name(one));
    }
    // It watches nodes, so it has a token, and may.
    let settings = verifier.iter().find(|one| one["kind"] == "ConfigMap").unwrap();
    let config = parse(settings["data"]["verifier.toml"].as_str().unwrap()).unwrap();
    assert!(config.cluster.as_ref().is_some_and(|cluster| cluster.nodes));
    let account = verifier.iter().find(|one| one["kind"] == "ServiceAccount").unwrap();
    assert!(account.get("automountServiceAccountToken").is_none(), "{account}");
    let bound = ["portolan-verifier-nodes", "portolan-verifier-trust"];
    assert_eq!(names(&verifier, "ClusterRoleBinding"), bound);
    // Whoever asks the verifier is told of its next authority, and it may tell them.
    let mut asking = names(&documents("gatekeeper/provider.yaml"), "Provider");
    asking.extend(names(&documents("gatekeeper/mutation.yaml"), "Provider"));
    let trust =
        verifier.iter().find(|one| one["metadata"]["name"] == "portolan-verifier-trust").unwrap();
    assert_eq!(trust["rules"][0]["resourceNames"], serde_json::json!(asking));
    let told = |config: &Config| {
        let generate = config.tls.as_ref().unwrap().generate.as_ref().unwrap();
        let providers: Vec<_> = generate.providers.iter().map(ToString::to_string).collect();
        let webhooks: Vec<_> = generate.webhooks.iter().map(ToString::to_string).collect();
        (providers, webhooks)
    };
    let webhooks = names(&documents("verifier/webhook.yaml"), "ValidatingWebhookConfiguration");
    assert_eq!(trust["rules"][1]["resourceNames"], serde_json::json!(webhooks));
    assert_eq!(told(&config), (asking.clone(), webhooks.clone()));
    let (_, rest) = GUIDE.split_once("## In its cluster\n\n```toml\n").unwrap();
    let (text, _) = rest.split_once("```").unwrap();
    let own = parse(&format!("listen = \"0.0.0.0:1\"\npolicy = \"p\"\n{text}")).unwrap();
    assert_eq!(told(&own), (asking, webhooks));
    // Every port of the pod says who may reach it.
    let network = documents("verifier/network.yaml");
    let reached = network[0]["spec"]["ingress"].as_array().unwrap();
    let reached: Vec<_> = reached.iter().map(|one| &one["ports"][0]["port"]).collect();
    let deployed = verifier.iter().find(|one| one["kind"] == "Deployment").unwrap();
    let pod = &deployed["spec"]["template"];
    let ports = pod["spec"]["containers"][0]["ports"].as_array().unwrap();
    let ports: Vec<_> = ports.iter().map(|one| &one["name"]).collect();
    assert_eq!((reached.len(), reached), (3, vec![ports[0], ports[1], ports[2]]));
    assert_eq!(network[0]["spec"]["podSelector"]["matchLabels"], pod["metadata"]["labels"]);
    // It fills a Secret that is there and empty, which one of type kubernetes.io/tls cannot be, and may
    // touch no other.
    let secret = verifier.iter().find(|one| one["kind"] == "Secret").unwrap();
    assert!(secret["type"] == "Opaque" && secret.get("data").is_none(), "{secret}");
    let role = verifier.iter().find(|one| one["kind"] == "Role").unwrap();
    assert_eq!(role["rules"][0]["resourceNames"][0], secret["metadata"]["name"]);
    let kept = config.tls.unwrap().generate.unwrap().secret;
    assert_eq!(secret["metadata"]["name"], kept.as_str());
    // Where the guide takes the first authority from.
    let guide = include_str!("../../../../docs/gatekeeper.md");
    assert!(guide.contains(&format!("get secret {kept} ")), "the authority of the Providers");
}

/// What is shipped works in any cluster: it names ports that the verifier has, and no address.
#[test]
fn the_shipped_network_policy_names_ports_of_the_verifier_and_nobodys_addresses() {
    const POLICY: &str = include_str!("../../../../deploy/verifier/network.yaml");
    const DEPLOYMENT: &str = include_str!("../../../../deploy/verifier/verifier.yaml");
    let policy: serde_json::Value = serde_yaml_ng::from_str(POLICY).unwrap();
    let rules = policy["spec"]["ingress"].as_array().unwrap();
    let ports: Vec<_> =
        rules.iter().map(|rule| rule["ports"][0]["port"].as_str().unwrap()).collect();
    assert_eq!(ports, ["gatekeeper", "admission", "health"]);
    for port in ports {
        assert!(DEPLOYMENT.contains(&format!("- {{name: {port}, containerPort: ")), "{port}");
    }
    // What the guide's patch adds to.
    assert!(rules[1].get("from").is_none() && GUIDE.contains("/spec/ingress/1/from"));
    assert!(!POLICY.contains("ipBlock:"), "an address that is not this cluster's");
}
