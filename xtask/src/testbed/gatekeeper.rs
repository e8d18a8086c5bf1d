//! Gatekeeper, installed from the manifest of its own module. What is changed is what an operator
//! would: images, how many, how patient its probes are, and that its webhooks fail closed; and what makes
//! room for others: the webhooks see only namespaces that ask for it by a label, and of what is in no namespace
//! only Gatekeeper's own.

use std::fs;
use std::net::Ipv4Addr;
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde::Deserialize as _;
use serde_json::{Value, json};

use super::command::wait;
use super::state::State;
use super::up::{kubectl, wait_for_deployments};

/// Namespaces with this label, `enforced`, are Gatekeeper's business.
const LABEL: &str = "portolan.dev/gatekeeper";

/// A selector of namespaces leaves what is in none to the webhooks, so that without this every definition that any
/// test writes would wait for Gatekeeper. What is in none has no such member, and a namespace has its own name in it.
const CONCERNED: &str =
    "has(request.namespace) || request.resource.group.endsWith('gatekeeper.sh')";

/// Names of services that Gatekeeper must find at the host, as there is no cluster DNS: those under
/// which the shipped Providers name the verifier.
const HOSTED: [&str; 2] =
    ["portolan-verifier.portolan-system", "portolan-verifier.portolan-system.svc"];

/// Hands everything to the API server; [`ready`] waits for what comes of it.
pub(super) fn install(state: &State) -> Result<()> {
    let manifest = state.tool("gatekeeper-deploy")?.join("gatekeeper.yaml");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
    let image = state.images.get("gatekeeper-image").map_or("", String::as_str);
    let items = objects(&text)?.into_iter().map(|one| adapted(one, image, state.bridge_address));
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items.collect::<Vec<_>>() });
    let file = state.run_dir.join("gatekeeper.json");
    fs::write(&file, list.to_string()).with_context(|| format!("write {}", file.display()))?;
    let file = file.display().to_string();
    // On the server's side, as the CRDs are too large for kubectl's annotation.
    kubectl(state, &["apply", "--server-side", "--force-conflicts", "-f", &file])
}

/// Waits until it serves: it makes its own certificate first, and puts it into its configuration.
pub(super) fn ready(state: &State) -> Result<()> {
    wait_for_deployments(state, "gatekeeper-system")?;
    let probe = state.run_dir.join("gatekeeper-probe.json");
    fs::write(&probe, probe_object().to_string())?;
    let probe = probe.display().to_string();
    wait("Gatekeeper's webhooks to answer", Duration::from_secs(60), || {
        kubectl(state, &["create", "--dry-run=server", "-f", &probe])
    })
}

/// A namespace is itself what the selector of its label is held against.
fn probe_object() -> Value {
    json!({ "apiVersion": "v1", "kind": "Namespace",
            "metadata": { "name": "gatekeeper-probe", "labels": { LABEL: "enforced" } } })
}

fn objects(text: &str) -> Result<Vec<Value>> {
    serde_yaml_ng::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).context("read Gatekeeper's manifest"))
        .collect()
}

/// One object as this cluster gets it.
fn adapted(mut object: Value, image: &str, host: Ipv4Addr) -> Value {
    match object["kind"].as_str() {
        Some("Deployment") => {
            // One node, and two processors for everything.
            object["spec"]["replicas"] = json!(1);
            let pod = &mut object["spec"]["template"]["spec"];
            pod["hostAliases"] = json!([{ "ip": host, "hostnames": HOSTED }]);
            let container = &mut pod["containers"][0];
            container["image"] = json!(image);
            container["imagePullPolicy"] = json!("IfNotPresent");
            for probe in ["livenessProbe", "readinessProbe"] {
                // It was ended for answers that took over a second, while pods of builds had both processors, and again for
                // half a minute without an answer: next to programs of the host its share of these is small.
                if let Some(probe) = container.get_mut(probe).and_then(Value::as_object_mut) {
                    probe.insert("timeoutSeconds".to_owned(), json!(10));
                    probe.insert("failureThreshold".to_owned(), json!(18));
                }
            }
            if let Some(args) = container["args"].as_array_mut()
                && args.iter().any(|arg| arg == "--operation=audit")
            {
                // A test waits for a round of it; kinds that no constraint names need no look.
                args.extend([json!("--audit-interval=5"), json!("--audit-match-kind-only=true")]);
            }
        }
        Some("ValidatingWebhookConfiguration" | "MutatingWebhookConfiguration") => {
            for webhook in object["webhooks"].as_array_mut().into_iter().flatten() {
                webhook["failurePolicy"] = json!("Fail");
                webhook["timeoutSeconds"] = json!(10);
                webhook["matchConditions"] =
                    json!([{ "name": "concerned.portolan.dev", "expression": CONCERNED }]);
                if let Some(all) = webhook["namespaceSelector"]["matchExpressions"].as_array_mut() {
                    all.push(json!({ "key": LABEL, "operator": "In", "values": ["enforced"] }));
                }
            }
        }
        _ => {}
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANIFEST: &str = "\
kind: Secret
---
kind: Deployment
spec:
  replicas: 3
  template:
    spec:
      containers:
      - {image: upstream, args: [--operation=audit], livenessProbe: {periodSeconds: 10}}
---
kind: ValidatingWebhookConfiguration
webhooks:
- failurePolicy: Ignore
  namespaceSelector:
    matchExpressions:
    - {key: theirs, operator: DoesNotExist}
";

    fn all() -> Vec<Value> {
        let host = Ipv4Addr::new(10, 213, 0, 1);
        let read = objects(MANIFEST).unwrap();
        read.into_iter().map(|object| adapted(object, "registry/ours:1", host)).collect()
    }

    #[test]
    fn webhooks_fail_closed_and_only_where_a_namespace_asks_for_it() {
        let webhook = &all()[2]["webhooks"][0];
        assert_eq!(webhook["failurePolicy"], "Fail");
        let terms = webhook["namespaceSelector"]["matchExpressions"].as_array().unwrap();
        assert_eq!((terms.len(), &terms[0]["key"]), (2, &json!("theirs")));
        assert_eq!(terms[1], json!({ "key": LABEL, "operator": "In", "values": ["enforced"] }));
        assert_eq!(webhook["matchConditions"][0]["expression"], CONCERNED);
        assert_eq!(probe_object()["metadata"]["labels"][LABEL], "enforced");
    }

    #[test]
    fn deployments_run_our_image_and_find_the_host_and_nothing_else_changes() {
        let all = all();
        let pod = &all[1]["spec"]["template"]["spec"];
        assert_eq!(pod["containers"][0]["image"], "registry/ours:1");
        assert_eq!(pod["hostAliases"][0]["ip"], "10.213.0.1");
        let probe = &pod["containers"][0]["livenessProbe"];
        let patient = json!({ "periodSeconds": 10, "timeoutSeconds": 10, "failureThreshold": 18 });
        assert_eq!(probe, &patient);
        assert!(pod["containers"][0].get("readinessProbe").is_none(), "none is made");
        assert_eq!(all[1]["spec"]["replicas"], 1);
        assert_eq!(all[0], json!({ "kind": "Secret" }));
    }
}
