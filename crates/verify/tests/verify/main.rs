//! Signed images in a registry that really speaks the protocol, and breaks it on command: what is
//! verified, what is refused and why, and what is an error and never taken for "not signed".
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../registry/tests/support/mod.rs"]
mod support;

mod attacks;
mod attested;
mod bench;
mod faults;
mod platforms;
mod policies;
mod rego;
