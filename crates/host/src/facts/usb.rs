//! `usb.device`.

use std::collections::BTreeSet;

use super::machine::{Machine, Outcome, no};
use super::things::Things;
use super::{Feature, Instance};
use crate::root::Dir;

const DEVICES: &str = "/sys/bus/usb/devices";

/// A device that leaves its class to its interfaces.
const BY_INTERFACE: &str = "00";

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let Some((dir, names)) = machine.listing("/sys/bus", DEVICES)? else {
        return Ok(Feature::instances(no(DEVICES), Vec::new()));
    };
    let mut things = Things::default();
    // `1-1` is a device, `1-1:1.0` one of its interfaces.
    for name in names.iter().filter(|name| !name.contains(':')) {
        if let Some(device) = things.dir(name, &dir, name) {
            one(&dir, &names, name, &device, &mut things);
        }
    }
    Ok(things.feature(DEVICES))
}

/// The device once, or once for each class of its interfaces. Its serial number is left out: it
/// tells one stick from all others.
fn one(dir: &Dir<'_>, names: &[String], name: &str, device: &Dir<'_>, things: &mut Things) {
    let mut instance = Instance::new();
    for (attribute, file) in [("vendor", "idVendor"), ("device", "idProduct")] {
        let Some(value) = things.attribute(name, device, file) else { return };
        instance.insert(attribute.to_owned(), value);
    }
    let Some(class) = things.attribute(name, device, "bDeviceClass") else {
        return things.add(instance);
    };
    let classes = if class == BY_INTERFACE {
        interfaces(dir, names, name, things)
    } else {
        BTreeSet::from([class])
    };
    for class in classes {
        let mut instance = instance.clone();
        instance.insert("class".to_owned(), class);
        things.add(instance);
    }
}

/// The classes of a device's interfaces. The names are in order, so they stand together.
fn interfaces(
    dir: &Dir<'_>,
    names: &[String],
    device: &str,
    things: &mut Things,
) -> BTreeSet<String> {
    let prefix = format!("{device}:");
    let first = names.partition_point(|name| *name < prefix);
    let own = names[first..].iter().take_while(|name| name.starts_with(&prefix));
    let mut classes = BTreeSet::new();
    for name in own {
        if let Some(interface) = things.dir(name, dir, name) {
            classes.extend(things.attribute(name, &interface, "bInterfaceClass"));
        }
    }
    classes
}
