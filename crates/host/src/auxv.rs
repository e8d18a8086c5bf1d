//! The capability bits of the auxiliary vector under the names that `/proc/cpuinfo` uses.

use std::collections::BTreeSet;

use portolan_core::platform::Level;

/// The two words of bits that the kernel hands to each program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Capabilities {
    /// The architecture of the program that got them, as Rust calls it: they mean something
    /// else in each.
    pub(crate) architecture: &'static str,
    /// `AT_HWCAP`.
    pub(crate) hwcap: u64,
    /// `AT_HWCAP2`.
    pub(crate) hwcap2: u64,
}

/// `AT_HWCAP` on arm64, from bit 0.
pub(crate) const ARM64: [&str; 32] = [
    "fp", "asimd", "evtstrm", "aes", "pmull", "sha1", "sha2", "crc32", "atomics", "fphp",
    "asimdhp", "cpuid", "asimdrdm", "jscvt", "fcma", "lrcpc", "dcpop", "sha3", "sm3", "sm4",
    "asimddp", "sha512", "sve", "asimdfhm", "dit", "uscat", "ilrcpc", "flagm", "ssbs", "sb",
    "paca", "pacg",
];

/// `AT_HWCAP2` on arm64, from bit 0.
pub(crate) const ARM64_2: [&str; 48] = [
    "dcpodp",
    "sve2",
    "sveaes",
    "svepmull",
    "svebitperm",
    "svesha3",
    "svesm4",
    "flagm2",
    "frint",
    "svei8mm",
    "svef32mm",
    "svef64mm",
    "svebf16",
    "i8mm",
    "bf16",
    "dgh",
    "rng",
    "bti",
    "mte",
    "ecv",
    "afp",
    "rpres",
    "mte3",
    "sme",
    "smei16i64",
    "smef64f64",
    "smei8i32",
    "smef16f32",
    "smeb16f32",
    "smef32f32",
    "smefa64",
    "wfxt",
    "ebf16",
    "sveebf16",
    "cssc",
    "rprfm",
    "sve2p1",
    "sme2",
    "sme2p1",
    "smei16i32",
    "smebi32i32",
    "smeb16b16",
    "smef16f16",
    "mops",
    "hbc",
    "sveb16b16",
    "lrcpc3",
    "lse128",
];

/// `AT_HWCAP2` on POWER: the versions of the instruction set, newest first.
const POWER: [(u64, u8); 3] = [(0x0004_0000, 10), (0x0080_0000, 9), (0x8000_0000, 8)];

impl Capabilities {
    /// The names of the bits set; none where this is not an arm64 program.
    pub(crate) fn arm64(self) -> Option<BTreeSet<&'static str>> {
        if self.architecture != "aarch64" {
            return None;
        }
        let set = |names: &'static [&'static str], bits: u64| {
            names
                .iter()
                .enumerate()
                .filter(move |(bit, _)| bits >> bit & 1 == 1)
                .map(|(_, name)| *name)
        };
        Some(set(&ARM64, self.hwcap).chain(set(&ARM64_2, self.hwcap2)).collect())
    }

    /// The POWER level; none where this is not such a program.
    pub(crate) fn power(self) -> Option<Level> {
        if self.architecture != "powerpc64" {
            return None;
        }
        let newest = POWER.into_iter().find(|(bit, _)| self.hwcap2 & bit != 0);
        newest.map(|(_, version)| Level::Ppc64le(version))
    }
}

#[cfg(test)]
mod tests {
    use portolan_core::platform::level;

    use super::*;

    fn of(architecture: &'static str, hwcap: u64, hwcap2: u64) -> Capabilities {
        Capabilities { architecture, hwcap, hwcap2 }
    }

    #[test]
    fn bits_have_the_kernels_places() {
        for (hwcap, hwcap2, name) in [
            (1, 0, "fp"),
            (1 << 8, 0, "atomics"),
            (1 << 16, 0, "dcpop"),
            (1 << 22, 0, "sve"),
            (1 << 31, 0, "pacg"),
            (0, 1, "dcpodp"),
            (0, 1 << 1, "sve2"),
            (0, 1 << 17, "bti"),
            (0, 1 << 19, "ecv"),
            (0, 1 << 31, "wfxt"),
            (0, 1 << 34, "cssc"),
            (0, 1 << 36, "sve2p1"),
            (0, 1 << 43, "mops"),
            (0, 1 << 44, "hbc"),
        ] {
            let names = of("aarch64", hwcap, hwcap2).arm64().unwrap();
            assert_eq!(names.into_iter().collect::<Vec<_>>(), [name]);
        }
        // Bits that have no name yet are not a reason to fail.
        assert!(of("aarch64", 1 << 40, 1 << 60).arm64().unwrap().is_empty());
    }

    #[test]
    fn they_make_a_level() {
        let names = of("aarch64", u64::MAX, u64::MAX).arm64().unwrap();
        assert_eq!(level::arm64(|n| names.contains(n)).level.unwrap().to_string(), "v9.4");
        assert_eq!(of("powerpc64", 0, 0x8084_0000).power(), Some(Level::Ppc64le(10)));
        assert_eq!(of("powerpc64", 0, 0x8080_0000).power(), Some(Level::Ppc64le(9)));
        assert_eq!(of("powerpc64", 0, 0x8000_0000).power(), Some(Level::Ppc64le(8)));
        assert_eq!(of("powerpc64", 0, 0).power(), None);
    }

    #[test]
    fn bits_of_another_architecture_mean_nothing() {
        assert_eq!(of("x86_64", u64::MAX, u64::MAX).arm64(), None);
        assert_eq!(of("arm", u64::MAX, u64::MAX).arm64(), None);
        assert_eq!(of("aarch64", 0, u64::MAX).power(), None);
    }
}
