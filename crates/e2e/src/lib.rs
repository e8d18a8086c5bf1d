//! What tests on the real cluster, registries and peers stand on.
//!
//! They run through `cargo xtask e2e`, which builds the parts, brings the cluster up and names it
//! in the environment. Run without it, a test fails and says so; it never passes by not running.
//!
//! - [`Testbed`]: the cluster that runs: `kubectl`, addresses, images, where each tool is
//! - [`Namespace`]: a place in the cluster of one test's own
//! - [`RegistryKind`]: the three registries, each startable on a folder of its own
//! - [`Running`]: a process that ends with the test
//! - [`PrivateRegistry`]: one that wants a login; [`SigningKey`]: a key, and a policy that asks for it
//! - [`Agent`]: `portolan-agent` on a folder of its own, and a client for its socket; [`machine_config`], [`AgentRoot`]
//! - [`Installation`]: what `portolan install` prints, in the cluster until the test ends
//! - [`Verifier`]: `portolan-verifier` in the cluster, as it is shipped; [`Forward`]: a service's
//!   port on the host
//! - [`BuildSite`], [`ShimSite`], [`ReleaseSite`]: `portolan-controller` with the roles that are shipped, and what runs become
//! - [`ShimNode`], [`shim_archive`], [`FileServer`]: shims to install; [`Cri`]: a runtime, asked as a kubelet does
//! - [`Repository`], [`hello_source`]: what is built
//! - [`Layer`], [`write_image`]: an image entry by entry; [`Mount`], [`read_tree`]: what the kernel
//!   sees in a disk
//! - [`program_image`]: a program of ours as an image for pods
//! - [`run`], [`portolan`], [`wait_for`]; [`ours`], [`peer`] and what they work on

mod agent;
mod commands;
mod controller;
mod forward;
mod install;
mod key;
mod layers;
mod mount;
mod namespace;
mod private;
mod process;
mod program;
mod registry;
mod repository;
mod shim_node;
mod shims;
mod testbed;
mod tree;
mod verifier;
mod wait;

pub use agent::{Agent, AgentRoot, Answer, machine_config};
pub use commands::{
    deploy, digest, hello, hello_reference, json, ok, ours, ours_output, peer, resolved,
};
pub use controller::{BuildSite, Controller, ReleaseSite, ShimSite, condition};
pub use forward::Forward;
pub use install::Installation;
pub use key::{KEY_PASSWORD, SigningKey};
pub use layers::{Entry, Layer, architecture, sha256, write_image};
pub use mount::Mount;
pub use namespace::Namespace;
pub use private::PrivateRegistry;
pub use process::{Output, Running, free_port, run, run_with_input};
pub use program::program_image;
pub use registry::{Registry, RegistryKind};
pub use repository::{Repository, hello_source};
pub use shim_node::{ShimNode, containerd_config, runc_shim};
pub use shims::{Cri, CriPod, FileServer, programs_below, shim_archive};
pub use testbed::{
    RegistryAddresses, Testbed, portolan, portolan_agent, portolan_controller, portolan_init,
    portolan_verifier, step_image, step_platforms, tool,
};
pub use tree::{Node, Tree, differences, read_tree};
pub use verifier::{POLICY, Verifier, gatekeepers_secret};
pub use wait::wait_for;
