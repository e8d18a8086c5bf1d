//! Facts of roots that are made for one question each.

mod support;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use portolan_host::facts::{Facts, Found, Wanted};
use support::{AMD64, RELEASE, WHOLE, fifo, instances, of, root, write};

#[test]
fn ten_of_eleven_pci_devices() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/x86-v4");
    let facts = Facts::at(&fixture, &Wanted::default().feature("pci.device")).unwrap();
    let found = instances(&facts, "pci.device");
    let expected = [
        ("0880", "8086", "2021"),
        ("ff00", "8086", "a1ed"),
        ("0106", "8086", "a1d2"),
        ("1180", "8086", "a1b1"),
        ("0780", "8086", "a1ba"),
        ("0604", "8086", "a193"),
        ("0c80", "8086", "a1a4"),
        ("0300", "1a03", "2000"),
        ("0b40", "8086", "37c8"),
        ("0200", "8086", "37d2"),
    ];
    let listed: Vec<_> = found
        .iter()
        .map(|d| (d["class"].as_str(), d["vendor"].as_str(), d["device"].as_str()))
        .collect();
    assert_eq!(listed, expected, "the eleventh has no device number");
    assert_eq!(found[8]["sriov_totalvfs"], "16");
    assert_eq!(found[8]["iommu_group/type"], "identity");
    assert_eq!(found[8]["iommu/intel-iommu/version"], "1:0");
    assert_eq!(found[9]["sriov_totalvfs"], "32");
    assert!(!found[0].contains_key("sriov_totalvfs"));
}

#[test]
fn a_bus_that_the_kernel_does_not_have_is_empty_and_a_copy_of_parts_is_unknown() {
    let whole = root(&[WHOLE, ("sys/bus/cpu/uevent", "")]);
    let parts = root(&[("sys/bus/pci/uevent", "")]);
    for feature in ["usb.device", "pci.device", "memory.nv"] {
        let facts = of(&whole, feature);
        assert_eq!(instances(&facts, feature).len(), 0);
        assert!(facts.feature(feature).unwrap().source.starts_with("no /sys/bus/"));
        assert!(of(&parts, feature).feature(feature).is_err(), "{feature}");
    }
    assert!(matches!(
        of(&whole, "memory.numa").attribute("memory.numa", "node_count"),
        Found::Value { value: "1", .. }
    ));
    assert!(of(&parts, "memory.numa").feature("memory.numa").is_err());
}

#[test]
fn huge_pages() {
    let dir = root(&[
        WHOLE,
        ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", "2\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "0\n"),
        ("sys/kernel/mm/hugepages/hugepages-oddkB/nr_hugepages", "1\n"),
    ]);
    let facts = of(&dir, "memory.hugepages");
    let values = facts.feature("memory.hugepages").unwrap().attributes.clone().unwrap();
    let values: Vec<_> = values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(values, [("enabled", "true"), ("hugepages-1Gi", "2"), ("hugepages-2Mi", "0")]);
    let none = root(&[WHOLE, ("sys/kernel/uevent_seqnum", "1")]);
    let facts = of(&none, "memory.hugepages");
    assert!(matches!(
        facts.attribute("memory.hugepages", "enabled"),
        Found::Value { value: "false", .. }
    ));
    assert!(of(&root(&[]), "memory.hugepages").feature("memory.hugepages").is_err());
}

#[test]
fn swap_areas() {
    const HEAD: &str = "Filename\tType\tSize\tUsed\tPriority\n";
    let with = format!("{HEAD}/dev/sda2 partition 1 0 -2\n");
    let off = "# CONFIG_SWAP is not set\nCONFIG_X=y\n";
    for (files, expected) in [
        (vec![("proc/swaps", HEAD)], Some("false")),
        (vec![("proc/swaps", with.as_str())], Some("true")),
        (vec![RELEASE, ("boot/config-6.1.0", off)], Some("false")),
        (vec![RELEASE, ("boot/config-6.1.0", "CONFIG_SWAP=y\n")], None),
        (vec![], None),
    ] {
        let facts = of(&root(&files), "memory.swap");
        let found = match facts.attribute("memory.swap", "enabled") {
            Found::Value { value, .. } => Some(value.to_owned()),
            _ => None,
        };
        assert_eq!(found.as_deref(), expected, "{files:?}");
    }
}

#[test]
fn modules_loaded_built_in_and_on_disk() {
    let dir = root(&[
        RELEASE,
        ("proc/modules", "vfio_pci 1 0 - Live 0x0\nbad 1 0 - Loading 0x0\n"),
        ("usr/lib/modules/6.1.0/modules.builtin", "kernel/x/amd-uncore.ko\nnot a module\n"),
        ("usr/lib/modules/6.1.0/modules.dep", "a/nvidia.ko.zst: b/x.ko\nb/x.ko:\nno colon\n"),
        ("sys/module/printk/parameters/time", "Y\n"),
        ("sys/module/vfio_pci/parameters/ids", "\n"),
        ("sys/module/amd_uncore/version", "1\n"),
    ]);
    symlink("usr/lib", dir.path().join("lib")).unwrap();
    let wanted = ["loaded", "enabled", "builtin", "available"]
        .iter()
        .fold(Wanted::default(), |all, kind| all.feature(&format!("kernel.{kind}module")));
    let facts = Facts::at(dir.path(), &wanted).unwrap();
    let present =
        |feature: &str, name: &str| matches!(facts.flag(feature, name), Found::Present { .. });
    assert!(present("kernel.loadedmodule", "vfio-pci"));
    assert!(!present("kernel.loadedmodule", "bad"));
    assert!(present("kernel.builtinmodule", "amd_uncore"));
    assert!(present("kernel.builtinmodule", "printk"), "it is at work and was not loaded");
    assert!(!present("kernel.builtinmodule", "vfio_pci"));
    assert!(
        present("kernel.enabledmodule", "vfio_pci")
            && present("kernel.enabledmodule", "amd-uncore")
    );
    assert!(present("kernel.availablemodule", "nvidia") && present("kernel.availablemodule", "x"));
    let printed = facts.feature("kernel.builtinmodule").unwrap().flags.clone().unwrap();
    assert_eq!(
        printed.into_iter().collect::<Vec<_>>(),
        ["amd-uncore", "printk"],
        "as NFD prints it"
    );
    assert!(matches!(facts.flag("kernel.loadedmodule", "nvidia"), Found::Absent { .. }));
}

#[test]
fn without_the_list_what_is_built_in_is_known_only_where_it_is_seen() {
    let dir = root(&[RELEASE, ("proc/modules", ""), ("sys/module/kvm/parameters/x", "1")]);
    let facts = of(&dir, "kernel.builtinmodule");
    assert!(matches!(facts.flag("kernel.builtinmodule", "kvm"), Found::Present { .. }));
    let other = facts.flag("kernel.builtinmodule", "vfio");
    assert!(
        matches!(other, Found::Unknown { why } if why.contains("modules.builtin")),
        "{other:?}"
    );
    let json = serde_json::to_string(&facts).unwrap();
    let again: Facts = serde_json::from_str(&json).unwrap();
    assert_eq!(again, facts);
    assert!(of(&dir, "kernel.enabledmodule").feature("kernel.enabledmodule").is_err());
    assert!(of(&dir, "kernel.availablemodule").feature("kernel.availablemodule").is_err());
}

#[test]
fn a_kernel_that_cannot_load_modules_has_none_loaded() {
    let config = ("boot/config-6.1.0", "CONFIG_X=y\n# CONFIG_MODULES is not set\n");
    let monolithic = root(&[RELEASE, config]);
    for feature in ["kernel.loadedmodule", "kernel.availablemodule"] {
        let facts = of(&monolithic, feature);
        let found = facts.flag(feature, "nouveau");
        assert!(
            matches!(found, Found::Absent { source } if source.contains("MODULES")),
            "{found:?}"
        );
    }
    // A copy that just lacks the file proves nothing.
    let facts = of(&root(&[RELEASE]), "kernel.loadedmodule");
    assert!(matches!(facts.flag("kernel.loadedmodule", "nouveau"), Found::Unknown { .. }));
}

#[test]
fn the_configuration_is_the_running_releases_or_none() {
    let other = root(&[
        ("proc/sys/kernel/osrelease", "6.18.44"),
        ("boot/config-6.1.0-54-cloud-amd64", "CONFIG_X=y\n"),
        ("boot/config", "CONFIG_X=y\n"),
        ("usr/src/linux/.config", "CONFIG_X=y\n"),
    ]);
    let facts = of(&other, "kernel.config");
    let why = facts.feature("kernel.config").unwrap_err().why;
    assert!(why.contains("6.18.44"), "{why}");
    for path in [
        "boot/config-6.1.0",
        "usr/lib/modules/6.1.0/config",
        "usr/lib/ostree-boot/config-6.1.0",
        "usr/lib/kernel/config-6.1.0",
        "usr/src/linux-6.1.0/.config",
        "usr/src/linux-rt-6.1.0/.config",
        "usr/src/linux-headers-6.1.0/.config",
        "usr/src/linux-rt-headers-6.1.0/.config",
        "lib/modules/6.1.0/build/.config",
    ] {
        let dir = root(&[RELEASE, (path, "CONFIG_X=m\n# CONFIG_Y is not set\nCONFIG_S=\"a b\"\n")]);
        let wanted = Wanted::default().feature("kernel.config").feature("kernel.configunset");
        let facts = Facts::at(dir.path(), &wanted).unwrap();
        let source = format!("/{path}");
        assert_eq!(
            facts.attribute("kernel.config", "X"),
            Found::Value { value: "m", source: &source }
        );
        assert!(matches!(facts.attribute("kernel.config", "S"), Found::Value { value: "a b", .. }));
        assert!(matches!(facts.flag("kernel.configunset", "Y"), Found::Present { .. }));
        assert!(matches!(facts.flag("kernel.configunset", "Z"), Found::Absent { .. }));
    }
    // A release that would lead elsewhere is not followed.
    let odd = root(&[("proc/sys/kernel/osrelease", "../../etc"), ("etc", "CONFIG_X=y\n")]);
    assert!(of(&odd, "kernel.config").feature("kernel.config").is_err());
    // Only what is asked for is kept, and the rest is unknown.
    let dir = root(&[RELEASE, ("boot/config-6.1.0", "CONFIG_X=m\nCONFIG_Y=y\n")]);
    let wanted = Wanted::default().element("kernel.config", "X").element("kernel.config", "Z");
    let facts = Facts::at(dir.path(), &wanted).unwrap();
    assert!(matches!(facts.attribute("kernel.config", "X"), Found::Value { .. }));
    assert!(matches!(facts.attribute("kernel.config", "Y"), Found::Unknown { .. }));
    assert!(matches!(facts.attribute("kernel.config", "Z"), Found::Absent { .. }));
}

#[test]
fn parameters_are_read_one_by_one_or_all() {
    let dir = root(&[
        ("sys/module/i915/parameters/enable_gvt", "1\n"),
        ("sys/module/kvm/parameters/halt_poll_ns", "200000\n"),
        ("sys/module/kvm/version", "1"),
    ]);
    fs::create_dir_all(dir.path().join("sys/module/kvm/parameters/odd")).unwrap();
    let wanted = Wanted::default()
        .parameter("i915", "enable-gvt")
        .parameter("i915", "none")
        .parameter("none", "none")
        .parameter("kvm", "odd")
        .parameter("..", "x")
        .parameter("a/b", "c");
    let facts = Facts::at(dir.path(), &wanted).unwrap();
    let get = |name: &str| facts.attribute("kernel.moduleparameter", name);
    assert!(matches!(get("i915.enable_gvt"), Found::Value { value: "1", .. }));
    assert!(matches!(get("i915.none"), Found::Absent { .. }));
    assert!(matches!(get("none.none"), Found::Absent { .. }));
    assert!(matches!(get("kvm.odd"), Found::Unknown { .. }));
    assert!(matches!(get("kvm.halt_poll_ns"), Found::Unknown { .. }), "not asked for");
    let facts = of(&dir, "kernel.moduleparameter");
    let get = |name: &str| facts.attribute("kernel.moduleparameter", name);
    assert!(matches!(get("kvm.halt_poll_ns"), Found::Value { value: "200000", .. }));
    assert!(matches!(get("kvm.other"), Found::Absent { .. }));
}

/// Root may read everything; this thread may not while it looks.
#[test]
fn what_only_root_may_read_is_unknown_to_others() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = root(&[
        RELEASE,
        ("sys/module/i915/parameters/enable_gvt", "1\n"),
        ("boot/config-6.1.0", "CONFIG_X=y\n"),
        ("proc/modules", "vfio 1 0 - Live 0x0\n"),
        ("sys/bus/usb/devices/x", ""),
    ]);
    for path in ["sys/module/i915/parameters/enable_gvt", "boot/config-6.1.0", "sys/bus/usb"] {
        fs::set_permissions(dir.path().join(path), fs::Permissions::from_mode(0o0)).unwrap();
    }
    let facts = std::thread::scope(|scope| {
        let look = || {
            let none = rustix::thread::CapabilitySet::empty();
            let sets = rustix::thread::CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            rustix::thread::set_capabilities(None, sets).expect("giving up is allowed");
            Facts::at(dir.path(), &Wanted::everything()).unwrap()
        };
        scope.spawn(look).join().unwrap()
    });
    let usb = dir.path().join("sys/bus/usb");
    fs::set_permissions(usb, fs::Permissions::from_mode(0o700)).unwrap();
    let parameter = facts.attribute("kernel.moduleparameter", "i915.enable_gvt");
    assert!(matches!(parameter, Found::Unknown { why } if why.contains("denied")), "{parameter:?}");
    for feature in ["kernel.config", "usb.device"] {
        let why = facts.feature(feature).unwrap_err().why;
        assert!(why.contains("denied"), "{feature}: {why}");
    }
    assert!(matches!(facts.flag("kernel.loadedmodule", "vfio"), Found::Present { .. }));
}

#[test]
fn hostile_trees_neither_block_nor_break() {
    let dir = root(&[AMD64, RELEASE, WHOLE]);
    for path in [
        "proc/cpuinfo",
        "proc/config.gz",
        "proc/cmdline",
        "proc/meminfo",
        "proc/1/mountinfo",
        "sys/module/kvm/parameters/x",
        "sys/bus/pci/devices/a/vendor",
        "sys/class/net/eth0/speed",
        "etc/os-release",
        "etc/kubernetes/node-feature-discovery/features.d/pipe",
    ] {
        fifo(dir.path(), path);
    }
    write(dir.path(), "proc/modules", &vec![b'x'; 5 << 20]);
    write(dir.path(), "proc/swaps", &[0xff; 100]);
    write(dir.path(), "sys/bus/node/devices/\u{1b}[2J", b"");
    symlink("loop", dir.path().join("sys/bus/usb")).unwrap();
    symlink("usb", dir.path().join("sys/bus/loop")).unwrap();
    symlink("/", dir.path().join("sys/block")).unwrap();
    let facts = Facts::at(dir.path(), &Wanted::everything()).unwrap();
    for feature in
        ["cpu.cpuid", "kernel.config", "kernel.cmdline", "memory.info", "system.osrelease"]
    {
        let why = facts.feature(feature).unwrap_err().why;
        assert!(why.contains("ordinary"), "{feature}: {why}");
    }
    let why = facts.feature("kernel.loadedmodule").unwrap_err().why;
    assert!(why.contains("longer than"), "{why}");
    assert!(facts.feature("usb.device").unwrap_err().why.contains("levels"));
    let parameter = facts.attribute("kernel.moduleparameter", "kvm.x");
    assert!(matches!(parameter, Found::Unknown { .. }));
    assert_eq!(instances(&facts, "pci.device").len(), 0, "it has no class");
    assert!(facts.warnings().iter().any(|warning| warning.contains("left out")));
    assert_eq!(instances(&facts, "network.virtual").len(), 1);
    assert_eq!(facts.feature("kernel.version").unwrap().attributes.as_ref().unwrap()["major"], "6");
}

#[test]
fn files_of_administrators_have_bounds() {
    let path = "etc/kubernetes/node-feature-discovery/features.d";
    let dir = root(&[
        (&format!("{path}/a"), "x=1\nboth=a\n# +unknown\n"),
        (&format!("{path}/b"), "both=b\n"),
        (&format!("{path}/.hidden"), "hidden=1\n"),
        (&format!("{path}/long"), &format!("long=1\n{}", "#".repeat(70_000))),
        (&format!("{path}/sub/c"), "sub=1\n"),
    ]);
    let wanted = Wanted::default().feature("local.feature").feature("local.label");
    let facts = Facts::at(dir.path(), &wanted).unwrap();
    let values = facts.feature("local.feature").unwrap().attributes.clone().unwrap();
    let values: Vec<_> = values.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    assert_eq!(values, [("both", "b"), ("x", "1")], "the later file wins");
    let source = format!("/{path}/b");
    assert_eq!(
        facts.attribute("local.label", "both"),
        Found::Value { value: "b", source: &source }
    );
    let warnings = facts.warnings().join("\n");
    for part in ["longer than 65536", "directive", "sub"] {
        assert!(warnings.contains(part), "{part}: {warnings}");
    }
    let none = of(&root(&[("etc/hostname", "x")]), "local.feature");
    assert!(matches!(none.attribute("local.feature", "x"), Found::Absent { .. }));
    assert!(of(&root(&[]), "local.feature").feature("local.feature").is_err());
}

#[test]
fn a_distribution_through_a_link_that_is_broken() {
    // Only /etc/os-release was mounted, and it points elsewhere.
    let dir = root(&[("etc/x", ""), ("usr/lib/os-release", "ID=a\nVERSION_ID=\"1.2\"\n")]);
    symlink("../nowhere/os-release", dir.path().join("etc/os-release")).unwrap();
    let facts = of(&dir, "system.osrelease");
    let source = "/usr/lib/os-release";
    assert_eq!(facts.attribute("system.osrelease", "ID"), Found::Value { value: "a", source });
    let minor = facts.attribute("system.osrelease", "VERSION_ID.minor");
    assert!(matches!(minor, Found::Value { value: "2", .. }));
}

#[test]
fn only_what_is_wanted_is_there() {
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts/x86-v3");
    let wanted = Wanted::default().feature("kernel.version").feature("CPU.model");
    let facts = Facts::at(&fixture, &wanted).unwrap();
    let names: Vec<_> = facts.features().map(|(name, _)| name).collect();
    assert_eq!(names, ["cpu.model", "kernel.version"]);
    assert_eq!(facts.unknown().count(), 0);
    assert!(matches!(facts.flag("cpu.cpuid", "AVX2"), Found::Unknown { .. }));
}

/// A configuration takes longer to read than all the rest of a platform.
#[test]
fn the_kernels_configuration_is_read_only_for_those_who_want_to_know() {
    let dir = root(&[AMD64, RELEASE, ("proc/sys/kernel/ostype", "Linux")]);
    fifo(dir.path(), "proc/config.gz");
    let part = Wanted::default().element("system.platform", "arch").feature("cpu.cpuid");
    let facts = Facts::at(dir.path(), &part).unwrap();
    let arch = facts.attribute("system.platform", "arch");
    assert!(matches!(arch, Found::Value { value: "amd64", .. }), "{arch:?}");
    let compat32 = facts.attribute("system.platform", "compat32");
    assert!(matches!(compat32, Found::Unknown { why } if why.contains("not asked for")));
    assert_eq!(facts.platform().unwrap().platform.to_string(), "linux/amd64");
    let all = of(&dir, "system.platform");
    let compat32 = all.attribute("system.platform", "compat32");
    assert!(matches!(compat32, Found::Unknown { why } if why.contains("32-bit")), "{compat32:?}");
}

#[test]
fn this_machine_tells_its_release_and_its_own_modules() {
    let facts = Facts::here(&Wanted::everything()).unwrap();
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let Found::Value { value, .. } = facts.attribute("kernel.version", "major") else {
        panic!("the release of this kernel is known");
    };
    assert!(release.starts_with(value), "{release}");
    // With or without modules, a running kernel tells which are loaded.
    let loaded = facts.feature("kernel.loadedmodule").unwrap();
    let listed = fs::read_to_string("/proc/modules").unwrap_or_default();
    for line in listed.lines().filter(|line| line.contains(" Live ")) {
        let name = line.split(' ').next().unwrap();
        assert!(loaded.flags.as_ref().unwrap().contains(name), "{name}");
    }
    assert!(facts.platform().is_ok());
}
