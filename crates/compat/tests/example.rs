//! The proposal's own example, as printed and corrected, against hosts that it must tell apart.

use portolan_compat::check::{Options, check, needs};
use portolan_compat::diagnostic::Severity;
use portolan_compat::document::{Mode, Read, read};
use portolan_compat::plugins::NoExternal;
use portolan_compat::report::{Compatibility, Report};
use portolan_compat::{Spec, Verdict};
use portolan_host::facts::{Builder, Facts, Kind};

const EXAMPLE: &str = include_str!("../../../fixtures/compat/example.json");
const CORRECTED: &str = include_str!("../../../fixtures/compat/corrected.json");

fn lenient(text: &str) -> Read {
    read(text.as_bytes(), Mode::Lenient)
}

fn spec(text: &str) -> Spec {
    let found = lenient(text);
    found.spec.unwrap_or_else(|| panic!("{:?}", found.diagnostics))
}

fn report(text: &str, facts: &Facts) -> Report {
    check(&spec(text), facts, &Options::default(), &mut NoExternal).expect("the roots exist")
}

/// The host that the example was written for, with an AMD processor and NVIDIA's card.
fn host() -> Builder {
    let vfio = ["VFIO", "VFIO_IOMMU_TYPE1", "VFIO_MDEV", "VFIO_MDEV_DEVICE", "VFIO_PCI"];
    let nvidia = ["HOTPLUG_PCI_PCIE", "MODULES", "MODULE_UNLOAD", "PCI_MMCONFIG"];
    let builder = Facts::builder()
        .attribute("kernel.version", "full", "5.10.0")
        .source("kernel.version", "/proc/sys/kernel/osrelease")
        .flags("kernel.loadedmodule", ["vfio", "vfio_iommu_type1", "vfio_pci"])
        .source("kernel.loadedmodule", "/proc/modules")
        .known("kernel.builtinmodule", Kind::Flags)
        .known("kernel.availablemodule", Kind::Flags)
        .known("kernel.moduleparameter", Kind::Attributes)
        .flags("kernel.configunset", ["DRM_NOUVEAU"])
        .attribute("cpu.model", "vendor_id", "AMD")
        .cmdline("BOOT_IMAGE=/vmlinuz root=/dev/vda1 quiet")
        .instance("pci.device", [("class", "0200"), ("vendor", "8086"), ("device", "1572")])
        .instance("pci.device", [("class", "0380"), ("vendor", "10de"), ("device", "20b0")]);
    let options =
        vfio.iter().map(|name| (*name, "m")).chain(nvidia.iter().map(|name| (*name, "y")));
    options.fold(builder, |builder, (name, value)| builder.attribute("kernel.config", name, value))
}

fn kernel(builder: Builder, version: &str) -> Facts {
    builder.attribute("kernel.version", "full", version).build()
}

#[test]
fn as_printed_it_reads_with_three_warnings_and_not_strictly() {
    let found = lenient(EXAMPLE);
    let warnings: Vec<(&str, String)> = found
        .diagnostics
        .iter()
        .filter(|one| one.severity == Severity::Warning)
        .map(|one| (one.code.as_str(), one.place.to_string()))
        .collect();
    assert_eq!(
        warnings,
        [
            ("W_SCHEMA_ALIAS", "2:3".to_owned()),
            ("W_SOURCE_IGNORED", "7:11".to_owned()),
            ("W_MISPLACED_REFS", "12:9".to_owned()),
        ]
    );
    assert!(found.diagnostics.iter().all(|one| one.severity < Severity::Error));
    let spec = found.spec.unwrap();
    let roots: Vec<_> = spec.roots().iter().map(|id| spec.namespace(*id).name.as_str()).collect();
    assert_eq!(roots, ["kernelMainlineV5"]);

    let strict = read(EXAMPLE.as_bytes(), Mode::Strict);
    assert!(strict.spec.is_none());
    let errors = strict.diagnostics.iter().filter(|one| one.severity == Severity::Error);
    assert_eq!(errors.count(), 3);
}

#[test]
fn its_known_mistakes_are_noted_where_they_are() {
    let found = lenient(EXAMPLE);
    let notes: Vec<(&str, Option<&str>)> = found
        .diagnostics
        .iter()
        .filter(|one| one.severity == Severity::Note)
        .map(|one| (one.path.as_str(), one.suggestion.as_deref()))
        .collect();
    let below = |path: &str| format!("/namespaces/{path}");
    assert_eq!(
        notes,
        [
            (below("vfio/plugins/kernelConfiguration/data/CONFIG_VFIO_MDEV_DEVICE").as_str(), None),
            (below("cpuIntel/plugins/kernelCmdline/data/intel_iommu").as_str(), None),
            (below("gpuNVIDIA/plugins/hardware/data/pci/0").as_str(), Some("03:10de")),
            (
                below("gpuIntel/plugins/kernelConfiguration/data/CONFIG_DRM_I915_GVT").as_str(),
                Some("\"y\"")
            ),
            (below("gpuIntel/plugins/kernelModules/data/kvmgt/enable_gvt").as_str(), Some("i915")),
        ]
    );
}

#[test]
fn corrected_it_reads_strictly_without_a_warning() {
    let found = read(CORRECTED.as_bytes(), Mode::Strict);
    assert!(found.spec.is_some());
    assert!(found.diagnostics.iter().all(|one| one.severity == Severity::Note), "{found:?}");
}

#[test]
fn the_host_it_was_written_for_fits() {
    let found = report(EXAMPLE, &host().build());
    assert_eq!(found.verdict, Compatibility::Compatible);
    assert_eq!(found.solution, ["cpu", "cpuAmd", "gpu", "gpuNVIDIA", "kernelMainlineV5", "vfio"]);
    // The other branches fail without effect.
    for name in ["cpuIntel", "gpuIntel"] {
        assert_eq!(found.namespaces[name].verdict, Verdict::Fail, "{name}");
    }
    assert_eq!(report(CORRECTED, &host().build()).verdict, Compatibility::Compatible);
}

#[test]
fn versions_at_the_ends_of_the_range() {
    for (version, expected) in [
        ("5.15.0-91-generic", Compatibility::Incompatible),
        ("5.0.0", Compatibility::Compatible),
        ("5.14.99", Compatibility::Compatible),
        ("4.19", Compatibility::Incompatible),
    ] {
        let found = report(EXAMPLE, &kernel(host(), version));
        assert_eq!(found.verdict, expected, "{version}");
        let answer = &found.namespaces["kernelMainlineV5"].plugins["kernelVersion"];
        assert_eq!(answer.verdict == Verdict::Pass, expected == Compatibility::Compatible);
        let reason = &answer.reasons[0];
        assert_eq!(reason.expected.as_deref(), Some("[5.0.0,5.15.0)"));
        assert_eq!(reason.found.as_deref(), Some(version));
        assert_eq!(reason.source.as_deref(), Some("/proc/sys/kernel/osrelease"));
    }
}

#[test]
fn intel_needs_its_boot_parameter() {
    let intel = || host().attribute("cpu.model", "vendor_id", "GenuineIntel");
    let without = report(EXAMPLE, &intel().build());
    assert_eq!(without.verdict, Compatibility::Incompatible);
    assert_eq!(without.namespaces["cpuIntel"].plugins["hardware"].verdict, Verdict::Pass);
    assert_eq!(without.namespaces["cpuIntel"].plugins["kernelCmdline"].verdict, Verdict::Fail);
    let with = report(EXAMPLE, &intel().cmdline("quiet intel_iommu=on,sm_on").build());
    assert_eq!(with.verdict, Compatibility::Compatible);
    assert!(with.solution.contains(&"cpuIntel".to_owned()));
}

#[test]
fn nvidias_real_class_fits_only_the_corrected_one() {
    let facts = host()
        .unknown("pci.device", "")
        .instance("pci.device", [("class", "0302"), ("vendor", "10de")])
        .build();
    let found = report(EXAMPLE, &facts);
    assert_eq!(found.verdict, Compatibility::Incompatible);
    let reason = &found.namespaces["gpuNVIDIA"].plugins["hardware"].reasons[0];
    assert_eq!(reason.found.as_deref(), Some("class=0302 vendor=10de"));
    assert_eq!(report(CORRECTED, &facts).verdict, Compatibility::Compatible);
}

#[test]
fn nothing_has_the_parameter_where_it_is_asked_for() {
    let options = ["DRM", "DRM_I915", "DRM_I915_USERPTR", "DRM_I915_GVT"];
    let builder = host()
        .unknown("pci.device", "")
        .instance("pci.device", [("class", "0380"), ("vendor", "8086")])
        .attribute("kernel.config", "DRM_I915_GVT_KVMGT", "m")
        .flags("kernel.loadedmodule", ["vfio", "vfio_iommu_type1", "vfio_pci", "kvmgt", "i915"])
        .attribute("kernel.moduleparameter", "i915.enable_gvt", "Y");
    let facts =
        options.iter().fold(builder, |b, name| b.attribute("kernel.config", name, "y")).build();
    let found = report(EXAMPLE, &facts);
    assert_eq!(found.verdict, Compatibility::Incompatible);
    let modules = &found.namespaces["gpuIntel"].plugins["kernelModules"];
    assert_eq!(
        modules.reasons[1].message,
        "parameter enable_gvt not found on kvmgt; exists on: i915"
    );
    // Everything else of the namespace is there: `m` takes `y` too.
    assert_eq!(found.namespaces["gpuIntel"].plugins["kernelConfiguration"].verdict, Verdict::Pass);
    assert_eq!(report(CORRECTED, &facts).verdict, Compatibility::Compatible);
}

/// The same with nothing collected but what the example asks for.
#[test]
fn a_check_that_collects_only_what_it_needs_says_where_the_parameter_is() {
    let root = tempfile::tempdir().expect("a temporary directory");
    for (path, text) in [
        ("proc/modules", "kvmgt 1 0 - Live 0x0\ni915 1 0 - Live 0x0\n"),
        ("sys/module/i915/parameters/enable_gvt", "Y\n"),
        ("sys/module/kvmgt/refcnt", "0\n"),
    ] {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        std::fs::write(path, text).expect("a file");
    }
    let spec = spec(EXAMPLE);
    let wanted = needs(&spec, &Options::default()).unwrap();
    let facts = Facts::at(root.path(), &wanted).unwrap();
    let found = check(&spec, &facts, &Options::default(), &mut NoExternal).unwrap();
    let modules = &found.namespaces["gpuIntel"].plugins["kernelModules"];
    assert_eq!(modules.verdict, Verdict::Fail);
    assert_eq!(
        modules.reasons[1].message,
        "parameter enable_gvt not found on kvmgt; exists on: i915"
    );
    assert_eq!(modules.reasons[1].remedy.as_deref(), Some("ask for it on i915"));
}

#[test]
fn without_a_configuration_nobody_knows() {
    let facts = host()
        .unknown("kernel.config", "neither /proc/config.gz nor /boot/config-5.10.0 can be read")
        .unknown("kernel.configunset", "no configuration")
        .build();
    let found = report(EXAMPLE, &facts);
    assert_eq!(found.verdict, Compatibility::Unknown);
    let reason = &found.namespaces["vfio"].plugins["kernelConfiguration"].reasons[0];
    assert_eq!((reason.verdict, reason.code.as_ref()), (Verdict::Unknown, "UNREAD"));
    assert!(reason.message.contains("/proc/config.gz"), "{reason:?}");
}

#[test]
fn what_is_built_in_counts() {
    let vfio = ["VFIO", "VFIO_IOMMU_TYPE1", "VFIO_MDEV", "VFIO_MDEV_DEVICE", "VFIO_PCI"];
    let builder = host()
        .unknown("kernel.loadedmodule", "")
        .known("kernel.loadedmodule", Kind::Flags)
        .flags("kernel.builtinmodule", ["vfio", "vfio_iommu_type1", "vfio-pci"]);
    let facts =
        vfio.iter().fold(builder, |b, name| b.attribute("kernel.config", name, "y")).build();
    assert_eq!(report(EXAMPLE, &facts).verdict, Compatibility::Compatible);
}

/// With a two-valued logic the host without a readable list of modules would pass.
#[test]
fn what_is_forbidden_and_could_not_be_looked_for_is_unknown() {
    let text = r#"{"schemaVersion": "0.1.0", "namespaces": {
        "root": {"refs": {"noneOf": ["nouveau"]}},
        "nouveau": {"plugins": {"kernelModules": {"data": {"nouveau": {}}}}}}}"#;
    let unread = Facts::builder().unknown("kernel.loadedmodule", "no /proc").build();
    assert_eq!(report(text, &unread).verdict, Compatibility::Unknown);
    assert_eq!(report(text, &host().build()).verdict, Compatibility::Compatible);
    let loaded = host().flag("kernel.loadedmodule", "nouveau").build();
    assert_eq!(report(text, &loaded).verdict, Compatibility::Incompatible);
}

/// Which modules are enabled says nothing of those that are in no list.
#[test]
fn a_module_is_not_missing_where_modules_at_work_are_hidden() {
    let text = r#"{"schemaVersion": "0.1.0", "namespaces": {
        "root": {"plugins": {"kernelModules": {"data": {"vfio": {}}}}}}}"#;
    let facts = Facts::builder()
        .known("kernel.loadedmodule", Kind::Flags)
        .known("kernel.enabledmodule", Kind::Flags)
        .known("kernel.availablemodule", Kind::Flags);
    let hidden = facts.clone().flag("kernel.builtinmodule", "veth");
    let hidden = hidden.only("kernel.builtinmodule", ["veth"]).build();
    assert_eq!(report(text, &hidden).verdict, Compatibility::Unknown);
    // Where nothing else was exported, it is all there is.
    assert_eq!(report(text, &facts.build()).verdict, Compatibility::Incompatible);
}

#[test]
fn only_what_is_asked_for_needs_to_be_collected() {
    let spec = spec(EXAMPLE);
    let wanted = needs(&spec, &Options::default()).unwrap();
    let features: Vec<&str> = wanted.features().collect();
    assert_eq!(
        features,
        [
            "cpu.model",
            "kernel.availablemodule",
            "kernel.builtinmodule",
            "kernel.cmdline",
            "kernel.config",
            "kernel.configunset",
            "kernel.loadedmodule",
            "kernel.moduleparameter",
            "kernel.version",
            "pci.device",
        ]
    );
    let roots = ["cpuAmd".to_owned()];
    let part = Options { roots: &roots, ..Options::default() };
    let wanted = needs(&spec, &part).unwrap();
    assert_eq!(wanted.features().collect::<Vec<_>>(), ["cpu.model"]);
}

#[test]
fn a_root_can_be_given_and_must_exist() {
    let spec = spec(EXAMPLE);
    let roots = ["gpu".to_owned(), "cpu".to_owned()];
    let options = Options { roots: &roots, ..Options::default() };
    let found = check(&spec, &kernel(host(), "6.1"), &options, &mut NoExternal).unwrap();
    assert_eq!(found.verdict, Compatibility::Compatible);
    assert_eq!(found.roots.len(), 2);
    assert!(found.skipped.contains(&"vfio".to_owned()));
    let roots = ["gpuNvidia".to_owned()];
    let options = Options { roots: &roots, ..Options::default() };
    let error = check(&spec, &host().build(), &options, &mut NoExternal).unwrap_err();
    assert!(error.to_string().ends_with("did you mean gpuNVIDIA?"), "{error}");
}
