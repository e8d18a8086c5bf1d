//! `cpu.topology` and `cpu.coprocessor`.

use std::collections::{BTreeMap, BTreeSet};

use super::super::Feature;
use super::super::machine::{Attributes, Machine, Outcome, no};
use crate::root::NotRead;

const CPUS: &str = "/sys/bus/cpu/devices";

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let cpus = machine.root.dir(CPUS).map_err(|why| why.about(CPUS))?;
    let names = cpus.names().map_err(|why| why.about(CPUS))?;
    let mut threads = Some(false);
    let mut packages = BTreeSet::new();
    let mut seen = 0;
    for name in &names {
        let dir = match cpus.dir(&format!("{name}/topology")) {
            Ok(dir) => dir,
            // A processor that is switched off has none.
            Err(NotRead::Missing) => continue,
            Err(why) => return Err(why.about(&format!("{CPUS}/{name}/topology"))),
        };
        let read = |file: &str| dir.text(file).map_err(|why| why.about(&dir.inside(file)));
        packages.insert(read("physical_package_id")?);
        if threads != Some(true) {
            let list = read("thread_siblings_list")?;
            threads = Some(list.contains([',', '-']));
        }
        seen += 1;
    }
    if seen == 0 {
        return Err(format!("no processor in {CPUS} tells its topology"));
    }
    let mut found = Attributes::default();
    // Machines that cannot tell say -1.
    if packages.iter().any(|id| id.starts_with('-')) {
        found.unknown("socket_count", format!("the processors in {CPUS} do not know their socket"));
    } else {
        found.set("socket_count", packages.len().to_string(), CPUS);
    }
    found.set("hardware_multithreading", (threads == Some(true)).to_string(), CPUS);
    Ok(found.feature(CPUS))
}

/// The unit of POWER that compresses.
pub(crate) fn coprocessor(machine: &Machine<'_>) -> Outcome {
    const UNIT: &str = "/sys/devices/vio/ibm,compression-v1/nx_gzip_caps";
    match machine.root.dir(UNIT) {
        Ok(_) => {
            let nx = BTreeMap::from([("nx_gzip".to_owned(), "true".to_owned())]);
            Ok(Feature::attributes(UNIT, nx))
        }
        Err(NotRead::Missing) => {
            machine.is_absent("/sys/devices", UNIT)?;
            Ok(Feature::attributes(no(UNIT), BTreeMap::new()))
        }
        Err(why) => Err(why.about(UNIT)),
    }
}
