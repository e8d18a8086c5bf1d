//! Any bytes are a spec or remarks. A spec is answered, the same way in haste, and drawn; nothing
//! that is drawn plays with a terminal.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portolan_compat::check::{Options, check, needs};
use portolan_compat::document::{Mode, read};
use portolan_compat::evaluate::Depth;
use portolan_compat::plugins::NoExternal;
use portolan_compat::report::{Graph, outline};
use portolan_host::facts::{Facts, Kind};

/// A host that has a little of everything.
static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    Facts::builder()
        .attribute("kernel.version", "full", "5.10.0-rc1")
        .attribute("kernel.config", "VFIO", "m")
        .flags("kernel.loadedmodule", ["vfio", "kvm"])
        .known("kernel.builtinmodule", Kind::Flags)
        .attribute("kernel.moduleparameter", "kvm.nx_huge_pages", "Y")
        .cmdline("quiet intel_iommu=on,sm_on secret=\"a b\"")
        .flags("cpu.cpuid", ["AVX2", "SSE42"])
        .attribute("cpu.model", "vendor_id", "AMD")
        .attribute("system.platform", "os", "linux")
        .attribute("system.platform", "arch", "amd64")
        .attribute("system.platform", "variant", "v3")
        .attribute("memory.info", "total", "68719476736")
        .instance("pci.device", [("class", "0302"), ("vendor", "10de")])
        .instance("network.device", [("name", "eth0"), ("speed", "\u{1b}[31m")])
        .build()
});

fuzz_target!(|bytes: &[u8]| {
    let strict = read(bytes, Mode::Strict);
    let found = read(bytes, Mode::Lenient);
    for one in &found.diagnostics {
        let _ = one.to_string();
    }
    let Some(spec) = found.spec else {
        assert!(strict.spec.is_none(), "what is no spec leniently is none strictly");
        return;
    };
    let all = Options::default();
    let few = Options { depth: Depth::UntilDecided, ..Options::default() };
    let _ = needs(&spec, &all).expect("its own roots exist");
    let report = check(&spec, &FACTS, &all, &mut NoExternal).expect("its own roots exist");
    let hasty = check(&spec, &FACTS, &few, &mut NoExternal).expect("its own roots exist");
    assert_eq!(report.verdict, hasty.verdict);
    let json = serde_json::to_string(&report).expect("a report is plain data");
    for text in [report.table(), report.dot(), report.svg(), outline(&spec), Graph::of_spec(&spec).svg(), json] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{text:?}");
    }
});
