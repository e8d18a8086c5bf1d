//! `network.device` and `network.virtual`.

use super::machine::{Machine, Outcome, no};
use super::things::Things;
use super::{Feature, Instance};
use crate::root::Dir;

const INTERFACES: &str = "/sys/class/net";

/// Devices of hardware.
pub(crate) fn device(machine: &Machine<'_>) -> Outcome {
    collect(machine, true)
}

/// The others: bridges, tunnels, the ends of containers' cables.
pub(crate) fn virtual_device(machine: &Machine<'_>) -> Outcome {
    collect(machine, false)
}

/// What sysfs shows is the network of whoever mounted it. In a container that is its own.
fn collect(machine: &Machine<'_>, hardware: bool) -> Outcome {
    machine
        .files_are_the_hosts()
        .map_err(|why| format!("{INTERFACES} may show the container's network: {why}"))?;
    let Some((dir, names)) = machine.listing("/sys/class", INTERFACES)? else {
        return Ok(Feature::instances(no(INTERFACES), Vec::new()));
    };
    let mut things = Things::default();
    // A file among the directories, of the bonding driver.
    for name in names.iter().filter(|name| *name != "bonding_masters") {
        // It may be of the other kind; nobody knows.
        let Some(interface) = things.dir(name, &dir, name) else { continue };
        if interface.has("device").map_err(|why| why.about(&dir.inside(name)))? == hardware {
            let instance = instance(name, &interface, hardware, &mut things);
            things.add(instance);
        }
    }
    let mut feature = things.feature(INTERFACES);
    let unknown = std::mem::take(&mut feature.unknown).into_iter();
    feature.unknown = unknown.map(|(name, why)| (hidden(&name), hidden(&why))).collect();
    Ok(feature)
}

/// A path, or a sentence with one in it, without the addresses in names.
fn hidden(text: &str) -> String {
    let end = ['/', ' '];
    let words = text.split_inclusive(end).map(|piece| match piece.strip_suffix(end) {
        Some(word) => without_address(word) + &piece[word.len()..],
        None => without_address(piece),
    });
    words.collect()
}

fn instance(name: &str, interface: &Dir<'_>, hardware: bool, things: &mut Things) -> Instance {
    let shown = without_address(name);
    let mut instance = Instance::from([("name".to_owned(), shown.clone())]);
    for attribute in ["operstate", "speed", "mtu"] {
        if let Some(value) = things.attribute(&shown, interface, attribute) {
            instance.insert(attribute.to_owned(), value);
        }
    }
    if hardware && let Some(device) = things.dir(&shown, interface, "device") {
        for attribute in ["sriov_numvfs", "sriov_totalvfs"] {
            if let Some(value) = things.attribute(&shown, &device, attribute) {
                instance.insert(attribute.to_owned(), value);
            }
        }
    }
    instance
}

/// Names such as `enx001122334455` hold the address of the hardware, which is nobody's business.
fn without_address(name: &str) -> String {
    let (kind, address) = name.split_at_checked(3).unwrap_or((name, ""));
    let is_address = address.len() == 12 && address.bytes().all(|b| b.is_ascii_hexdigit());
    if is_address && kind.ends_with('x') { format!("{kind}*") } else { name.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_holds_an_address() {
        for (name, shown) in [
            ("enx001122aabbcc", "enx*"),
            ("wlx001122aabbcc", "wlx*"),
            ("eth0", "eth0"),
            ("en", "en"),
            ("vet001122aabbcc", "vet001122aabbcc"),
            ("enx001122aabbcg", "enx001122aabbcg"),
            ("é", "é"),
        ] {
            assert_eq!(without_address(name), shown);
        }
        let path = "/sys/class/net/enx001122aabbcc/speed cannot be read: enx001122aabbcc";
        assert_eq!(hidden(path), "/sys/class/net/enx*/speed cannot be read: enx*");
        assert_eq!(hidden("eth0/speed "), "eth0/speed ");
    }
}
