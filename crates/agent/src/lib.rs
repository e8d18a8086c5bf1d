//! The host agent: fetch, verify, cache, boot.
//!
//! | module | what it holds |
//! |---|---|
//! | `spec` | what the control plane asks for: the WorkloadSpec |
//! | `image` | the image of a spec, checked: a place, a digest, a platform |
//! | `id` | names of instances |
//! | `reason` | why something did not work, in words that others match on |
//! | `metrics` | what is counted |
#![warn(missing_docs)]

pub mod id;
pub mod image;
pub mod metrics;
pub mod reason;
pub mod spec;
