//! Names on nodes, Jobs and Shims: upstream's, which people script against, and ours.

/// Keeps a Shim until its nodes are cleaned; upstream's, so that objects change hands without an edit.
pub const FINALIZER: &str = "rcm.spinkube.dev/finalizer";

/// The prefix of our own labels and annotations: `PREFIX/SHIM` on a node is a label with the state and an
/// annotation with what was applied.
pub const PREFIX: &str = "runtime.spinkube.dev";

/// On a Shim: `selected` lets pods of its RuntimeClass onto every selected node, installed or not. Needed where
/// nodes are made on demand, by who looks only at labels that a new node will have.
pub const SCHEDULE_ON: &str = "runtime.spinkube.dev/schedule-on";
/// The value of [`SCHEDULE_ON`] that says so.
pub const SELECTED: &str = "selected";

/// On Jobs and their pods: always `true`.
pub const JOB: &str = "spinkube.dev/job";
/// On Jobs and their pods: the Shim.
pub const SHIM_NAME: &str = "spinkube.dev/shimName";
/// On Jobs and their pods: `install`, `uninstall`, `verify`.
pub const OPERATION: &str = "spinkube.dev/operation";
/// On Jobs, an annotation: the node.
pub const NODE_NAME: &str = "spinkube.dev/nodeName";
/// On Jobs, an annotation: what the name is made of, so that it can be held against it.
pub const IDENTITY: &str = "runtime.spinkube.dev/job";

/// States of a node, as labels say them.
pub mod state {
    /// An install was asked for.
    pub const PENDING: &str = "pending";
    /// It is there.
    pub const PROVISIONED: &str = "provisioned";
    /// It failed.
    pub const FAILED: &str = "failed";
    /// It is being taken away.
    pub const UNINSTALL: &str = "uninstall";

    /// Every word that we write; another value of a label is somebody else's.
    pub const ALL: [&str; 4] = [PENDING, PROVISIONED, FAILED, UNINSTALL];
}

/// The key of a node's canonical label and annotation.
pub fn node_key(shim: &str) -> String {
    format!("{PREFIX}/{shim}")
}
