//! `cpu.cpuid`: what the processor can do, under NFD's names.

use std::collections::{BTreeMap, BTreeSet};

use portolan_core::platform::Level;

use super::super::Feature;
use super::super::machine::{Machine, Outcome};
use super::flags::capitals;
use super::x86::{HIDDEN, SHOWN};
use crate::cpuinfo::{CpuInfo, PATH};

const NOT_PRINTED: &str = "only the processor itself tells: the kernel does not print this flag";

pub(crate) fn collect(machine: &Machine<'_>) -> Outcome {
    let cpuinfo = &machine.cpuinfo()?.value;
    match machine.architecture()? {
        "amd64" | "386" => x86(cpuinfo, machine.level()),
        "arm64" | "arm64be" | "arm" | "armbe" => named(cpuinfo, "Features"),
        "s390x" => named(cpuinfo, "features"),
        other => Err(format!("no file tells what a processor of {other} can do under NFD's names")),
    }
}

fn x86(cpuinfo: &CpuInfo, level: Option<Level>) -> Outcome {
    let printed = cpuinfo.common_words("flags").ok_or_else(|| no_line("flags"))?;
    let has = |flag: &&(&str, &str)| printed.contains(flag.1);
    let mut flags: BTreeSet<String> =
        SHOWN.iter().chain(HIDDEN).filter(has).map(|(name, _)| (*name).to_owned()).collect();
    // NFD's library sets this one with SSE, and a name means here what it means there.
    if printed.contains("sse") {
        flags.insert("FXSROPT".to_owned());
    }
    // A processor's number is told by one flag of each maker.
    if printed.contains("amd_ppin") {
        flags.insert("PPIN".to_owned());
    }
    let hidden = HIDDEN.iter().map(|(name, _)| *name).chain(["AVX10_VERSION"]);
    let unknown = hidden
        .filter(|name| !flags.contains(*name))
        .map(|name| (name.to_owned(), NOT_PRINTED.to_owned()));
    let unknown = unknown.collect();
    flags.extend(levels(level));
    Ok(Feature {
        flags: Some(flags),
        attributes: Some(BTreeMap::new()),
        source: PATH.to_owned(),
        unknown,
        ..Feature::default()
    })
}

/// `X86_64_V1` up to the level reached, each of which includes those before it.
fn levels(level: Option<Level>) -> impl Iterator<Item = String> {
    let reached = match level {
        Some(Level::Amd64(reached)) => reached,
        _ => 0,
    };
    (1..=reached).map(|n| format!("X86_64_V{n}"))
}

/// The words of a line under NFD's names.
fn named(cpuinfo: &CpuInfo, key: &str) -> Outcome {
    let words = cpuinfo.common_words(key).ok_or_else(|| no_line(key))?;
    Ok(Feature::flags(PATH, words.into_iter().map(capitals).collect()))
}

fn no_line(key: &str) -> String {
    format!("{PATH} has no line of {key}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn levels_are_cumulative_flags() {
        let names = |level| levels(level).collect::<Vec<_>>();
        assert!(names(None).is_empty());
        assert!(names(Some(Level::Arm64 { major: 8, minor: 4 })).is_empty());
        for n in 0..=4 {
            let expected: Vec<_> = (1..=n).map(|n| format!("X86_64_V{n}")).collect();
            assert_eq!(names(Some(Level::Amd64(n))), expected);
        }
    }

    #[test]
    fn names_are_in_order_and_there_once() {
        for list in [SHOWN, HIDDEN] {
            assert!(list.is_sorted_by(|a, b| a.0 < b.0));
        }
        let all: BTreeSet<_> = SHOWN.iter().chain(HIDDEN).map(|(name, _)| name).collect();
        assert_eq!(all.len(), SHOWN.len() + HIDDEN.len());
    }

    #[test]
    fn arms_words_are_in_capitals() {
        let info = CpuInfo::parse("Features : half thumb vfpv3d16 asimddp atomics");
        let flags = named(&info, "Features").unwrap().flags.unwrap();
        let flags: Vec<_> = flags.into_iter().collect();
        assert_eq!(flags, ["ASIMDDP", "ATOMICS", "HALF", "THUMB", "VFPv3D16"]);
        assert!(named(&info, "features of another kind").is_err());
    }

    #[test]
    fn what_the_kernel_does_not_print_is_unknown_and_not_absent() {
        let info =
            CpuInfo::parse("flags : fpu sse pni abm xsave lam\n\nflags : fpu sse pni xsave lam");
        let feature = x86(&info, Some(Level::Amd64(2))).unwrap();
        let flags = feature.flags.unwrap();
        for name in ["X87", "SSE", "SSE3", "XSAVE", "OSXSAVE", "FXSROPT", "LAM", "X86_64_V2"] {
            assert!(flags.contains(name), "{name}");
        }
        // Not on all processors.
        assert!(!flags.contains("LZCNT"));
        assert!(!feature.unknown.contains_key("LZCNT") && !feature.unknown.contains_key("LAM"));
        assert!(feature.unknown.contains_key("AVXSLOW"));
        assert!(feature.unknown.contains_key("AVX10_VERSION"));
    }
}
