//! The eight areas of the proposal: `cpu`, `kernel`, `memory`, `network`, `pci`, `usb`, `storage`
//! and `system`, each an object of fields under the names of facts.

use super::attribute::{Attribute, Way};
use super::builtin::UnknownField;
use super::instance;
use super::things::{self, Kind};
use super::{Demands, cpu, kernel_cmdline, kernel_configuration, kernel_modules, kernel_version};
use crate::json::{Spanned, Value};
use crate::value::At;

/// What a field of an area holds.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Form {
    /// One value: feature, element, how it is called in a sentence.
    Value(&'static str, &'static str, &'static str),
    /// One value that hosts and authors write differently.
    Special(&'static str, &'static str, &'static str, Way),
    /// An object of values: feature, prefix of elements, prefix in a sentence.
    Map(&'static str, &'static str, &'static str),
    /// A list of things.
    Things(&'static Kind),
    /// The least level of the processor.
    Level,
    /// Names of what the processor must be able to do.
    Flags,
    /// As `kernelVersion`.
    Version,
    /// As `kernelConfiguration`.
    Configuration,
    /// As `kernelModules`.
    Modules,
    /// As `kernelCmdline`.
    Cmdline,
}

/// The fields of an area.
pub(crate) type Fields = &'static [(&'static str, Form)];

const CPU: Fields = &[
    ("vendor", Form::Special("cpu.model", "vendor_id", "the processor's maker", Way::Vendor)),
    ("family", Form::Value("cpu.model", "family", "the processor's family")),
    ("model", Form::Value("cpu.model", "id", "the processor's model")),
    ("level", Form::Level),
    ("flags", Form::Flags),
    ("sockets", Form::Value("cpu.topology", "socket_count", "the number of sockets")),
    ("multithreading", Form::Value("cpu.topology", "hardware_multithreading", "multithreading")),
    ("hypervisor", Form::Value("cpu.model", "hypervisor", "the hypervisor")),
];

const KERNEL: Fields = &[
    ("version", Form::Version),
    ("config", Form::Configuration),
    ("modules", Form::Modules),
    ("cmdline", Form::Cmdline),
    ("selinux", Form::Value("kernel.selinux", "enabled", "SELinux enforcing")),
    ("kvm", Form::Value("kernel.kvm", "enabled", "KVM")),
];

const MEMORY: Fields = &[
    ("total", Form::Special("memory.info", "total", "the amount of memory", Way::Bytes)),
    ("numaNodes", Form::Value("memory.numa", "node_count", "the number of NUMA nodes")),
    ("swap", Form::Value("memory.swap", "enabled", "swap")),
    ("hugepages", Form::Map("memory.hugepages", "hugepages-", "huge pages of ")),
    ("nv", Form::Things(&things::NV)),
];

const NETWORK: Fields =
    &[("device", Form::Things(&things::NETWORK)), ("virtual", Form::Things(&things::VIRTUAL))];

const PCI: Fields = &[("device", Form::Things(&things::PCI))];
const USB: Fields = &[("device", Form::Things(&things::USB))];
const STORAGE: Fields = &[("block", Form::Things(&things::BLOCK))];

const SYSTEM: Fields = &[
    ("osRelease", Form::Map("system.osrelease", "", "os-release ")),
    ("dmi", Form::Map("system.dmiid", "", "DMI ")),
    ("arch", Form::Special("system.platform", "arch", "the architecture", Way::Architecture)),
];

/// The fields of the area `name`; none if it is no area.
pub(crate) fn fields(name: &str) -> Option<Fields> {
    Some(match name {
        "cpu" => CPU,
        "kernel" => KERNEL,
        "memory" => MEMORY,
        "network" => NETWORK,
        "pci" => PCI,
        "usb" => USB,
        "storage" => STORAGE,
        "system" => SYSTEM,
        _ => return None,
    })
}

pub(super) fn read(area: &str, data: &Spanned, at: &mut At<'_>) -> Demands {
    let fields = fields(area).unwrap_or_default();
    let known: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    let wanted = format!("an object with {}", known.join(", "));
    let Some(members) = at.object(data, &wanted) else { return Vec::new() };
    let mut demands: Demands = Vec::new();
    for member in members {
        match fields.iter().find(|(name, _)| *name == member.key) {
            Some((name, form)) => {
                demands.extend(at.below(name, |at| field(*form, &member.value, at)));
            }
            None => demands.push(UnknownField::read(member, &known, at)),
        }
    }
    demands
}

fn field(form: Form, value: &Spanned, at: &mut At<'_>) -> Demands {
    let one = |what: &str, of, way, at: &mut At<'_>| {
        Attribute::read(value, what.to_owned(), of, way, at).into_iter().collect()
    };
    match form {
        Form::Value(feature, element, what) => one(what, (feature, element), Way::Plain, at),
        Form::Special(feature, element, what, way) => one(what, (feature, element), way, at),
        Form::Map(feature, prefix, what) => map(feature, prefix, what, value, at),
        Form::Things(kind) => instance::read(kind, value, at),
        Form::Level => cpu::level(value, at).into_iter().collect(),
        Form::Flags => cpu::read_flags(value, at),
        Form::Version => kernel_version::read_value(value, at),
        Form::Configuration => kernel_configuration::read(value, at),
        Form::Modules => kernel_modules::read_value(value, at),
        Form::Cmdline => kernel_cmdline::read(value, at),
    }
}

/// Attributes whose names are the author's.
fn map(
    feature: &'static str,
    prefix: &str,
    what: &str,
    value: &Spanned,
    at: &mut At<'_>,
) -> Demands {
    let Value::Object(members) = &value.value else {
        at.expected(value, "an object of values by name");
        return Vec::new();
    };
    let mut demands: Demands = Vec::new();
    for member in members {
        demands.extend(at.below(&member.key, |at| {
            // `enabled` has no prefix among the sizes of huge pages.
            let element = match member.key.as_str() {
                "enabled" => member.key.clone(),
                key if key.starts_with(prefix) => key.to_owned(),
                key => format!("{prefix}{key}"),
            };
            let what = format!("{what}{}", crate::text::shown(&member.key));
            Attribute::read(&member.value, what, (feature, &element), Way::Plain, at)
        }));
    }
    demands
}
