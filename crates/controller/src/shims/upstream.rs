//! What must be there for shims, and who must not: two controllers would undo each other's labels and Jobs.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use portolan_api::upstream::{CLASS_MANAGER, is_class_manager, runs};

use crate::prerequisites::{PrerequisiteError, is_held, needs};

/// What it holds where several copies run.
const LEASE: &str = "7584d300.spinkube.dev";

const NEEDED: [(&str, &[&str], &str); 2] = [
    (
        "runtime.spinkube.dev/v1alpha1",
        &["shims", "shims/status"],
        "the definition of Shims with its status is not installed: portolan crds --roles | kubectl apply --server-side -f -",
    ),
    ("node.k8s.io/v1", &["runtimeclasses"], "this cluster has no RuntimeClasses"),
];

/// Looks for what is needed.
pub(crate) async fn installed(client: &Client) -> Result<(), PrerequisiteError> {
    needs(client, &NEEDED).await
}

/// Looks for upstream's controller, wherever it runs.
pub(crate) async fn alone(client: &Client) -> Result<(), PrerequisiteError> {
    let (key, value) = CLASS_MANAGER;
    let labelled = ListParams::default().labels(&format!("{key}={value}"));
    let scaffolded = ListParams::default().labels("control-plane=controller-manager");
    let deployments: Api<Deployment> = Api::all(client.clone());
    let mut found = Vec::new();
    for params in [labelled, scaffolded] {
        let listed = deployments.list(&params).await;
        found.extend(listed.map_err(PrerequisiteError::at("other controllers of shims"))?.items);
    }
    let leases: Api<Lease> = Api::all(client.clone());
    let named = ListParams::default().fields(&format!("metadata.name={LEASE}"));
    let leases = leases.list(&named).await;
    let leases =
        leases.map_err(PrerequisiteError::at("leases of other controllers of shims"))?.items;
    match served(&found, &leases, Timestamp::now()) {
        Some(who) => Err(PrerequisiteError::Served { who, flag: "--shim-takeover" }),
        None => Ok(()),
    }
}

/// Who serves Shims already, in words.
pub(crate) fn served(
    deployments: &[Deployment],
    leases: &[Lease],
    now: Timestamp,
) -> Option<String> {
    let theirs = |one: &&Deployment| is_class_manager(one) && runs(one);
    if let Some(found) = deployments.iter().find(theirs) {
        let name = found.metadata.name.as_deref().unwrap_or_default();
        let namespace = found.metadata.namespace.as_deref().unwrap_or_default();
        return Some(format!("Deployment {name} in namespace {namespace}"));
    }
    let held = leases.iter().find(|lease| is_held(lease, now))?;
    let namespace = held.metadata.namespace.as_deref().unwrap_or_default();
    Some(format!("Lease {LEASE} in namespace {namespace}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn upstream_is_a_deployment_of_its_name_or_image_that_runs_or_a_lease_that_is_held() {
        let deployment = |labels: serde_json::Value, image: &str, replicas: i32| -> Deployment {
            serde_json::from_value(json!({
                "metadata": {"name": "rcm", "namespace": "rcm", "labels": labels},
                "spec": {"replicas": replicas, "selector": {}, "template": {"spec": {
                    "containers": [{"name": "manager", "image": image}],
                }}},
            }))
            .unwrap()
        };
        let named = json!({"app.kubernetes.io/name": "runtime-class-manager"});
        let image = "mirror.example/spinframework/runtime-class-manager:v0.2.0";
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": LEASE, "namespace": "rcm"},
            "spec": {"holderIdentity": "a", "leaseDurationSeconds": 15, "renewTime": "2026-01-01T00:00:00.000000Z"},
        }))
        .unwrap();
        for (deployments, leases, found) in [
            (vec![], vec![], false),
            (vec![deployment(named.clone(), "x", 1)], vec![], true),
            (vec![deployment(json!({}), image, 1)], vec![], true),
            (vec![deployment(named, image, 0)], vec![], false),
            (vec![deployment(json!({}), "other/manager:1", 1)], vec![], false),
            (vec![], vec![lease], true),
        ] {
            assert_eq!(served(&deployments, &leases, now).is_some(), found, "{deployments:?}");
        }
    }
}
