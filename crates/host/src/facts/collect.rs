//! From a root to facts: a table of who reads what, and the loop over it.

use std::path::Path;

use super::machine::{Machine, Outcome};
use super::{Facts, Wanted, cpu, kernel, local, memory, names, network, pci, storage, system, usb};
use crate::{Look, OpenRootError};

/// Who reads a feature.
type Collector = fn(&Machine<'_>) -> Outcome;

/// Every feature, in the order of [`names::NAMES`].
const COLLECTORS: [(&str, Collector); names::NAMES.len()] = [
    ("cpu.cpuid", cpu::cpuid::collect),
    ("cpu.model", cpu::model::collect),
    ("cpu.topology", cpu::topology::collect),
    ("cpu.cstate", cpu::power::cstate),
    ("cpu.pstate", cpu::power::pstate),
    ("cpu.rdt", cpu::rdt::collect),
    ("cpu.security", cpu::security::collect),
    ("cpu.sst", cpu::power::sst),
    ("cpu.coprocessor", cpu::topology::coprocessor),
    ("kernel.version", kernel::version::collect),
    ("kernel.config", kernel::config::set),
    ("kernel.configunset", kernel::config::unset),
    ("kernel.loadedmodule", kernel::modules::loaded),
    ("kernel.enabledmodule", kernel::modules::enabled),
    ("kernel.builtinmodule", kernel::modules::builtin),
    ("kernel.availablemodule", kernel::modules::available),
    ("kernel.moduleparameter", kernel::parameters::collect),
    ("kernel.cmdline", kernel::cmdline),
    ("kernel.selinux", kernel::selinux),
    ("kernel.kvm", kernel::kvm),
    ("memory.info", memory::info),
    ("memory.numa", memory::numa),
    ("memory.swap", memory::swap),
    ("memory.hugepages", memory::hugepages),
    ("memory.nv", memory::nv),
    ("network.device", network::device),
    ("network.virtual", network::virtual_device),
    ("pci.device", pci::collect),
    ("usb.device", usb::collect),
    ("storage.block", storage::collect),
    ("system.osrelease", system::osrelease),
    ("system.dmiid", system::dmiid),
    ("system.name", system::name),
    ("system.platform", system::platform),
    ("local.feature", local::features),
    ("local.label", local::labels),
];

impl Facts {
    /// What is wanted of this machine. In a container, what only the image's files could tell is
    /// unknown.
    pub fn here(wanted: &Wanted) -> Result<Self, OpenRootError> {
        Ok(Look::here()?.facts(wanted))
    }

    /// What is wanted of the machine whose root directory is `root`.
    ///
    /// Links in it, absolute ones too, are followed inside it: nothing outside is ever read.
    pub fn at(root: &Path, wanted: &Wanted) -> Result<Self, OpenRootError> {
        Ok(Look::at(root)?.facts(wanted))
    }

    pub(crate) fn collect(look: &Look, wanted: &Wanted) -> Self {
        let machine = Machine::new(look, wanted);
        let mut facts = Self::default();
        for name in wanted.features() {
            let outcome = match COLLECTORS.iter().find(|(known, _)| *known == name) {
                Some((_, collect)) => collect(&machine),
                None => Err("there is no such feature".to_owned()),
            };
            match outcome {
                Ok(feature) => drop(facts.features.insert(name.to_owned(), feature)),
                Err(why) => drop(facts.unknown.insert(name.to_owned(), why)),
            }
        }
        facts.warnings = machine.warnings();
        facts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_feature_has_its_collector() {
        for ((name, _), known) in COLLECTORS.iter().zip(names::NAMES) {
            assert_eq!(*name, known.name);
        }
    }

    #[test]
    fn a_name_that_nobody_knows_is_unknown() {
        let dir = tempfile::tempdir().unwrap();
        let facts = Facts::at(dir.path(), &Wanted::default().feature("gpu.device")).unwrap();
        assert_eq!(facts.feature("gpu.device").unwrap_err().why, "there is no such feature");
    }
}
