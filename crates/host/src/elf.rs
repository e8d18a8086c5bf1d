//! What the programs of a root are made for, from the first bytes of one of them. For roots
//! whose machine is not running: `/proc` is empty there.

use crate::fact::Fact;
use crate::root::Root;

/// Where a root keeps a program that must fit its machine, the likeliest first.
const PROGRAMS: [&str; 7] = [
    "/sbin/init",
    "/usr/lib/systemd/systemd",
    "/lib/systemd/systemd",
    "/bin/sh",
    "/bin/bash",
    "/bin/busybox",
    "/usr/bin/env",
];

/// All that is looked at: the header up to and including the processor family.
const HEADER: u64 = 20;

/// The header of an ELF file, as far as it names a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// 64-bit rather than 32-bit.
    pub wide: bool,
    /// Little-endian rather than big-endian.
    pub little: bool,
    /// The operating system interface; 0 where it says none in particular.
    pub abi: u8,
    /// The processor family.
    pub machine: u16,
}

/// The first program of the root that is an ELF file.
pub(crate) fn read(root: &Root) -> Option<Fact<Header>> {
    PROGRAMS.into_iter().find_map(|path| {
        let header = Header::parse(&root.read(path, HEADER)?)?;
        Some(Fact::from_file(header, path))
    })
}

impl Header {
    /// Reads the beginning of a file; none if it is no ELF program.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(b"\x7fELF")?;
        let [class, data, version, abi] = *rest.first_chunk::<4>()?;
        let wide = match class {
            1 => false,
            2 => true,
            _ => return None,
        };
        let little = match data {
            1 => true,
            2 => false,
            _ => return None,
        };
        let half = |at: usize| {
            let pair = *bytes.get(at..)?.first_chunk::<2>()?;
            Some(if little { u16::from_le_bytes(pair) } else { u16::from_be_bytes(pair) })
        };
        // 2 is an executable, 3 a shared object, which is what most programs are today.
        let is_program = version == 1 && matches!(half(16)?, 2 | 3);
        is_program.then_some(Self { wide, little, abi, machine: half(18)? })
    }

    /// The architecture in the words of images.
    pub fn architecture(self) -> Option<&'static str> {
        Some(match (self.machine, self.wide, self.little) {
            (3, false, true) => "386",
            (62, true, true) => "amd64",
            // 32-bit pointers in 64-bit mode.
            (62, false, true) => "amd64p32",
            (183, true, true) => "arm64",
            (183, true, false) => "arm64be",
            (40, false, true) => "arm",
            (40, false, false) => "armbe",
            (21, true, true) => "ppc64le",
            (21, true, false) => "ppc64",
            (20, false, false) => "ppc",
            (22, true, false) => "s390x",
            (22, false, false) => "s390",
            (243, true, true) => "riscv64",
            (243, false, true) => "riscv",
            (258, true, true) => "loong64",
            (8, true, true) => "mips64le",
            (8, true, false) => "mips64",
            (8, false, true) => "mipsle",
            (8, false, false) => "mips",
            (43, true, false) => "sparc64",
            (2, false, false) => "sparc",
            _ => return None,
        })
    }

    /// The operating system. Programs for Linux seldom name it; those of the others do.
    pub fn os(self) -> Option<&'static str> {
        match self.abi {
            0 | 3 => Some("linux"),
            2 => Some("netbsd"),
            6 => Some("solaris"),
            9 => Some("freebsd"),
            12 => Some("openbsd"),
            _ => None,
        }
    }
}
