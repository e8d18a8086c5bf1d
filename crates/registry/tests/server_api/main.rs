//! The embedded server over real sockets: every endpoint, every status code.
#![allow(clippy::unwrap_used, reason = "a test may panic")]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "what was skipped is said aloud")]

mod auth;
mod concurrency;
mod crash;
mod discovery;
mod limits;
mod management;
mod pull;
mod push;
mod restart;
#[path = "../common/skip.rs"]
mod skip;
mod support;
mod tls;
mod tricks;
