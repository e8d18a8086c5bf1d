//! Shims: the right runtime binary on every node.
//!
//! | file | what it holds |
//! |---|---|
//! | `plan` | from what was heard to what is done next; no clock, no network |
//! | `cell` | one Shim on one node: how it is, and what is to be done; pure |
//! | `budget` | who may begin; pure |
//! | `record` | what a node carries of a Shim |
//! | `identity`, `job` | which Job this is, what it is called, what it looks like |
//! | `outcome` | why a Job failed |
//! | `class`, `status` | the RuntimeClass and the status of a Shim; pure |
//! | `facts` | nodes and Jobs with what is looked at |
//! | `apply`, `wire` | requests, watches, and the loop |
//! | `upstream` | what must be there, and who must not |

#[cfg(test)]
mod answer_tests;
mod apply;
mod budget;
mod cell;
mod class;
mod facts;
mod identity;
mod job;
#[cfg(test)]
mod look_tests;
mod outcome;
mod plan;
mod record;
#[cfg(test)]
mod rollout_tests;
mod settings;
#[cfg(test)]
mod simulation;
mod status;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod together_tests;
#[cfg(test)]
mod told_tests;
pub(crate) mod upstream;
mod wire;
#[cfg(test)]
mod world;

pub use budget::Amount;
pub use settings::Settings;
pub(crate) use wire::start;
