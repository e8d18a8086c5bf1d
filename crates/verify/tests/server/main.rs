//! `portolan-verifier` as Gatekeeper and API servers see it: over TLS, in front of a registry that
//! lies, hangs and throttles on command.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "../../../registry/tests/support/mod.rs"]
mod support;

#[path = "../notation/mint.rs"]
#[allow(dead_code, reason = "the tests of envelopes use the rest")]
mod mint;
#[path = "../../../../xtask/tests/reference/page.rs"]
mod page;
#[path = "../../../../xtask/tests/reference/metrics.rs"]
mod reference;
#[path = "../support/mod.rs"]
mod sigstore;
#[path = "../notation/token.rs"]
#[allow(dead_code, reason = "the tests of timestamps use the rest")]
mod token;

mod admission;
mod api;
mod bounds;
mod caches;
mod cluster;
mod decisions;
mod faults;
mod guide;
mod harness;
mod keys;
mod kinds;
mod mutate;
mod policies;
mod process;
mod tls;
