//! How long, how much and how many.

use std::time::Duration;

use serde::Deserialize;

use super::Span;
use crate::contract::MAX_KEY;

/// How long who asks will wait, and how much earlier they are answered.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Timeouts {
    /// Of the Provider for validation: `"5s"`.
    pub verify: Span,
    /// Of the Provider for mutation: `"2s"`.
    pub mutate: Span,
    /// Of the webhook: `"10s"`. What an API server says itself counts where it is less.
    pub admission: Span,
    /// Answers are ready that much earlier: `"100ms"`.
    pub margin: Span,
    /// For one piece of work at a registry, which goes on when who asked has gone: `"30s"`.
    pub work: Span,
    /// For requests under way when the verifier is ended: `"10s"`.
    pub shutdown: Span,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            verify: Span::seconds(5),
            mutate: Span::seconds(2),
            admission: Span::seconds(10),
            margin: Span(Duration::from_millis(100)),
            work: Span::seconds(30),
            shutdown: Span::seconds(10),
        }
    }
}

/// Bounds on what is asked.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Limits {
    /// Of a request's body: 3 MiB, as much as an API server sends.
    pub body_bytes: usize,
    /// Of all bodies that are being read or answered: 64 MiB. Who finds no room waits, and is told to
    /// come back.
    pub bodies_bytes: usize,
    /// Keys in a request: 256.
    pub keys: usize,
    /// Of one key: 4096, which is also the most.
    pub key_bytes: usize,
    /// Requests answered at once; more wait: 256.
    pub requests: usize,
    /// Pieces of work at registries at once: 64.
    pub work: usize,
    /// The same at one registry: 16. One that hangs takes no more than these.
    pub work_per_registry: usize,
    /// Questions that wait for work, their own or that of others: 10000; more are told to come back.
    pub waiting: usize,
    /// Of all that is attached to one subject, with the manifests that it comes in: 16 MiB.
    pub evidence_bytes: usize,
    /// Of one signature, attestation or document: 4 MiB. Where a policy looks into documents, a larger
    /// one makes the image unusable; else it is passed over.
    pub document_bytes: usize,
    /// Of all that registries sent and that is being looked at: 96 MiB. Who finds no room tries again,
    /// and is told to come back.
    pub held_bytes: usize,
    /// Connections at once: 1024, or fewer where the process may have fewer file handles.
    pub connections: usize,
    /// Threads that answer: half of this machine's processors, at least one.
    pub threads: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_bytes: 3 * 1024 * 1024,
            bodies_bytes: 64 * 1024 * 1024,
            keys: 256,
            key_bytes: MAX_KEY,
            requests: 256,
            work: 64,
            work_per_registry: 16,
            waiting: 10_000,
            evidence_bytes: 16 * 1024 * 1024,
            document_bytes: 4 * 1024 * 1024,
            // In a pod of 512 MiB: what is parsed takes a few times its bytes.
            held_bytes: 96 * 1024 * 1024,
            connections: 1024,
            // What is known is told within microseconds: two threads that hand such work to each
            // other spend more on the handing (decision 11).
            threads: std::thread::available_parallelism().map_or(1, |all| (all.get() / 2).max(1)),
        }
    }
}

impl Limits {
    pub(super) fn all(&self) -> [usize; 13] {
        [
            self.body_bytes,
            self.bodies_bytes,
            self.keys,
            self.key_bytes,
            self.requests,
            self.work,
            self.work_per_registry,
            self.waiting,
            self.evidence_bytes,
            self.document_bytes,
            self.held_bytes,
            self.connections,
            self.threads,
        ]
    }
}
