//! One host that has a little of everything, and the ways to ask it.

use portolan_compat::Verdict::{self, Unknown};
use portolan_compat::document::{Mode, Read, read};
use portolan_compat::evaluate::Answer;
use portolan_compat::json;
use portolan_compat::plugins::{Manner, builtin};
use portolan_host::facts::{Builder, Facts, Kind, Recorded, Wanted};
use serde_json::Value;

pub(crate) fn builder() -> Builder {
    Facts::builder()
        .attribute("kernel.version", "full", "6.1.0-18-amd64")
        .attribute("kernel.config", "VFIO", "m")
        .attribute("kernel.config", "KVM", "y")
        .attribute("kernel.config", "HZ", "250")
        .attribute("kernel.config", "NR_CPUS", "0x200")
        .attribute("kernel.config", "LSM", "landlock,lockdown")
        .attribute("kernel.config", "BOOT_CONFIG_TEXT", "say \\\"hi\\\" \\\\")
        .source("kernel.config", "/boot/config-6.1.0-18-amd64")
        .flags("kernel.configunset", ["DRM_NOUVEAU"])
        .flags("kernel.loadedmodule", ["vfio_pci", "i915", "snd_hda_intel"])
        .flags("kernel.builtinmodule", ["amd-uncore", "kvm"])
        .flags("kernel.availablemodule", ["nouveau", "vfio-mdev"])
        .attribute("kernel.moduleparameter", "i915.enable_guc", "-1")
        .attribute("kernel.moduleparameter", "i915.modeset", "1")
        .attribute("kernel.moduleparameter", "snd_hda_intel.index", "0,1,2")
        .attribute("kernel.moduleparameter", "kvm.halt_poll_ns", "200000")
        .attribute("kernel.moduleparameter", "kvm.nx_huge_pages", "Y")
        .unknown_element("kernel.moduleparameter", "i915.enable_gvt", "permission denied")
        .cmdline(
            "root=/dev/vda1 console=tty0 console=ttyS0,115200 quiet intel-iommu=on,sm_on token=abc",
        )
        .source("kernel.cmdline", "/proc/cmdline")
        .attribute("kernel.selinux", "enabled", "false")
        .attribute("kernel.kvm", "enabled", "true")
        .flags("cpu.cpuid", ["AVX", "AVX2", "FMA3", "SSE42"])
        .attribute("cpu.cpuid", "AVX10_VERSION", "1")
        .unknown_element("cpu.cpuid", "AVXSLOW", "only the CPUID instruction tells")
        .attribute("cpu.model", "vendor_id", "Intel")
        .attribute("cpu.model", "family", "6")
        .attribute("cpu.model", "id", "106")
        .attribute("cpu.model", "hypervisor", "none")
        .attribute("cpu.topology", "socket_count", "2")
        .attribute("cpu.topology", "hardware_multithreading", "true")
        .attribute("system.platform", "os", "linux")
        .attribute("system.platform", "arch", "amd64")
        .attribute("system.platform", "variant", "v3")
        .attribute("memory.info", "total", "68719476736")
        .attribute("memory.numa", "node_count", "2")
        .attribute("memory.swap", "enabled", "false")
        .attribute("memory.hugepages", "enabled", "true")
        .attribute("memory.hugepages", "hugepages-1Gi", "2")
        .known("memory.nv", Kind::Instances)
        .instance(
            "network.device",
            [
                ("name", "eth0"),
                ("operstate", "up"),
                ("speed", "25000"),
                ("mtu", "9000"),
                ("sriov_totalvfs", "64"),
            ],
        )
        .instance("network.device", [("name", "eth1"), ("operstate", "down"), ("mtu", "1500")])
        .instance("network.virtual", [("name", "lo"), ("operstate", "unknown"), ("mtu", "65536")])
        .instance(
            "pci.device",
            [
                ("class", "0302"),
                ("vendor", "10de"),
                ("device", "20b0"),
                ("subsystem_vendor", "10de"),
                ("subsystem_device", "134f"),
            ],
        )
        .instance(
            "pci.device",
            [
                ("class", "0302"),
                ("vendor", "10de"),
                ("device", "20b0"),
                ("subsystem_vendor", "10de"),
                ("subsystem_device", "134f"),
            ],
        )
        .instance(
            "pci.device",
            [("class", "0200"), ("vendor", "8086"), ("device", "1592"), ("sriov_totalvfs", "64")],
        )
        .instance(
            "usb.device",
            [("class", "0e"), ("vendor", "046d"), ("device", "0825"), ("serial", "ABC123")],
        )
        .instance(
            "storage.block",
            [("name", "nvme0n1"), ("rotational", "0"), ("dax", "0"), ("zoned", "none")],
        )
        .instance(
            "storage.block",
            [
                ("name", "sda"),
                ("rotational", "1"),
                ("dax", "0"),
                ("zoned", "host-aware"),
                ("nr_zones", "55880"),
            ],
        )
        .attribute("system.osrelease", "ID", "debian")
        .attribute("system.osrelease", "VERSION_ID", "12")
        .attribute("system.dmiid", "sys_vendor", "Dell Inc.")
}

pub(crate) fn ask_in(manner: Manner, plugin: &str, data: &Value, facts: &Facts) -> Answer {
    let data = json::parse(data.to_string().as_bytes()).expect("serde_json writes JSON");
    builtin::ask(plugin, Some(&data), facts, manner).expect("a built-in plugin")
}

pub(crate) fn ask(plugin: &str, data: &Value, facts: &Facts) -> Answer {
    ask_in(Manner::default(), plugin, data, facts)
}

/// The facts that are wanted, and no others.
fn only(wanted: &Wanted, facts: &Facts) -> Facts {
    let mut document = serde_json::to_value(Recorded { facts, include_cmdline: true })
        .expect("facts are plain data");
    for kind in ["flags", "attributes", "instances"] {
        let features = document[kind].as_object_mut().expect("by feature");
        features.retain(|name, _| wanted.elements(name).is_some());
    }
    serde_json::from_value(document).expect("what was written reads back")
}

/// Asks for one field of the plugin's data after the other.
pub(crate) fn table(plugin: &str, rows: &[(Value, Verdict)]) {
    let facts = builder().build();
    for (data, expected) in rows {
        let found = ask(plugin, data, &facts);
        assert_eq!(found.verdict, *expected, "{plugin} {data}: {:?}", found.reasons);
        // What is needed is what was looked at: nothing changes if only that was collected.
        let spanned = json::parse(data.to_string().as_bytes()).expect("serde_json writes JSON");
        let wanted = builtin::needs(plugin, Some(&spanned));
        assert_eq!(ask(plugin, data, &only(&wanted, &facts)), found, "{plugin} {data}");
        // Without any facts nothing is ever "no".
        let nothing = ask(plugin, data, &Facts::default());
        assert_eq!(nothing.verdict, Unknown, "{plugin} {data}: {:?}", nothing.reasons);
        for reason in &found.reasons {
            assert!(!reason.message.is_empty());
            assert!(reason.verdict != Unknown || reason.code != "MET");
        }
    }
}

/// A document with one plugin.
pub(crate) fn lint_in(mode: Mode, plugin: &str, data: &str) -> Read {
    let text = format!(
        "{{\"schemaVersion\": \"0.1.0\", \"namespaces\": {{\"a\": {{\"plugins\": {{\"{plugin}\":\n{{\"data\":\n{data}\n}}}}}}}}}}"
    );
    read(text.as_bytes(), mode)
}

pub(crate) fn lint(plugin: &str, data: &str) -> Read {
    lint_in(Mode::Lenient, plugin, data)
}
