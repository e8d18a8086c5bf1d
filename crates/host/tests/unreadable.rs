//! What cannot be read is unknown and never "no", and what would take for ever is given up.

mod support;

use std::fs;
use std::os::unix::fs::symlink;

use portolan_core::platform::Support;
use portolan_host::Host;
use portolan_host::facts::{Facts, Found, Wanted};
use support::{AMD64, RELEASE, WHOLE, fifo, instances, of, root};

/// A device with its five numbers.
fn pci(name: &str) -> Vec<(String, &'static str)> {
    let numbers = [
        ("class", "0x030000"),
        ("vendor", "0x10de"),
        ("device", "0x20b0"),
        ("subsystem_vendor", "0x10de"),
        ("subsystem_device", "0x134f"),
    ];
    numbers.map(|(file, text)| (format!("sys/bus/pci/devices/{name}/{file}"), text)).to_vec()
}

#[test]
fn a_device_that_cannot_be_read_may_be_any() {
    let mut files = pci("0000:00:01.0");
    files.extend(pci("0000:00:02.0").into_iter().filter(|(path, _)| !path.ends_with("/vendor")));
    let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let dir = root(&[&files[..], &[WHOLE, ("sys/bus/usb/devices/1-1/idVendor", "1050")]].concat());
    for path in [
        "sys/bus/pci/devices/0000:00:02.0/vendor",
        "sys/bus/usb/devices/1-1/idProduct",
        "sys/bus/nd/devices/pmem0/mode",
        "sys/class/net/eth0/speed",
        "sys/block/sda/queue/rotational",
    ] {
        fifo(dir.path(), path);
    }
    let facts = Facts::at(dir.path(), &Wanted::everything()).unwrap();
    for (feature, known, unknown) in [
        ("pci.device", 1, "0000:00:02.0/vendor"),
        ("usb.device", 0, "1-1/idProduct"),
        ("memory.nv", 1, "pmem0/mode"),
        ("network.virtual", 1, "eth0/speed"),
        ("storage.block", 1, "sda/rotational"),
    ] {
        assert_eq!(instances(&facts, feature).len(), known, "{feature}");
        let found = &facts.feature(feature).unwrap().unknown;
        assert_eq!(found.keys().collect::<Vec<_>>(), [unknown], "{feature}");
        assert!(found[unknown].contains("not an ordinary file"), "{found:?}");
    }
    // Of a thing that has a name, the rest is known.
    let interfaces = facts.feature("network.virtual").unwrap();
    let eth0 = &instances(&facts, "network.virtual")[0];
    assert!(matches!(interfaces.of_instance(eth0, "speed"), Found::Unknown { .. }));
    assert!(matches!(interfaces.of_instance(eth0, "mtu"), Found::Absent { .. }));
    assert!(matches!(interfaces.of_instance(eth0, "name"), Found::Value { value: "eth0", .. }));
    assert!(interfaces.unread_things().is_empty());
    assert_eq!(facts.feature("pci.device").unwrap().unread_things().len(), 1);
    // It is written down and read back.
    let again: Facts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
    assert_eq!(again.feature("pci.device"), facts.feature("pci.device"));
}

#[test]
fn a_processor_without_a_line_of_flags_may_have_any() {
    let dir = root(&[AMD64, WHOLE, ("proc/cpuinfo", "processor : 0\nvendor_id : GenuineIntel\n")]);
    let facts = of(&dir, "cpu.security");
    for element in ["sgx.enabled", "sgx.epc", "tdx.protected"] {
        let found = facts.attribute("cpu.security", element);
        assert!(matches!(found, Found::Unknown { why } if why.contains("flags")), "{found:?}");
    }
    // A node that does not tell its share makes the sum unknown, and is not zero.
    let nodes = "sys/devices/system/node";
    let dir = root(&[
        AMD64,
        WHOLE,
        ("proc/cpuinfo", "flags : sgx\n"),
        (&format!("{nodes}/node0/x86/sgx_total_bytes"), "1024"),
    ]);
    let epc = |facts: &Facts| match facts.attribute("cpu.security", "sgx.epc") {
        Found::Value { value, .. } => Some(value.to_owned()),
        _ => None,
    };
    assert_eq!(epc(&of(&dir, "cpu.security")).as_deref(), Some("1024"));
    fifo(dir.path(), &format!("{nodes}/node1/x86/sgx_total_bytes"));
    assert_eq!(epc(&of(&dir, "cpu.security")), None);
}

#[test]
fn a_file_of_an_administrator_that_cannot_be_read_may_say_anything() {
    let path = "etc/kubernetes/node-feature-discovery/features.d";
    let dir = root(&[(&format!("{path}/a"), "x=1\n"), (&format!("{path}/sub/c"), "sub=1\n")]);
    let label = |name: &str| match of(&dir, "local.label").attribute("local.label", name) {
        Found::Value { value, .. } => value.to_owned(),
        Found::Unknown { .. } => "unknown".to_owned(),
        _ => "absent".to_owned(),
    };
    assert_eq!((label("x"), label("y")), ("1".to_owned(), "absent".to_owned()));
    fifo(dir.path(), &format!("{path}/b"));
    assert_eq!((label("x"), label("y")), ("1".to_owned(), "unknown".to_owned()));
}

#[test]
fn many_files_of_administrators_are_given_up() {
    let path = "etc/kubernetes/node-feature-discovery/features.d";
    let dir = root(&[("long", &"#".repeat(60_000)), (&format!("{path}/00"), "x=1\n")]);
    for n in 1..80 {
        symlink("/long", dir.path().join(format!("{path}/{n:02}"))).unwrap();
    }
    let facts = of(&dir, "local.feature");
    assert!(matches!(facts.attribute("local.feature", "x"), Found::Value { .. }));
    let other = facts.attribute("local.feature", "y");
    assert!(matches!(other, Found::Unknown { why } if why.contains("longer than")), "{other:?}");
}

#[test]
fn what_is_said_twice_of_an_option_is_said_by_the_last() {
    let config = "CONFIG_A=y\n# CONFIG_B is not set\n# CONFIG_A is not set\nCONFIG_B=m\n";
    let dir = root(&[RELEASE, ("boot/config-6.1.0", config)]);
    let all = Wanted::default().feature("kernel.config").feature("kernel.configunset");
    let some = ["A", "B"].iter().fold(Wanted::default(), |wanted, name| {
        wanted.element("kernel.config", name).element("kernel.configunset", name)
    });
    for wanted in [all, some] {
        let facts = Facts::at(dir.path(), &wanted).unwrap();
        assert!(matches!(facts.attribute("kernel.config", "A"), Found::Absent { .. }));
        assert!(matches!(facts.flag("kernel.configunset", "A"), Found::Present { .. }));
        assert!(matches!(facts.attribute("kernel.config", "B"), Found::Value { value: "m", .. }));
        assert!(matches!(facts.flag("kernel.configunset", "B"), Found::Absent { .. }));
    }
}

/// Far more than the few seconds that reading takes, and far less than looking through the whole
/// text hundreds of thousands of times.
#[test]
fn many_options_are_found_while_the_text_is_read_once() {
    let config: String = (0..20_000).map(|n| format!("CONFIG_HAVE_{n}=y\n")).collect();
    let dir = root(&[RELEASE, ("boot/config-6.1.0", &config)]);
    let wanted = (0..200_000)
        .fold(Wanted::default(), |wanted, n| wanted.element("kernel.config", &format!("WANT_{n}")));
    let wanted = wanted.element("kernel.config", "HAVE_77");
    let began = std::time::Instant::now();
    let facts = Facts::at(dir.path(), &wanted).unwrap();
    assert!(began.elapsed() < std::time::Duration::from_secs(60), "{:?}", began.elapsed());
    assert!(matches!(facts.attribute("kernel.config", "HAVE_77"), Found::Value { .. }));
    assert!(matches!(facts.attribute("kernel.config", "WANT_77"), Found::Absent { .. }));
}

#[test]
fn a_parameter_that_is_missing_is_looked_for_on_other_modules() {
    let dir = root(&[
        ("sys/module/i915/parameters/enable_gvt", "Y\n"),
        ("sys/module/i915/parameters/modeset", "1\n"),
        ("sys/module/kvmgt/parameters/other", "1\n"),
    ]);
    let facts = Facts::at(dir.path(), &Wanted::default().parameter("kvmgt", "enable-gvt")).unwrap();
    let get = |name: &str| facts.attribute("kernel.moduleparameter", name);
    assert!(matches!(get("kvmgt.enable_gvt"), Found::Absent { .. }));
    assert!(matches!(get("i915.enable_gvt"), Found::Value { value: "Y", .. }));
    assert!(matches!(get("i915.modeset"), Found::Unknown { .. }), "nobody asked for it");
    // What is there is not looked for elsewhere.
    let facts = Facts::at(dir.path(), &Wanted::default().parameter("kvmgt", "other")).unwrap();
    let known = facts.feature("kernel.moduleparameter").unwrap().attributes.as_ref().unwrap();
    assert_eq!(known.keys().collect::<Vec<_>>(), ["kvmgt.other"]);
}

#[test]
fn modules_whose_parameters_never_end_are_given_up() {
    let dir = root(&[("sys/module/first/parameters/one", "1")]);
    fs::create_dir_all(dir.path().join("many")).unwrap();
    for n in 0..150 {
        fs::write(dir.path().join(format!("many/p{n}")), "1").unwrap();
        let module = dir.path().join(format!("sys/module/m{n}"));
        fs::create_dir(&module).unwrap();
        symlink("/many", module.join("parameters")).unwrap();
    }
    let facts = of(&dir, "kernel.moduleparameter");
    let get = |name: &str| facts.attribute("kernel.moduleparameter", name);
    assert!(matches!(get("first.one"), Found::Value { .. }));
    let unread = get("no.such");
    assert!(matches!(unread, Found::Unknown { why } if why.contains("more than")), "{unread:?}");
    let known = facts.feature("kernel.moduleparameter").unwrap().attributes.as_ref().unwrap();
    assert!(known.len() <= 20_000, "{}", known.len());
}

#[test]
fn a_name_with_many_dashes_is_found_however_they_are_written() {
    let name = "snd-soc_sof-intel_hda-sdw_bpt-x";
    let dir = root(&[
        RELEASE,
        ("lib/modules/6.1.0/modules.dep", &format!("kernel/{name}.ko.xz: a.ko\n")),
    ]);
    let facts = of(&dir, "kernel.availablemodule");
    let found = facts.flag("kernel.availablemodule", "snd_soc-sof_intel-hda_sdw-bpt_x");
    assert!(matches!(found, Found::Present { .. }), "{found:?}");
    let other = facts.flag("kernel.availablemodule", "snd_soc-sof_intel-hda_sdw-bpt_y");
    assert!(matches!(other, Found::Absent { .. }), "{other:?}");
}

/// Some modules are in no list and are only seen at work, so where that is hidden an absence
/// from the list proves nothing.
#[test]
fn where_modules_at_work_are_hidden_none_is_known_not_to_be_built_in() {
    const BUILT_IN: &str = "kernel.builtinmodule";
    let list = ("lib/modules/6.1.0/modules.builtin", "kernel/drivers/net/veth.ko\n");
    let dir = root(&[RELEASE, list, ("proc/modules", "")]);
    fs::create_dir_all(dir.path().join("sys")).unwrap();
    symlink("/sys/module", dir.path().join("sys/module")).unwrap();
    let facts = of(&dir, BUILT_IN);
    assert!(matches!(facts.flag(BUILT_IN, "veth"), Found::Present { .. }));
    let other = facts.flag(BUILT_IN, "vfio");
    assert!(matches!(other, Found::Unknown { why } if why.contains("/sys/module")), "{other:?}");
    let again: Facts = serde_json::from_str(&serde_json::to_string(&facts).unwrap()).unwrap();
    assert_eq!(again, facts);
    // What is at work is loaded or built in, and only the other file tells which.
    let dir = root(&[RELEASE, list, ("sys/module/vfio_pci/x", "1"), ("sys/module/veth/x", "1")]);
    fifo(dir.path(), "proc/modules");
    let facts = of(&dir, BUILT_IN);
    assert!(matches!(facts.flag(BUILT_IN, "veth"), Found::Present { .. }));
    let unsure = facts.flag(BUILT_IN, "vfio-pci");
    assert!(
        matches!(unsure, Found::Unknown { why } if why.contains("/proc/modules")),
        "{unsure:?}"
    );
    assert!(matches!(facts.flag(BUILT_IN, "nouveau"), Found::Absent { .. }));
}

#[test]
fn a_size_that_does_not_tell_may_have_huge_pages() {
    let size = |name: &str| format!("sys/kernel/mm/hugepages/hugepages-{name}kB/nr_hugepages");
    let dir = root(&[WHOLE, (&size("2048"), "0\n")]);
    fifo(dir.path(), &size("1048576"));
    let facts = of(&dir, "memory.hugepages");
    let enabled = facts.attribute("memory.hugepages", "enabled");
    assert!(matches!(enabled, Found::Unknown { why } if why.contains("1048576")), "{enabled:?}");
    // One that has some is enough.
    support::write(dir.path(), &size("2048"), b"3\n");
    let facts = of(&dir, "memory.hugepages");
    let enabled = facts.attribute("memory.hugepages", "enabled");
    assert!(matches!(enabled, Found::Value { value: "true", .. }), "{enabled:?}");
}

#[test]
fn where_a_switch_cannot_be_read_what_depends_on_it_is_unknown_too() {
    let dir = root(&[AMD64, WHOLE, ("proc/cpuinfo", "flags : fpu\n")]);
    for path in ["kvm_amd/parameters/sev", "kvm_amd/parameters/sev_es", "kvm_intel/parameters/tdx"]
    {
        fifo(dir.path(), &format!("sys/module/{path}"));
    }
    let facts = of(&dir, "cpu.security");
    for element in ["sev.enabled", "sev.asids", "sev.encrypted_state_ids", "tdx.total_keys"] {
        let found = facts.attribute("cpu.security", element);
        assert!(matches!(found, Found::Unknown { .. }), "{element}: {found:?}");
    }
}

#[test]
fn boot_parameters_that_cannot_be_read_may_turn_32_bit_programs_off() {
    let config = ("boot/config-6.1.0", "CONFIG_IA32_EMULATION=y\n");
    let dir = root(&[AMD64, RELEASE, config, ("proc/sys/kernel/ostype", "Linux")]);
    assert_eq!(Host::at(dir.path()).unwrap().platform().unwrap().compat32, Support::Yes);
    fifo(dir.path(), "proc/cmdline");
    let facts = of(&dir, "system.platform");
    let found = facts.attribute("system.platform", "compat32");
    assert!(matches!(found, Found::Unknown { .. }), "{found:?}");
    assert_eq!(Host::at(dir.path()).unwrap().platform().unwrap().compat32, Support::Unknown);
}

#[test]
fn mounts_that_cannot_be_read_are_warned_of() {
    let dir = root(&[("etc/os-release", "ID=debian\n")]);
    assert!(of(&dir, "system.osrelease").warnings().is_empty());
    fifo(dir.path(), "proc/1/mountinfo");
    let facts = of(&dir, "system.osrelease");
    assert!(facts.warnings().iter().any(|told| told.contains("mountinfo")), "{facts:?}");
}
