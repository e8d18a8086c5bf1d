//! What the tests of this crate share: generated images, a registry that misbehaves on command,
//! disks that are full or read-only, and the check that nothing half-written is left.
#![allow(dead_code, unreachable_pub, reason = "each test binary uses its own part of this")]
#![allow(clippy::unwrap_used, clippy::print_stderr, reason = "this is test code")]

#[path = "../common/busy.rs"]
pub(crate) mod busy;
pub mod disk;
pub mod docker_registry;
pub mod embedded;
pub mod fault;
pub mod image;
pub mod layouts;
#[path = "../common/part.rs"]
mod part;
pub mod scenarios;
pub mod setup;
#[path = "../common/skip.rs"]
pub(crate) mod skip;
