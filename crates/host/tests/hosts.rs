//! What is read from the host trees under `fixtures/hosts`, and from roots that are broken on
//! purpose.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use portolan_core::platform::{Level, Support};
use portolan_host::{Host, PlatformError, Source};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/hosts").join(name)
}

fn at(name: &str) -> Host {
    Host::at(&fixture(name)).expect("the fixture is there")
}

/// A root that holds these files.
fn root(files: &[(&str, &[u8])]) -> TempDir {
    let dir = tempfile::tempdir().expect("a temporary directory");
    for (path, bytes) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().expect("below the root")).expect("a directory");
        fs::write(path, bytes).expect("a file");
    }
    dir
}

fn elf(machine: u8, class: u8, data: u8) -> Vec<u8> {
    let mut bytes = vec![0_u8; 64];
    bytes[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data, 1, 0]);
    let (low, high) = if data == 1 { (16, 18) } else { (17, 19) };
    bytes[low] = 3;
    bytes[high] = machine;
    bytes
}

#[test]
fn every_fixture_is_the_platform_it_should_be() {
    for (name, platform, compat32) in [
        ("graviton3", "linux/arm64/v8.4", Support::Unknown),
        ("arm64-big-little", "linux/arm64/v8.1", Support::No),
        ("foreign-arm64", "linux/arm64", Support::Unknown),
        ("x86-v2", "linux/amd64/v2", Support::Yes),
        ("x86-v3", "linux/amd64/v3", Support::Yes),
        ("x86-v4", "linux/amd64/v4", Support::No),
        // The configuration in it is the image's, and says otherwise.
        ("container", "linux/amd64/v3", Support::Yes),
        ("x86-mixed", "linux/amd64/v3", Support::Yes),
        ("rpi1-armv6", "linux/arm/v6", Support::Unknown),
        ("rpi2-armv7", "linux/arm/v7", Support::Unknown),
        ("riscv64", "linux/riscv64", Support::Unknown),
        ("riscv64-rva22", "linux/riscv64/rva22u64", Support::Unknown),
        ("ppc64le", "linux/ppc64le/power9", Support::Unknown),
        ("s390x", "linux/s390x", Support::Unknown),
    ] {
        let host = at(name);
        let found = host.platform().unwrap_or_else(|error| panic!("{name}: {error}"));
        assert_eq!(found.platform.to_string(), platform, "{name}");
        assert_eq!(found.compat32, compat32, "{name}");
        assert_eq!(host.unread, [], "{name}");
    }
}

#[test]
fn every_fixture_has_a_row_above() {
    let listed = include_str!("hosts.rs");
    for entry in fs::read_dir(fixture("")).unwrap() {
        let entry = entry.unwrap();
        if entry.file_type().unwrap().is_dir() {
            let name = entry.file_name().into_string().unwrap();
            assert!(listed.contains(&format!("\"{name}\"")), "{name} is used by no test");
        }
    }
}

#[test]
fn facts_name_their_source() {
    let source = |source: &Source| source.to_string();
    let host = at("graviton3");
    assert_eq!(source(&host.os.unwrap().source), "/proc/sys/kernel/ostype");
    assert_eq!(source(&host.architecture.unwrap().source), "/proc/sys/kernel/arch");
    let level = host.level.unwrap();
    assert_eq!(source(&level.source), "/proc/cpuinfo");
    let next = level.value.next.unwrap();
    assert_eq!(next.level, Level::Arm64 { major: 8, minor: 5 });
    assert_eq!(next.missing, ["bti", "flagm2", "frint", "sb"]);

    assert_eq!(source(&at("rpi1-armv6").architecture.unwrap().source), "/proc/cpuinfo");
    assert_eq!(source(&at("ppc64le").architecture.unwrap().source), "/bin/sh");
    assert_eq!(source(&at("foreign-arm64").architecture.unwrap().source), "/sbin/init");
    assert_eq!(source(&at("x86-v4").compat32.unwrap().source), "/proc/cmdline");
    assert_eq!(source(&at("x86-mixed").compat32.unwrap().source), "/boot/config-6.12.9");
    let json = serde_json::to_value(at("graviton3")).unwrap();
    assert_eq!(json["level"]["value"]["level"], "v8.4");
    assert_eq!(
        json["level"]["source"],
        serde_json::json!({"kind": "file", "path": "/proc/cpuinfo"})
    );
}

#[test]
fn an_empty_root_is_unknown_not_no() {
    let host = at("empty");
    assert_eq!((&host.os, &host.architecture, &host.level), (&None, &None, &None));
    assert_eq!(host.compat32, None);
    let error = host.platform().unwrap_err();
    assert!(matches!(error, PlatformError::Os { .. }));
    assert!(error.to_string().contains("name the platform"), "{error}");
}

#[test]
fn a_host_of_which_almost_nothing_can_be_read() {
    let host = at("unreadable");
    assert_eq!(host.platform().unwrap().platform.to_string(), "linux/amd64");
    let noted: Vec<_> = host.unread.iter().map(|u| u.path.to_str().unwrap()).collect();
    assert!(noted.contains(&"/proc/cpuinfo"), "{noted:?}");
}

#[test]
fn a_root_that_is_none() {
    let missing = Host::at(Path::new("/nonexistent/portolan")).unwrap_err();
    assert!(missing.to_string().contains("/nonexistent/portolan"));
    let dir = root(&[("file", b"")]);
    assert!(Host::at(&dir.path().join("file")).is_err());
}

#[test]
fn links_stay_inside_the_root() {
    // The outer directory is what a link must not reach.
    let outer = root(&[
        ("secret/cpuinfo", b"flags : fpu lm"),
        ("root/proc/.keep", b""),
        ("root/usr/bin/.keep", b""),
    ]);
    let inner = outer.path().join("root");
    for target in [
        outer.path().join("secret/cpuinfo").to_str().unwrap().to_owned(),
        "../../secret/cpuinfo".to_owned(),
        "../../../../../../../../proc/cpuinfo".to_owned(),
        "/proc/cpuinfo".to_owned(),
        "cpuinfo".to_owned(),
    ] {
        let link = inner.join("proc/cpuinfo");
        let _ = fs::remove_file(&link);
        symlink(&target, &link).unwrap();
        let host = Host::at(&inner).unwrap();
        assert_eq!((host.architecture, host.level), (None, None), "{target}");
    }
    // A directory that links out is no way either.
    fs::remove_dir_all(inner.join("proc")).unwrap();
    symlink("/proc", inner.join("proc")).unwrap();
    assert_eq!(Host::at(&inner).unwrap().os, None);
    fs::remove_file(inner.join("proc")).unwrap();
    symlink(outer.path().join("secret"), inner.join("proc")).unwrap();
    assert_eq!(Host::at(&inner).unwrap().architecture, None);
}

#[test]
fn links_inside_the_root_are_followed() {
    let dir = root(&[("usr/real", &elf(243, 2, 1))]);
    fs::create_dir(dir.path().join("sbin")).unwrap();
    symlink("/a/../b/./c", dir.path().join("sbin/init")).unwrap();
    fs::create_dir(dir.path().join("a")).unwrap();
    symlink("usr", dir.path().join("b")).unwrap();
    symlink("../../../../usr/real", dir.path().join("usr/c")).unwrap();
    let host = Host::at(dir.path()).unwrap();
    assert_eq!(host.architecture.unwrap().value, "riscv64");
}

#[test]
fn what_is_no_ordinary_file_is_noted_and_does_not_block() {
    let dir =
        root(&[("proc/sys/kernel/arch", b"aarch64\n"), ("proc/sys/kernel/ostype", b"Linux\n")]);
    let fifo = dir.path().join("proc/cpuinfo");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    fs::create_dir_all(dir.path().join("bin/sh")).unwrap();
    let host = Host::at(dir.path()).unwrap();
    assert_eq!(host.platform().unwrap().platform.to_string(), "linux/arm64");
    let noted: Vec<_> = host.unread.iter().map(|u| u.path.to_str().unwrap()).collect();
    assert_eq!(noted, ["/proc/cpuinfo", "/bin/sh"]);
}

#[test]
fn a_loop_of_links_ends() {
    let dir = root(&[("proc/.keep", b"")]);
    symlink("b", dir.path().join("proc/cpuinfo")).unwrap();
    symlink("cpuinfo", dir.path().join("proc/b")).unwrap();
    let host = Host::at(dir.path()).unwrap();
    assert_eq!(host.architecture, None);
    assert_eq!(host.unread[0].path, Path::new("/proc/cpuinfo"));
}

#[test]
fn rubbish_is_unknown() {
    for bytes in
        [&b"\xff\xfe\x00"[..], b":::", b"flags", b"flags :", b"isa : rv128", b"cpu : POWER9"]
    {
        let dir =
            root(&[("proc/cpuinfo", bytes), ("proc/sys/kernel/arch", b"vax\n"), ("bin/sh", bytes)]);
        let host = Host::at(dir.path()).unwrap();
        assert_eq!((host.architecture, host.level, host.compat32), (None, None, None));
    }
}

#[test]
fn the_kernel_speaks_before_its_programs() {
    // A 64-bit kernel under 32-bit programs, as on many a Raspberry Pi.
    let cpuinfo =
        b"processor : 0\nFeatures : fp asimd\nCPU implementer : 0x41\nCPU architecture : 8\n";
    let dir = root(&[("proc/cpuinfo", cpuinfo), ("bin/sh", &elf(40, 1, 1))]);
    let host = Host::at(dir.path()).unwrap();
    assert_eq!(host.architecture.unwrap().value, "arm64");
    // On x86 the flags do not tell how wide the kernel is: the programs do.
    let flags = b"flags : fpu cmov cx8 fxsr mmx syscall sse sse2 lm\n";
    for (program, expected) in
        [(elf(3, 1, 1), "386"), (elf(62, 2, 1), "amd64"), (elf(40, 1, 1), "amd64")]
    {
        let dir = root(&[("proc/cpuinfo", flags), ("bin/sh", &program)]);
        assert_eq!(Host::at(dir.path()).unwrap().architecture.unwrap().value, expected);
    }
    let old = root(&[("proc/cpuinfo", b"flags : fpu cmov\n")]);
    assert_eq!(Host::at(old.path()).unwrap().architecture.unwrap().value, "386");
    // POWER writes the same in both byte orders; without a program it stays open.
    let power = root(&[("proc/cpuinfo", b"cpu : POWER9 (raw)\n")]);
    assert_eq!(Host::at(power.path()).unwrap().architecture, None);
    let power = root(&[("proc/cpuinfo", b"cpu : POWER9 (raw)\n"), ("bin/sh", &elf(21, 2, 2))]);
    assert_eq!(Host::at(power.path()).unwrap().architecture.unwrap().value, "ppc64");
}

#[test]
fn arm_without_a_version_is_not_guessed() {
    let dir = root(&[("bin/sh", &elf(40, 1, 1))]);
    let error = Host::at(dir.path()).unwrap().platform().unwrap_err();
    assert!(matches!(error, PlatformError::ArmVersion { .. }));
    assert!(error.to_string().contains("such as linux/arm/v7"), "{error}");
    // Nor from one core of a known and one of an unknown version.
    let mixed = b"CPU implementer : 0x41\nCPU architecture: 7\n\nCPU architecture: 9z\n";
    let dir = root(&[("proc/cpuinfo", mixed), ("bin/sh", &elf(40, 1, 1))]);
    assert_eq!(Host::at(dir.path()).unwrap().level, None);
    let old = b"Processor : ARMv6-compatible processor rev 7\nFeatures : swp half\nCPU implementer : 0x41\nCPU architecture: 7\n";
    let dir = root(&[("proc/cpuinfo", old)]);
    assert_eq!(Host::at(dir.path()).unwrap().level.unwrap().value.level, Some(Level::Arm(6)));
}

/// A root of an amd64 machine with these files besides.
fn amd64(files: &[(&str, &str)]) -> Host {
    let mut all: Vec<(&str, &[u8])> = vec![("proc/sys/kernel/arch", b"x86_64\n")];
    all.extend(files.iter().map(|(path, text)| (*path, text.as_bytes())));
    Host::at(root(&all).path()).expect("the root is there")
}

/// The files of a root, and whether 32-bit programs run.
type Case<'a> = (&'a [(&'a str, &'a str)], Option<bool>);

#[test]
fn ia32_emulation() {
    const RELEASE: &str = "proc/sys/kernel/osrelease";
    const SYSCTL: &str = "proc/sys/abi/vsyscall32";
    const ON: &str = "CONFIG_IA32_EMULATION=y\n";
    const OFF: &str = "# CONFIG_IA32_EMULATION is not set\n";
    const DISABLED: &str = "CONFIG_IA32_EMULATION=y\nCONFIG_IA32_EMULATION_DEFAULT_DISABLED=y\n";
    let new = (RELEASE, "6.18.0\n");
    let cases: [Case; 13] = [
        (&[], None),
        (&[(SYSCTL, "1")], None),
        // A copy that lacks the switch proves nothing.
        (&[new], None),
        (&[new, (SYSCTL, "1")], None),
        (&[(RELEASE, "5.10.0-1-amd64\n"), (SYSCTL, "1")], Some(true)),
        (&[(RELEASE, "odd\n"), (SYSCTL, "1")], None),
        (&[new, (SYSCTL, "1"), ("proc/cmdline", "a ia32_emulation=1 b")], Some(true)),
        (&[new, (SYSCTL, "1"), ("proc/cmdline", "ia32_emulation=off")], Some(false)),
        (&[new, (SYSCTL, "1"), ("proc/cmdline", "ia32_emulation=?")], None),
        (&[new, ("boot/config-6.18.0", ON)], Some(true)),
        (&[new, ("boot/config-6.18.0", OFF), (SYSCTL, "1")], Some(false)),
        (&[new, ("boot/config-6.18.0", DISABLED)], Some(false)),
        (
            &[new, ("boot/config-6.18.0", DISABLED), ("proc/cmdline", "ia32_emulation=y")],
            Some(true),
        ),
    ];
    for (files, expected) in cases {
        assert_eq!(amd64(files).compat32.map(|fact| fact.value), expected, "{files:?}");
    }
    // A configuration under another kernel's name says nothing about this one.
    let other = amd64(&[new, (SYSCTL, "1"), ("boot/config-6.1.0", OFF), ("boot/config", OFF)]);
    assert_eq!(other.compat32, None);
}

#[test]
fn the_kernels_own_configuration_comes_first() {
    use std::io::Write;
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    gzip.write_all(b"CONFIG_X86=y\n# CONFIG_IA32_EMULATION is not set\n").unwrap();
    let gzip = gzip.finish().unwrap();
    let dir = root(&[
        ("proc/sys/kernel/arch", b"x86_64"),
        ("proc/sys/kernel/osrelease", b"6.18.0"),
        ("proc/config.gz", &gzip),
        ("boot/config-6.18.0", b"CONFIG_IA32_EMULATION=y\n"),
    ]);
    let fact = Host::at(dir.path()).unwrap().compat32.unwrap();
    assert_eq!((fact.value, fact.source.to_string().as_str()), (false, "/proc/config.gz"));
    // One that is cut short is no configuration; the next place is asked.
    fs::write(dir.path().join("proc/config.gz"), &gzip[..gzip.len() / 2]).unwrap();
    assert!(Host::at(dir.path()).unwrap().compat32.unwrap().value);
}

#[test]
fn aarch32() {
    let arm64 = |files: &[(&str, &[u8])]| {
        let mut all: Vec<(&str, &[u8])> = vec![("proc/sys/kernel/arch", b"aarch64\n")];
        all.extend(files);
        Host::at(root(&all).path()).unwrap().compat32.map(|fact| fact.value)
    };
    let release: (&str, &[u8]) = ("proc/sys/kernel/osrelease", b"6.6.0");
    assert_eq!(arm64(&[]), None);
    assert_eq!(
        arm64(&[release, ("boot/config-6.6.0", b"CONFIG_COMPAT=y\n")]),
        None,
        "the cores decide"
    );
    assert_eq!(
        arm64(&[release, ("boot/config-6.6.0", b"# CONFIG_COMPAT is not set\n")]),
        Some(false)
    );
    assert_eq!(arm64(&[("sys/devices/system/cpu/aarch32_el0", b"0-3\n")]), Some(true));
    assert_eq!(arm64(&[("sys/devices/system/cpu/aarch32_el0", b"\n")]), Some(false));
}

#[test]
fn this_machine_is_known() {
    let host = Host::here().unwrap();
    let platform = host.platform().unwrap().platform;
    assert_eq!(platform.os, "linux");
    let compiled_for = portolan_host::machine::architecture(std::env::consts::ARCH);
    // A kernel may be wider than this program, but not on the machines that run these tests.
    assert_eq!(Some(platform.architecture.as_str()), compiled_for);
    if platform.architecture == "amd64" {
        // What the compiler found out by asking the processor itself.
        #[cfg(target_arch = "x86_64")]
        {
            let v3 = std::arch::is_x86_feature_detected!("avx2")
                && std::arch::is_x86_feature_detected!("bmi2")
                && std::arch::is_x86_feature_detected!("fma");
            let v4 = v3 && std::arch::is_x86_feature_detected!("avx512vl");
            let level = host.level.unwrap().value.level.unwrap();
            assert_eq!(level >= Level::Amd64(3), v3);
            assert_eq!(level >= Level::Amd64(4), v4);
        }
    }
}
