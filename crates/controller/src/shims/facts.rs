//! Nodes, Jobs and their pods with what is looked at, and nothing else.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use portolan_api::shim::PREFIX;
use serde::Deserialize;

use super::identity::Identity;
use crate::resource::resource;

resource!(Node: ClusterResourceScope, "", "nodes");
resource!(Job: NamespaceResourceScope, "batch", "jobs");

/// A node as the server has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Node {
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: NodeStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeStatus {
    pub(crate) node_info: NodeInfo,
    pub(crate) conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NodeInfo {
    pub(crate) operating_system: String,
    pub(crate) architecture: String,
    pub(crate) container_runtime_version: String,
    #[serde(rename = "bootID")]
    pub(crate) boot_id: String,
}

/// A condition of a node or of a Job.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Condition {
    #[serde(rename = "type")]
    pub(crate) kind: String,
    pub(crate) status: String,
    pub(crate) reason: String,
    pub(crate) message: String,
}

/// A Job as the server has it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Job {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: JobSpec,
    pub(crate) status: JobStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobSpec {
    pub(crate) template: Template,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Template {
    pub(crate) spec: TemplateSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct TemplateSpec {
    pub(crate) node_name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct JobStatus {
    pub(crate) conditions: Vec<Condition>,
    pub(crate) failed: usize,
}

/// What is known of a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeFacts {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) labels: BTreeMap<String, String>,
    /// What we wrote on it, by Shim.
    pub(crate) records: BTreeMap<String, String>,
    pub(crate) os: String,
    pub(crate) arch: String,
    pub(crate) runtime: String,
    pub(crate) boot: String,
    pub(crate) ready: bool,
}

/// Roles that a cluster does not get on without.
const CONTROL_PLANE: [&str; 3] = [
    "node-role.kubernetes.io/control-plane",
    "node-role.kubernetes.io/master",
    "node-role.kubernetes.io/etcd",
];

impl NodeFacts {
    pub(crate) fn is_control_plane(&self) -> bool {
        CONTROL_PLANE.iter().any(|role| self.labels.contains_key(*role))
    }
}

impl From<Node> for NodeFacts {
    fn from(node: Node) -> Self {
        let Node { metadata, status } = node;
        let ours = |(key, value): (String, String)| {
            let shim = key.strip_prefix(PREFIX)?.strip_prefix('/')?;
            Some((shim.to_owned(), value))
        };
        let ready = status.conditions.iter().any(|one| one.kind == "Ready" && one.status == "True");
        Self {
            name: metadata.name.unwrap_or_default(),
            uid: metadata.uid.unwrap_or_default(),
            labels: metadata.labels.unwrap_or_default(),
            records: metadata
                .annotations
                .unwrap_or_default()
                .into_iter()
                .filter_map(ours)
                .collect(),
            os: status.node_info.operating_system,
            arch: status.node_info.architecture,
            runtime: status.node_info.container_runtime_version,
            boot: status.node_info.boot_id,
            ready,
        }
    }
}

/// How a Job ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum End {
    Complete,
    Failed(Failure),
}

/// What is said of a Job that failed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Failure {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// How many of its pods failed; some may be gone.
    pub(crate) pods: usize,
}

/// What a Job may take beyond its deadline, in seconds: pods are given time to end.
pub(crate) const GRACE_SECONDS: i64 = 120;

/// A Job as one of its Shims sees it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share<'a> {
    pub(crate) job: &'a JobFacts,
    pub(crate) shim: &'a str,
    /// What the node should have of that Shim afterwards.
    pub(crate) hash: &'a str,
}

/// What is known of a Job of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct JobFacts {
    pub(crate) name: String,
    pub(crate) uid: String,
    pub(crate) identity: Identity,
    pub(crate) end: Option<End>,
    /// When it was first heard of, in seconds: the server's clock may be another.
    pub(crate) since: i64,
    pub(crate) deleting: bool,
}

impl JobFacts {
    /// The facts of a Job that is ours: in our namespace, under the name that we would have given it, and
    /// owned by the Shim or the node that it is for. Whatever else carries our labels is somebody else's.
    pub(crate) fn believed(job: Job, namespace: &str) -> Option<Self> {
        let Job { metadata, spec, status } = job;
        let (name, uid) = (metadata.name?, metadata.uid?);
        let identity = Identity::read(metadata.annotations.as_ref()?)?;
        let owners = metadata.owner_references.unwrap_or_default();
        // One of several is enough: a Shim that is gone is no longer named.
        let owned = owners.iter().any(|owner| identity.is_owned_by(&owner.uid));
        let ours = metadata.namespace.as_deref() == Some(namespace)
            && identity.job_name() == name
            && spec.template.spec.node_name == identity.node
            && owned;
        let pods = status.failed;
        let end = status.conditions.into_iter().filter(|one| one.status == "True");
        let end = end.into_iter().find_map(|one| match one.kind.as_str() {
            "Complete" => Some(End::Complete),
            "Failed" => {
                Some(End::Failed(Failure { reason: one.reason, message: one.message, pods }))
            }
            _ => None,
        });
        let deleting = metadata.deletion_timestamp.is_some();
        ours.then_some(Self { name, uid, identity, end, since: 0, deleting })
    }

    /// What it is to a Shim, by its UID; nothing where it is not of it.
    pub(crate) fn share(&self, shim_uid: &str) -> Option<Share<'_>> {
        let found = self.identity.parts().find(|(_, uid, _)| *uid == shim_uid);
        found.map(|(shim, _, hash)| Share { job: self, shim, hash })
    }

    /// Whether nobody waits for it any more: its node is gone or silent.
    pub(crate) fn is_late(&self, now: i64, deadline: i64) -> bool {
        self.is_live() && now >= self.late_from(deadline)
    }

    /// From when on it is late.
    pub(crate) fn late_from(&self, deadline: i64) -> i64 {
        self.since + deadline + GRACE_SECONDS + 1
    }

    /// Whether it may still do something on its node.
    pub(crate) fn is_live(&self) -> bool {
        self.end.is_none()
    }
}
