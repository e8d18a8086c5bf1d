//! The Kubernetes resources that Portolan serves: their types, their definitions, the words of
//! their conditions. No client and no network: who talks to a cluster uses these from outside.
//!
//! | module | what it holds |
//! |---|---|
//! | `build` | shipwright.io/v1beta1: Build, BuildRun, BuildStrategy, ClusterBuildStrategy |
//! | `platform` | shipwright.io/v1alpha1: ImagePlatform, ImagePlatformClass |
//! | `shim` | runtime.spinkube.dev/v1alpha1: Shim |
//! | `release` | portolan.dev/v1alpha1: Release |
//! | `condition` | conditions as statuses have them |
//! | `reason` | why something was refused or failed, by the names users see |
//! | `keys` | labels and annotations |
//! | `names` | what may be the name of an object or of a label |
//! | `definitions` | the custom resource definitions, as they are installed |
//! | `install` | every object that a cluster gets, and the Helm chart of them |
//! | `upgrade` | what a cluster would lose by another definition |
//! | `upstream` | controllers of others that do the same work |
//! | `document` | resources from YAML and JSON files, with what a cluster would refuse or drop |

#![warn(missing_docs)]
#![allow(
    clippy::duplicated_attributes,
    reason = "it takes the types of two printer columns for one attribute"
)]

pub mod build;
pub mod condition;
pub mod definitions;
pub mod document;
pub mod duration;
pub mod install;
pub mod keys;
pub mod names;
pub mod platform;
pub mod reason;
pub mod release;
pub mod shim;
pub mod upgrade;
pub mod upstream;

pub use k8s_openapi;
pub use kube_core::{Duration, ObjectMeta, ResourceExt};

/// The group of the resources of builds.
pub const GROUP: &str = "shipwright.io";
