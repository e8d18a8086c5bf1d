//! Which operating system and which architecture.

use crate::cpuinfo::CpuInfo;
use crate::elf::Header;
use crate::fact::{Fact, Source};
use crate::root::Root;
use crate::{Live, machine};

/// The operating system: what the kernel says, else what the programs are made for.
pub(crate) fn os(root: &Root, live: &Live, elf: Option<&Fact<Header>>) -> Option<Fact<String>> {
    let path = "/proc/sys/kernel/ostype";
    let own = || {
        let name = machine::os(&root.read_text(path, 64)?)?;
        Some(Fact::from_file(name, path))
    };
    let uname = || {
        let (name, _) = live.uname.as_ref()?;
        Some(Fact { value: machine::os(name)?, source: Source::Uname })
    };
    let programs = || elf?.and_then(|header| header.os().map(str::to_owned));
    own().or_else(uname).or_else(programs)
}

/// The architecture of the kernel.
///
/// Its own word first: `/proc/sys/kernel/arch` (Linux 6.1 and later), which unlike uname does
/// not change with the personality of the process that asks. Then what `cpuinfo` is shaped like,
/// then what the programs are made for: a kernel may be wider than its programs, so they only
/// speak where nothing else does.
pub(crate) fn architecture(
    root: &Root,
    live: &Live,
    cpuinfo: Option<&Fact<CpuInfo>>,
    elf: Option<&Fact<Header>>,
) -> Option<Fact<String>> {
    let path = "/proc/sys/kernel/arch";
    let own = || {
        let name = machine::architecture(&root.read_text(path, 64)?)?;
        Some(Fact::from_file(name.to_owned(), path))
    };
    let uname = || {
        let (_, name) = live.uname.as_ref()?;
        let value = machine::architecture(name)?.to_owned();
        Some(Fact { value, source: Source::Uname })
    };
    let programs =
        elf.and_then(|elf| elf.and_then(|header| header.architecture().map(str::to_owned)));
    own().or_else(uname).or_else(|| from_cpuinfo(cpuinfo?, programs.as_ref())).or(programs)
}

/// The architecture whose kernel writes such a `cpuinfo`. Where two would write the same (386
/// and amd64 on a 64-bit processor, both byte orders of POWER) the programs decide, and a
/// program of neither leaves it open.
fn from_cpuinfo(cpuinfo: &Fact<CpuInfo>, programs: Option<&Fact<String>>) -> Option<Fact<String>> {
    let info = &cpuinfo.value;
    let has =
        |key: &str, word: &str| info.common_words(key).is_some_and(|words| words.contains(word));
    let starts = |key: &str, prefix: &str| {
        info.values(key).next().is_some_and(|value| value.to_ascii_lowercase().starts_with(prefix))
    };
    let decided = |architectures: &[&str]| {
        programs.filter(|p| architectures.contains(&p.value.as_str())).cloned()
    };
    let plain = |name: &str| Some(Fact { value: name.to_owned(), source: cpuinfo.source.clone() });
    match () {
        () if has("flags", "lm") => decided(&["386", "amd64"]).or_else(|| plain("amd64")),
        () if has("flags", "fpu") => plain("386"),
        () if has("Features", "asimd") => plain("arm64"),
        () if info.values("CPU implementer").next().is_some() => plain("arm"),
        () if starts("isa", "rv64") => plain("riscv64"),
        () if starts("isa", "rv32") => plain("riscv"),
        () if starts("isa", "loongarch") => plain("loong64"),
        () if starts("vendor_id", "ibm/s390") => plain("s390x"),
        () if starts("cpu", "power") => decided(&["ppc64le", "ppc64"]),
        () => None,
    }
}
