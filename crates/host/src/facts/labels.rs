//! The labels that NFD would give a Kubernetes node for these facts, with its defaults, and one
//! of ours for the level of the processor.

use std::collections::BTreeMap;

use super::{Facts, Found};

/// What stands before NFD's names.
pub const PREFIX: &str = "feature.node.kubernetes.io/";

/// Our label: the level of the processor as images name it, such as `v3` or `v8.4`. NFD has one
/// flag for each level of amd64 (`cpu-cpuid.X86_64_V3`) and none for other architectures.
pub const LEVEL: &str = "portolan.dev/cpu-level";

/// Flags that NFD leaves out unless it is told otherwise: everybody has them, or another label
/// says it better.
const COMMON_FLAGS: [&str; 26] = [
    "AVX10",
    "BMI1",
    "BMI2",
    "CLMUL",
    "CMOV",
    "CX16",
    "ERMS",
    "F16C",
    "HTT",
    "LZCNT",
    "MMX",
    "MMXEXT",
    "NX",
    "POPCNT",
    "RDRAND",
    "RDSEED",
    "RDTSCP",
    "SGX",
    "SGXLC",
    "SSE",
    "SSE2",
    "SSE3",
    "SSE4",
    "SSE42",
    "SSSE3",
    "TDX_GUEST",
];

const CONFIG_OPTIONS: [&str; 4] = ["NO_HZ", "NO_HZ_FULL", "NO_HZ_IDLE", "PREEMPT"];

/// Displays, co-processors and accelerators, by the beginning of their class.
const PCI_CLASSES: [&str; 3] = ["03", "0b40", "12"];

const USB_CLASSES: [&str; 4] = ["0e", "ef", "fe", "ff"];

/// Numbers that are resources rather than properties.
const NO_LABEL: [&str; 4] = ["sev.asids", "sev.encrypted_state_ids", "sgx.epc", "tdx.total_keys"];

/// Labels of a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    /// By name.
    pub labels: BTreeMap<String, String>,
    /// Those that Kubernetes would refuse, with the reason.
    pub refused: Vec<String>,
}

impl Labels {
    /// `source-name`, with NFD's prefix.
    fn nfd(&mut self, name: &str, value: &str) {
        self.add(&format!("{PREFIX}{name}"), value);
    }

    fn add(&mut self, name: &str, value: &str) {
        let short = name.rsplit('/').next().unwrap_or(name);
        if !is_label_value(short) || short.is_empty() {
            self.refused.push(format!("{name}: no name of a label"));
        } else if !is_label_value(value) {
            self.refused.push(format!("{name}: its value cannot be a label's"));
        } else {
            self.labels.insert(name.to_owned(), value.to_owned());
        }
    }
}

/// Whether NFD makes a label of a processor's flag, with the settings it comes with.
pub fn of_flag(flag: &str) -> bool {
    !COMMON_FLAGS.contains(&flag)
}

/// Whether NFD makes a label of a kernel's option, named without `CONFIG_`.
pub fn of_option(option: &str) -> bool {
    CONFIG_OPTIONS.contains(&option)
}

/// Whether NFD makes a label of PCI devices of a class.
pub fn of_pci_class(class: &str) -> bool {
    PCI_CLASSES.iter().any(|listed| class.starts_with(listed))
}

/// Whether NFD makes a label of USB devices of a class.
pub fn of_usb_class(class: &str) -> bool {
    USB_CLASSES.contains(&class)
}

/// Whether Kubernetes takes this as a label's value: up to 63 letters, digits, `-`, `_` and `.`,
/// of which the first and last are letters or digits.
pub fn is_label_value(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    let ends = |b: Option<&u8>| b.is_none_or(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    bytes.len() <= 63
        && bytes.iter().all(|b| plain(*b))
        && ends(bytes.first())
        && ends(bytes.last())
}

impl Facts {
    /// The labels. What is unknown has none, as what is absent.
    pub fn node_labels(&self) -> Labels {
        let mut labels = Labels::default();
        cpu(self, &mut labels);
        kernel(self, &mut labels);
        memory(self, &mut labels);
        devices(self, &mut labels);
        for name in ["ID", "VERSION_ID", "VERSION_ID.major", "VERSION_ID.minor"] {
            if let Some(value) = value(self, "system.osrelease", name) {
                labels.nfd(&format!("system-os_release.{name}"), value);
            }
        }
        for (name, value) in attributes(self, "local.label") {
            match name.contains('/') {
                true => labels.add(name, value),
                false => labels.nfd(name, value),
            }
        }
        labels
    }
}

fn value<'a>(facts: &'a Facts, feature: &str, element: &str) -> Option<&'a str> {
    match facts.attribute(feature, element) {
        Found::Value { value, .. } => Some(value),
        _ => None,
    }
}

fn attributes<'a>(facts: &'a Facts, feature: &str) -> impl Iterator<Item = (&'a str, &'a str)> {
    let attributes = facts.feature(feature).ok().and_then(|feature| feature.attributes.as_ref());
    attributes.into_iter().flatten().map(|(name, value)| (name.as_str(), value.as_str()))
}

/// The attribute `name` of every instance, where it has one.
fn instances<'a>(
    facts: &'a Facts,
    feature: &str,
) -> impl Iterator<Item = &'a BTreeMap<String, String>> {
    let instances = facts.feature(feature).ok().and_then(|feature| feature.instances.as_ref());
    instances.into_iter().flatten()
}

fn cpu(facts: &Facts, labels: &mut Labels) {
    let flags = facts.feature("cpu.cpuid").ok().and_then(|feature| feature.flags.as_ref());
    for flag in flags.into_iter().flatten() {
        if of_flag(flag) {
            labels.nfd(&format!("cpu-cpuid.{flag}"), "true");
        }
    }
    for (feature, prefix) in [
        ("cpu.cpuid", "cpu-cpuid."),
        ("cpu.model", "cpu-model."),
        ("cpu.cstate", "cpu-cstate."),
        ("cpu.pstate", "cpu-pstate."),
        ("cpu.security", "cpu-security."),
        ("cpu.sst", "cpu-power.sst_"),
        ("cpu.coprocessor", "cpu-coprocessor."),
    ] {
        for (name, value) in attributes(facts, feature).filter(|(name, _)| !NO_LABEL.contains(name))
        {
            labels.nfd(&format!("{prefix}{name}"), value);
        }
    }
    if let Some(value) = value(facts, "cpu.topology", "hardware_multithreading") {
        labels.nfd("cpu-hardware_multithreading", value);
    }
    if let Some(level) = value(facts, "system.platform", "variant") {
        labels.add(LEVEL, level);
    }
}

fn kernel(facts: &Facts, labels: &mut Labels) {
    for (name, value) in attributes(facts, "kernel.version").filter(|(_, v)| !v.is_empty()) {
        labels.nfd(&format!("kernel-version.{name}"), value);
    }
    for option in CONFIG_OPTIONS {
        if matches!(value(facts, "kernel.config", option), Some("y" | "m")) {
            labels.nfd(&format!("kernel-config.{option}"), "true");
        }
    }
    if value(facts, "kernel.selinux", "enabled") == Some("true") {
        labels.nfd("kernel-selinux.enabled", "true");
    }
}

fn memory(facts: &Facts, labels: &mut Labels) {
    for (feature, element, label) in
        [("memory.numa", "is_numa", "memory-numa"), ("memory.swap", "enabled", "memory-swap")]
    {
        if value(facts, feature, element) == Some("true") {
            labels.nfd(label, "true");
        }
    }
    for device in instances(facts, "memory.nv") {
        labels.nfd("memory-nv.present", "true");
        if device.get("devtype").is_some_and(|kind| kind == "nd_dax") {
            labels.nfd("memory-nv.dax", "true");
        }
    }
}

fn devices(facts: &Facts, labels: &mut Labels) {
    let get = |device: &BTreeMap<String, String>, name: &str| {
        device.get(name).cloned().unwrap_or_default()
    };
    for device in instances(facts, "pci.device") {
        let class = get(device, "class");
        let vendor = get(device, "vendor");
        if of_pci_class(&class) {
            labels.nfd(&format!("pci-{class}_{vendor}.present"), "true");
            if device.contains_key("sriov_totalvfs") {
                labels.nfd(&format!("pci-{class}_{vendor}.sriov.capable"), "true");
            }
        }
        // Mellanox: NFD's own rule for what can do RDMA.
        if vendor == "15b3" {
            labels.nfd("custom-rdma.capable", "true");
        }
    }
    let loaded =
        |name: &str| matches!(facts.flag("kernel.loadedmodule", name), Found::Present { .. });
    if loaded("ib_uverbs") && loaded("rdma_ucm") {
        labels.nfd("custom-rdma.available", "true");
    }
    for device in instances(facts, "usb.device") {
        let class = get(device, "class");
        if of_usb_class(&class) {
            let (vendor, product) = (get(device, "vendor"), get(device, "device"));
            labels.nfd(&format!("usb-{class}_{vendor}_{product}.present"), "true");
        }
    }
    let some = |device: &BTreeMap<String, String>, name: &str| {
        device.get(name).and_then(|n| n.parse::<u64>().ok()).is_some_and(|n| n > 0)
    };
    for device in instances(facts, "network.device") {
        for (attribute, label) in [
            ("sriov_totalvfs", "network-sriov.capable"),
            ("sriov_numvfs", "network-sriov.configured"),
        ] {
            if some(device, attribute) {
                labels.nfd(label, "true");
            }
        }
    }
    if instances(facts, "storage.block").any(|device| get(device, "rotational") == "0") {
        labels.nfd("storage-nonrotationaldisk", "true");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_are_nfds() {
        let facts = Facts::builder()
            .flags("cpu.cpuid", ["AVX2", "SSE2", "X86_64_V3"])
            .attribute("cpu.model", "vendor_id", "Intel")
            .attribute("cpu.security", "sgx.enabled", "true")
            .attribute("cpu.security", "sgx.epc", "1024")
            .attribute("cpu.sst", "bf.enabled", "true")
            .attribute("cpu.topology", "hardware_multithreading", "false")
            .attribute("cpu.topology", "socket_count", "2")
            .attribute("kernel.version", "full", "6.8")
            .attribute("kernel.version", "revision", "")
            .attribute("kernel.config", "NO_HZ", "y")
            .attribute("kernel.config", "PREEMPT", "n")
            .attribute("kernel.config", "VFIO", "m")
            .attribute("kernel.selinux", "enabled", "false")
            .attribute("memory.numa", "is_numa", "true")
            .instance("memory.nv", [("devtype", "nd_dax")])
            .instance("pci.device", [("class", "0300"), ("vendor", "1a03")])
            .instance(
                "pci.device",
                [("class", "0b40"), ("vendor", "8086"), ("sriov_totalvfs", "16")],
            )
            .instance("pci.device", [("class", "0200"), ("vendor", "15b3")])
            .instance("usb.device", [("class", "ff"), ("vendor", "0001"), ("device", "0002")])
            .instance("usb.device", [("class", "09"), ("vendor", "0001"), ("device", "0003")])
            .instance("network.device", [("sriov_totalvfs", "8"), ("sriov_numvfs", "0")])
            .instance("storage.block", [("rotational", "0")])
            .flags("kernel.loadedmodule", ["ib_uverbs", "rdma_ucm"])
            .attribute("system.osrelease", "ID", "debian")
            .attribute("system.osrelease", "NAME", "Debian GNU/Linux")
            .attribute("system.platform", "variant", "v3")
            .attribute("local.label", "rack", "r1")
            .attribute("local.label", "example.com/zone", "z1")
            .attribute("local.label", "bad", "no label value")
            .attribute("local.label", "no name", "x")
            .build();
        let Labels { labels, refused } = facts.node_labels();
        let mut expected = vec![
            "cpu-cpuid.AVX2=true",
            "cpu-cpuid.X86_64_V3=true",
            "cpu-hardware_multithreading=false",
            "cpu-model.vendor_id=Intel",
            "cpu-power.sst_bf.enabled=true",
            "cpu-security.sgx.enabled=true",
            "custom-rdma.available=true",
            "custom-rdma.capable=true",
            "kernel-config.NO_HZ=true",
            "kernel-version.full=6.8",
            "memory-numa=true",
            "memory-nv.dax=true",
            "memory-nv.present=true",
            "network-sriov.capable=true",
            "pci-0300_1a03.present=true",
            "pci-0b40_8086.present=true",
            "pci-0b40_8086.sriov.capable=true",
            "rack=r1",
            "storage-nonrotationaldisk=true",
            "system-os_release.ID=debian",
            "usb-ff_0001_0002.present=true",
        ]
        .into_iter()
        .map(|label| format!("{PREFIX}{label}"))
        .collect::<Vec<_>>();
        expected.extend(["example.com/zone=z1".to_owned(), "portolan.dev/cpu-level=v3".to_owned()]);
        expected.sort();
        let mut found: Vec<_> = labels.iter().map(|(k, v)| format!("{k}={v}")).collect();
        found.sort();
        assert_eq!(found, expected);
        assert_eq!(refused.len(), 2, "{refused:?}");
    }

    #[test]
    fn nothing_known_is_no_label() {
        assert_eq!(Facts::default().node_labels(), Labels::default());
    }

    #[test]
    fn what_kubernetes_takes() {
        for good in ["", "a", "a.b-c_d", &"a".repeat(63)] {
            assert!(is_label_value(good), "{good}");
        }
        for bad in ["-a", "a-", "a b", "a/b", "é", &"a".repeat(64)] {
            assert!(!is_label_value(bad), "{bad}");
        }
    }
}
