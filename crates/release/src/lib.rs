//! What an image is for each platform, who signed it and what it needs of its host: looked up once, and recorded.
//!
//! The controller of a cluster and `portolan release create --local` do the same with it: [`Request`] is what is asked
//! for, [`look`] asks the registry, and [`status::after`] is what is recorded of the answer. [`choose`] is for who
//! reads the record. No client of a cluster is here.
//!
//! | module | what it holds |
//! |---|---|
//! | `request` | a spec, read |
//! | `policy` | from the files of a ConfigMap to a policy |
//! | `look` | what a registry has: images, signatures, compatibility artifacts |
//! | `reason` | the words of conditions |
//! | `status` | from what was found to what is recorded; pure |
//! | `choose` | which of the recorded images a host runs; pure |

#![warn(missing_docs)]

pub mod choose;
pub mod look;
mod objections;
pub mod policy;
pub mod reason;
pub mod request;
pub mod status;

pub use look::{Findings, ImageFinding, LookError, Verification, look};
pub use objections::objections;
pub use request::{Request, RequestError};
