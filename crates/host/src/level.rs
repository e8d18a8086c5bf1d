//! How far the processor goes.

use portolan_core::platform::Level;
use portolan_core::platform::level::{self, Detection};

use crate::Live;
use crate::cpuinfo::CpuInfo;
use crate::fact::{Fact, Source};

/// The level of a host of this architecture; none where there are no levels or no source.
pub(crate) fn level(
    architecture: &str,
    cpuinfo: Option<&Fact<CpuInfo>>,
    live: &Live,
) -> Option<Fact<Detection>> {
    // What the kernel told this program is true of all processors and cannot be overlaid by a
    // file, so it comes first where it says enough.
    let told = match (architecture, live.capabilities) {
        ("arm64", Some(bits)) => {
            bits.arm64().map(|names| level::arm64(|name| names.contains(name)))
        }
        ("ppc64le", Some(bits)) => bits.power().map(Detection::from),
        _ => None,
    };
    if let Some(value) = told {
        return Some(Fact { value, source: Source::AuxiliaryVector });
    }
    let from_file = cpuinfo.and_then(|fact| fact.and_then(|info| from_cpuinfo(architecture, info)));
    match (from_file, architecture, &live.uname) {
        (None, "arm", Some((_, machine))) => {
            Some(Fact { value: level::arm_machine(machine)?.into(), source: Source::Uname })
        }
        (from_file, ..) => from_file,
    }
}

fn from_cpuinfo(architecture: &str, info: &CpuInfo) -> Option<Detection> {
    match architecture {
        "amd64" => {
            let flags = info.common_words("flags")?;
            Some(level::amd64(|flag| flags.contains(flag)))
        }
        "arm64" => {
            let features = info.common_words("Features")?;
            Some(level::arm64(|name| features.contains(name)))
        }
        "arm" => {
            let model = info.arm_model();
            lowest(info.values("CPU architecture").map(|line| level::arm(line, model)))
                .map(Detection::from)
        }
        "ppc64le" => lowest(info.values("cpu").map(level::ppc64le)).map(Detection::from),
        "riscv64" => info.values("isa").map(level::riscv64).min_by_key(|found| found.level),
        _ => None,
    }
}

/// The level that all processors have; none if one has a level we do not know.
fn lowest(levels: impl Iterator<Item = Option<Level>>) -> Option<Level> {
    levels.min().flatten()
}
