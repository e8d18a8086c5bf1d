//! Signatures of the Notary Project, made here rule by rule and recorded from the real tools.

#![allow(clippy::unwrap_used, reason = "test code outside #[test] functions")]

mod certificates;
mod envelopes;
mod mint;
mod policies;
mod real;
mod revocation;
mod robust;
mod timestamps;
mod token;
