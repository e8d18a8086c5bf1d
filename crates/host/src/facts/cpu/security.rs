//! `cpu.security`: enclaves and confidential machines.

use std::collections::BTreeSet;

use super::super::machine::{Attributes, Machine, Outcome};
use crate::cpuinfo::PATH;
use crate::root::{NotRead, VALUE};

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let mut found = Attributes::default();
    match machine.architecture()? {
        "amd64" => {
            sgx(machine, &mut found);
            tdx(machine, &mut found);
            sev(machine, &mut found);
            Ok(found.feature("/sys/module"))
        }
        "s390x" => {
            const HOST: &str = "/sys/firmware/uv/prot_virt_host";
            match switch(machine, "/sys/firmware", HOST, &["1"]) {
                Switch::On => found.set("se.enabled", "true", HOST),
                Switch::Off => {}
                Switch::Unknown(why) => found.unknown("se.enabled", why),
            }
            Ok(found.feature(HOST))
        }
        other => Ok(found.feature(&format!("the architecture {other}"))),
    }
}

/// A file that says yes or no.
enum Switch {
    On,
    Off,
    Unknown(String),
}

/// A file that is not there, where the kernel would have put it if it had the feature, says no.
fn switch(machine: &Machine<'_>, above: &str, path: &str, on: &[&str]) -> Switch {
    match machine.root.text(path, VALUE) {
        Ok(text) if on.contains(&text.as_str()) => Switch::On,
        Ok(_) => Switch::Off,
        Err(NotRead::Missing) => match machine.is_absent(above, path) {
            Ok(()) => Switch::Off,
            Err(why) => Switch::Unknown(why),
        },
        Err(why) => Switch::Unknown(why.about(path)),
    }
}

/// Enclaves: on if the firmware has set memory aside for them. Which that is, the kernel tells
/// for each node since 5.18.
fn sgx(machine: &Machine<'_>, found: &mut Attributes) {
    const NODES: &str = "/sys/devices/system/node";
    let names = ["sgx.enabled", "sgx.epc"];
    match flags(machine) {
        Err(why) => return names.iter().for_each(|name| found.unknown(name, why.clone())),
        // The kernel takes the flag away where the firmware did not turn it on.
        Ok(flags) if !flags.contains("sgx") => {
            return names.iter().for_each(|name| found.absent(name, PATH));
        }
        Ok(_) => {}
    }
    match enclave_memory(machine, NODES) {
        Ok(0) => names.iter().for_each(|name| found.absent(name, NODES)),
        Ok(bytes) => {
            found.set("sgx.enabled", "true", NODES);
            found.set("sgx.epc", bytes.to_string(), NODES);
        }
        Err(why) => names.iter().for_each(|name| found.unknown(name, why.clone())),
    }
}

/// The flags that all processors have, or why they are not known.
fn flags<'a>(machine: &'a Machine<'_>) -> Result<BTreeSet<&'a str>, String> {
    let flags = machine.cpuinfo()?.value.common_words("flags");
    flags.ok_or_else(|| format!("{PATH} has no line of flags"))
}

/// What all nodes have together. A node that does not tell may have more.
fn enclave_memory(machine: &Machine<'_>, path: &str) -> Result<u64, String> {
    let nodes = machine.root.dir(path).map_err(|why| why.about(path))?;
    let names = nodes.names().map_err(|why| why.about(path))?;
    let mut sum: Option<u64> = None;
    for name in names.iter().filter(|name| name.starts_with("node")) {
        let file = format!("{name}/x86/sgx_total_bytes");
        let bytes = match nodes.text_behind(&file, 64) {
            Ok(text) => text.parse::<u64>(),
            Err(NotRead::Missing) => continue,
            Err(why) => return Err(why.about(&nodes.inside(&file))),
        };
        let bytes = bytes.map_err(|_| format!("{} is no number", nodes.inside(&file)))?;
        sum = Some(sum.unwrap_or_default().saturating_add(bytes));
    }
    sum.ok_or_else(|| format!("no node in {path} tells how much memory enclaves have"))
}

fn tdx(machine: &Machine<'_>, found: &mut Attributes) {
    const HOST: &str = "/sys/module/kvm_intel/parameters/tdx";
    match switch(machine, "/sys/module", HOST, &["Y"]) {
        Switch::On => {
            found.set("tdx.enabled", "true", HOST);
            capacity(machine, found, "tdx.total_keys", "tdx");
        }
        Switch::Off => {}
        Switch::Unknown(why) => {
            found.unknown("tdx.enabled", why.clone());
            found.unknown("tdx.total_keys", why);
        }
    }
    match flags(machine) {
        Ok(flags) if flags.contains("tdx_guest") => found.set("tdx.protected", "true", PATH),
        Ok(_) => found.absent("tdx.protected", PATH),
        Err(why) => found.unknown("tdx.protected", why),
    }
}

fn sev(machine: &Machine<'_>, found: &mut Attributes) {
    for (name, parameter, identifiers) in [
        ("sev.enabled", "sev", Some(("sev.asids", "sev"))),
        ("sev.es.enabled", "sev_es", Some(("sev.encrypted_state_ids", "sev_es"))),
        ("sev.snp.enabled", "sev_snp", None),
    ] {
        let path = format!("/sys/module/kvm_amd/parameters/{parameter}");
        match switch(machine, "/sys/module", &path, &["1", "Y"]) {
            Switch::On => {
                found.set(name, "true", &path);
                if let Some((element, resource)) = identifiers {
                    capacity(machine, found, element, resource);
                }
            }
            Switch::Off => {}
            Switch::Unknown(why) => {
                found.unknown(name, why.clone());
                if let Some((element, _)) = identifiers {
                    found.unknown(element, why);
                }
            }
        }
    }
}

/// How many of a resource there are, as the first control group tells.
fn capacity(machine: &Machine<'_>, found: &mut Attributes, element: &str, resource: &str) {
    let paths = ["/sys/fs/cgroup/misc.capacity", "/sys/fs/cgroup/misc/misc.capacity"];
    for path in paths {
        let Ok(text) = machine.root.text(path, VALUE) else { continue };
        let mut lines = text.lines().filter_map(|line| line.split_once(' '));
        let number = lines.find(|(name, _)| *name == resource).map(|(_, number)| number.trim());
        if let Some(number) = number.filter(|number| number.parse::<u64>().is_ok()) {
            return found.set(element, number, path);
        }
    }
    found.unknown(element, format!("{} does not tell how many of {resource} there are", paths[0]));
}
