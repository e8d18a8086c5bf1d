//! The kernel.

pub(crate) mod config;
pub(crate) mod modules;
pub(crate) mod parameters;
pub(crate) mod version;

use std::collections::BTreeMap;

use super::Feature;
use super::machine::{Machine, Outcome, no};
use crate::root::NotRead;

/// `kernel.cmdline`. Never among the facts that are written down unless somebody insists.
pub(crate) fn cmdline(machine: &Machine<'_>) -> Outcome {
    Ok(super::cmdline::feature(&machine.kernel.cmdline()?, "/proc/cmdline"))
}

/// `kernel.selinux`: whether it enforces.
///
/// A kernel with SELinux has its directory even before anything is mounted there: without the
/// directory there is no SELinux, and with an empty one nobody knows.
pub(crate) fn selinux(machine: &Machine<'_>) -> Outcome {
    const DIR: &str = "/sys/fs/selinux";
    const ENFORCE: &str = "/sys/fs/selinux/enforce";
    if machine.dir("/sys/fs", DIR)?.is_none() {
        return Ok(enabled(false, no(DIR)));
    }
    let enforce = machine.root.text(ENFORCE, 64).map_err(|why| match why {
        NotRead::Missing => format!("{DIR} is empty: SELinux may be there and is not mounted"),
        why => why.about(ENFORCE),
    })?;
    Ok(enabled(enforce.starts_with('1'), ENFORCE))
}

/// `kernel.kvm`.
pub(crate) fn kvm(machine: &Machine<'_>) -> Outcome {
    const DEVICE: &str = "/sys/devices/virtual/misc/kvm";
    match machine.dir("/sys/devices/virtual", DEVICE)? {
        Some(_) => Ok(enabled(true, DEVICE)),
        None => Ok(enabled(false, no(DEVICE))),
    }
}

fn enabled(value: bool, source: impl Into<String>) -> Feature {
    Feature::attributes(source, BTreeMap::from([("enabled".to_owned(), value.to_string())]))
}
