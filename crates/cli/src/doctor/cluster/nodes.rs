//! Nodes that a Shim selects and has nothing for.

use portolan_api::k8s_openapi::api::core::v1::Node;
use portolan_api::shim::Shim;

use super::super::finding::{Finding, ok, wrong};
use super::{Facts, text};
use crate::shim::plan;

const CHECK: &str = "nodes";
/// Names that are told of many.
const SHOWN: usize = 3;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let (shims, nodes) = match (facts.shims.items(CHECK), facts.nodes.items(CHECK)) {
        (Ok(shims), Ok(nodes)) => (shims, nodes),
        (Err(finding), _) | (_, Err(finding)) => return vec![finding],
    };
    let nodes: Vec<Node> =
        nodes.iter().filter_map(|one| serde_json::from_value(one.clone()).ok()).collect();
    let mut findings = Vec::new();
    for object in shims {
        let name = text(object, "/metadata/name");
        let Ok(shim) = serde_json::from_value::<Shim>(object.clone()) else {
            let advice = "portolan shim lint says what is wrong with it";
            findings.push(wrong(CHECK, format!("Shim {name} cannot be read"), advice));
            continue;
        };
        let lacking = plan::lacking(&shim, &nodes);
        let Some((_, why)) = lacking.first() else { continue };
        let shown: Vec<_> = lacking.iter().take(SHOWN).map(|(node, _)| node.as_str()).collect();
        let more = if lacking.len() > SHOWN { ", …" } else { "" };
        let found = format!(
            "Shim {name} has nothing for {} of its nodes ({}{more}): {why}",
            lacking.len(),
            shown.join(", ")
        );
        let advice = format!(
            "kubectl get shim {name} -o yaml | portolan shim plan -f -; add an artifact, or narrow nodeSelector"
        );
        findings.push(wrong(CHECK, found, advice));
    }
    if findings.is_empty() && !shims.is_empty() {
        findings.push(ok(
            CHECK,
            format!("{} Shims have something for each of their nodes", shims.len()),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::Asked;
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn a_node_whose_platform_no_artifact_fits_is_named() {
        let node = |name: &str, arch: &str| {
            json!({
                "metadata": {"name": name, "labels": {"spin": "true"}},
                "status": {"nodeInfo": {
                    "operatingSystem": "linux", "architecture": arch, "containerRuntimeVersion": "containerd://2.0.0",
                    "bootID": "", "kernelVersion": "", "kubeProxyVersion": "", "kubeletVersion": "", "machineID": "",
                    "osImage": "", "systemUUID": "",
                }},
            })
        };
        let shim = json!({
            "apiVersion": "runtime.spinkube.dev/v1alpha1", "kind": "Shim", "metadata": {"name": "spin"},
            "spec": {
                "nodeSelector": {"spin": "true"},
                "fetchStrategy": {"platforms": [
                    {"os": "linux", "arch": "amd64", "location": "https://example.com/a.tar.gz"},
                ]},
                "runtimeClass": {"name": "spin", "handler": "spin"},
                "rolloutStrategy": {"type": "recreate"},
            },
        });
        let of = |nodes| {
            let facts = Facts {
                shims: Asked::Is(vec![shim.clone()]),
                nodes: Asked::Is(nodes),
                ..super::super::facts()
            };
            check(&facts)
        };
        assert_eq!(of(vec![node("a", "amd64")])[0].state, State::Ok);
        let found = of(vec![node("a", "amd64"), node("r", "riscv64")]);
        assert!(found[0].state == State::Wrong && found[0].found.contains("(r)"), "{found:?}");
    }
}
