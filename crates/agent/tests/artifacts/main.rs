//! From an image in a registry to a pinned root disk, with everything that can go wrong on the
//! way: registries that lie, cut and hang, disks that are full, processes that are killed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what was seen is said aloud")]

#[path = "../../../compat/tests/external/naughty.rs"]
mod naughty;
#[path = "../../../registry/tests/support/mod.rs"]
mod support;

mod cache;
mod compatibility;
mod content;
mod crash;
mod evicting;
mod harness;
mod machine;
mod room;
mod scale;
mod starts;
mod transport;
mod verification;
mod versions;
