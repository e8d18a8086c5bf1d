//! `pci.device`.

use super::machine::{Machine, Outcome, no};
use super::things::Things;
use super::{Feature, Instance};
use crate::root::Dir;

const DEVICES: &str = "/sys/bus/pci/devices";

/// A device that lacks one of these is none that could be recognised.
const NEEDED: [&str; 5] = ["class", "vendor", "device", "subsystem_vendor", "subsystem_device"];

const OPTIONAL: [&str; 1] = ["sriov_totalvfs"];

/// What lies behind links, in other directories.
const BEHIND_LINKS: [(&str, &str, &str); 2] = [
    ("iommu_group", "type", "iommu_group/type"),
    ("iommu", "intel-iommu/version", "iommu/intel-iommu/version"),
];

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let Some((dir, names)) = machine.listing("/sys/bus", DEVICES)? else {
        return Ok(Feature::instances(no(DEVICES), Vec::new()));
    };
    let mut things = Things::default();
    for name in &names {
        let Some(device) = things.dir(name, &dir, name) else { continue };
        if let Some(instance) = instance(name, &device, &mut things) {
            things.add(instance);
        }
    }
    Ok(things.feature(DEVICES))
}

fn instance(name: &str, device: &Dir<'_>, things: &mut Things) -> Option<Instance> {
    let mut instance = Instance::new();
    for attribute in NEEDED {
        let value = things.attribute(name, device, attribute)?;
        instance.insert(attribute.to_owned(), plain(attribute, &value));
    }
    for attribute in OPTIONAL {
        if let Some(value) = things.attribute(name, device, attribute) {
            instance.insert(attribute.to_owned(), plain(attribute, &value));
        }
    }
    for (link, file, attribute) in BEHIND_LINKS {
        if device.has(link) == Ok(true)
            && let Some(value) = things.behind(name, device, &format!("{link}/{file}"))
        {
            instance.insert(attribute.to_owned(), plain(attribute, &value));
        }
    }
    Some(instance)
}

/// Without `0x`; of the class only what says which and not how it is programmed.
fn plain(name: &str, value: &str) -> String {
    let value = value.strip_prefix("0x").unwrap_or(value);
    let value = if name == "class" { value.get(..4).unwrap_or(value) } else { value };
    value.to_owned()
}
