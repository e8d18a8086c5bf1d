//! The cage that a stranger's program runs in.
//!
//! `unsafe` is forbidden here, so nothing can be done between fork and exec. Instead this very
//! program is started again as a helper ([`run_if_asked`]): it gets the plugin and its input as
//! descriptors over a socket, locks itself in with calls that only ever take rights away, says
//! which of them the kernel knew, and becomes the plugin.
//!
//! | layer | what it takes away |
//! |---|---|
//! | [`Layer::Unprivileged`] | root's user and groups, every capability, any way to get one back |
//! | [`Layer::UserNamespace`] | a count of processes shared with others of the same user |
//! | [`Layer::NetworkNamespace`] | every network interface |
//! | [`Layer::Limits`] | memory, processor time, files, and being more than a few threads |
//! | [`Layer::Landlock`] | every file but the ones named |
//! | [`Layer::Seccomp`] | sockets, further processes, changing files' owners and modes, the kernel's corners |

mod files;
mod helper;
mod limits;
mod message;
mod privileges;
mod syscalls;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use helper::run_if_asked;
pub use limits::Limits;
pub(super) use message::{Control, pair};

/// The first argument that makes a program a helper.
pub const ARGUMENT: &str = "plugin-sandbox";

/// One kind of restriction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Layer {
    /// Neither root nor any capability, and none to be had.
    Unprivileged,
    /// A user namespace of its own.
    UserNamespace,
    /// A network namespace without interfaces.
    NetworkNamespace,
    /// Resource limits.
    Limits,
    /// Landlock: only named files.
    Landlock,
    /// A filter of system calls.
    Seccomp,
}

impl Layer {
    /// Without one of these a plugin does not run, unless the caller asked for best effort.
    /// Namespaces are not among them: many systems keep them from ordinary users, and the filter of
    /// system calls already leaves no socket to use a network with.
    pub const NEEDED: [Self; 4] = [Self::Unprivileged, Self::Limits, Self::Landlock, Self::Seccomp];

    /// As in reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unprivileged => "unprivileged",
            Self::UserNamespace => "user-namespace",
            Self::NetworkNamespace => "network-namespace",
            Self::Limits => "limits",
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What to do where the kernel lacks a needed layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strictness {
    /// Run nothing.
    #[default]
    Required,
    /// Run with what there is; the report says what that was.
    BestEffort,
}

/// What the helper is to do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Orders {
    pub(super) strictness: Strictness,
    /// Who gives them; the plugin ends with it.
    pub(super) parent: u32,
    /// The name that the plugin sees as its own, and its arguments.
    pub(super) arguments: Vec<String>,
    /// The whole environment.
    pub(super) environment: BTreeMap<String, String>,
    /// May be read, with all below.
    pub(super) read: Vec<PathBuf>,
    /// May be read and run, with all below.
    pub(super) execute: Vec<PathBuf>,
    pub(super) limits: Limits,
}

/// What the helper tells.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Word {
    /// These layers are up; what runs from here on is the plugin.
    Ready { layers: Vec<Layer> },
    /// The plugin was never started.
    Failed {
        /// The layer that is missing, where that is the reason.
        layer: Option<Layer>,
        why: String,
    },
}
