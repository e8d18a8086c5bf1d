//! Every feature there is.

/// How a feature's elements look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Names that are there or not.
    Flags,
    /// Names with a value.
    Attributes,
    /// Things of which there may be many, each with attributes.
    Instances,
}

/// A feature that can be collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name {
    /// `domain.feature`.
    pub name: &'static str,
    /// What it is made of.
    pub kinds: &'static [Kind],
    /// Whether NFD has it too; the others are ours.
    pub nfd: bool,
}

const fn nfd(name: &'static str, kinds: &'static [Kind]) -> Name {
    Name { name, kinds, nfd: true }
}

const fn ours(name: &'static str, kinds: &'static [Kind]) -> Name {
    Name { name, kinds, nfd: false }
}

const FLAGS: &[Kind] = &[Kind::Flags];
const ATTRIBUTES: &[Kind] = &[Kind::Attributes];
const INSTANCES: &[Kind] = &[Kind::Instances];

/// All features, in the order in which people look for them.
pub const NAMES: &[Name] = &[
    nfd("cpu.cpuid", &[Kind::Flags, Kind::Attributes]),
    nfd("cpu.model", ATTRIBUTES),
    nfd("cpu.topology", ATTRIBUTES),
    nfd("cpu.cstate", ATTRIBUTES),
    nfd("cpu.pstate", ATTRIBUTES),
    nfd("cpu.rdt", ATTRIBUTES),
    nfd("cpu.security", ATTRIBUTES),
    nfd("cpu.sst", ATTRIBUTES),
    nfd("cpu.coprocessor", ATTRIBUTES),
    nfd("kernel.version", ATTRIBUTES),
    nfd("kernel.config", ATTRIBUTES),
    ours("kernel.configunset", FLAGS),
    nfd("kernel.loadedmodule", FLAGS),
    nfd("kernel.enabledmodule", FLAGS),
    ours("kernel.builtinmodule", FLAGS),
    ours("kernel.availablemodule", FLAGS),
    ours("kernel.moduleparameter", ATTRIBUTES),
    ours("kernel.cmdline", &[Kind::Attributes, Kind::Instances]),
    nfd("kernel.selinux", ATTRIBUTES),
    nfd("kernel.kvm", ATTRIBUTES),
    ours("memory.info", ATTRIBUTES),
    nfd("memory.numa", ATTRIBUTES),
    nfd("memory.swap", ATTRIBUTES),
    nfd("memory.hugepages", ATTRIBUTES),
    nfd("memory.nv", INSTANCES),
    nfd("network.device", INSTANCES),
    nfd("network.virtual", INSTANCES),
    nfd("pci.device", INSTANCES),
    nfd("usb.device", INSTANCES),
    nfd("storage.block", INSTANCES),
    nfd("system.osrelease", ATTRIBUTES),
    nfd("system.dmiid", ATTRIBUTES),
    nfd("system.name", ATTRIBUTES),
    ours("system.platform", ATTRIBUTES),
    nfd("local.feature", ATTRIBUTES),
    nfd("local.label", ATTRIBUTES),
];

/// The feature called `name`, in any case.
pub fn name(name: &str) -> Option<&'static Name> {
    NAMES.iter().find(|known| known.name.eq_ignore_ascii_case(name))
}

/// The boot parameters: what people put secrets into.
pub(crate) const CMDLINE: &str = "kernel.cmdline";

/// Whether the kernel takes `-` for `_` in the names of this feature's elements.
pub(crate) fn is_blind_to_dashes(feature: &str) -> bool {
    matches!(
        feature,
        CMDLINE
            | "kernel.loadedmodule"
            | "kernel.enabledmodule"
            | "kernel.builtinmodule"
            | "kernel.availablemodule"
            | "kernel.moduleparameter"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_is_in_the_guide() {
        let guide = include_str!("../../../../docs/host-facts.md");
        let rows: Vec<_> = guide.lines().filter(|line| line.starts_with("| `")).collect();
        for known in NAMES {
            let row = rows.iter().find(|row| row.contains(&format!("`{}`", known.name)));
            let row = row.unwrap_or_else(|| panic!("{} is not in docs/host-facts.md", known.name));
            assert_eq!(row.contains("(ours)"), !known.nfd, "{}", known.name);
        }
    }

    #[test]
    fn names_are_found_in_any_case() {
        assert_eq!(name("CPU.cpuid").unwrap().name, "cpu.cpuid");
        assert_eq!(name("cpu"), None);
    }
}
