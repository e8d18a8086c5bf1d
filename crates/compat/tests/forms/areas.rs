//! The eight areas.

use portolan_compat::Verdict::{Fail, Pass, Unknown};
use portolan_host::facts::Facts;
use serde_json::json;

use crate::host::{ask, table};

#[test]
fn cpu() {
    table(
        "cpu",
        &[
            (json!({"vendor": "GenuineIntel"}), Pass),
            (json!({"vendor": ["AMD", "Intel"]}), Pass),
            (json!({"vendor": {"op": "NotIn", "value": ["AMD"]}}), Pass),
            (json!({"family": 6}), Pass),
            (json!({"family": "6"}), Pass),
            (json!({"family": 15}), Fail),
            (json!({"model": {"op": "GeLe", "value": [85, 143]}}), Pass),
            (json!({"level": "v3"}), Pass),
            (json!({"level": "v1"}), Pass),
            (json!({"level": "x86-64-v3"}), Pass),
            (json!({"level": "v4"}), Fail),
            (json!({"level": "v8.2"}), Fail),
            (json!({"level": ["v8.2", "v2"]}), Pass),
            (json!({"flags": ["AVX2", "FMA3"]}), Pass),
            (json!({"flags": ["avx2", "fma", "sse4_2"]}), Pass),
            (json!({"flags": ["AVX2", "AVX512F"]}), Fail),
            (json!({"flags": ["AVXSLOW"]}), Unknown),
            (json!({"flags": {"AVX2": true, "AVX512F": false}}), Pass),
            (json!({"flags": {"AVX512F": {"op": "DoesNotExist"}}}), Pass),
            (json!({"flags": {"AVX10_VERSION": {"op": "Ge", "value": 1}}}), Pass),
            (json!({"sockets": {"op": "Ge", "value": 2}}), Pass),
            (json!({"sockets": 1}), Fail),
            (json!({"multithreading": true}), Pass),
            (json!({"multithreading": false}), Fail),
            (json!({"hypervisor": "none"}), Pass),
            (json!({"family": 6, "colour": "red"}), Unknown),
        ],
    );
}

/// Kernels and NFD call most flags differently, and a word may be of two architectures.
#[test]
fn flags_are_understood_in_the_kernels_words() {
    let x86 = Facts::builder().flags("cpu.cpuid", ["CMPXCHG8", "X87", "AESNI", "SVMNP"]).build();
    let arm = Facts::builder().flags("cpu.cpuid", ["AES", "VFPv4"]).build();
    for (flag, on_x86, on_arm) in [
        ("cx8", Pass, Fail),
        ("fpu", Pass, Fail),
        ("npt", Pass, Fail),
        ("aes", Pass, Pass),
        ("AES", Pass, Pass),
        ("vfpv4", Fail, Pass),
        ("AVX2", Fail, Fail),
        // Facts have no such name, so nothing follows from its absence.
        ("constant_tsc", Unknown, Unknown),
        ("AVX52F", Unknown, Unknown),
    ] {
        let data = json!({"flags": [flag]});
        assert_eq!(ask("cpu", &data, &x86).verdict, on_x86, "{flag}");
        assert_eq!(ask("cpu", &data, &arm).verdict, on_arm, "{flag}");
    }
    let without = json!({"flags": {"aes": false}});
    assert_eq!(ask("cpu", &without, &arm).verdict, Fail);
    assert_eq!(
        ask("cpu", &without, &Facts::builder().flag("cpu.cpuid", "X").build()).verdict,
        Pass
    );
}

#[test]
fn levels_of_other_architectures_and_unknown_ones() {
    let arm = |variant: Option<&str>| {
        let builder = Facts::builder().attribute("system.platform", "os", "linux").attribute(
            "system.platform",
            "arch",
            "arm64",
        );
        match variant {
            Some(variant) => builder.attribute("system.platform", "variant", variant),
            None => builder.unknown_element("system.platform", "variant", "no /proc/cpuinfo"),
        }
        .build()
    };
    for (host, asked, expected) in [
        (Some("v8.4"), json!("v8.2"), Pass),
        (Some("v8.4"), json!("v9"), Fail),
        (Some("v9"), json!("v8.5"), Pass),
        (Some("v8.4"), json!("v3"), Fail),
        (Some("v8.4"), json!(["v3", "v8.2"]), Pass),
        // That it could not be found out is not the baseline.
        (None, json!("v8"), Unknown),
        (None, json!("v9"), Unknown),
    ] {
        let found = ask("cpu", &json!({"level": asked}), &arm(host));
        assert_eq!(found.verdict, expected, "{host:?} {asked}");
    }
    // NFD's export has flags of levels and no platform.
    let nfd = Facts::builder().flags("cpu.cpuid", ["X86_64_V1", "X86_64_V2"]).build();
    assert_eq!(ask("cpu", &json!({"level": "v2"}), &nfd).verdict, Pass);
    assert_eq!(ask("cpu", &json!({"level": "v3"}), &nfd).verdict, Fail);
}

#[test]
fn kernel() {
    table(
        "kernel",
        &[
            (json!({"version": "[6.0,6.2)"}), Pass),
            (json!({"version": {"range": "[6.0,6.1)"}}), Fail),
            (json!({"version": "6.1"}), Pass),
            (json!({"version": ["5.15", "6.1.0"]}), Pass),
            (json!({"version": "6.1.1"}), Fail),
            (json!({"version": {"op": "Ge", "value": ["5.10"], "type": "version"}}), Pass),
            (json!({"version": {"op": "Lt", "value": ["5.10"], "type": "version"}}), Fail),
            (json!({"config": {"VFIO": "m"}}), Pass),
            (json!({"modules": {"kvm": {}}}), Pass),
            (json!({"modules": ["kvm", "vfio-pci"]}), Pass),
            (json!({"modules": ["kvm", "nouveau"]}), Fail),
            (json!({"cmdline": {"quiet": true}}), Pass),
            (json!({"selinux": false}), Pass),
            (json!({"selinux": true}), Fail),
            (json!({"kvm": true}), Pass),
            (json!({"kvm": {"op": "IsTrue"}}), Pass),
        ],
    );
}

#[test]
fn memory() {
    table(
        "memory",
        &[
            (json!({"total": {"op": "Ge", "value": "64Gi"}}), Pass),
            (json!({"total": {"op": "Gt", "value": ["64Gi"]}}), Fail),
            (json!({"total": {"op": "GeLe", "value": ["32Gi", "128Gi"]}}), Pass),
            (json!({"total": {"op": "Ge", "value": 1_000_000}}), Pass),
            (json!({"total": "64Gi"}), Pass),
            (json!({"numaNodes": 2}), Pass),
            (json!({"numaNodes": {"op": "Gt", "value": 2}}), Fail),
            (json!({"swap": false}), Pass),
            (json!({"swap": true}), Fail),
            (json!({"hugepages": {"1Gi": 2}}), Pass),
            (json!({"hugepages": {"hugepages-1Gi": {"op": "Ge", "value": 1}}}), Pass),
            (json!({"hugepages": {"enabled": true}}), Pass),
            (json!({"hugepages": {"2Mi": {"op": "Ge", "value": 1}}}), Fail),
            (json!({"nv": [{"mode": "fsdax"}]}), Fail),
            (json!({"nv": [{}]}), Fail),
        ],
    );
}

#[test]
fn network_pci_usb_and_storage() {
    table(
        "network",
        &[
            (
                json!({"device": [{"operstate": "up", "speed": {"op": "Ge", "value": 10_000}}]}),
                Pass,
            ),
            // Each is true of one of them, and both of none.
            (json!({"device": [{"operstate": "down", "mtu": "9000"}]}), Fail),
            (json!({"device": [{"operstate": "up"}, {"operstate": "down"}]}), Pass),
            (json!({"device": {"name": {"op": "InRegexp", "value": ["^eth"]}, "count": 2}}), Pass),
            (json!({"device": {"name": {"op": "InRegexp", "value": ["^eth"]}, "count": 3}}), Fail),
            (json!({"device": [{"sriov_totalvfs": {"op": "Gt", "value": 0}}]}), Pass),
            (json!({"virtual": [{"name": "lo"}]}), Pass),
            (json!({"virtual": [{"name": "docker0"}]}), Fail),
        ],
    );
    table(
        "pci",
        &[
            (json!({"device": [{"class": "0302", "vendor": "10de"}]}), Pass),
            (json!({"device": [{"class": "03", "vendor": "0x10DE", "count": 2}]}), Pass),
            (
                json!({"device": [{"class": ["0300", "0302"], "vendor": "10de", "count": {"op": "In", "value": 2}}]}),
                Pass,
            ),
            (json!({"device": [{"class": "03", "count": 3}]}), Fail),
            (json!({"device": [{"class": "03", "count": {"op": "Lt", "value": 2}}]}), Fail),
            (json!({"device": [{"class": "0200", "vendor": "10de"}]}), Fail),
            (json!({"device": [{"vendor": "15b3", "count": 0}]}), Pass),
            (json!({"device": [{"vendor": "8086", "sriov_totalvfs": {"op": "Exists"}}]}), Pass),
            (json!({"device": [{"vendor": "10de", "colour": "green"}]}), Unknown),
        ],
    );
    table(
        "usb",
        &[
            (json!({"device": [{"class": "0E", "vendor": "046d"}]}), Pass),
            (json!({"device": [{"serial": "ABC123"}]}), Pass),
            (json!({"device": [{"vendor": "1050"}]}), Fail),
        ],
    );
    table(
        "storage",
        &[
            (json!({"block": [{"rotational": "0"}]}), Pass),
            (json!({"block": [{"rotational": 0, "zoned": "none"}]}), Pass),
            (json!({"block": [{"rotational": false}]}), Pass),
            (json!({"block": [{"dax": true}]}), Fail),
            (
                json!({"block": [{"nr_zones": {"op": "Gt", "value": 1000}, "zoned": ["host-aware", "host-managed"]}]}),
                Pass,
            ),
        ],
    );
}

#[test]
fn a_device_that_cannot_be_compared_is_not_told_from_one_that_fits() {
    let facts = Facts::builder()
        .instance("network.device", [("name", "eth0"), ("speed", "fast")])
        .instance("network.device", [("name", "eth1"), ("speed", "10")])
        .build();
    let speed = |op: &str, count: u64| json!({"device": [{"speed": {"op": op, "value": 100}, "count": count}]});
    assert_eq!(ask("network", &speed("Ge", 1), &facts).verdict, Unknown);
    assert_eq!(ask("network", &speed("Ge", 2), &facts).verdict, Fail);
    assert_eq!(ask("network", &speed("Lt", 1), &facts).verdict, Pass);
    assert_eq!(ask("network", &speed("Lt", 2), &facts).verdict, Unknown);
}

#[test]
fn what_a_device_does_not_tell_is_unknown_and_what_it_tells_is_not() {
    let facts = Facts::builder()
        .instance("network.device", [("name", "eth0"), ("operstate", "down")])
        .instance("network.device", [("name", "eth1"), ("operstate", "up"), ("speed", "1000")])
        .unknown_element("network.device", "eth0/speed", "the device is down")
        .build();
    for (device, expected) in [
        (json!({"speed": {"op": "Ge", "value": 10_000}}), Unknown),
        (json!({"speed": {"op": "Exists"}, "count": 2}), Unknown),
        (json!({"speed": {"op": "DoesNotExist"}}), Unknown),
        (json!({"speed": {"op": "Ge", "value": 1000}}), Pass),
        (json!({"speed": {"op": "Ge", "value": 10_000}, "operstate": "up"}), Fail),
        (json!({"name": "eth7"}), Fail),
        (json!({"name": "eth0"}), Pass),
    ] {
        let answer = ask("network", &json!({"device": [device]}), &facts);
        assert_eq!(answer.verdict, expected, "{device}");
        if expected == Unknown {
            let message = &answer.reasons[0].message;
            assert!(message.ends_with("the device is down"), "{message}");
        }
    }
}

#[test]
fn a_device_that_could_not_be_read_may_be_the_one() {
    let facts = Facts::builder()
        .instance("pci.device", [("class", "0302"), ("vendor", "10de")])
        .unknown_element("pci.device", "0000:00:02.0/vendor", "permission denied")
        .build();
    for (class, count, expected) in [
        ("0302", 1, Pass),
        ("0302", 2, Unknown),
        ("0302", 3, Fail),
        ("0200", 1, Unknown),
        ("0200", 2, Fail),
    ] {
        let data = json!({"device": [{"class": class, "count": count}]});
        let found = ask("pci", &data, &facts);
        assert_eq!(found.verdict, expected, "{data}");
        if expected == Unknown {
            assert!(found.reasons[0].message.contains("permission denied"), "{found:?}");
        }
    }
}

#[test]
fn a_serial_number_that_nobody_collects_is_unknown() {
    let facts = Facts::builder().instance("usb.device", [("vendor", "046d")]).build();
    let asked = |vendor: &str| json!({"device": [{"vendor": vendor, "serial": "ABC123"}]});
    assert_eq!(ask("usb", &asked("046d"), &facts).verdict, Unknown);
    assert_eq!(ask("usb", &asked("1050"), &facts).verdict, Fail);
}

#[test]
fn system() {
    table(
        "system",
        &[
            (json!({"osRelease": {"ID": "debian"}}), Pass),
            (
                json!({"osRelease": {"ID": ["ubuntu", "debian"], "VERSION_ID": {"op": "Ge", "value": 12}}}),
                Pass,
            ),
            (json!({"osRelease": {"ID": "fedora"}}), Fail),
            (json!({"osRelease": {"VARIANT_ID": "coreos"}}), Fail),
            (json!({"dmi": {"sys_vendor": "Dell Inc."}}), Pass),
            (json!({"arch": "amd64"}), Pass),
            (json!({"arch": "x86_64"}), Pass),
            (json!({"arch": ["arm64", "x86_64"]}), Pass),
            (json!({"arch": "aarch64"}), Fail),
        ],
    );
}
