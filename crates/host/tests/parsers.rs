//! The parsers of foreign bytes: what they take, and that nothing makes them panic.

use portolan_host::cpuinfo::CpuInfo;
use portolan_host::elf::Header;
use portolan_host::facts::cmdline;
use portolan_host::kernel::{self, Config, Setting};
use portolan_host::machine;
use proptest::prelude::*;

fn header(class: u8, data: u8, abi: u8, kind: u16, machine: u16) -> Vec<u8> {
    let mut bytes = vec![0x7f, b'E', b'L', b'F', class, data, 1, abi, 0, 0, 0, 0, 0, 0, 0, 0];
    for half in [kind, machine] {
        bytes.extend(if data == 2 { half.to_be_bytes() } else { half.to_le_bytes() });
    }
    bytes
}

#[test]
fn elf_machines() {
    for (machine, class, data, expected) in [
        (3, 1, 1, Some("386")),
        (62, 2, 1, Some("amd64")),
        (62, 1, 1, Some("amd64p32")),
        (183, 2, 1, Some("arm64")),
        (183, 2, 2, Some("arm64be")),
        (40, 1, 1, Some("arm")),
        (40, 1, 2, Some("armbe")),
        (21, 2, 1, Some("ppc64le")),
        (21, 2, 2, Some("ppc64")),
        (20, 1, 2, Some("ppc")),
        (22, 2, 2, Some("s390x")),
        (22, 1, 2, Some("s390")),
        (243, 2, 1, Some("riscv64")),
        (243, 1, 1, Some("riscv")),
        (258, 2, 1, Some("loong64")),
        (8, 2, 1, Some("mips64le")),
        (8, 2, 2, Some("mips64")),
        (8, 1, 1, Some("mipsle")),
        (8, 1, 2, Some("mips")),
        (43, 2, 2, Some("sparc64")),
        (2, 1, 2, Some("sparc")),
        (62, 2, 2, None),
        (9999, 2, 1, None),
    ] {
        let read = Header::parse(&header(class, data, 0, 3, machine)).unwrap();
        assert_eq!(read.architecture(), expected, "{machine} {class} {data}");
    }
    for (abi, expected) in [
        (0, Some("linux")),
        (3, Some("linux")),
        (9, Some("freebsd")),
        (2, Some("netbsd")),
        (12, Some("openbsd")),
        (6, Some("solaris")),
        (97, None),
    ] {
        assert_eq!(Header::parse(&header(2, 1, abi, 2, 62)).unwrap().os(), expected);
    }
}

#[test]
fn what_is_no_program() {
    let good = header(2, 1, 0, 2, 62);
    for end in 0..good.len() {
        assert_eq!(Header::parse(&good[..end]), None, "cut at {end}");
    }
    for bytes in [
        header(0, 1, 0, 2, 62),
        header(3, 1, 0, 2, 62),
        header(2, 0, 0, 2, 62),
        header(2, 1, 0, 1, 62), // an object file
        header(2, 1, 0, 4, 62), // a core dump
        b"#!/bin/sh\n".to_vec(),
    ] {
        assert_eq!(Header::parse(&bytes), None, "{bytes:?}");
    }
    assert!(Header::parse(&good).is_some());
}

#[test]
fn machines() {
    for (name, expected) in [
        ("x86_64", Some("amd64")),
        ("i686", Some("386")),
        ("aarch64", Some("arm64")),
        ("aarch64_be", Some("arm64be")),
        ("armv6l", Some("arm")),
        ("armv7l", Some("arm")),
        ("armv7b", Some("armbe")),
        ("ppc64le", Some("ppc64le")),
        ("s390x", Some("s390x")),
        ("riscv64", Some("riscv64")),
        ("loongarch64", Some("loong64")),
        ("X86_64\n", Some("amd64")),
        ("arm", None),
        ("", None),
    ] {
        assert_eq!(machine::architecture(name), expected, "{name}");
    }
    assert_eq!(machine::os("Linux\n").as_deref(), Some("linux"));
    assert_eq!(machine::os("FreeBSD").as_deref(), Some("freebsd"));
    assert_eq!(machine::os(""), None);
    assert_eq!(machine::os("a b"), None);
}

#[test]
fn cpuinfo_words_are_those_of_all_processors() {
    let info =
        CpuInfo::parse("flags : a b c\n\nFlags\t\t: c b\n\nnothing here\n: odd\nflags: b c d");
    assert_eq!(info.common_words("flags").unwrap().into_iter().collect::<Vec<_>>(), ["b", "c"]);
    assert_eq!(info.common_words("Features"), None);
    assert!(CpuInfo::parse("flags :").common_words("flags").unwrap().is_empty());
    assert_eq!(CpuInfo::parse("processor : 0\nProcessor : ARMv6").arm_model(), Some("ARMv6"));
    assert_eq!(CpuInfo::parse("processor : 0").arm_model(), None);
}

#[test]
fn kernel_configurations() {
    let config = Config::parse(
        "CONFIG_A=y\nCONFIG_AB=m\n# CONFIG_C is not set\nCONFIG_S=\"text\"\n# CONFIG_D is not settled\n#CONFIG_E=y\n"
            .to_owned(),
    );
    assert_eq!(config.get("A"), Setting::Value("y"));
    assert_eq!(config.get("AB"), Setting::Value("m"));
    assert_eq!(config.get("C"), Setting::NotSet);
    assert_eq!(config.get("S"), Setting::Value("\"text\""));
    for absent in ["B", "D", "E", "", "A=y"] {
        assert_eq!(config.get(absent), Setting::Absent, "{absent}");
    }
    assert!(config.is_on("A") && !config.is_on("AB") && !config.is_on("C") && !config.is_on("Z"));
    for (release, expected) in [
        ("6.1.0-54-cloud-amd64", Some((6, 1))),
        ("6.18.44", Some((6, 18))),
        ("5.14", Some((5, 14))),
        ("6", None),
        ("v6.1", None),
        ("", None),
        ("99999999999.1", None),
    ] {
        assert_eq!(kernel::version(release), expected, "{release}");
    }
}

proptest! {
    #[test]
    fn no_bytes_make_them_panic(bytes in prop::collection::vec(any::<u8>(), 0..80)) {
        let mut program = b"\x7fELF".to_vec();
        program.extend(&bytes);
        let _ = Header::parse(&program).map(|h| (h.architecture(), h.os()));
        let text = String::from_utf8_lossy(&bytes);
        let info = CpuInfo::parse(&text);
        let _ = (info.common_words("flags"), info.arm_model(), kernel::version(&text));
        let _ = (machine::architecture(&text), machine::os(&text));
        let _ = Config::parse(text.clone().into_owned()).get(&text);
    }
}

proptest! {
    #[test]
    fn configurations_and_boot_parameters_answer_as_they_list(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "CONFIG_", "# CONFIG_", "A", "B_1", "=", "y", "m", "\"", "\\", " ", " is not set",
                "\n", "\r\n", "--", "#", "é", "\0", "\t",
            ]),
            0..60,
        ),
    ) {
        let text = pieces.concat();
        for (name, value) in cmdline::parse(&text) {
            prop_assert!(!name.contains('='));
            prop_assert!(name.len() + value.map_or(0, |value| value.len()) <= text.len());
        }
        if let Ok(config) = Config::read(text.as_bytes()) {
            let said: std::collections::BTreeMap<_, _> = config.options().collect();
            prop_assert!(!said.is_empty());
            for (name, setting) in said {
                prop_assert_eq!(config.get(name), setting);
                prop_assert_ne!(setting, Setting::Absent);
            }
        }
    }
}
