//! Signed images in a registry that really speaks the protocol, and breaks it on command: what is
//! verified, what is refused and why, and what is an error and never taken for "not signed".
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../registry/tests/support/mod.rs"]
mod support;

#[path = "../notation/mint.rs"]
#[allow(dead_code, reason = "the tests of envelopes use the rest")]
mod mint;
#[path = "../support/mod.rs"]
mod sigstore;

mod attacks;
mod attested;
mod bench;
mod faults;
mod kinds;
mod platforms;
mod policies;
mod rego;
