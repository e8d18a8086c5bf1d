//! What a machine boots: a kernel and a first file system (initramfs) with our init in it.
//!
//! The image is not touched: init, modules and configuration lie in an initramfs of two archives,
//! one that all machines share and a small one for each start.

pub mod cpio;
pub mod find;
pub mod modules;
pub mod start;
pub mod view;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use portolan_registry::durable::{self, DurableError};
use serde::{Deserialize, Serialize};

use cpio::{Archive, CpioError};
use modules::{ModulesError, Wanted};
use start::{End, Start};

/// A static init of ours has 1 MiB; this one is held in memory.
const MAX_INIT_BYTES: u64 = 64 << 20;

/// What guests boot: `[guest]`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GuestConfig {
    /// The guest's kernel: an uncompressed `vmlinux` for Firecracker, a `vmlinuz` also for QEMU. Not
    /// set: nothing can be started.
    pub kernel: Option<PathBuf>,
    /// The folder of its modules (`/lib/modules/VERSION`), in which depmod was run. Not set: what
    /// the guest needs is built into the kernel.
    pub modules_dir: Option<PathBuf>,
    /// Further modules to load, by name.
    pub modules: Vec<String>,
    /// The static `portolan-init`. Not set: the file of that name beside the agent's own.
    pub init: Option<PathBuf>,
    /// What is added to the kernel's command line.
    pub kernel_args: String,
}

impl GuestConfig {
    /// The modules to load, `also` those that a VMM's devices need.
    fn wanted(&self, also: &[Wanted]) -> Vec<Wanted> {
        let extra = self.modules.iter().map(|name| Wanted { name: name.clone(), optional: false });
        also.iter().cloned().chain(extra).collect()
    }
}

/// Why there is nothing to boot.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The operator named no kernel.
    #[error("no guest kernel is configured; set guest.kernel in the agent's configuration")]
    NoKernel,
    /// The kernel is not there.
    #[error("the guest kernel {} cannot be read; check guest.kernel", path.display())]
    Kernel {
        /// Where it should be.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: std::io::Error,
    },
    /// The init is not there.
    #[error(
        "there is no {}; build it (cargo build -p portolan-init --release --target \
         x86_64-unknown-linux-musl, or aarch64) and put it there, or set guest.init", path.display()
    )]
    NoInit {
        /// Where it should be.
        path: PathBuf,
    },
    /// The init cannot be read.
    #[error("the guest's init cannot be read")]
    ReadInit(#[source] DurableError),
    /// The init is not what a guest can execute alone.
    #[error(
        "{} is not a static program: a guest has no loader for it; build it for a musl target",
        path.display()
    )]
    NotStatic {
        /// The file.
        path: PathBuf,
    },
    /// The modules are not usable.
    #[error("the guest's kernel modules are not usable")]
    Modules(#[source] ModulesError),
    /// Something does not fit into an initramfs.
    #[error("the guest's initramfs cannot be made")]
    Archive(#[source] CpioError),
    /// This process does not know its own file.
    #[error("the agent cannot tell where its own program is; set guest.init")]
    OwnProgram(#[source] std::io::Error),
}

/// What every machine of this agent boots, read once: a new kernel or init is used after the agent
/// was started again.
#[derive(Debug, Clone)]
pub struct Guest {
    /// The kernel's file.
    pub kernel: PathBuf,
    /// What is added to its command line.
    pub kernel_args: String,
    base: Arc<[u8]>,
    modules: Vec<String>,
}

impl Guest {
    /// Reads init and modules. `also` are the modules that a VMM's devices need.
    pub fn open(config: &GuestConfig, also: &[Wanted]) -> Result<Self, GuestError> {
        let kernel = config.kernel.clone().ok_or(GuestError::NoKernel)?;
        // A path in an error at every start is worse than one in the first.
        durable::open_file(&kernel)
            .map_err(|source| GuestError::Kernel { path: kernel.clone(), source })?;
        let init = read_init(config)?;
        let wanted = config.wanted(also);
        let modules = match &config.modules_dir {
            Some(dir) => modules::collect(dir, &wanted).map_err(GuestError::Modules)?,
            None => vec![],
        };
        let (base, modules) = base(&init, &modules).map_err(GuestError::Archive)?;
        Ok(Self { kernel, kernel_args: config.kernel_args.clone(), base: base.into(), modules })
    }

    /// The initramfs for one start, whose modules are filled in here.
    pub fn initramfs(&self, mut start: Start) -> Result<Vec<u8>, CpioError> {
        start.modules.clone_from(&self.modules);
        let config = serde_json::to_vec(&start).expect("strings and numbers are JSON");
        let mut own = Archive::new();
        own.directory("portolan")?;
        own.file("portolan/config.json", false, &config)?;
        Ok([&self.base, own.finish().as_slice()].concat())
    }

    /// An initramfs whose init tells that the machine boots, and ends.
    pub fn probe(&self, token: &str, end: End) -> Result<Vec<u8>, CpioError> {
        self.initramfs(Start {
            token: token.to_owned(),
            modules: vec![],
            end,
            probe: true,
            root_uuid: String::new(),
            scratch_uuid: String::new(),
            hostname: String::new(),
            argv: vec![],
            env: vec![],
            cwd: String::new(),
            user: String::new(),
            stop_signal: String::new(),
        })
    }
}

fn base(init: &[u8], modules: &[modules::Module]) -> Result<(Vec<u8>, Vec<String>), CpioError> {
    let mut archive = Archive::new();
    archive.directory("dev")?;
    archive.character("dev/console", (5, 1))?;
    archive.file("init", true, init)?;
    archive.directory("modules")?;
    let mut paths = Vec::new();
    for (index, module) in modules.iter().enumerate() {
        // Numbered, as two folders of a kernel may hold modules of one file name.
        let name = format!("modules/{index}-{}", module.file_name);
        archive.file(&name, false, &module.bytes)?;
        paths.push(format!("/{name}"));
    }
    Ok((archive.finish(), paths))
}

fn read_init(config: &GuestConfig) -> Result<Vec<u8>, GuestError> {
    let path = match &config.init {
        Some(path) => path.clone(),
        None => {
            std::env::current_exe().map_err(GuestError::OwnProgram)?.with_file_name("portolan-init")
        }
    };
    let bytes = durable::read_bounded(&path, MAX_INIT_BYTES).map_err(GuestError::ReadInit)?;
    let bytes = bytes.ok_or_else(|| GuestError::NoInit { path: path.clone() })?;
    if is_static(&bytes) { Ok(bytes) } else { Err(GuestError::NotStatic { path }) }
}

/// Whether these bytes are an ELF program that asks for no interpreter: one that does, the ordinary
/// build of the same crate for instance, would make every guest's kernel panic.
fn is_static(elf: &[u8]) -> bool {
    const INTERPRETER: u32 = 3;
    let number = |at: usize, size: usize| -> Option<u64> {
        let bytes = elf.get(at..at.checked_add(size)?)?;
        Some(bytes.iter().rev().fold(0, |sum, byte| sum << 8 | u64::from(*byte)))
    };
    let segments = || -> Option<bool> {
        // 64 bit, little-endian: what guests of ours are.
        if elf.get(..6)? != b"\x7fELF\x02\x01" {
            return None;
        }
        let (table, size, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
        for index in 0..count {
            let at = usize::try_from(table.checked_add(index * size)?).ok()?;
            if number(at, 4)? == u64::from(INTERPRETER) {
                return Some(false);
            }
        }
        Some(true)
    };
    segments().unwrap_or(false)
}

/// The UUID of the ext4 file system in a disk file, in the form that init compares.
pub fn disk_uuid(disk: &Path) -> std::io::Result<Option<String>> {
    use std::os::unix::fs::FileExt as _;
    const SUPERBLOCK: u64 = 1024;
    let (file, _) = durable::open_file(disk)?;
    let mut bytes = [0; 120];
    file.read_exact_at(&mut bytes, SUPERBLOCK)?;
    Ok((bytes[56..58] == [0x53, 0xef]).then(|| portolan_core::hex(&bytes[104..])))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn elf(segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[32] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    #[test]
    fn what_is_missing_or_would_panic_the_guest_is_told_before() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| Some(dir.path().join(name));
        let mut config = GuestConfig::default();
        assert!(matches!(Guest::open(&config, &[]), Err(GuestError::NoKernel)));
        config.kernel = path("vmlinuz");
        assert!(matches!(Guest::open(&config, &[]), Err(GuestError::Kernel { .. })));
        std::fs::write(dir.path().join("vmlinuz"), b"k").unwrap();
        config.init = path("init");
        let missing = Guest::open(&config, &[]).unwrap_err().to_string();
        assert!(missing.contains("cargo build -p portolan-init"), "{missing}");
        for bad in [b"#!/bin/sh\n".to_vec(), elf(3), elf(1)[..64].to_vec()] {
            std::fs::write(dir.path().join("init"), &bad).unwrap();
            assert!(matches!(Guest::open(&config, &[]), Err(GuestError::NotStatic { .. })));
        }
        std::fs::write(dir.path().join("init"), elf(1)).unwrap();
        Guest::open(&config, &[]).unwrap();
    }

    #[test]
    fn one_base_serves_all_starts_and_a_start_adds_its_own_archive() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("k"), b"k").unwrap();
        std::fs::write(dir.path().join("i"), elf(1)).unwrap();
        let config = GuestConfig {
            kernel: Some(dir.path().join("k")),
            init: Some(dir.path().join("i")),
            ..GuestConfig::default()
        };
        let guest = Guest::open(&config, &[]).unwrap();
        let (one, two) =
            (guest.probe("1", End::Restart).unwrap(), guest.probe("2", End::Restart).unwrap());
        assert_ne!(one, two);
        assert!(one.starts_with(&guest.base) && two.starts_with(&guest.base));
        assert_eq!(one, guest.probe("1", End::Restart).unwrap());
    }
}
