use portolan_core::platform::Support;

use super::*;

fn some() -> Facts {
    Facts::builder()
        .flags("cpu.cpuid", ["AVX2", "SSE2"])
        .source("cpu.cpuid", "/proc/cpuinfo")
        .unknown_element("cpu.cpuid", "AVXSLOW", "not in /proc/cpuinfo")
        .attribute("kernel.config", "VFIO", "m")
        .attribute("kernel.config", "CMDLINE", "token=hush")
        .flags("kernel.builtinmodule", ["amd-uncore"])
        .known("kernel.loadedmodule", Kind::Flags)
        .attribute("kernel.moduleparameter", "kvm.halt_poll_ns", "200000")
        .unknown_element("kernel.moduleparameter", "i915.enable_gvt", "permission denied")
        .only("kernel.moduleparameter", ["kvm.halt_poll_ns", "kvm.nothing", "i915.enable_gvt"])
        .instance("pci.device", [("class", "0300"), ("vendor", "10de")])
        .cmdline("console=tty0 intel_iommu=on console=ttyS0 quiet")
        .unknown("system.dmiid", "no /sys")
        .build()
}

#[test]
fn four_answers() {
    let facts = some();
    assert_eq!(facts.flag("CPU.cpuid", "AVX2"), Found::Present { source: "/proc/cpuinfo" });
    assert_eq!(facts.flag("cpu.cpuid", "AVX512F"), Found::Absent { source: "/proc/cpuinfo" });
    assert_eq!(facts.flag("cpu.cpuid", "AVXSLOW"), Found::Unknown { why: "not in /proc/cpuinfo" });
    let value = Found::Value { value: "m", source: RECORDED };
    assert_eq!(facts.attribute("kernel.config", "VFIO"), value);
    assert_eq!(facts.attribute("kernel.config", "KVM"), Found::Absent { source: RECORDED });
    assert_eq!(facts.attribute("system.dmiid", "sys_vendor"), Found::Unknown { why: "no /sys" });
    assert_eq!(facts.flag("kernel.loadedmodule", "vfio"), Found::Absent { source: RECORDED });
    assert!(matches!(facts.attribute("memory.numa", "is_numa"), Found::Unknown { .. }));
    assert_eq!(facts.feature("system.dmiid"), Err(Unknown { why: "no /sys" }));
}

#[test]
fn only_what_was_looked_for_can_be_absent() {
    let facts = some();
    let parameter = |name: &str| facts.attribute("kernel.moduleparameter", name);
    assert!(matches!(parameter("kvm.halt-poll-ns"), Found::Value { value: "200000", .. }));
    assert!(matches!(parameter("kvm.nothing"), Found::Absent { .. }));
    assert_eq!(parameter("i915.enable_gvt"), Found::Unknown { why: "permission denied" });
    assert!(matches!(parameter("kvm.other"), Found::Unknown { .. }));
}

#[test]
fn dashes_do_not_matter_in_the_kernels_names() {
    let facts = some();
    for name in ["amd-uncore", "amd_uncore"] {
        assert!(matches!(facts.flag("kernel.builtinmodule", name), Found::Present { .. }));
    }
    assert_eq!(facts.boot_parameter("intel-iommu"), Ok(vec![Some("on")]));
    assert_eq!(facts.boot_parameter("console"), Ok(vec![Some("tty0"), Some("ttyS0")]));
    assert_eq!(facts.boot_parameter("quiet"), Ok(vec![None]));
    assert_eq!(facts.boot_parameter("absent"), Ok(vec![]));
    let mixed =
        Facts::builder().flags("kernel.loadedmodule", ["a-b_c", "a_b-c-d_e_f-g_h-i"]).build();
    for name in ["a_b_c", "a-b-c", "a_b-c", "a-b_c", "a_b-c-d_e_f-g_h-i"] {
        assert!(matches!(mixed.flag("kernel.loadedmodule", name), Found::Present { .. }), "{name}");
    }
    // Elsewhere they do.
    let other = Facts::builder().flag("cpu.cpuid", "A_B").build();
    assert!(matches!(other.flag("cpu.cpuid", "A-B"), Found::Absent { .. }));
}

#[test]
fn a_document_reads_back() {
    let facts = some();
    let json = serde_json::to_value(Recorded { facts: &facts, include_cmdline: true }).unwrap();
    assert_eq!(json["apiVersion"], API_VERSION);
    assert_eq!(json["flags"]["cpu.cpuid"]["elements"]["AVX2"], serde_json::json!({}));
    assert_eq!(json["sources"]["cpu.cpuid"], "/proc/cpuinfo");
    assert_eq!(json["unknown"]["kernel.moduleparameter/i915.enable_gvt"], "permission denied");
    let mut again: Facts = serde_json::from_value(json).unwrap();
    // Which absent elements were looked for is not written down; they are unknown now.
    let lost = again.attribute("kernel.moduleparameter", "kvm.nothing");
    assert!(matches!(lost, Found::Unknown { .. }));
    let parameters = "kernel.moduleparameter";
    again.features.get_mut(parameters).unwrap().only = facts.features[parameters].only.clone();
    assert_eq!(again, facts);
}

#[test]
fn boot_parameters_are_in_no_document_and_no_log_unless_asked_for() {
    let facts = some();
    let text = serde_json::to_string(&facts).unwrap();
    assert!(!text.contains("intel_iommu") && !text.contains("hush"), "{text}");
    assert!(!format!("{facts:?}").contains("hush"), "{facts:?}");
    let again: Facts = serde_json::from_str(&text).unwrap();
    let why = again.boot_parameter("quiet").unwrap_err().why;
    assert!(why.contains("--include-cmdline"), "{why}");
    assert!(matches!(again.attribute("kernel.config", "CMDLINE"), Found::Unknown { .. }));
    assert!(matches!(again.attribute("kernel.config", "VFIO"), Found::Value { .. }));
    let all = serde_json::to_string(&Recorded { facts: &facts, include_cmdline: true }).unwrap();
    assert!(all.contains("intel_iommu") && all.contains("token=hush"));
}

#[test]
fn what_nfd_exports_is_read() {
    let nfd = r#"{
        "flags": {
            "cpu.cpuid": {"elements": {"AVX2": {}, "X86_64_V1": {}, "X86_64_V2": {}, "X86_64_V3": {}}},
            "kernel.loadedmodule": {"elements": null}
        },
        "attributes": {"cpu.model": {"elements": {"vendor_id": "Intel", "family": "6"}}},
        "instances": {"pci.device": {"elements": [{"attributes": {"class": "0300"}}]}, "usb.device": null}
    }"#;
    let facts: Facts = serde_json::from_str(nfd).unwrap();
    assert!(matches!(facts.flag("cpu.cpuid", "AVX2"), Found::Present { .. }));
    assert!(matches!(facts.flag("kernel.loadedmodule", "x"), Found::Absent { .. }));
    assert!(matches!(facts.attribute("cpu.model", "family"), Found::Value { value: "6", .. }));
    assert_eq!(facts.feature("pci.device").unwrap().instances.as_ref().unwrap().len(), 1);
    assert_eq!(facts.feature("usb.device").unwrap().instances, Some(vec![]));
    assert!(facts.boot_parameter("quiet").is_err());
    assert_eq!(facts.platform().unwrap().platform.to_string(), "linux/amd64/v3");
}

#[test]
fn what_is_no_document_of_facts_is_refused() {
    for (text, hint) in [
        ("{}", "no facts of a host"),
        (r#"{"apiVersion": "v1", "flags": {}}"#, "this program reads"),
        (r#"{"flags": {"cpu.cpuid": 1}}"#, "invalid type"),
        (r#"{"attributes": {"cpu.model": {"elements": {"family": 6}}}}"#, "expected a string"),
        ("[]", "invalid"),
    ] {
        let error = serde_json::from_str::<Facts>(text).unwrap_err().to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}

#[test]
fn recorded_facts_choose_an_entry() {
    let with = |variant: Option<&str>, arch: &str| {
        let builder = Facts::builder()
            .attribute("system.platform", "os", "linux")
            .attribute("system.platform", "arch", arch)
            .attribute("system.platform", "compat32", "true");
        match variant {
            Some(variant) => builder.attribute("system.platform", "variant", variant),
            None => builder,
        }
        .build()
        .platform()
    };
    let host = with(Some("v3"), "amd64").unwrap();
    assert_eq!(
        (host.platform.to_string().as_str(), host.compat32),
        ("linux/amd64/v3", Support::Yes)
    );
    assert_eq!(with(None, "riscv64").unwrap().platform.to_string(), "linux/riscv64");
    // 32-bit ARM has no baseline that all of them run.
    assert!(with(None, "arm").unwrap_err().to_string().contains("variant"));
    let error = Facts::builder().unknown("system.platform", "no /proc").build().platform();
    assert!(error.unwrap_err().to_string().contains("no /proc"));
    let arm = Facts::builder().flags("cpu.cpuid", ["FP", "ASIMD", "CRC32", "ATOMICS", "ASIMDRDM"]);
    assert_eq!(arm.build().platform().unwrap().platform.to_string(), "linux/arm64/v8.1");
}

#[test]
fn wanted_adds_up() {
    let wanted = Wanted::default()
        .parameter("i915", "enable_gvt")
        .feature("kernel.config")
        .element("kernel.config", "VFIO")
        .and(Wanted::default().parameter("kvm", "x").feature("CPU.cpuid"));
    assert_eq!(wanted.elements("kernel.config"), Some(&Elements::All));
    assert_eq!(wanted.elements("cpu.cpuid"), Some(&Elements::All));
    assert_eq!(wanted.elements("cpu.model"), None);
    let parameters = ["i915.enable_gvt".to_owned(), "kvm.x".to_owned()];
    let only = Elements::Only(parameters.into());
    assert_eq!(wanted.elements("kernel.moduleparameter"), Some(&only));
    assert_eq!(Wanted::everything().features().count(), NAMES.len());
    assert!(Wanted::default().is_empty());
}
