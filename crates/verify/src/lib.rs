//! Is what would run what its makers signed: the index *and* the platform image.
//!
//! A reference is resolved once to its [subjects](subject); what is attached to each is
//! [collected](evidence), unjudged; [authorities](authority) judge it without asking anybody; a
//! pure decision over their judgements is the answer. Collecting may break down, judging cannot:
//! it accepts or refuses, and a breakdown never admits.
#![warn(missing_docs)]

pub mod authority;
pub mod collect;
pub mod contract;
pub mod cosign;
pub mod decision;
pub mod evidence;
mod judges;
pub mod key;
pub mod notation;
pub mod pod;
pub mod policy;
pub mod rego;
mod report;
#[cfg(feature = "server")]
pub mod server;
pub mod sign;
pub mod sigstore;
pub mod subject;
pub mod subjects;
pub mod template;
pub mod verify;
