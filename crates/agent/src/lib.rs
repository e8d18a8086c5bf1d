//! The host agent: fetch, verify, cache, boot.
//!
//! | module | what it holds |
//! |---|---|
//! | `spec` | what the control plane asks for: the WorkloadSpec |
//! | `id` | names of instances |
//! | `reason` | why something did not work, in words that others match on |
#![warn(missing_docs)]

pub mod id;
pub mod reason;
pub mod spec;
