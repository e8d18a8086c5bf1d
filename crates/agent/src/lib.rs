//! The host agent: fetch, verify, cache, boot.
//!
//! | module | what it holds |
//! |---|---|
//! | `spec` | what the control plane asks for: the WorkloadSpec |
//! | `image` | the image of a spec, checked: a place, a digest, a platform |
//! | `api` | what the host API says, as types |
//! | `guest` | what a machine boots: kernel, initramfs, how the workload is started |
//! | `vmm` | machines: started, watched, stopped and found again |
//! | `instances` | what should run, kept on disk, and made so |
//! | `server` | the host API over HTTP |
//! | `openapi` | the same as a document |
//! | `client` | the other side of it, for the command line |
//! | `report` | telling a control plane and a Kubernetes node |
//! | `releases` | Releases of the cluster, fetched before anybody asks |
//! | `api_server`, `endpoint` | where the API server is, and how servers are spoken to |
//! | `mirror` | the verified cache as a read-only registry |
//! | `run` | all of it together |
//! | `id` | names of instances |
//! | `reason` | why something did not work, in words that others match on |
//! | `metrics` | what is counted |
//! | `config` | what the operator sets |
//! | `paths` | where everything lies below the root |
//! | `artifacts` | from an image to a pinned root disk |
//! | `store` | the cache on disk |
//! | `pins` | who uses what, and when it was last used |
//! | `evict` | what goes when room is needed |
//! | `pressure` | whether there is room |
//! | `flight` | one piece of work for many who want the same |
//! | `backoff` | waits between tries that come to nothing |
#![warn(missing_docs)]

pub mod api;
pub mod api_server;
pub mod artifacts;
mod backoff;
pub mod client;
pub mod config;
pub mod endpoint;
pub mod evict;
pub mod flight;
pub mod guest;
pub mod id;
pub mod image;
pub mod instances;
pub mod metrics;
pub mod mirror;
pub mod openapi;
pub mod paths;
pub mod pins;
pub mod pressure;
pub mod reason;
mod releases;
pub mod report;
pub mod run;
pub mod server;
pub mod spec;
pub mod store;
pub mod vmm;
