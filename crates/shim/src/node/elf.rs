//! Whether a program is made for this machine.

use portolan_core::{HostPlatform, Platform};
use portolan_host::elf::Header;

/// How many bytes of a file [`check`] wants to see.
pub const HEAD: usize = 64;

/// Why a program does not run here.
#[derive(Debug, thiserror::Error)]
pub enum ElfError {
    /// A script, a library's archive, a web page.
    #[error("{binary} is no Linux program (ELF): a shim is a compiled program")]
    NotAProgram {
        /// The file's name.
        binary: String,
    },
    /// For another system.
    #[error("{binary} is a program for {os}, and this node runs linux")]
    WrongOs {
        /// The file's name.
        binary: String,
        /// What it is for.
        os: String,
    },
    /// For another processor.
    #[error("{binary} is made for {found}, and this node is {node}; give the location for {node}")]
    WrongArchitecture {
        /// The file's name.
        binary: String,
        /// What it is for.
        found: String,
        /// What this is.
        node: String,
    },
}

/// Holds the beginning of a program against the platform of a host.
///
/// # Errors
/// It does not run there.
pub fn check(binary: &str, head: &[u8], host: &HostPlatform) -> Result<(), ElfError> {
    let binary = || binary.to_owned();
    let header = Header::parse(head).ok_or_else(|| ElfError::NotAProgram { binary: binary() })?;
    let node = host.platform.to_string();
    match header.os() {
        Some("linux") => {}
        os => {
            let os = os.unwrap_or("another system").to_owned();
            return Err(ElfError::WrongOs { binary: binary(), os });
        }
    }
    let Some(architecture) = header.architecture() else {
        let found = format!("processor family {}", header.machine);
        return Err(ElfError::WrongArchitecture { binary: binary(), found, node });
    };
    // An ELF header names no level: the baseline that every machine of the architecture has. For 32-bit
    // arm there is none, so the header's word is that of the host's own.
    let mut made_for = Platform::new("linux", architecture);
    if architecture == "arm" && host.platform.architecture == "arm" {
        made_for.variant.clone_from(&host.platform.variant);
    }
    if host.check(&made_for.normalised()).is_ok() {
        return Ok(());
    }
    Err(ElfError::WrongArchitecture { binary: binary(), found: architecture.to_owned(), node })
}

#[cfg(test)]
mod tests {
    use portolan_core::platform::Support;

    use super::*;

    fn elf(class: u8, data: u8, kind: u8, machine: u8) -> Vec<u8> {
        let mut head = vec![0; HEAD];
        head[..8].copy_from_slice(&[0x7f, b'E', b'L', b'F', class, data, 1, 0]);
        let at = usize::from(data == 2);
        head[16 + at] = kind;
        head[18 + at] = machine;
        head
    }

    fn host(platform: &str, compat32: Support) -> HostPlatform {
        let platform: Platform = platform.parse().unwrap();
        HostPlatform { platform: platform.normalised(), compat32 }
    }

    #[test]
    fn class_byte_order_type_and_machine_count() {
        let amd64 = host("linux/amd64/v3", Support::No);
        check("s", &elf(2, 1, 3, 62), &amd64).unwrap();
        check("s", &elf(2, 1, 2, 62), &amd64).unwrap();
        for wrong in [elf(2, 1, 3, 183), elf(1, 1, 3, 3), elf(1, 1, 3, 62), elf(2, 1, 3, 99)] {
            let error = check("s", &wrong, &amd64).unwrap_err();
            assert!(matches!(error, ElfError::WrongArchitecture { .. }), "{error}");
            assert!(error.to_string().contains("linux/amd64"), "{error}");
        }
        for no in
            [elf(2, 1, 1, 62), elf(2, 1, 4, 62), elf(9, 1, 3, 62), b"#!/bin/sh\n".to_vec(), vec![]]
        {
            assert!(matches!(check("s", &no, &amd64), Err(ElfError::NotAProgram { .. })));
        }
        check("s", &elf(2, 1, 3, 183), &host("linux/arm64", Support::Unknown)).unwrap();
        check("s", &elf(2, 1, 3, 243), &host("linux/riscv64", Support::Unknown)).unwrap();
        check("s", &elf(2, 2, 3, 22), &host("linux/s390x", Support::Unknown)).unwrap();
        check("s", &elf(1, 1, 3, 40), &host("linux/arm/v7", Support::Unknown)).unwrap();
        check("s", &elf(1, 1, 3, 3), &host("linux/amd64", Support::Yes)).unwrap();
    }
}
