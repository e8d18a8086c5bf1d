//! Any bytes are rules of NFD or an error. Rules are answered, and mean something for labels; nothing
//! that is said of them plays with a terminal.
#![no_main]

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use portolan_compat::affinity::Affinity;
use portolan_compat::artifact::Kind;
use portolan_compat::plugins::NoExternal;
use portolan_compat::requirements::{Question, Requirements};
use portolan_host::facts::Facts;

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    Facts::builder()
        .attribute("kernel.version", "major", "6")
        .flags("cpu.cpuid", ["AVX2", "SSE42"])
        .attribute("cpu.cpuid", "AVX10_VERSION", "2")
        .instance("pci.device", [("class", "0302"), ("vendor", "10de")])
        .instance("pci.device", [("class", "0200"), ("vendor", "8086")])
        .unknown("usb.device", "not readable\u{1b}[31m")
        .build()
});

fuzz_target!(|bytes: &[u8]| {
    let Ok(read) = Requirements::read(Kind::Nfd, bytes) else { return };
    let question = Question::default();
    let _ = read.requirements.needs(&question);
    let _ = Affinity::of(&read.requirements, &[]);
    let Ok(report) = read.requirements.check(&FACTS, &question, &mut NoExternal) else { return };
    let json = serde_json::to_string(&report).expect("a report is plain data");
    for text in [report.table(), report.dot(), report.svg(), json] {
        assert!(!text.contains(['\u{1b}', '\u{202e}', '\u{9b}']), "{text:?}");
    }
});
