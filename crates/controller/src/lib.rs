//! What makes builds of a cluster run, brings shims to its nodes and records releases. Decisions are pure and elsewhere: what a run becomes is decided
//! by `portolan_build::plan`. Here is what watches, what writes, and what follows Tekton.
//!
//! | module | what it holds |
//! |---|---|
//! | `classes` | ImagePlatformClasses: whether each can be used |
//! | `builds` | Builds: whether each can be used; which runs are kept |
//! | `runs` | BuildRuns: from one to its executor, and from that to its status |
//! | `shims` | Shims: the right runtime binary on every node |
//! | `releases` | Releases: an image, resolved once, with who signed it |
//! | `retain` | which runs are deleted, and when; pure |
//! | `objects`, `resource` | Tekton's objects and pods, with what is looked at |
//! | `caches`, `wire` | what is watched, and who is looked at when something changes |
//! | `context` | how reconcilers are run |
//! | `ask` | what is asked for by names that people wrote |
//! | `patch`, `write` | what is written: what differs, and nothing where nothing does |
//! | `lease` | one of all copies acts |
//! | `prerequisites` | what must be there, and what must not |
//! | `options` | what the operator says, by flags and by a file |
//! | `run`, `settings`, `http`, `metrics` | the process |
//! | `testing` | a server of a few answers, for tests |

#![warn(missing_docs)]

mod ask;
pub mod builds;
mod caches;
pub mod classes;
mod context;
mod http;
pub mod lease;
mod metrics;
pub mod objects;
mod options;
pub mod patch;
pub mod prerequisites;
pub mod releases;
mod resource;
pub mod retain;
mod run;
pub mod runs;
mod settings;
pub mod shims;
#[cfg(test)]
mod testing;
mod wire;
mod write;

pub use options::{Options, ReleaseOptions, Serve, ShimOptions};
pub use run::{RunError, run};
pub use settings::Settings;
