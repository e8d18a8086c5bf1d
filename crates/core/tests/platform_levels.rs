//! Levels from flags, capabilities and lines of `/proc/cpuinfo`.

use std::collections::BTreeSet;

use portolan_core::Platform;
use portolan_core::platform::level::{self, Detection, Level, NextLevel};

const V1: &str = "cmov cx8 fpu fxsr mmx syscall sse sse2 lm";
const V2: &str = "cx16 lahf_lm popcnt pni ssse3 sse4_1 sse4_2";
const V3: &str = "avx avx2 bmi1 bmi2 f16c fma abm movbe xsave";
const V4: &str = "avx512f avx512bw avx512cd avx512dq avx512vl";

/// What each arm64 level adds, in order.
const ARM64: [(&str, &str); 10] = [
    ("v8", "fp asimd"),
    ("v8.1", "crc32 atomics asimdrdm"),
    ("v8.2", "dcpop"),
    ("v8.3", "lrcpc jscvt fcma paca pacg"),
    ("v8.4", "asimddp dit flagm ilrcpc uscat"),
    ("v8.5", "sb flagm2 frint dcpodp bti"),
    ("v8.6", "bf16 i8mm ecv"),
    ("v8.7", "wfxt"),
    ("v8.8", "mops hbc"),
    ("v8.9", "cssc"),
];

fn set(words: &str) -> BTreeSet<&str> {
    words.split_whitespace().collect()
}

fn amd64(words: &str) -> Detection {
    let set = set(words);
    level::amd64(|name| set.contains(name))
}

fn arm64(words: &str) -> Detection {
    let set = set(words);
    level::arm64(|name| set.contains(name))
}

fn shown(detection: &Detection) -> String {
    detection.level.map_or_else(|| "none".to_owned(), |level| level.to_string())
}

#[test]
fn every_x86_level_needs_every_one_of_its_flags() {
    let all = [V1, V2, V3, V4];
    for reached in 0..=4 {
        let flags = all[..reached].join(" ");
        let expected = if reached == 0 { "none".to_owned() } else { format!("v{reached}") };
        assert_eq!(shown(&amd64(&flags)), expected);
    }
    let every = all.join(" ");
    assert_eq!(amd64(&every).next, None);
    for (below, needs) in all.iter().enumerate() {
        for lost in needs.split(' ') {
            let flags: Vec<_> = every.split(' ').filter(|flag| *flag != lost).collect();
            let found = amd64(&flags.join(" "));
            let expected = if below == 0 { "none".to_owned() } else { format!("v{below}") };
            assert_eq!(shown(&found), expected, "without {lost}");
            let next = u32::try_from(below).unwrap() + 1;
            assert_eq!(
                found.next,
                Some(NextLevel { level: Level::Amd64(next), missing: vec![lost] }),
                "without {lost}"
            );
        }
    }
}

#[test]
fn the_flags_have_the_kernels_names() {
    let every = [V1, V2, V3, V4].join(" ");
    assert_eq!(shown(&amd64(&every.replace("pni", "sse3"))), "v1");
    assert_eq!(shown(&amd64(&every.replace("abm", "lzcnt"))), "v2");
}

#[test]
fn every_arm64_level_needs_every_one_of_its_capabilities() {
    let words = |n: usize| ARM64[..n].iter().map(|(_, w)| *w).collect::<Vec<_>>().join(" ");
    assert_eq!(shown(&arm64("")), "none");
    for (n, (name, _)) in ARM64.iter().enumerate() {
        assert_eq!(shown(&arm64(&words(n + 1))), *name);
    }
    for (below, (_, needs)) in ARM64.iter().enumerate() {
        for lost in needs.split(' ') {
            let kept: Vec<_> =
                words(10).split(' ').filter(|w| *w != lost).map(str::to_owned).collect();
            let expected = if below == 0 { "none" } else { ARM64[below - 1].0 };
            assert_eq!(shown(&arm64(&kept.join(" "))), expected, "without {lost}");
        }
    }
}

#[test]
fn arm64_v9_stands_on_v8_and_sve2() {
    let words = |n: usize, more: &str| {
        ARM64[..n].iter().map(|(_, w)| *w).chain([more]).collect::<Vec<_>>().join(" ")
    };
    let v9 = "sve sve2 fphp asimdhp";
    for (n, more, expected) in [
        (5, v9, "v8.4"),
        (6, v9, "v9"),
        (6, "sve fphp asimdhp", "v8.5"),
        (6, "sve2 asimdhp", "v8.5"),
        (6, "sve2 fphp", "v8.5"),
        (7, v9, "v9.1"),
        (8, v9, "v9.2"),
        (9, v9, "v9.3"),
        (10, v9, "v9.3"),
        (10, "sve sve2 fphp asimdhp sve2p1", "v9.4"),
        (9, "sve sve2 fphp asimdhp sve2p1", "v9.3"),
        (10, "", "v8.9"),
    ] {
        assert_eq!(shown(&arm64(&words(n, more))), expected, "{n} {more}");
    }
    let v9_4 = arm64(&words(10, "sve2 fphp asimdhp"));
    assert_eq!(
        v9_4.next,
        Some(NextLevel { level: Level::Arm64 { major: 9, minor: 4 }, missing: vec!["sve2p1"] })
    );
    let v9_0 = arm64(&words(10, "fphp"));
    assert_eq!(
        v9_0.next,
        Some(NextLevel {
            level: Level::Arm64 { major: 9, minor: 0 },
            missing: vec!["asimdhp", "sve2"]
        })
    );
}

#[test]
fn graviton3_is_v8_4() {
    let found = arm64(
        "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm jscvt fcma \
         lrcpc dcpop sha3 sm3 sm4 asimddp sha512 sve asimdfhm dit uscat ilrcpc flagm ssbs paca pacg \
         dcpodp svei8mm svebf16 i8mm bf16 dgh rng",
    );
    assert_eq!(shown(&found), "v8.4");
    let NextLevel { level, missing } = found.next.unwrap();
    assert_eq!(level.to_string(), "v8.5");
    assert_eq!(missing, ["bti", "flagm2", "frint", "sb"]);
}

#[test]
fn a_guest_without_pointer_authentication_stops_at_v8_2() {
    let words: Vec<_> = ARM64.iter().map(|(_, w)| *w).collect();
    let words = words.join(" ").replace("paca", "").replace("pacg", "");
    assert_eq!(shown(&arm64(&words)), "v8.2");
}

#[test]
fn arm_from_the_cpu_architecture_line() {
    for (line, expected) in [
        ("8", Some(8)),
        ("AArch64", Some(8)),
        ("7", Some(7)),
        ("7M", Some(7)),
        ("?(12)", Some(7)),
        ("?(13)", Some(7)),
        ("?(14)", Some(7)),
        ("?(15)", Some(7)),
        ("?(16)", Some(7)),
        ("?(17)", Some(7)),
        ("?(11)", None),
        ("?(18)", None),
        ("6", Some(6)),
        ("6TEJ", Some(6)),
        ("5", Some(5)),
        ("5T", Some(5)),
        ("5TE", Some(5)),
        ("5TEJ", Some(5)),
        ("4", Some(4)),
        ("4T", Some(4)),
        ("3", Some(3)),
        ("2", None),
        ("", None),
        ("7x", None),
    ] {
        assert_eq!(level::arm(line, None), expected.map(Level::Arm), "{line}");
    }
    let pi = Some("ARMv6-compatible processor rev 7 (v6l)");
    assert_eq!(level::arm("7", pi), Some(Level::Arm(6)), "a Raspberry Pi 1 says 7");
    assert_eq!(level::arm("8", pi), Some(Level::Arm(8)), "only a 7 is doubted");
    assert_eq!(level::arm("7", Some("ARMv7 Processor rev 4")), Some(Level::Arm(7)));
    assert_eq!(level::arm("7", Some("é")), Some(Level::Arm(7)));
}

#[test]
fn arm_from_the_machine_name() {
    for (machine, expected) in [
        ("aarch64", Some(8)),
        ("armv3l", Some(3)),
        ("armv4tl", Some(4)),
        ("armv5tel", Some(5)),
        ("armv6l", Some(6)),
        ("armv7l", Some(7)),
        ("ARMV8L", Some(8)),
        ("armv9", None),
        ("armv", None),
        ("arm", None),
        ("x86_64", None),
        ("", None),
    ] {
        assert_eq!(level::arm_machine(machine), expected.map(Level::Arm), "{machine}");
    }
}

#[test]
fn power_and_riscv() {
    for (cpu, expected) in [
        ("POWER8 (raw), altivec supported", Some(8)),
        ("POWER9 (architected), altivec supported", Some(9)),
        ("POWER9, altivec supported", Some(9)),
        ("POWER10 (architected), altivec supported", Some(10)),
        ("Power11 (architected), altivec supported", Some(11)),
        ("POWER7", None),
        ("POWER8E (raw)", Some(8)),
        ("PPC970", None),
        ("POWER", None),
        ("POWER999999999999", None),
    ] {
        assert_eq!(level::ppc64le(cpu), expected.map(Level::Ppc64le), "{cpu}");
    }
    let v22 = "_zicsr_zba_zbb_zbs_zfhmin_zicbom_zicbop_zicboz_zihintpause_zihpm_zkt";
    let v23 = "_supm_zawrs_zcb_zcmop_zfa_zicond_zihintntl_zimop_zvbb_zvfhmin_zvkt";
    for (isa, expected) in [
        ("rv64imafdc".to_owned(), "rva20u64"),
        ("RV64GC".to_owned(), "rva20u64"),
        ("rv64gc_zba_zbb".to_owned(), "rva20u64"),
        (format!("rv64imafdch{v22}"), "rva22u64"),
        (format!("rv64imafdch{v22}{v23}"), "rva22u64"),
        (format!("rv64imafdcv{v22}{v23}"), "rva23u64"),
        (format!("rv64imafd{v22}"), "none"),
        ("rv32imafdc".to_owned(), "none"),
        (String::new(), "none"),
    ] {
        assert_eq!(shown(&level::riscv64(&isa)), expected, "{isa}");
    }
}

#[test]
fn levels_are_named_by_variants() {
    for (platform, expected) in [
        ("linux/amd64", "v1"),
        ("linux/amd64/v4", "v4"),
        ("linux/arm64", "v8"),
        ("linux/arm64/v8.9", "v8.9"),
        ("linux/arm64/v9.7", "v9.7"),
        ("linux/arm", "v7"),
        ("linux/arm/v5", "v5"),
        ("linux/ppc64le", "power8"),
        ("linux/ppc64le/power10", "power10"),
        ("linux/riscv64", "rva20u64"),
        ("linux/riscv64/rva23u64", "rva23u64"),
    ] {
        let platform: Platform = platform.parse().unwrap();
        let level = Level::of(&platform).unwrap();
        assert_eq!(level.to_string(), expected);
        assert_eq!(level.architecture(), platform.architecture);
    }
    for none in [
        "linux/amd64/v0",
        "linux/amd64/v03",
        "linux/amd64/fast",
        "linux/arm64/v8.10",
        "linux/arm64/v9.8",
        "linux/arm64/v7",
        "linux/arm64/v8.01",
        "linux/arm64/v8.",
        "linux/arm/v2",
        "linux/ppc64le/power7",
        "linux/riscv64/rva30u64",
        "linux/s390x",
        "linux/386",
    ] {
        assert_eq!(Level::of(&none.parse().unwrap()), None, "{none}");
    }
}

#[test]
fn a_greater_level_is_a_better_one() {
    let levels = |names: &[&str]| {
        names.iter().map(|n| Level::of(&n.parse().unwrap()).unwrap()).collect::<Vec<_>>()
    };
    for ladder in [
        levels(&["linux/amd64", "linux/amd64/v2", "linux/amd64/v3", "linux/amd64/v4"]),
        levels(&["linux/arm64", "linux/arm64/v8.5", "linux/arm64/v9", "linux/arm64/v9.2"]),
        levels(&["linux/arm/v5", "linux/arm/v6", "linux/arm", "linux/arm/v8"]),
        levels(&["linux/ppc64le", "linux/ppc64le/power9", "linux/ppc64le/power10"]),
    ] {
        assert!(ladder.is_sorted());
        for (a, better) in ladder.iter().enumerate() {
            for (b, other) in ladder.iter().enumerate() {
                assert_eq!(better.includes(*other), a >= b, "{better} {other}");
            }
        }
    }
}

#[test]
fn the_baseline_is_written_without_a_variant() {
    for (level, expected) in [
        (Level::Amd64(1), "linux/amd64"),
        (Level::Amd64(3), "linux/amd64/v3"),
        (Level::Arm64 { major: 8, minor: 0 }, "linux/arm64"),
        (Level::Arm64 { major: 9, minor: 0 }, "linux/arm64/v9"),
        (Level::Arm(7), "linux/arm/v7"),
        (Level::Ppc64le(8), "linux/ppc64le"),
        (Level::Ppc64le(10), "linux/ppc64le/power10"),
        (Level::Riscv64(20), "linux/riscv64"),
        (Level::Riscv64(23), "linux/riscv64/rva23u64"),
    ] {
        let platform = Platform::new("linux", "?").with_level(level);
        assert_eq!(platform.to_string(), expected);
        assert_eq!(Level::of(&platform), Some(level));
    }
}
