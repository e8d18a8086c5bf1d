//! `cpu.model`: who made the processor, and what runs below this machine.

use std::collections::BTreeMap;

use super::super::machine::{Attributes, Machine, Outcome};
use crate::cpuinfo::{CpuInfo, PATH};
use crate::root::VALUE;

/// What makers call themselves in `/proc/cpuinfo`, and what NFD calls them.
const X86: &[(&str, &str)] = &[
    ("AuthenticAMD", "AMD"),
    ("AMDisbetter!", "AMD"),
    ("CentaurHauls", "VIA"),
    ("VIA VIA VIA", "VIA"),
    ("GenuineIntel", "Intel"),
    ("HygonGenuine", "Hygon"),
    ("GenuineTMx86", "Transmeta"),
    ("TransmetaCPU", "Transmeta"),
    ("Geode by NSC", "NSC"),
    ("SiS SiS SiS", "SiS"),
    ("Vortex86 SoC", "SiS"),
    ("Genuine  RDC", "RDC"),
];

/// The same for the numbers of ARM's licensees.
const ARM: &[(u32, &str)] = &[
    (0x41, "ARM"),
    (0x42, "Broadcom"),
    (0x43, "Cavium"),
    (0x44, "DEC"),
    (0x46, "Fujitsu"),
    (0x48, "HiSilicon"),
    (0x49, "Infineon"),
    (0x4d, "Motorola"),
    (0x4e, "NVIDIA"),
    (0x50, "AMCC"),
    (0x51, "Qualcomm"),
    (0x53, "Samsung"),
    (0x56, "Marvell"),
    (0x61, "Apple"),
    (0x69, "Intel"),
    (0xc0, "Ampere"),
];

/// What others call a maker than NFD does.
const ALSO: (&str, &str) = ("APM", "AMCC");

/// NFD's name of a maker, in its letters: for the name that it gives itself in `/proc/cpuinfo`,
/// for a number of ARM's (`0x41`), for NFD's own and for `APM`, which is what most call AMCC. Any
/// other is returned as it is.
pub fn vendor(name: &str) -> &str {
    let name = name.trim();
    let mut words = X86.iter().chain([&ALSO]);
    let raw = words.find(|(raw, _)| raw.eq_ignore_ascii_case(name)).map(|(_, nfd)| *nfd);
    let own = || nfd_names().find(|nfd| nfd.eq_ignore_ascii_case(name));
    raw.or_else(|| implementer(name)).or_else(own).unwrap_or(name)
}

/// All names of makers that [`vendor`] knows, but for numbers.
pub fn vendors() -> impl Iterator<Item = &'static str> {
    X86.iter().chain([&ALSO]).map(|(raw, _)| *raw).chain(nfd_names())
}

/// Whether [`vendor`] knows it.
pub fn is_vendor(name: &str) -> bool {
    implementer(name).is_some() || vendors().any(|known| known == name)
}

/// With those that occur more than once.
fn nfd_names() -> impl Iterator<Item = &'static str> {
    X86.iter().map(|(_, nfd)| *nfd).chain(ARM.iter().map(|(_, nfd)| *nfd))
}

fn implementer(text: &str) -> Option<&'static str> {
    let number = u32::from_str_radix(text.strip_prefix("0x")?, 16).ok()?;
    ARM.iter().find(|(known, _)| *known == number).map(|(_, name)| *name)
}

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let cpuinfo = &machine.cpuinfo()?.value;
    let mut found = Attributes::default();
    match machine.architecture()? {
        "amd64" | "386" => x86(machine, cpuinfo, &mut found),
        "arm64" | "arm64be" | "arm" | "armbe" => arm(cpuinfo, &mut found),
        "s390x" => s390(machine, cpuinfo, &mut found),
        other => {
            return Err(format!("{PATH} does not tell the model of a processor of {other}"));
        }
    }
    Ok(found.feature(PATH))
}

fn x86(machine: &Machine<'_>, cpuinfo: &CpuInfo, found: &mut Attributes) {
    for (name, key) in [("vendor_id", "vendor_id"), ("family", "cpu family"), ("id", "model")] {
        match common(cpuinfo, key) {
            Ok(value) => found.set(name, vendor(value), PATH),
            Err(why) => found.unknown(name, why),
        }
    }
    match cpuinfo.common_words("flags") {
        None => found.unknown("hypervisor", format!("{PATH} has no flags")),
        Some(flags) if !flags.contains("hypervisor") => found.set("hypervisor", "none", PATH),
        Some(_) => match hypervisor(machine) {
            Some((name, source)) => found.set("hypervisor", name, source),
            None => found.unknown(
                "hypervisor",
                "there is one, and only the processor itself tells which: no file does",
            ),
        },
    }
}

/// Which hypervisor, by the traces that it leaves in files.
fn hypervisor(machine: &Machine<'_>) -> Option<(&'static str, &'static str)> {
    const XEN: &str = "/sys/hypervisor/type";
    const CLOCKS: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    const VENDOR: &str = "/sys/devices/virtual/dmi/id/sys_vendor";
    let read = |path| machine.root.text(path, VALUE).unwrap_or_default();
    if read(XEN) == "xen" {
        return Some(("xenhvm", XEN));
    }
    let clocks = read(CLOCKS);
    for (clock, name) in [("kvm-clock", "kvm"), ("hyperv_clocksource_tsc_page", "msvm")] {
        if clocks.split_whitespace().any(|one| one == clock) {
            return Some((name, CLOCKS));
        }
    }
    // QEMU may or may not have a processor's help: its name does not tell.
    let by_vendor: BTreeMap<&str, &str> = BTreeMap::from([
        ("VMware, Inc.", "vmware"),
        ("Microsoft Corporation", "msvm"),
        ("Amazon EC2", "kvm"),
        ("Google", "kvm"),
        ("Xen", "xenhvm"),
    ]);
    by_vendor.get(read(VENDOR).as_str()).map(|name| (*name, VENDOR))
}

fn arm(cpuinfo: &CpuInfo, found: &mut Attributes) {
    match common(cpuinfo, "CPU implementer") {
        Ok(number) => match implementer(number) {
            Some(name) => found.set("vendor_id", name, PATH),
            None => found.unknown("vendor_id", format!("nobody knows the maker {number}")),
        },
        Err(why) => found.unknown("vendor_id", why),
    }
    match arm_numbers(cpuinfo) {
        Some((family, id)) => {
            found.set("family", family.to_string(), PATH);
            found.set("id", id.to_string(), PATH);
        }
        None => {
            for name in ["family", "id"] {
                found
                    .unknown(name, format!("{PATH} does not tell the numbers of one kind of core"));
            }
        }
    }
    found.unknown("hypervisor", "no file tells it on ARM");
}

/// Family and model as NFD takes them from the identification register: variant and
/// architecture, part and revision. Since ARMv8 the architecture in it is always 15.
fn arm_numbers(cpuinfo: &CpuInfo) -> Option<(u32, u32)> {
    let eight = common(cpuinfo, "CPU architecture").ok()? == "8";
    let hex = |key: &str| {
        let digits = common(cpuinfo, key).ok()?.strip_prefix("0x")?;
        u32::from_str_radix(digits, 16).ok()
    };
    let (variant, part) = (hex("CPU variant")?, hex("CPU part")?);
    let revision: u32 = common(cpuinfo, "CPU revision").ok()?.parse().ok()?;
    let fits = eight && variant <= 0xf && part <= 0xfff && revision <= 0xf;
    fits.then_some((variant << 4 | 0xf, part << 4 | revision))
}

fn s390(machine: &Machine<'_>, cpuinfo: &CpuInfo, found: &mut Attributes) {
    const SYSINFO: &str = "/proc/sysinfo";
    match common(cpuinfo, "vendor_id") {
        Ok(value) => found.set("vendor_id", value, PATH),
        Err(why) => found.unknown("vendor_id", why),
    }
    for name in ["family", "id"] {
        found.unknown(name, format!("{PATH} does not tell it on s390x"));
    }
    match machine.root.text(SYSINFO, VALUE) {
        Ok(text) => {
            let program = text
                .lines()
                .filter_map(|line| line.split_once("Control Program:"))
                .map(|(_, name)| plain(name.trim()))
                .find(|name| !name.is_empty());
            found.set("hypervisor", program.unwrap_or_else(|| "none".to_owned()), SYSINFO);
        }
        Err(why) => found.unknown("hypervisor", why.about(SYSINFO)),
    }
}

/// Runs of what no label may hold become `_`.
fn plain(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        if c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.') {
            out.push(c);
        } else if !out.ends_with('_') {
            out.push('_');
        }
    }
    out
}

/// The value of `key`, which all processors must agree on.
fn common<'a>(cpuinfo: &'a CpuInfo, key: &str) -> Result<&'a str, String> {
    let mut values = cpuinfo.values(key);
    let first = values.next().ok_or_else(|| format!("{PATH} has no {key}"))?;
    match values.all(|value| value == first) {
        true => Ok(first),
        false => Err(format!("the processors differ in {key}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn makers_have_nfds_names() {
        for (raw, name) in [
            ("GenuineIntel", "Intel"),
            ("genuineintel", "Intel"),
            ("AuthenticAMD", "AMD"),
            ("HygonGenuine", "Hygon"),
            ("CentaurHauls", "VIA"),
            ("0x41", "ARM"),
            ("0xc0", "Ampere"),
            ("APM", "AMCC"),
            ("apm", "AMCC"),
            ("0x50", "AMCC"),
            ("Intel", "Intel"),
            ("intel", "Intel"),
            ("0x01", "0x01"),
            ("Somebody", "Somebody"),
        ] {
            assert_eq!(vendor(raw), name);
        }
        assert!(is_vendor("0xC0") && is_vendor("APM") && is_vendor("Hygon"));
        assert!(!is_vendor("0x01") && !is_vendor("Somebody") && !is_vendor("genuineintel"));
    }

    #[test]
    fn arm_has_numbers_too() {
        let text = "CPU architecture: 8\nCPU variant : 0x1\nCPU part : 0xd40\nCPU revision : 1\n";
        assert_eq!(arm_numbers(&CpuInfo::parse(text)), Some((0x1f, 0xd401)));
        let other = text.replace("0xd40", "0xd05");
        assert_eq!(arm_numbers(&CpuInfo::parse(&format!("{text}\n{other}"))), None, "they differ");
        for (from, to) in [("0xd40", "0xd400000"), (": 8", ": 7"), ("0x1", "1"), (": 1", ": x")] {
            assert_eq!(arm_numbers(&CpuInfo::parse(&text.replace(from, to))), None, "{to}");
        }
    }

    #[test]
    fn processors_must_agree() {
        let info = CpuInfo::parse("model : 1\nvendor_id : a\n\nmodel : 2\nvendor_id : a");
        assert_eq!(common(&info, "vendor_id"), Ok("a"));
        assert!(common(&info, "model").unwrap_err().contains("differ"));
        assert!(common(&info, "cpu family").is_err());
        assert_eq!(plain("z/VM    7.3.0"), "z_VM_7.3.0");
    }
}
