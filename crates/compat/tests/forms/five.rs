//! The five plugins of the proposal's example.

use portolan_compat::Verdict::{Fail, Pass, Unknown};
use portolan_compat::plugins::Manner;
use portolan_host::facts::Facts;
use serde_json::json;

use crate::host::{ask, ask_in, builder, table};

#[test]
fn kernel_version() {
    table(
        "kernelVersion",
        &[
            (json!({"range": "[5.0.0,6.1.0]"}), Pass),
            (json!({"range": "[5.0.0,6.1.0)"}), Fail),
            (json!({"range": "[6.1]"}), Pass),
            (json!({"range": "(,5.15)"}), Fail),
            (json!({"range": "(,5.15),[6.1,6.2)"}), Pass),
            (json!({"range": "[6.1,)", "flavour": "rt"}), Unknown),
        ],
    );
    let odd = Facts::builder().attribute("kernel.version", "full", "mainline").build();
    assert_eq!(ask("kernelVersion", &json!({"range": "[5,)"}), &odd).verdict, Unknown);
}

#[test]
fn kernel_configuration() {
    table(
        "kernelConfiguration",
        &[
            (json!({"CONFIG_VFIO": "m"}), Pass),
            (json!({"VFIO": "m"}), Pass),
            (json!({"CONFIG_VFIO": "=m"}), Pass),
            (json!({"CONFIG_VFIO": "y"}), Fail),
            (json!({"CONFIG_VFIO": "n"}), Fail),
            (json!({"CONFIG_KVM": "y"}), Pass),
            // Built in is available, too.
            (json!({"CONFIG_KVM": "m"}), Pass),
            (json!({"CONFIG_KVM": "=m"}), Fail),
            (json!({"CONFIG_DRM_NOUVEAU": "n"}), Pass),
            (json!({"CONFIG_NO_SUCH_OPTION": "n"}), Pass),
            (json!({"CONFIG_NO_SUCH_OPTION": "y"}), Fail),
            (json!({"CONFIG_HZ": 250}), Pass),
            (json!({"CONFIG_HZ": "250"}), Pass),
            (json!({"CONFIG_HZ": 1000}), Fail),
            (json!({"CONFIG_HZ": [1000, 250]}), Pass),
            (json!({"CONFIG_VFIO": ["y", "n"]}), Fail),
            (json!({"CONFIG_DRM_NOUVEAU": ["m", "n"]}), Pass),
            (json!({"CONFIG_NR_CPUS": "0x200"}), Pass),
            (json!({"CONFIG_LSM": "landlock,lockdown"}), Pass),
            (json!({"CONFIG_LSM": "\"landlock,lockdown\""}), Pass),
            (json!({"CONFIG_BOOT_CONFIG_TEXT": "say \"hi\" \\"}), Pass),
            (json!({"CONFIG_BOOT_CONFIG_TEXT": "\"say \\\"hi\\\" \\\\\""}), Pass),
            (json!({"CONFIG_LSM": {"op": "InRegexp", "value": ["landlock"]}}), Pass),
            (json!({"CONFIG_HZ": {"op": "Ge", "value": 100}}), Pass),
            (json!({"CONFIG_NO_SUCH_OPTION": {"op": "DoesNotExist"}}), Pass),
            (json!({"CONFIG_VFIO": "m", "CONFIG_KVM": "n"}), Fail),
        ],
    );
    let strict = Manner { exact_options: true };
    let found = ask_in(strict, "kernelConfiguration", &json!({"KVM": "m"}), &builder().build());
    assert_eq!(found.verdict, Fail);
}

#[test]
fn an_option_that_is_off_and_one_that_is_not_known_read_differently() {
    let facts = builder().build();
    let message = |name: &str, facts: &Facts| {
        let found = ask("kernelConfiguration", &json!({name: "y"}), facts);
        found.reasons[0].message.clone()
    };
    assert_eq!(message("DRM_NOUVEAU", &facts), "CONFIG_DRM_NOUVEAU is not set");
    assert!(message("VFIO_MDEV_DEVICE", &facts).contains("unknown to this kernel"));
    let nfd = builder().unknown("kernel.configunset", "not recorded").build();
    assert_eq!(message("VFIO_MDEV_DEVICE", &nfd), "CONFIG_VFIO_MDEV_DEVICE is not set");
}

#[test]
fn kernel_modules() {
    table(
        "kernelModules",
        &[
            (json!({"vfio_pci": {}}), Pass),
            (json!({"vfio-pci": null}), Pass),
            (json!({"kvm": {}}), Pass),
            (json!({"amd_uncore": {}}), Pass),
            (json!({"nouveau": {}}), Fail),
            (json!({"nouveau": {"state": "available"}}), Pass),
            (json!({"vfio_mdev": {"state": "available"}}), Pass),
            (json!({"nouveau": {"state": "loaded"}}), Fail),
            (json!({"zfs": {"state": "available"}}), Fail),
            (json!({"i915": {"enable_guc": -1}}), Pass),
            (json!({"i915": {"enable_guc": "-1"}}), Pass),
            (json!({"i915": {"enable_guc": "0"}}), Fail),
            (json!({"i915": {"modeset": true}}), Pass),
            (json!({"i915": {"modeset": [2, 1]}}), Pass),
            // Mode 0400 and we are not root: nobody knows.
            (json!({"i915": {"enable_gvt": "1"}}), Unknown),
            (json!({"i915": {"no_such": "1"}}), Fail),
            (json!({"snd-hda-intel": {"index": "0,1,2"}}), Pass),
            (json!({"snd_hda_intel": {"index": "0,0x1,2"}}), Pass),
            (json!({"snd_hda_intel": {"index": "0,1"}}), Fail),
            (json!({"kvm": {"nx_huge_pages": "on"}}), Pass),
            (json!({"kvm": {"nx-huge-pages": "1"}}), Pass),
            (json!({"kvm": {"nx_huge_pages": false}}), Fail),
            (json!({"kvm": {"halt_poll_ns": {"op": "Gt", "value": 100_000}}}), Pass),
            (json!({"kvm": {"halt_poll_ns": {"op": "Lt", "value": 100_000}}}), Fail),
            (json!({"vfio_pci": {}, "nouveau": {}}), Fail),
        ],
    );
}

#[test]
fn a_module_on_disk_comes_with_what_to_do() {
    let facts = builder().build();
    let found = ask("kernelModules", &json!({"nouveau": {}}), &facts);
    assert_eq!(found.reasons[0].remedy.as_deref(), Some("modprobe nouveau"));
    // Parameters of a module that is not there are not told about.
    let found = ask("kernelModules", &json!({"nouveau": {"modeset": "1"}}), &facts);
    assert_eq!(found.reasons.len(), 1);
    // Facts of NFD: no list of built-in modules, but one of those that are enabled.
    let nfd = builder()
        .unknown("kernel.builtinmodule", "not recorded")
        .flags("kernel.enabledmodule", ["kvm", "i915"])
        .build();
    assert_eq!(ask("kernelModules", &json!({"kvm": {}}), &nfd).verdict, Pass);
    assert_eq!(ask("kernelModules", &json!({"nouveau": {}}), &nfd).verdict, Fail);
    let neither = builder().unknown("kernel.builtinmodule", "no modules.builtin").build();
    let found = ask("kernelModules", &json!({"nouveau": {}}), &neither);
    assert_eq!(found.verdict, Unknown);
    assert!(found.reasons[0].message.contains("modules.builtin"), "{found:?}");
}

#[test]
fn kernel_cmdline() {
    table(
        "kernelCmdline",
        &[
            (json!({"intel_iommu": "on"}), Pass),
            (json!({"intel-iommu": "sm_on"}), Pass),
            (json!({"intel_iommu": "on,sm_on"}), Pass),
            (json!({"intel_iommu": "off"}), Fail),
            (json!({"intel_iommu": "o"}), Fail),
            (json!({"quiet": ""}), Pass),
            (json!({"quiet": null}), Pass),
            (json!({"quiet": true}), Pass),
            (json!({"quiet": "1"}), Fail),
            (json!({"root": true}), Pass),
            (json!({"splash": true}), Fail),
            // Any occurrence.
            (json!({"console": "tty0"}), Pass),
            (json!({"console": "ttyS0"}), Pass),
            (json!({"console": 115_200}), Pass),
            (json!({"console": ["tty9", "tty0"]}), Pass),
            (json!({"console": {"op": "InRegexp", "value": ["^ttyS"]}}), Pass),
            (json!({"console": {"op": "NotIn", "value": ["ttyS0"]}}), Fail),
            (json!({"console": {"op": "NotIn", "value": ["ttyS9"]}}), Pass),
            (json!({"splash": {"op": "DoesNotExist"}}), Pass),
            (json!({"quiet": {"op": "Exists"}}), Pass),
        ],
    );
}

#[test]
fn hardware() {
    table(
        "hardware",
        &[
            (json!({"cpu": ["GenuineIntel"]}), Pass),
            (json!({"cpu": ["Intel"]}), Pass),
            (json!({"cpu": "GenuineIntel"}), Pass),
            // A host has one maker: any of them.
            (json!({"cpu": ["AuthenticAMD", "GenuineIntel"]}), Pass),
            (json!({"cpu": ["AuthenticAMD", "HygonGenuine"]}), Fail),
            (json!({"pci": ["0302:10de"]}), Pass),
            (json!({"pci": ["0302:10DE"]}), Pass),
            (json!({"pci": ["0x0302:0x10de"]}), Pass),
            (json!({"pci": ["03:10de"]}), Pass),
            (json!({"pci": ["*:10de"]}), Pass),
            (json!({"pci": ["03:*:20b0"]}), Pass),
            (json!({"pci": ["0380:10de"]}), Fail),
            (json!({"pci": ["02:10de"]}), Fail),
            (json!({"pci": ["0302:10de:20b0"]}), Pass),
            (json!({"pci": ["0302:10de:20b0:10de:134f"]}), Pass),
            (json!({"pci": ["0302:10de:20b0:10de:ffff"]}), Fail),
            // Devices are all needed.
            (json!({"pci": ["0302:10de", "0200:8086"]}), Pass),
            (json!({"pci": ["0302:10de", "0200:15b3"]}), Fail),
            (json!({"usb": ["0e:046d"]}), Pass),
            (json!({"usb": ["0e:046d:0825"]}), Pass),
            (json!({"usb": ["0e:046d:0826"]}), Fail),
            (json!({"cpu": ["Intel"], "fpga": ["x"]}), Unknown),
            (json!({"cpu": ["AMD"], "fpga": ["x"]}), Fail),
        ],
    );
    for (kernel, nfd) in [
        ("AuthenticAMD", "AMD"),
        ("HygonGenuine", "Hygon"),
        ("CentaurHauls", "VIA"),
        ("0x41", "ARM"),
        // Most call it so, and NFD does not.
        ("APM", "AMCC"),
        ("0x50", "AMCC"),
        ("0x50", "APM"),
    ] {
        for (host, asked) in [(kernel, nfd), (nfd, kernel), (kernel, kernel), (nfd, nfd)] {
            let facts = Facts::builder().attribute("cpu.model", "vendor_id", host).build();
            assert_eq!(
                ask("hardware", &json!({"cpu": [asked]}), &facts).verdict,
                Pass,
                "{host} {asked}"
            );
        }
    }
}
