//! The templates for Gatekeeper: what is shipped, filled in for a cluster, and tried without one.
//!
//! The Rego asks what [`crate::pod`] would of the same pod while no node is known, in the words of
//! [`crate::contract`]. Tests hold the two to one another.
//!
//! | file | what it holds |
//! |---|---|
//! | `deploy/gatekeeper/` | the template, a constraint, the provider and mutations, as they are applied |
//! | `parameters` | what a constraint can say |
//! | `render` | all of them for one cluster |
//! | `read` | a template and constraints from a file, ours or a stranger's |
//! | `answers` | what a provider answers |
//! | `evaluate` | what a template makes of an object and of answers |

pub mod answers;
pub mod evaluate;
pub mod parameters;
pub mod read;
pub mod render;
#[cfg(test)]
mod tests;

/// The template as it is shipped.
pub const TEMPLATE: &str = include_str!("../../../../deploy/gatekeeper/template.yaml");
/// A constraint of it.
pub const CONSTRAINT: &str = include_str!("../../../../deploy/gatekeeper/constraint.yaml");
/// Where Gatekeeper asks.
pub const PROVIDER: &str = include_str!("../../../../deploy/gatekeeper/provider.yaml");
/// What makes digests of tags.
pub const MUTATION: &str = include_str!("../../../../deploy/gatekeeper/mutation.yaml");
