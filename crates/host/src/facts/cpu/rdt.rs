//! `cpu.rdt`: who may use how much of caches and memory bandwidth.

use super::super::machine::{Attributes, Machine, Outcome};
use crate::cpuinfo::PATH;
use crate::root::NotRead;

/// NFD's names, and the flags that the kernel prints for them; one of them is enough.
const NAMES: [(&str, &[&str]); 6] = [
    ("RDTMON", &["cqm"]),
    ("RDTCMT", &["cqm_occup_llc"]),
    ("RDTMBM", &["cqm_mbm_total", "cqm_mbm_local"]),
    ("RDTL3CA", &["cat_l3"]),
    ("RDTL2CA", &["cat_l2"]),
    ("RDTMBA", &["mba"]),
];

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    const CLASSES: &str = "RDTL3CA_NUM_CLOSID";
    const MOUNTED: &str = "/sys/fs/resctrl/info/L3/num_closids";
    let mut found = Attributes::default();
    let architecture = machine.architecture()?;
    if !matches!(architecture, "amd64" | "386") {
        // The technology is one of x86 processors.
        return Ok(found.feature(&format!("the architecture {architecture}")));
    }
    let cpuinfo = &machine.cpuinfo()?.value;
    let flags =
        cpuinfo.common_words("flags").ok_or_else(|| format!("{PATH} has no line of flags"))?;
    for (name, needs) in NAMES {
        if needs.iter().any(|flag| flags.contains(flag)) {
            found.set(name, "true", PATH);
        }
    }
    if flags.contains("cat_l3") {
        match machine.root.text(MOUNTED, 64) {
            Ok(text) => match text.parse::<u32>() {
                // One class is everybody's and cannot be given away.
                Ok(classes) => found.set(CLASSES, classes.saturating_sub(1).to_string(), MOUNTED),
                Err(_) => found.unknown(CLASSES, format!("{MOUNTED} is no number")),
            },
            Err(NotRead::Missing) => found.unknown(CLASSES, "resctrl is not mounted"),
            Err(why) => found.unknown(CLASSES, why.about(MOUNTED)),
        }
    }
    Ok(found.feature(PATH))
}
