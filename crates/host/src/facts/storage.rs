//! `storage.block`.

use super::machine::{Machine, Outcome, no};
use super::things::Things;
use super::{Feature, Instance};

const DEVICES: &str = "/sys/block";

/// All of them, also those made of files and memory: what matters is in their attributes.
pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let Some((dir, names)) = machine.listing("/sys", DEVICES)? else {
        return Ok(Feature::instances(no(DEVICES), Vec::new()));
    };
    let mut things = Things::default();
    for name in names {
        let Some(queue) = things.dir(&name, &dir, &format!("{name}/queue")) else { continue };
        let mut instance = Instance::from([("name".to_owned(), name.clone())]);
        for attribute in ["dax", "rotational", "nr_zones", "zoned"] {
            if let Some(value) = things.attribute(&name, &queue, attribute) {
                instance.insert(attribute.to_owned(), value);
            }
        }
        things.add(instance);
    }
    Ok(things.feature(DEVICES))
}
