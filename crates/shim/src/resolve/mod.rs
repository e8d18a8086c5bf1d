//! Which artifact a node gets. Pure, so that the controller and `portolan shim plan` cannot disagree.
//!
//! 1. Where `platforms` has entries, the first that the node runs. None of them: a refusal; `anonHttp`
//!    is not asked, because it may be for another processor.
//! 2. Else `anonHttp`, for every node that runs Linux.
//! 3. Else a refusal.
//!
//! What no node would take, whatever it is, is refused as well, before anybody is asked: `sound`, `admit`.
//!
//! Whether two names mean one platform is decided in `portolan_core` alone.

mod policy;
#[cfg(test)]
mod tests;

use portolan_api::shim::{PlatformArtifact, ShimSpec};
use portolan_core::Platform;

use crate::node::request::{BUILT_IN, Options, RequestError};

pub use policy::{Admitted, Complaint, Policy, Requirement, admit};
pub(crate) use policy::{digest, shown};

/// What is known of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Node<'a> {
    /// Its name.
    pub name: &'a str,
    /// What its kubelet says of the operating system; empty where it has said nothing.
    pub os: &'a str,
    /// What it says of the processor.
    pub arch: &'a str,
    /// What it says of the container runtime: `containerd://1.7.2`.
    pub runtime: &'a str,
}

/// What is downloaded, as the Shim has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Its URL.
    pub location: String,
    /// What is said of its digest.
    pub sha256: Option<String>,
}

/// Why a node gets nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// Nothing is for this platform.
    #[error("no platform artifact matches node {node} ({os}/{arch})")]
    NoPlatform {
        /// The node.
        node: String,
        /// Its operating system.
        os: String,
        /// Its processor.
        arch: String,
    },
    /// Nothing is for anybody.
    #[error("no fetch source configured for shim {shim}")]
    NoSource {
        /// The Shim.
        shim: String,
    },
    /// Shims are programs of Linux.
    #[error("node {node} runs {os}; shims are for linux")]
    Os {
        /// The node.
        node: String,
        /// Its operating system.
        os: String,
    },
    /// Only containerd has shims.
    #[error("node {node} runs {runtime}; shims are for containerd")]
    Runtime {
        /// The node.
        node: String,
        /// What it runs.
        runtime: String,
    },
    /// What the Shim says is nothing that any node takes.
    #[error("{0}")]
    Unsound(String),
    /// The artifact is not taken.
    #[error("{0}")]
    Complaint(Complaint),
}

impl Refusal {
    /// One word, for statuses and scripts.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoPlatform { .. } => "NoPlatformMatch",
            Self::NoSource { .. } => "NoFetchSource",
            Self::Os { .. } => "OperatingSystemNotSupported",
            Self::Runtime { .. } => "RuntimeNotSupported",
            // What a node calls it.
            Self::Unsound(_) => "BadRequest",
            Self::Complaint(complaint) => complaint.reason(),
        }
    }

    /// Whether it is the node that cannot, and not the Shim that is wrong.
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::NoPlatform { .. } | Self::Os { .. } | Self::Runtime { .. })
    }
}

/// The artifact of a node.
///
/// # Errors
///
/// There is none for it; the refusal says why.
pub fn resolve(shim: &str, spec: &ShimSpec, node: &Node<'_>) -> Result<Artifact, Refusal> {
    let strategy = &spec.fetch_strategy;
    let found = match (&strategy.platforms[..], &strategy.anon_http) {
        ([], None) => return Err(Refusal::NoSource { shim: shim.to_owned() }),
        ([], Some(one)) => Artifact { location: one.location.clone(), sha256: None },
        (platforms, _) => {
            let found = platforms.iter().find(|one| is_for(one, node));
            let Some(found) = found else {
                let (node, os, arch) = (node.name.into(), node.os.into(), node.arch.into());
                return Err(Refusal::NoPlatform { node, os, arch });
            };
            let sha256 = found.sha256.clone().filter(|text| !text.is_empty());
            Artifact { location: found.location.clone(), sha256 }
        }
    };
    // A node that has said nothing yet is not one that cannot.
    if !node.os.is_empty() && !node.os.eq_ignore_ascii_case("linux") {
        return Err(Refusal::Os { node: node.name.into(), os: node.os.into() });
    }
    if !node.runtime.is_empty() && !node.runtime.starts_with("containerd://") {
        return Err(Refusal::Runtime { node: node.name.into(), runtime: node.runtime.into() });
    }
    Ok(found)
}

/// Whether what a Shim says beside its artifacts can be had on any node at all: who would refuse it there need not be sent there.
///
/// # Errors
///
/// What is wrong.
pub fn sound(spec: &ShimSpec) -> Result<(), Refusal> {
    let refuse = |error: RequestError| Refusal::Unsound(error.to_string());
    unsound_handler(spec).map_or(Ok(()), |error| Err(refuse(error)))?;
    unsound_options(spec).next().map_or(Ok(()), |(_, error)| Err(refuse(error)))
}

/// Why the handler is none that a Shim may have.
pub(crate) fn unsound_handler(spec: &ShimSpec) -> Option<RequestError> {
    let handler = &spec.runtime_class.handler;
    (handler == BUILT_IN).then(|| RequestError::BuiltIn { handler: handler.clone() })
}

/// Options that are no TOML, each with what is wrong with it.
pub(crate) fn unsound_options(spec: &ShimSpec) -> impl Iterator<Item = (&str, RequestError)> {
    let options = spec.containerd_runtime_options.iter().flatten();
    options.filter_map(|(key, value)| {
        let read = Options::default().set(key, value);
        read.err().map(|error| (key.as_str(), error))
    })
}

fn is_for(entry: &PlatformArtifact, node: &Node<'_>) -> bool {
    Platform::new(node.os, node.arch).satisfies(&platform(entry))
}

/// What an entry is for.
pub fn platform(entry: &PlatformArtifact) -> Platform {
    Platform::new(&entry.os, &entry.arch).normalised()
}

/// Entries for a platform that an earlier one is for, with that one: nobody ever gets them.
pub fn duplicates(platforms: &[PlatformArtifact]) -> Vec<(usize, usize)> {
    let all: Vec<Platform> = platforms.iter().map(platform).collect();
    let earlier = |at: usize| all[..at].iter().position(|other| *other == all[at]);
    (0..all.len()).filter_map(|at| earlier(at).map(|first| (at, first))).collect()
}
