//! What an installation is like: its components, where it is, whom it trusts.

use std::collections::{BTreeMap, BTreeSet};
use std::str::FromStr;

use super::sources::{self, ROWS, Row, When};
use super::{AGENT_NAMESPACE, AGENT_ROOT, NAMESPACE, SHIM_NAMESPACE};
use crate::definitions;
use crate::names::is_dns_label;

/// The image without its tag.
const REPOSITORY: &str = "ghcr.io/portolan-dev/portolan";

/// A part that can be installed by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Component {
    /// Builds: controller, strategies, platforms.
    Build,
    /// Runtime binaries on nodes: controller, the namespace of its Jobs.
    Shims,
    /// The verifier, and what makes a cluster ask it.
    Verify,
    /// The agent on nodes.
    Agent,
    /// Releases: controller.
    Releases,
}

impl Component {
    /// All that have a name.
    pub const ALL: [Self; 5] =
        [Self::Build, Self::Shims, Self::Verify, Self::Agent, Self::Releases];

    /// As people write it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Build => "build",
            Self::Shims => "shims",
            Self::Verify => "verify",
            Self::Agent => "agent",
            Self::Releases => "releases",
        }
    }

    /// Those that this version has manifests for. What only shares the controller with others is there when it
    /// has a definition or a row of its own.
    pub fn available() -> BTreeSet<Self> {
        let alone = ROWS.iter().filter(|row| row.of.len() == 1).map(|row| row.of[0]);
        let defined = definitions::all();
        let defined = defined.iter().filter_map(|one| sources::component_of(one.group()));
        alone.chain(defined).collect()
    }

    /// What the controller is told to serve for it.
    pub(super) fn served(self) -> Option<&'static str> {
        match self {
            Self::Build => Some("builds"),
            Self::Shims => Some("shims"),
            Self::Releases => Some("releases"),
            Self::Verify | Self::Agent => None,
        }
    }
}

impl FromStr for Component {
    type Err = InstallError;

    fn from_str(text: &str) -> Result<Self, InstallError> {
        let found = Self::available().into_iter().find(|one| one.as_str() == text);
        found.ok_or_else(|| InstallError::Component { text: text.to_owned() })
    }
}

/// A namespace that Portolan may have for itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace(pub(super) String);

/// They belong to others, and are labelled and deleted as a whole here.
const TAKEN: [&str; 5] =
    ["default", "kube-system", "kube-public", "kube-node-lease", "gatekeeper-system"];

impl Namespace {
    /// As an object says it.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for Namespace {
    type Err = InstallError;

    fn from_str(text: &str) -> Result<Self, InstallError> {
        match (is_dns_label(text), TAKEN.contains(&text)) {
            (true, false) => Ok(Self(text.to_owned())),
            (true, true) => Err(InstallError::Taken { text: text.to_owned() }),
            (false, _) => Err(InstallError::Namespace { text: text.to_owned() }),
        }
    }
}

/// Who asks the verifier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Gatekeeper, by a Provider, a template and a constraint.
    Gatekeeper,
    /// The API server, by a webhook.
    Webhook,
}

/// What Gatekeeper does about a violation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Refuse the object.
    Deny,
    /// Admit it and warn.
    Warn,
    /// Admit it and write it down.
    Dryrun,
}

impl Action {
    /// In Gatekeeper's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Deny => "deny",
            Self::Warn => "warn",
            Self::Dryrun => "dryrun",
        }
    }
}

/// Whom the verifier trusts, and how it is found.
#[derive(Debug, Clone)]
pub struct Trust {
    /// Who asks.
    pub gate: Gate,
    /// Make digests of tags first; Gatekeeper only.
    pub pin: bool,
    /// What Gatekeeper does about a violation. Not said: nothing is refused, and on an upgrade it stays as it is.
    pub action: Option<Action>,
    /// Files of the policy by their names, `policy.yaml` among them; the shipped one where there are none.
    pub policy: BTreeMap<String, String>,
    /// Who vouches for Gatekeeper, in PEM: only who has a certificate of theirs may ask.
    pub gatekeeper_ca: Option<String>,
}

/// What agents on nodes do.
#[derive(Debug, Clone)]
pub struct Agent {
    /// Where they run.
    pub namespace: Namespace,
    /// Where they keep what they keep, on nodes.
    pub root: String,
    /// Keep pods away from nodes whose image cache has no room.
    pub taint: bool,
    /// Publish what nodes are as labels.
    pub labels: bool,
}

/// What an installation is like.
#[derive(Debug, Clone)]
pub struct Options {
    /// What is installed.
    pub components: BTreeSet<Component>,
    /// Where programs run.
    pub namespace: Namespace,
    /// Where Jobs of nodes run.
    pub shim_namespace: Namespace,
    /// The image with all programs.
    pub image: String,
    /// Copies of each program; as shipped where it is not said.
    pub replicas: Option<u16>,
    /// Of the verifier.
    pub trust: Trust,
    /// Of agents.
    pub agent: Agent,
    /// The cluster has it already: leave out what was only there until somebody filled it in.
    pub upgrade: bool,
    /// What the label says.
    pub version: String,
}

impl Options {
    /// Everything that there is, as shipped.
    pub fn new(version: &str) -> Self {
        Self {
            components: Component::available(),
            namespace: Namespace(NAMESPACE.to_owned()),
            shim_namespace: Namespace(SHIM_NAMESPACE.to_owned()),
            image: format!("{REPOSITORY}:{version}"),
            replicas: None,
            trust: Trust {
                gate: Gate::Gatekeeper,
                pin: false,
                action: None,
                policy: BTreeMap::new(),
                gatekeeper_ca: None,
            },
            agent: Agent {
                namespace: Namespace(AGENT_NAMESPACE.to_owned()),
                root: AGENT_ROOT.to_owned(),
                taint: false,
                labels: false,
            },
            upgrade: false,
            version: version.to_owned(),
        }
    }

    pub(super) fn has(&self, row: &Row) -> bool {
        let chosen = row.of.iter().any(|component| self.components.contains(component));
        let gatekeeper = self.trust.gate == Gate::Gatekeeper;
        chosen
            && match row.when {
                When::Always => true,
                When::Gatekeeper => gatekeeper,
                When::Pin => gatekeeper && self.trust.pin,
                When::Webhook => !gatekeeper,
                When::Nodes => self.agent.taint || self.agent.labels,
            }
    }

    /// Whether it may be there, whatever was said when it was installed. Kinds of Gatekeeper are not known where
    /// somebody else asks, and to be told of them there would be an error.
    pub(super) fn may_have(&self, when: When) -> bool {
        match when {
            When::Gatekeeper | When::Pin => self.trust.gate == Gate::Gatekeeper,
            When::Always | When::Webhook | When::Nodes => true,
        }
    }

    /// Who may make pods in some of the namespaces owns every node, so they are not those of others.
    pub(super) fn distinct(&self) -> Result<(), InstallError> {
        let namespaces = [&self.namespace, &self.shim_namespace, &self.agent.namespace];
        let distinct: BTreeSet<_> = namespaces.iter().map(|one| one.as_str()).collect();
        match distinct.len() < namespaces.len() {
            true => {
                Err(InstallError::Shared { text: namespaces.map(Namespace::as_str).join(", ") })
            }
            false => Ok(()),
        }
    }
}

/// Why there is nothing to apply.
#[derive(Debug, thiserror::Error)]
pub enum InstallError {
    /// Nobody knows it.
    #[error("{text:?} is no component; there are {}", known())]
    Component {
        /// What was said.
        text: String,
    },
    /// It is no name.
    #[error("{text:?} is no name of a namespace: small letters, digits and - within, at most 63")]
    Namespace {
        /// What was said.
        text: String,
    },
    /// It is somebody else's.
    #[error(
        "namespace {text} belongs to others, and an installation labels and deletes the whole of its own; give another"
    )]
    Taken {
        /// What was said.
        text: String,
    },
    /// Namespaces of programs, of root's Jobs and of agents.
    #[error(
        "--namespace, --shim-namespace and --agent-namespace are three, not {text}: who may make pods in one of the last two owns every node"
    )]
    Shared {
        /// The three names.
        text: String,
    },
    /// What is shipped is broken: a mistake of ours.
    #[error("deploy/{path} cannot be used: {why}")]
    Shipped {
        /// Which file.
        path: String,
        /// What is wrong.
        why: String,
    },
}

fn known() -> String {
    let names: Vec<_> = Component::available().into_iter().map(Component::as_str).collect();
    names.join(", ")
}
