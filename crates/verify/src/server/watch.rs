//! The policy and the cluster's nodes, read again when they change.
//!
//! What is read is compared, not when it was written: Kubernetes swaps links, and a key beside the
//! policy may change while the policy does not. What cannot be used is told, and the old stays. Each
//! is taken for itself: a list of nodes that cannot be read must not keep a policy from coming into
//! force that drops a stolen key.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use portolan_core::Digest;
use portolan_core::causes::chain;
use portolan_registry::durable;

use super::metrics::{Input, Metrics};
use crate::pod::{MAX_NODES, Node, nodes_from_yaml};
use crate::policy::{self, LoadPolicyError, Policy};

/// What is in force.
#[derive(Debug)]
pub(super) struct InForce {
    pub(super) policy: Arc<Policy>,
    /// The cluster's nodes, where they are known.
    pub(super) nodes: Arc<Vec<Node>>,
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
    seen: Mutex<Seen>,
    metrics: Arc<Metrics>,
}

/// What was last looked at, be it usable or not: trouble is told once.
#[derive(Debug)]
struct Seen {
    policy: Look,
    nodes: Look,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Look {
    /// None of what could not even be read.
    content: Option<Digest>,
    is_usable: bool,
}

impl Look {
    fn of<T, E>(content: Option<Digest>, read: &Result<T, E>) -> Self {
        Self { content, is_usable: read.is_ok() }
    }
}

impl Watched {
    /// Reads the files. A verifier without a policy must not start.
    pub(super) fn new(
        policy: PathBuf,
        nodes: Option<PathBuf>,
        metrics: Arc<Metrics>,
    ) -> Result<Self, WatchError> {
        let (policy_seen, policy_read) = policy::load_with_fingerprint(&policy);
        let (nodes_seen, nodes_read) = read_nodes(nodes.as_deref());
        let seen = Seen {
            policy: Look::of(policy_seen, &policy_read),
            nodes: Look::of(nodes_seen, &nodes_read),
        };
        let in_force =
            InForce { policy: Arc::new(policy_read?), nodes: Arc::new(nodes_read?), generation: 1 };
        metrics.input(Input::Policy, true);
        metrics.input(Input::Nodes, true);
        metrics.generation(1);
        let in_force = RwLock::new(Arc::new(in_force));
        Ok(Self { policy, nodes, in_force, seen: Mutex::new(seen), metrics })
    }

    /// What counts now. Take it once for a question.
    pub(super) fn now(&self) -> Arc<InForce> {
        Arc::clone(&self.in_force.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What was changed and cannot be used, so that something older is in force.
    pub(super) fn stale(&self) -> Vec<Input> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let all = [(Input::Policy, seen.policy), (Input::Nodes, seen.nodes)];
        all.into_iter().filter(|(_, look)| !look.is_usable).map(|(input, _)| input).collect()
    }

    /// Reads the files, and takes of them what is something new that can be used.
    pub(super) fn look(&self) {
        let (content, policy) = policy::load_with_fingerprint(&self.policy);
        let look = Look::of(content, &policy);
        if self.is_new(look, |seen| &mut seen.policy) {
            let policy = policy.map_err(WatchError::from);
            self.take(Input::Policy, policy, |old, policy| InForce {
                policy: Arc::new(policy),
                nodes: Arc::clone(&old.nodes),
                generation: old.generation + 1,
            });
        }
        let (content, nodes) = read_nodes(self.nodes.as_deref());
        let look = Look::of(content, &nodes);
        if self.is_new(look, |seen| &mut seen.nodes) {
            self.take(Input::Nodes, nodes, |old, nodes| InForce {
                policy: Arc::clone(&old.policy),
                nodes: Arc::new(nodes),
                generation: old.generation + 1,
            });
        }
    }

    /// Remembers what was seen; whether it is something new.
    fn is_new(&self, look: Look, of: impl Fn(&mut Seen) -> &mut Look) -> bool {
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(of(&mut seen), look) != look
    }

    fn take<T>(
        &self,
        input: Input,
        read: Result<T, WatchError>,
        with: impl Fn(&InForce, T) -> InForce,
    ) {
        self.metrics.input(input, read.is_ok());
        let mut in_force = self.in_force.write().unwrap_or_else(PoisonError::into_inner);
        let input = input.word();
        match read {
            Ok(read) => {
                *in_force = Arc::new(with(&in_force, read));
                let generation = in_force.generation;
                self.metrics.generation(generation);
                tracing::info!(input, generation, "it changed and is in force");
            }
            Err(error) => {
                let error = chain(&error);
                tracing::error!(input, error, "it changed and cannot be used; the old one stays");
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

/// The nodes in a file, and what was read of it; without a file none are known.
fn read_nodes(path: Option<&Path>) -> (Option<Digest>, Result<Vec<Node>, WatchError>) {
    let Some(path) = path else { return (None, Ok(Vec::new())) };
    let wrong = |what: String| WatchError::Nodes { path: path.to_owned(), what };
    match durable::read_bounded(path, MAX_NODES as u64) {
        Err(error) => (None, Err(wrong(chain(&error)))),
        Ok(None) => (None, Err(wrong("it is not there".to_owned()))),
        Ok(Some(bytes)) => {
            let nodes = nodes_from_yaml(&bytes).map_err(|error| wrong(error.to_string()));
            (Some(Digest::sha256(&bytes)), nodes)
        }
    }
}
