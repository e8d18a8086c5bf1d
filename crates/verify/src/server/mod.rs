//! `portolan-verifier`: answers a cluster's questions about images.
//!
//! | file | what it holds |
//! |---|---|
//! | `config` | what the operator sets |
//! | `run` | how it is put together and started |
//! | `running` | how it ends: when it is told to, or with any part of it |
//! | `http` | routes, bounds, deadlines, trace ids |
//! | `body` | bodies, read within bounds |
//! | `front` | the way of Gatekeeper's questions past the routes |
//! | `provide` | a request of Gatekeeper: every key is answered, in time |
//! | `admit` | a request of an API server: every image of a pod is looked at, in time |
//! | `provider` | Gatekeeper's external data: requests and answers as they are written |
//! | `reports` | an [`Answer`](crate::decision::Answer) in the shapes that templates for Ratify read |
//! | `admission` | AdmissionReviews as they come, and what of them has to be looked at |
//! | `ruling` | what is said to an API server |
//! | `looked_at` | as much of an object as anybody here looks at |
//! | `question` | what is asked, what comes of it, and what that rests on |
//! | `engine` | one question about one image, from the caches or from the registry |
//! | `examine` | one subject, its evidence looked for and judged |
//! | `keeping` | a repository with what is kept of it |
//! | `readers` | in whose name a registry is asked |
//! | `cluster` | nodes, pull secrets and the verifier's own certificate |
//! | `caches` | what is kept, for how long, and who asks when many want the same |
//! | `work` | how much is done at registries at once |
//! | `handles` | how file handles are shared out |
//! | `trouble` | whether what went wrong will pass |
//! | `watch` | the policy, read again when it changes |
//! | `metrics` | what is counted |

mod admission;
mod admit;
mod body;
mod caches;
mod cluster;
pub mod config;
mod engine;
mod examine;
mod front;
mod handles;
mod http;
mod keeping;
mod looked_at;
mod metrics;
mod provide;
mod provider;
mod question;
mod readers;
mod reports;
mod ruling;
mod run;
mod running;
mod trouble;
mod turns;
mod watch;
mod work;

pub use cluster::ClusterError;
pub use cluster::certificate::CertificateError;
pub use config::{Config, ConfigError};
pub use handles::TooFewHandles;
pub use run::{StartError, start};
pub use running::{Broken, Running};
