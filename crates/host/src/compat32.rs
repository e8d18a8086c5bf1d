//! Whether a 64-bit host runs the 32-bit programs of its architecture.
//!
//! On amd64 the kernel decides: IA-32 emulation may be left out when it is built, and since
//! Linux 6.7 it may be off unless the boot parameters turn it on. On arm64 the processor has a
//! say too, and no file tells whether its cores know AArch32, so there "no" can be found out and
//! "yes" only on machines whose kernel lists such cores.

use crate::fact::{Fact, Source};
use crate::kernel::{self, Kernel};
use crate::root::Root;

/// From here on IA-32 emulation can be built in and yet be off.
const SWITCHABLE: (u32, u32) = (6, 7);

pub(crate) fn compat32(architecture: &str, root: &Root, kernel: &Kernel<'_>) -> Option<Fact<bool>> {
    match architecture {
        "amd64" => amd64(root, kernel),
        "arm64" => arm64(root, kernel),
        _ => None,
    }
}

fn amd64(root: &Root, kernel: &Kernel<'_>) -> Option<Fact<bool>> {
    let config = kernel.config().ok();
    if let Some(config) = config.filter(|config| !config.value.is_on("IA32_EMULATION")) {
        return Some(Fact { value: false, source: config.source.clone() });
    }
    if config.is_none() && !emulation_is_built_in(root)? {
        return Some(Fact { value: false, source: Source::NoFile(SYSCTL.into()) });
    }
    // What cannot be read may turn it on or off.
    if let Some(fact) = kernel.boot_parameter("ia32_emulation").ok()? {
        return fact.and_then(|value| boolean(value));
    }
    match config {
        Some(config) => {
            let off = config.value.is_on("IA32_EMULATION_DEFAULT_DISABLED");
            Some(Fact { value: !off, source: config.source.clone() })
        }
        None => {
            let old = kernel::version(&kernel.release().ok()?.value)? < SWITCHABLE;
            old.then(|| Fact::from_file(true, SYSCTL))
        }
    }
}

/// A switch that exists only where the emulation does.
const SYSCTL: &str = "/proc/sys/abi/vsyscall32";

/// Whether the kernel has the emulation; none where nobody tells. That the switch is missing counts
/// where the kernel itself would have shown it: a copy of `/proc` is of some files only.
fn emulation_is_built_in(root: &Root) -> Option<bool> {
    match root.exists(SYSCTL)? {
        true => Some(true),
        false => root.is_proc("/proc/sys/kernel").then_some(false),
    }
}

fn arm64(root: &Root, kernel: &Kernel<'_>) -> Option<Fact<bool>> {
    // Written by kernels that were told to expect cores of both kinds: a list of processors.
    let path = "/sys/devices/system/cpu/aarch32_el0";
    if let Some(list) = root.read_text(path, 4096) {
        return Some(Fact::from_file(!list.is_empty(), path));
    }
    let config = kernel.config().ok()?;
    if config.value.is_on("COMPAT") {
        None
    } else {
        Some(Fact { value: false, source: config.source.clone() })
    }
}

/// How the kernel reads a yes or no.
fn boolean(value: &str) -> Option<bool> {
    let value = value.to_ascii_lowercase();
    match (value.as_bytes().first()?, value.as_bytes().get(1)) {
        (b'y' | b't' | b'1', _) | (b'o', Some(b'n')) => Some(true),
        (b'n' | b'f' | b'0', _) | (b'o', Some(b'f')) => Some(false),
        _ => None,
    }
}
