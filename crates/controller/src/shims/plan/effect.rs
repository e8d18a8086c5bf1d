//! What is to be done, as the planner says it and hands do it.

use std::sync::Arc;

use portolan_api::shim::{Shim, ShimStatus};
use portolan_shim::resolve::Admitted;
use serde_json::Value;

use crate::shims::class::ClassStep;
use crate::shims::facts::Failure;
use crate::shims::identity::Identity;
use crate::shims::job;
use crate::shims::record::NodePatch;
use crate::shims::settings::Settings;

/// What is written at one time by one writer only.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Key {
    Node(String),
    Job(String),
    Shim(String),
    /// The RuntimeClass of a Shim.
    Class(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Effect {
    /// Labels and annotations of a node.
    Patch {
        node: String,
        uid: String,
        patch: NodePatch,
    },
    /// The same, and then a Job.
    Start {
        node: String,
        uid: String,
        patch: NodePatch,
        order: Arc<Order>,
    },
    /// Ask why a Job failed.
    Collect {
        job: String,
        uid: String,
        failure: Failure,
    },
    /// Delete a Job and its pods.
    Kill {
        job: String,
        uid: String,
    },
    Finalizers {
        shim: Arc<Shim>,
        finalizers: Vec<String>,
    },
    Status {
        shim: Arc<Shim>,
        status: Box<ShimStatus>,
    },
    Class {
        shim: String,
        name: String,
        step: Box<ClassStep>,
    },
    /// An Event; nobody waits for it.
    Tell(Notice),
}

/// A Job to be made. It is put together when it is sent: thousands may wait for their turn.
#[derive(Debug, PartialEq)]
pub(crate) struct Order {
    pub(crate) identity: Identity,
    /// In the order of the identity's parts.
    pub(crate) pieces: Vec<Piece>,
}

/// What a Job does for one of its Shims.
#[derive(Debug, PartialEq)]
pub(crate) struct Piece {
    pub(crate) shim: Arc<Shim>,
    pub(crate) artifact: Option<Admitted>,
}

impl Order {
    pub(crate) fn render(&self, settings: &Settings) -> Value {
        job::render(&self.identity, &self.pieces, settings)
    }
}

/// Something that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Notice {
    pub(crate) about: About,
    pub(crate) warning: bool,
    pub(crate) reason: String,
    pub(crate) note: String,
}

/// What an Event is about: kind, name, UID.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum About {
    Shim { name: String, uid: String },
    Node { name: String, uid: String },
}

impl Effect {
    /// What nobody else may write meanwhile.
    pub(crate) fn key(&self) -> Option<Key> {
        Some(match self {
            Self::Patch { node, .. } | Self::Start { node, .. } => Key::Node(node.clone()),
            Self::Collect { job, .. } | Self::Kill { job, .. } => Key::Job(job.clone()),
            Self::Finalizers { shim, .. } | Self::Status { shim, .. } => {
                Key::Shim(shim.metadata.name.clone().unwrap_or_default())
            }
            Self::Class { shim, .. } => Key::Class(shim.clone()),
            Self::Tell(_) => return None,
        })
    }
}
