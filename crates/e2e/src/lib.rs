//! What tests on the real cluster, registries and peers stand on.
//!
//! They run through `cargo xtask e2e`, which builds the parts, brings the cluster up and names it
//! in the environment. Run without it, a test fails and says so; it never passes by not running.
//!
//! - [`Testbed`]: the cluster that runs: `kubectl`, addresses, images, where each tool is
//! - [`Namespace`]: a place in the cluster of one test's own
//! - [`RegistryKind`]: the three registries, each startable on a folder of its own
//! - [`Running`]: a process that ends with the test
//! - [`Agent`]: `portolan-agent` on a folder of its own, and a client for its socket
//! - [`Verifier`]: `portolan-verifier` in the cluster, as it is shipped; [`Forward`]: a service's
//!   port on the host
//! - [`BuildSite`], [`ShimSite`], [`ReleaseSite`]: `portolan-controller` with the roles that are shipped, and what runs become
//! - [`shim_archive`], [`FileServer`]: shims to install; [`Cri`]: a runtime, asked as a kubelet does
//! - [`Layer`], [`write_image`]: an image entry by entry; [`Mount`], [`read_tree`]: what the kernel
//!   sees in a disk
//! - [`program_image`]: a program of ours as an image for pods
//! - [`run`], [`portolan`], [`wait_for`]; [`ours`], [`peer`] and what they work on

mod agent;
mod commands;
mod controller;
mod forward;
mod layers;
mod mount;
mod namespace;
mod process;
mod program;
mod registry;
mod shims;
mod testbed;
mod tree;
mod verifier;
mod wait;

pub use agent::{Agent, Answer};
pub use commands::{deploy, digest, hello, hello_reference, json, ok, ours, ours_output, peer};
pub use controller::{BuildSite, Controller, ReleaseSite, ShimSite, condition};
pub use forward::Forward;
pub use layers::{Entry, Layer, architecture, write_image};
pub use mount::Mount;
pub use namespace::Namespace;
pub use process::{Output, Running, free_port, run, run_with_input};
pub use program::program_image;
pub use registry::{Registry, RegistryKind};
pub use shims::{Cri, CriPod, FileServer, programs_below, shim_archive};
pub use testbed::{
    RegistryAddresses, Testbed, portolan, portolan_agent, portolan_controller, portolan_init,
    portolan_verifier, step_image, tool,
};
pub use tree::{Node, Tree, differences, read_tree};
pub use verifier::{KEY_PASSWORD, POLICY, Verifier, gatekeepers_secret};
pub use wait::wait_for;
