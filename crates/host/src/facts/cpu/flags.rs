//! What flags of processors are called: NFD's names, and the kernel's words for them. Here alone
//! it is said which there are, for those who collect them and for those who ask for them.

use std::collections::BTreeSet;

use super::x86::{HIDDEN, SHOWN};
use crate::auxv::{ARM64, ARM64_2};

/// What kernels of 32-bit ARM print in `Features`, besides what those of 64 bits do.
const ARM: [&str; 22] = [
    "26bit",
    "asimdbf16",
    "crunch",
    "edsp",
    "fastmult",
    "fpa",
    "half",
    "idiva",
    "idivt",
    "iwmmxt",
    "java",
    "lpae",
    "neon",
    "swp",
    "thumb",
    "thumbee",
    "tls",
    "vfp",
    "vfpd32",
    "vfpv3",
    "vfpv3d16",
    "vfpv4",
];

/// What kernels of s390x print in `features`.
const S390X: [&str; 22] = [
    "dfp", "dflt", "edat", "eimm", "esan3", "etf3eh", "gs", "highgprs", "ldisp", "msa", "nnpa",
    "pcimio", "sie", "sort", "stfle", "te", "vx", "vxd", "vxe", "vxe2", "vxp", "zarch",
];

/// Names that are no flags of a processor: the levels, and one that has a value.
const OTHERS: [&str; 5] = ["AVX10_VERSION", "X86_64_V1", "X86_64_V2", "X86_64_V3", "X86_64_V4"];

/// Words that only people use.
const ALSO: (&str, &str) = ("ht", "HTT");

/// NFD's name of a word of a kernel that is not x86's: in capitals, but for the versions of one
/// unit of 32-bit ARM.
pub(super) fn capitals(word: &str) -> String {
    word.to_ascii_uppercase().replace("VFPV", "VFPv")
}

/// The names that NFD gives to what is written so: `avx512_vnni` is `AVX512VNNI`, and `aes` is
/// `AESNI` on x86 and `AES` on ARM. A processor that has one of them has what is meant. What
/// nobody knows is returned in capitals.
pub fn named(written: &str) -> Vec<String> {
    let own = capitals(written);
    let word = written.to_ascii_lowercase();
    let mut names = Vec::new();
    if is_known(&own) {
        names.push(own.clone());
    }
    let x86 = SHOWN.iter().chain(HIDDEN).filter(|(_, printed)| *printed == word);
    let x86 = x86.map(|(name, _)| *name);
    let also = (ALSO.0 == word).then_some(ALSO.1);
    names.extend(x86.chain(also).filter(|name| *name != own).map(str::to_owned));
    if names.is_empty() {
        let joined = own.replace('_', "");
        names.push(if is_known(&joined) { joined } else { own });
    }
    names
}

/// Whether NFD has this name for what a processor is able to do.
pub fn is_known(name: &str) -> bool {
    let is = |list: &[(&str, &str)]| list.binary_search_by(|(known, _)| known.cmp(&name)).is_ok();
    let is_word = || capitals(name) == name && words().any(|word| word.eq_ignore_ascii_case(name));
    is(SHOWN) || is(HIDDEN) || OTHERS.contains(&name) || is_word()
}

/// All names that NFD has.
pub fn all() -> BTreeSet<String> {
    let x86 = SHOWN.iter().chain(HIDDEN).map(|(name, _)| (*name).to_owned());
    let others = OTHERS.iter().map(|name| (*name).to_owned());
    x86.chain(others).chain(words().map(capitals)).collect()
}

/// The words of kernels that are not x86's.
fn words() -> impl Iterator<Item = &'static str> {
    ARM64.iter().chain(&ARM64_2).chain(&ARM).chain(&S390X).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_words_are_understood() {
        for (written, expected) in [
            ("AVX2", &["AVX2"][..]),
            ("avx2", &["AVX2"]),
            ("fma", &["FMA3"]),
            ("sse4_2", &["SSE42"]),
            ("sse4_1", &["SSE4"]),
            ("pni", &["SSE3"]),
            ("cx8", &["CMPXCHG8"]),
            ("fpu", &["X87"]),
            ("npt", &["SVMNP"]),
            ("arch_capabilities", &["IA32_ARCH_CAP"]),
            ("avx512_vnni", &["AVX512VNNI"]),
            ("amx_tile", &["AMXTILE"]),
            ("ht", &["HTT"]),
            ("xsave", &["XSAVE", "OSXSAVE"]),
            ("atomics", &["ATOMICS"]),
            ("vfpv3d16", &["VFPv3D16"]),
            ("x86_64_v3", &["X86_64_V3"]),
            ("AVX10_VERSION", &["AVX10_VERSION"]),
            // One word of two architectures.
            ("aes", &["AES", "AESNI"]),
            ("sm3", &["SM3", "SM3_X86"]),
            ("nonsense_flag", &["NONSENSE_FLAG"]),
        ] {
            assert_eq!(named(written), expected, "{written}");
        }
    }

    #[test]
    fn every_name_is_known_and_means_itself() {
        let all = all();
        assert!(all.len() > 250, "{}", all.len());
        for name in &all {
            assert!(is_known(name), "{name}");
            assert_eq!(named(name)[0], *name);
        }
        assert!(!is_known("") && !is_known("avx2") && !is_known("AVX52F"));
    }
}
