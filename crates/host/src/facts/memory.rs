//! Memory: how much, in which nodes, in which pages, and what is swapped to.

use std::collections::BTreeMap;

use super::machine::{Attributes, Machine, Outcome, no};
use super::things::Things;
use super::{Feature, Instance};
use crate::root::{NotRead, VALUE};

const INFO: &str = "/proc/meminfo";

const SWAPS: &str = "/proc/swaps";

/// `memory.info`: `total` in bytes.
pub(crate) fn info(machine: &Machine<'_>) -> Outcome {
    the_kernels_own(machine, INFO)?;
    let text = machine.root.text(INFO, VALUE).map_err(|why| why.about(INFO))?;
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kib = total.and_then(|rest| rest.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    let bytes = kib.and_then(|kib| kib.checked_mul(1024));
    let bytes = bytes.ok_or_else(|| format!("{INFO} does not tell the total"))?;
    Ok(attribute(INFO, "total", bytes.to_string()))
}

/// lxcfs puts files of its own over the kernel's, and they tell what a container may use.
fn the_kernels_own(machine: &Machine<'_>, path: &str) -> Result<(), String> {
    match machine.evidence().overlaid.iter().any(|overlaid| overlaid == path) {
        true => Err(format!("lxcfs overlays {path} with the limits of a container")),
        false => Ok(()),
    }
}

fn attribute(source: impl Into<String>, name: &str, value: String) -> Feature {
    Feature::attributes(source, BTreeMap::from([(name.to_owned(), value)]))
}

/// `memory.numa`. A kernel that knows no nodes has one.
pub(crate) fn numa(machine: &Machine<'_>) -> Outcome {
    const NODES: &str = "/sys/bus/node/devices";
    let (count, source) = match machine.listing("/sys/bus", NODES)? {
        Some((_, names)) => (names.len(), NODES.to_owned()),
        None => (1, no(NODES)),
    };
    let mut found = Attributes::default();
    found.set("is_numa", (count > 1).to_string(), &source);
    found.set("node_count", count.to_string(), &source);
    Ok(found.feature(&source))
}

/// `memory.swap`. A kernel that cannot swap has no such file.
pub(crate) fn swap(machine: &Machine<'_>) -> Outcome {
    the_kernels_own(machine, SWAPS)?;
    match machine.root.text(SWAPS, VALUE) {
        Ok(text) => {
            // The first line is a heading.
            let areas = text.lines().filter(|line| !line.trim().is_empty()).count();
            Ok(attribute(SWAPS, "enabled", (areas > 1).to_string()))
        }
        Err(NotRead::Missing) => match machine.config() {
            Some(config) if !config.value.is_on("SWAP") => {
                let source = format!("{} has no CONFIG_SWAP", config.source);
                Ok(attribute(source, "enabled", "false".to_owned()))
            }
            _ if machine.root.is_proc("/proc/sys/kernel") => {
                Ok(attribute(no(SWAPS), "enabled", "false".to_owned()))
            }
            _ => Err(NotRead::Missing.about(SWAPS)),
        },
        Err(why) => Err(why.about(SWAPS)),
    }
}

/// `memory.hugepages`: how many pages of each size are set aside.
pub(crate) fn hugepages(machine: &Machine<'_>) -> Outcome {
    const SIZES: &str = "/sys/kernel/mm/hugepages";
    let Some((dir, names)) = machine.listing("/sys/kernel", SIZES)? else {
        return Ok(attribute(no(SIZES), "enabled", "false".to_owned()));
    };
    let mut found = Attributes::default();
    let mut some = false;
    let mut unread = None;
    for name in &names {
        let size = name.strip_prefix("hugepages-").and_then(|rest| rest.strip_suffix("kB"));
        let Some(kib) = size.and_then(|size| size.parse::<u64>().ok()) else { continue };
        let element = format!("hugepages-{}", quantity(kib));
        let path = format!("{SIZES}/{name}/nr_hugepages");
        let pages = dir.dir(name).and_then(|size| size.text("nr_hugepages"));
        match pages {
            Ok(pages) => {
                some |= pages.parse::<u64>().is_ok_and(|pages| pages > 0);
                found.set(&element, pages, SIZES);
            }
            Err(why) => {
                let why = why.about(&path);
                found.unknown(&element, why.clone());
                unread.get_or_insert(why);
            }
        }
    }
    match unread {
        // There may be pages of the size that does not tell.
        Some(why) if !some => found.unknown("enabled", why),
        _ => found.set("enabled", some.to_string(), SIZES),
    }
    Ok(found.feature(SIZES))
}

/// As Kubernetes writes it: the largest unit that leaves a whole number.
fn quantity(kib: u64) -> String {
    let units = ["Ki", "Mi", "Gi", "Ti"];
    let mut number = kib;
    let mut unit = 0;
    while number != 0 && number.is_multiple_of(1024) && unit + 1 < units.len() {
        number /= 1024;
        unit += 1;
    }
    format!("{number}{}", units[unit])
}

/// `memory.nv`: memory that keeps its content.
pub(crate) fn nv(machine: &Machine<'_>) -> Outcome {
    const DEVICES: &str = "/sys/bus/nd/devices";
    let Some((dir, names)) = machine.listing("/sys/bus", DEVICES)? else {
        return Ok(Feature::instances(no(DEVICES), Vec::new()));
    };
    let mut things = Things::default();
    for name in names {
        let Some(device) = things.dir(&name, &dir, &name) else { continue };
        let mut instance = Instance::from([("name".to_owned(), name.clone())]);
        for attribute in ["devtype", "mode"] {
            if let Some(value) = things.attribute(&name, &device, attribute) {
                instance.insert(attribute.to_owned(), value);
            }
        }
        things.add(instance);
    }
    Ok(things.feature(DEVICES))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_written_as_kubernetes_does() {
        for (kib, text) in [
            (64, "64Ki"),
            (2048, "2Mi"),
            (1_048_576, "1Gi"),
            (16_777_216, "16Gi"),
            (32_768, "32Mi"),
            (1_048_577, "1048577Ki"),
            (0, "0Ki"),
        ] {
            assert_eq!(quantity(kib), text);
        }
    }
}
