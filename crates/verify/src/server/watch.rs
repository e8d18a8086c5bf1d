//! The policy and the cluster's nodes, read again when they change.
//!
//! What is read is compared, not when it was written: Kubernetes swaps links, and a key beside the
//! policy may change while the policy does not. What cannot be used is told, and the old stays.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use portolan_core::Digest;
use portolan_registry::durable;

use super::metrics::Metrics;
use crate::causes::chain;
use crate::pod::{MAX_POD, Node, nodes_from_yaml};
use crate::policy::{self, LoadPolicyError, Policy};

/// What is in force.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) policy: Policy,
    /// The cluster's nodes, where they are known.
    pub(super) nodes: Vec<Node>,
    /// Another for each change: what was decided before it does not count any more.
    pub(super) generation: u64,
}

/// Why nothing is in force.
#[derive(Debug, thiserror::Error)]
pub enum WatchError {
    /// Of the policy.
    #[error(transparent)]
    Policy(#[from] LoadPolicyError),
    /// Of the nodes.
    #[error("cannot read the nodes in {}: {what}; write what `kubectl get nodes -o yaml` prints", path.display())]
    Nodes {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// The files, and what was last read of them.
#[derive(Debug)]
pub(super) struct Watched {
    policy: PathBuf,
    nodes: Option<PathBuf>,
    in_force: RwLock<Arc<InForce>>,
    /// Of what was last looked at, be it usable or not: trouble is told once.
    seen: Mutex<Seen>,
    metrics: Arc<Metrics>,
}

type Seen = Option<(Option<Digest>, Option<Digest>)>;

impl Watched {
    /// Reads the files. A verifier without a policy must not start.
    pub(super) fn new(
        policy: PathBuf,
        nodes: Option<PathBuf>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, WatchError> {
        let (seen, read) = read(&policy, nodes.as_ref());
        let (policy_read, nodes_read) = read?;
        metrics.policy(true, 1);
        let in_force = InForce { policy: policy_read, nodes: nodes_read, generation: 1 };
        let in_force = RwLock::new(Arc::new(in_force));
        Ok(Self { policy, nodes, in_force, seen: Mutex::new(Some(seen)), metrics })
    }

    /// What counts now. Take it once for a question.
    pub(super) fn now(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files, and takes what is in them if it is something new that can be used.
    pub(super) fn look(&self) {
        let (found, read) = read(&self.policy, self.nodes.as_ref());
        {
            let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
            if *seen == Some(found) {
                return;
            }
            *seen = Some(found);
        }
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        match read {
            Ok((policy, nodes)) => {
                let generation = in_force.generation + 1;
                *in_force = Arc::new(InForce { policy, nodes, generation });
                self.metrics.policy(true, generation);
                tracing::info!(generation, "the policy changed and is in force");
            }
            Err(error) => {
                self.metrics.policy(false, in_force.generation);
                let error = chain(&error);
                tracing::error!(error, "the policy changed and cannot be used; the old one stays");
            }
        }
    }

    /// Looks every `pause`, for ever.
    pub(super) async fn watch(self: Arc<Self>, pause: Duration) {
        loop {
            tokio::time::sleep(pause).await;
            let watched = Arc::clone(&self);
            if tokio::task::spawn_blocking(move || watched.look()).await.is_err() {
                tracing::error!("looking at the policy failed; the old one stays");
            }
        }
    }
}

type Read = Result<(Policy, Vec<Node>), WatchError>;

/// What the files say, and what was read of them.
fn read(
    policy: &std::path::Path,
    nodes: Option<&PathBuf>,
) -> ((Option<Digest>, Option<Digest>), Read) {
    let (policy_seen, policy) = policy::load_with_fingerprint(policy);
    let (nodes_seen, nodes) = match nodes {
        None => (None, Ok(Vec::new())),
        Some(path) => {
            let wrong = |what: String| WatchError::Nodes { path: path.clone(), what };
            match durable::read_bounded(path, MAX_POD as u64) {
                Err(error) => (None, Err(wrong(chain(&error)))),
                Ok(None) => (None, Err(wrong("it is not there".to_owned()))),
                Ok(Some(bytes)) => {
                    let nodes = nodes_from_yaml(&bytes).map_err(|error| wrong(error.to_string()));
                    (Some(Digest::sha256(&bytes)), nodes)
                }
            }
        }
    };
    let read = policy.map_err(WatchError::from).and_then(|policy| Ok((policy, nodes?)));
    ((policy_seen, nodes_seen), read)
}
