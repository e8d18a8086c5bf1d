//! This cluster: what Portolan needs there, what it has of it, and who is in the way.

use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use kube::api::{Api, ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use portolan_agent::config::Config;
use portolan_api::k8s_openapi::api::authorization::v1::{
    SelfSubjectAccessReview, SubjectAccessReview,
};
use portolan_api::k8s_openapi::api::core::v1::ConfigMap;
use portolan_core::causes;
use serde_json::{Value, json};

use super::finding::{Finding, missing, unknown};
use crate::cluster::{Cluster, Flags};

mod agents;
mod definitions;
mod nodes;
mod others;
mod programs;
mod reach;
mod rights;
mod trust;

/// What came of a question.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    Is(Vec<Value>),
    /// The cluster does not know the kind.
    NoKind,
    /// We may not ask.
    Denied(String),
    Failed(String),
}

impl Asked {
    /// The objects; or why nothing can be said of them.
    fn items(&self, check: &'static str) -> Result<&[Value], Finding> {
        match self {
            Self::Is(all) => Ok(all),
            Self::NoKind => Ok(&[]),
            Self::Denied(why) => {
                Err(unknown(check, why, "ask for the role that lets you look at it"))
            }
            Self::Failed(why) => Err(unknown(check, why, "ask again when the cluster answers")),
        }
    }
}

/// Everything that is looked at.
#[derive(Debug)]
pub(super) struct Facts {
    pub(super) version: String,
    pub(super) definitions: Asked,
    pub(super) deployments: Asked,
    pub(super) nodes: Asked,
    pub(super) shims: Asked,
    pub(super) tasks: Asked,
    pub(super) providers: Asked,
    pub(super) webhooks: Asked,
    pub(super) daemon_sets: Asked,
    /// Admission policies, and what puts them in force.
    pub(super) policies: Asked,
    pub(super) bindings: Asked,
    /// What agents may do; none where there are none, or that was not answered.
    pub(super) agent_rights: Vec<(agents::Need, Option<bool>)>,
    /// How often agents tell their nodes, where their configuration says it.
    pub(super) agent_interval: Option<Duration>,
    /// What whoever runs this may do; none where that was not answered.
    pub(super) rights: Vec<(rights::Right, Option<bool>)>,
    pub(super) now: Timestamp,
}

/// Asks the cluster that the flags name.
pub(super) async fn look(flags: &Flags, asked: bool) -> Vec<Finding> {
    const CHECK: &str = "cluster";
    if !asked && !flags.names_one() {
        let advice = "give --kubeconfig, or --only machine to be asked no more";
        return vec![missing(CHECK, "no kubeconfig names one", advice)];
    }
    let cluster = match Cluster::connect(flags).await {
        Ok(cluster) => cluster,
        Err(failure) => {
            return vec![unknown(CHECK, causes::chain(&*failure.error), "repair the kubeconfig")];
        }
    };
    match gather(&cluster).await {
        Ok(facts) => check(&facts),
        Err(why) => vec![unknown(CHECK, why, "look at the network, the kubeconfig and its login")],
    }
}

/// What is listed: group, version, kind, plural, and so many of it.
const KINDS: [(&str, &str, &str, &str, Option<u32>); 10] = [
    ("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", None),
    ("apps", "v1", "Deployment", "deployments", None),
    ("", "v1", "Node", "nodes", None),
    ("runtime.spinkube.dev", "v1alpha1", "Shim", "shims", None),
    // Whether the kind is there is all that is asked.
    ("tekton.dev", "v1", "TaskRun", "taskruns", Some(1)),
    ("externaldata.gatekeeper.sh", "v1beta1", "Provider", "providers", None),
    (ADMISSION, "v1", "ValidatingWebhookConfiguration", "validatingwebhookconfigurations", None),
    ("apps", "v1", "DaemonSet", "daemonsets", None),
    (ADMISSION, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", None),
    (
        ADMISSION,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        None,
    ),
];
const ADMISSION: &str = "admissionregistration.k8s.io";

async fn gather(cluster: &Cluster) -> Result<Facts, String> {
    // First, and alone: a cluster that does not answer is waited for once.
    let version = cluster.ask("ask for its version", cluster.client.apiserver_version()).await;
    let version = version.map_err(|failure| causes::chain(&*failure.error))?;
    let mut answers = Vec::with_capacity(KINDS.len());
    for (group, version, kind, plural, limit) in KINDS {
        let resource =
            ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, kind), plural);
        answers.push(list(cluster, &resource, limit).await);
    }
    let mut rights = Vec::new();
    for right in rights::RIGHTS {
        rights.push((*right, may(cluster, right).await));
    }
    let answers: [Asked; KINDS.len()] =
        answers.try_into().map_err(|_: Vec<Asked>| "an answer is missing".to_owned())?;
    let [
        definitions,
        deployments,
        nodes,
        shims,
        tasks,
        providers,
        webhooks,
        daemon_sets,
        policies,
        bindings,
    ] = answers;
    let mut facts = Facts {
        version: version.git_version,
        definitions,
        deployments,
        nodes,
        shims,
        tasks,
        providers,
        webhooks,
        daemon_sets,
        policies,
        bindings,
        agent_rights: Vec::new(),
        agent_interval: None,
        rights,
        now: Timestamp::now(),
    };
    let namespace = agents::ours(&facts).map(|set| text(set, "/metadata/namespace").to_owned());
    if let Some(namespace) = namespace {
        facts.agent_interval = interval(cluster, &namespace).await;
        for need in agents::NEEDS {
            facts.agent_rights.push((need, may_agents(cluster, &namespace, &need).await));
        }
    }
    Ok(facts)
}

async fn list(cluster: &Cluster, resource: &ApiResource, limit: Option<u32>) -> Asked {
    let api: Api<DynamicObject> = Api::all_with(cluster.client.clone(), resource);
    let params = ListParams { limit, ..ListParams::default() };
    let what = format!("{} of {}", resource.plural, resource.group);
    match cluster.within(api.list(&params)).await {
        Ok(Ok(all)) => Asked::Is(all.items.iter().map(|one| json!(one)).collect()),
        Ok(Err(kube::Error::Api(told))) => match told.code {
            404 => Asked::NoKind,
            401 | 403 => Asked::Denied(format!("{what}: {}", told.message)),
            _ => Asked::Failed(format!("{what}: {}", told.message)),
        },
        Ok(Err(error)) => Asked::Failed(format!("{what}: {}", causes::chain(&error))),
        Err(limit) => Asked::Failed(format!("{what}: no answer for {} s", limit.as_secs())),
    }
}

async fn may(cluster: &Cluster, right: &rights::Right) -> Option<bool> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "metadata": {},
        "spec": {"resourceAttributes": {
            "verb": right.verb, "group": right.group, "resource": right.resource,
            "namespace": if right.namespaced { cluster.namespace.as_str() } else { "" },
        }},
    });
    let review: SelfSubjectAccessReview = serde_json::from_value(review).ok()?;
    let api: Api<SelfSubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = cluster.within(api.create(&PostParams::default(), &review)).await.ok()?.ok()?;
    Some(answer.status?.allowed)
}

/// What the agents' ConfigMap says of it, if it can be had.
async fn interval(cluster: &Cluster, namespace: &str) -> Option<Duration> {
    let api: Api<ConfigMap> = Api::namespaced(cluster.client.clone(), namespace);
    let config = cluster.within(api.get("portolan-agent")).await.ok()?.ok()?;
    let text = config.data?.remove("agent.toml")?;
    Some(Config::parse(&text, Path::new("agent.toml")).ok()?.report.interval.0)
}

async fn may_agents(cluster: &Cluster, namespace: &str, need: &agents::Need) -> Option<bool> {
    let review = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "metadata": {},
        "spec": {
            "user": format!("system:serviceaccount:{namespace}:portolan-agent"),
            "groups": [
                "system:authenticated", "system:serviceaccounts",
                format!("system:serviceaccounts:{namespace}"),
            ],
            "resourceAttributes": {
                "verb": need.verb, "group": need.group, "resource": need.resource,
                "subresource": need.subresource,
            },
        },
    });
    let review: SubjectAccessReview = serde_json::from_value(review).ok()?;
    let api: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let answer = cluster.within(api.create(&PostParams::default(), &review)).await.ok()?.ok()?;
    Some(answer.status?.allowed)
}

/// What all of it means.
pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let mut findings = vec![reach::check(facts)];
    findings.extend(definitions::check(facts));
    findings.extend(others::check(facts));
    findings.extend(programs::check(facts));
    findings.extend(trust::check(facts));
    findings.extend(nodes::check(facts));
    findings.extend(agents::check(facts));
    findings.push(rights::check(facts));
    findings
}

/// A text of an object.
fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// The items of a list of an object.
fn each<'a>(object: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> {
    object.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

#[cfg(test)]
pub(super) fn facts() -> Facts {
    Facts {
        version: "v1.36.3".to_owned(),
        definitions: Asked::Is(vec![]),
        deployments: Asked::Is(vec![]),
        nodes: Asked::Is(vec![]),
        shims: Asked::NoKind,
        tasks: Asked::NoKind,
        providers: Asked::NoKind,
        webhooks: Asked::Is(vec![]),
        daemon_sets: Asked::Is(vec![]),
        policies: Asked::Is(vec![]),
        bindings: Asked::Is(vec![]),
        agent_rights: vec![],
        agent_interval: None,
        rights: vec![],
        now: Timestamp::UNIX_EPOCH,
    }
}
