//! From whoever calls to nobody: namespaces, user, capabilities.

use nix::sched::{CloneFlags, unshare};
use rustix::io::Errno;
use rustix::process::{Gid, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use super::Layer;

/// The user that owns nothing: what every Linux calls nobody.
const NOBODY: u32 = 65_534;

/// Takes privileges away, each where there is one, and returns the layers that are up.
pub(super) fn drop_all() -> Vec<Layer> {
    let mut layers = Vec::new();
    let root = rustix::process::geteuid().is_root();
    // With root's rights first: as nobody it might no longer be allowed.
    let mut network = root && unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC).is_ok();
    let left_root = !root || leave_root().is_ok();
    // No ids are mapped into it: in there the plugin is nobody, and no program can make it more.
    if unshare(CloneFlags::CLONE_NEWUSER).is_ok() {
        layers.push(Layer::UserNamespace);
        network = network || unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWIPC).is_ok();
    }
    if network {
        layers.push(Layer::NetworkNamespace);
    }
    if left_root && no_capabilities().is_ok() {
        layers.push(Layer::Unprivileged);
    }
    layers
}

fn leave_root() -> Result<(), Errno> {
    let (user, group) = (Uid::from_raw(NOBODY), Gid::from_raw(NOBODY));
    rustix::thread::set_thread_groups(&[])?;
    rustix::thread::set_thread_res_gid(group, group, group)?;
    rustix::thread::set_thread_res_uid(user, user, user)
}

fn no_capabilities() -> Result<(), Errno> {
    // Kernels before 4.3 have none to clear.
    let _ = rustix::thread::clear_ambient_capability_set();
    // Only possible with rights over them: in a user namespace, or still as root.
    for one in CapabilitySet::all().iter() {
        let _ = rustix::thread::remove_capability_from_bounding_set(one);
    }
    let none = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, none)?;
    // Neither set-user-id programs nor files with capabilities give any back.
    rustix::thread::set_no_new_privs(true)
}
