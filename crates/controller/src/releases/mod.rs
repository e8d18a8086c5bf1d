//! Releases: an image, resolved once, with who signed it and what each platform runs.
//!
//! | file | what it holds |
//! |---|---|
//! | `plan` | whether a Release is looked at, and when again; pure |
//! | `memory` | when each was looked at last |
//! | `places` | how many are looked at at one registry |
//! | `gather` | the policy and the logins that a Release names |
//! | `apply` | one look: the registry is asked, and what differs is written |
//! | `runs` | BuildRuns that become a Release |
//! | `wire` | what is watched, and the loop |
//!
//! What a look finds and how that is recorded is `portolan_release`, which needs no cluster.

mod apply;
mod gather;
mod memory;
mod places;
mod plan;
mod runs;
mod settings;
#[cfg(test)]
mod simulation;
mod wire;

pub use settings::Settings;
pub(crate) use wire::{possible, start};
