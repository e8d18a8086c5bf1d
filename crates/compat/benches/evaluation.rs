//! Evaluation alone, for `cargo xtask bench compat`: one line `MICROSECONDS BOUND NAME` each.
#![allow(clippy::print_stdout, reason = "its answer")]

use std::fmt::Write as _;
use std::hint::black_box;
use std::time::{Duration, Instant};

use portolan_compat::check::{Options, check};
use portolan_compat::document::{Mode, read};
use portolan_compat::plugins::NoExternal;
use portolan_compat::report::Compatibility;
use portolan_compat::{Report, Spec};
use portolan_host::facts::{Facts, Kind};

fn main() {
    let example = spec(include_str!("../../../fixtures/compat/example.json"));
    let host = host();
    assert_eq!(report(&example, &host).verdict, Compatibility::Compatible);
    print("the proposal's example", 100, median(2_001, || report(&example, &host)));
    let graph = spec(&graph());
    assert_eq!(report(&graph, &host).verdict, Compatibility::Compatible);
    print(
        "a graph of 1,000 namespaces and 10,000 references",
        5_000,
        median(101, || report(&graph, &host)),
    );
}

fn spec(text: &str) -> Spec {
    let read = read(text.as_bytes(), Mode::Lenient);
    read.spec.unwrap_or_else(|| panic!("{:?}", read.diagnostics))
}

fn report(spec: &Spec, host: &Facts) -> Report {
    check(black_box(spec), host, &Options::default(), &mut NoExternal).expect("no roots are given")
}

/// The first host of the example's acceptance table.
fn host() -> Facts {
    let vfio = ["VFIO", "VFIO_IOMMU_TYPE1", "VFIO_MDEV", "VFIO_MDEV_DEVICE", "VFIO_PCI"];
    let yes = ["HOTPLUG_PCI_PCIE", "MODULES", "MODULE_UNLOAD", "PCI_MMCONFIG"];
    let mut facts = Facts::builder()
        .attribute("kernel.version", "full", "5.10.0")
        .attribute("kernel.version", "major", "5")
        .attribute("kernel.version", "minor", "10")
        .attribute("kernel.version", "revision", "0")
        .attribute("cpu.model", "vendor_id", "AuthenticAMD")
        .flags("kernel.loadedmodule", ["vfio", "vfio_iommu_type1", "vfio_pci"])
        .flags("kernel.enabledmodule", ["vfio", "vfio_iommu_type1", "vfio_pci"])
        .known("kernel.builtinmodule", Kind::Flags)
        .known("kernel.availablemodule", Kind::Flags)
        .known("kernel.moduleparameter", Kind::Attributes)
        .flags("kernel.configunset", ["DRM_NOUVEAU"])
        .cmdline("quiet")
        .instance("pci.device", [("class", "0380"), ("vendor", "10de"), ("device", "2204")]);
    for (names, value) in [(&vfio[..], "m"), (&yes[..], "y")] {
        for name in names {
            facts = facts.attribute("kernel.config", name, value);
        }
    }
    // As many options as a distribution's kernel has.
    for n in 0..8_000 {
        facts = facts.attribute("kernel.config", &format!("OPTION_{n}"), "y");
    }
    facts.build()
}

/// Each namespace refers to the ten after it, and asks for a version.
fn graph() -> String {
    let mut text = r#"{"schemaVersion": "0.1.0", "namespaces": {"#.to_owned();
    for n in 0..1_000 {
        let below: Vec<_> =
            (n + 1..=n + 10).filter(|m| *m < 1_000).map(|m| format!("\"n{m}\"")).collect();
        let comma = if n == 0 { "" } else { "," };
        let refs = if below.is_empty() {
            String::new()
        } else {
            format!(r#", "refs": {{"all": [{}]}}"#, below.join(","))
        };
        let range = format!("[4.{},)", n % 100);
        let _ = write!(
            text,
            r#"{comma}"n{n}": {{"plugins": {{"kernelVersion": {{"data": {{"range": "{range}"}}}}}}{refs}}}"#
        );
    }
    text + "}}"
}

fn median(times: usize, mut run: impl FnMut() -> Report) -> Duration {
    let mut measured: Vec<Duration> = (0..times)
        .map(|_| {
            let began = Instant::now();
            black_box(run());
            began.elapsed()
        })
        .collect();
    measured.sort();
    measured[times / 2]
}

fn print(name: &str, bound: u32, time: Duration) {
    println!("{:.1} {bound} {name}", time.as_secs_f64() * 1e6);
}
