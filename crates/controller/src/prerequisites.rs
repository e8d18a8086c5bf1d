//! What must be there, and what must not, before anything is done in a cluster.

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use kube::api::ListParams;
use kube::{Api, Client};
use portolan_api::upstream;

/// What upstream's controller holds.
const LEASE: &str = "shipwright-build-controller-lock";

/// What is asked of a cluster: the group's version, and the kinds in it.
const NEEDED: [(&str, &[&str], &str); 3] = [
    (
        "tekton.dev/v1",
        &["taskruns", "pipelineruns"],
        "Tekton Pipelines are not installed on the cluster; install them first",
    ),
    (
        "shipwright.io/v1beta1",
        &["builds", "buildruns", "buildstrategies", "clusterbuildstrategies"],
        "the definitions of builds are not installed: portolan crds --roles | kubectl apply --server-side -f -",
    ),
    (
        "shipwright.io/v1alpha1",
        &["imageplatforms", "imageplatformclasses"],
        "the definitions of platforms are not installed: portolan crds --roles | kubectl apply --server-side -f -",
    ),
];

/// Why nothing is done in a cluster.
#[derive(Debug, thiserror::Error)]
pub enum PrerequisiteError {
    /// Something is missing.
    #[error("{advice} ({group} has no {resource})")]
    Missing {
        /// The group and version.
        group: &'static str,
        /// The kind, in the plural.
        resource: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Two would do the same work.
    #[error(
        "another controller serves these resources: {who}; scale it to 0 and wait for its lease to end, or start with {flag}"
    )]
    Served {
        /// In words.
        who: String,
        /// What takes over nevertheless.
        flag: &'static str,
    },
    /// It cannot be found out.
    #[error("the cluster does not say what is installed: {step}")]
    Request {
        /// What was asked.
        step: &'static str,
        /// Why it failed.
        #[source]
        source: Box<kube::Error>,
    },
}

impl PrerequisiteError {
    pub(crate) fn at(step: &'static str) -> impl FnOnce(kube::Error) -> Self {
        move |source| Self::Request { step, source: Box::new(source) }
    }

    /// Whether the cluster says so, and would say so again: what may pass is no reason to do without.
    pub(crate) fn is_answer(&self) -> bool {
        match self {
            Self::Missing { .. } | Self::Served { .. } => true,
            Self::Request { source, .. } => {
                matches!(&**source, kube::Error::Api(told) if told.code == 403)
            }
        }
    }
}

/// Looks for everything that is needed.
pub(crate) async fn installed(client: &Client) -> Result<(), PrerequisiteError> {
    needs(client, &NEEDED).await
}

/// Looks for kinds of groups.
pub(crate) async fn needs(
    client: &Client,
    needed: &[(&'static str, &'static [&'static str], &'static str)],
) -> Result<(), PrerequisiteError> {
    for (group, resources, advice) in needed.iter().copied() {
        let found = match client.list_api_group_resources(group).await {
            Ok(list) => list.resources.into_iter().map(|resource| resource.name).collect(),
            Err(kube::Error::Api(told)) if told.code == 404 => Vec::new(),
            Err(error) => return Err(PrerequisiteError::at("its groups")(error)),
        };
        for resource in resources {
            if !found.iter().any(|name| name == resource) {
                return Err(PrerequisiteError::Missing { group, resource, advice });
            }
        }
    }
    Ok(())
}

/// Looks for upstream's controller, wherever it runs. By name, so that the role need not allow more.
pub(crate) async fn alone(client: &Client) -> Result<(), PrerequisiteError> {
    let named = |name: &str| ListParams::default().fields(&format!("metadata.name={name}"));
    let deployments: Api<Deployment> = Api::all(client.clone());
    let deployments = deployments.list(&named(upstream::SHIPWRIGHT)).await;
    let deployments = deployments.map_err(PrerequisiteError::at("other controllers"))?.items;
    let leases: Api<Lease> = Api::all(client.clone());
    let leases = leases.list(&named(LEASE)).await;
    let leases = leases.map_err(PrerequisiteError::at("leases of other controllers"))?.items;
    match served(&deployments, &leases, Timestamp::now()) {
        Some(who) => Err(PrerequisiteError::Served { who, flag: "--takeover" }),
        None => Ok(()),
    }
}

/// Who serves these resources already, in words.
pub fn served(deployments: &[Deployment], leases: &[Lease], now: Timestamp) -> Option<String> {
    let place = |name: &str, namespace: Option<&str>| {
        format!("{name} in namespace {}", namespace.unwrap_or_default())
    };
    let theirs = |one: &&Deployment| upstream::is_shipwright(one) && upstream::runs(one);
    if let Some(found) = deployments.iter().find(theirs) {
        let what = place(upstream::SHIPWRIGHT, found.metadata.namespace.as_deref());
        return Some(format!("Deployment {what}"));
    }
    let held = leases.iter().find(|lease| is_held(lease, now))?;
    let holder = held.spec.as_ref().and_then(|spec| spec.holder_identity.clone());
    let what = place(LEASE, held.metadata.namespace.as_deref());
    Some(format!("Lease {what}, held by {}", holder.unwrap_or_default()))
}

pub(crate) fn is_held(lease: &Lease, now: Timestamp) -> bool {
    let Some(spec) = &lease.spec else { return false };
    let holder = spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty());
    let seconds = i64::from(spec.lease_duration_seconds.unwrap_or_default());
    let renewed = spec.renew_time.as_ref().map(|time| time.0.as_second());
    holder && renewed.is_some_and(|renewed| renewed + seconds >= now.as_second())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn deployment(replicas: Option<i32>) -> Deployment {
        serde_json::from_value(json!({
            "metadata": {"name": upstream::SHIPWRIGHT, "namespace": "shipwright-build"},
            "spec": {"replicas": replicas, "selector": {}, "template": {}},
        }))
        .unwrap()
    }

    fn lease(holder: &str, renewed: &str) -> Lease {
        serde_json::from_value(json!({
            "metadata": {"name": LEASE, "namespace": "shipwright-build"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .unwrap()
    }

    #[test]
    fn another_controller_is_one_that_runs_or_holds_its_lease() {
        let now: Timestamp = "2026-01-01T00:00:10Z".parse().unwrap();
        let (fresh, old) = ("2026-01-01T00:00:00.000000Z", "2025-01-01T00:00:00.000000Z");
        for (deployments, leases, found) in [
            (vec![], vec![], None),
            (vec![deployment(Some(0))], vec![], None),
            (vec![deployment(Some(2))], vec![], Some("Deployment")),
            (vec![deployment(None)], vec![], Some("Deployment")),
            (vec![deployment(Some(0))], vec![lease("pod-1", fresh)], Some("held by pod-1")),
            (vec![], vec![lease("pod-1", old)], None),
            (vec![], vec![lease("", fresh)], None),
        ] {
            let said = served(&deployments, &leases, now);
            match found {
                None => assert_eq!(said, None),
                Some(word) => {
                    let said = said.unwrap_or_default();
                    assert!(said.contains(word) && said.contains("shipwright-build"), "{said}");
                }
            }
        }
    }
}
