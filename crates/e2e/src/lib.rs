//! What tests on the real cluster, registries and peers stand on.
//!
//! They run through `cargo xtask e2e`, which builds the parts, brings the cluster up and names it
//! in the environment. Run without it, a test fails and says so; it never passes by not running.
//!
//! - [`Testbed`]: the cluster that runs: `kubectl`, addresses, images, where each tool is
//! - [`Namespace`]: a place in the cluster of one test's own
//! - [`RegistryKind`]: the three registries, each startable on a folder of its own
//! - [`Running`]: a process that ends with the test
//! - [`run`], [`portolan`], [`wait_for`]; [`ours`], [`peer`] and what they work on

mod commands;
mod namespace;
mod process;
mod registry;
mod testbed;
mod wait;

pub use commands::{digest, hello, hello_reference, json, ok, ours, ours_output, peer};
pub use namespace::Namespace;
pub use process::{Output, Running, free_port, run};
pub use registry::{Registry, RegistryKind};
pub use testbed::{RegistryAddresses, Testbed, portolan, portolan_agent, portolan_init, tool};
pub use wait::wait_for;
