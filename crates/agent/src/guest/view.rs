//! A machine as an image in it finds it, laid out as a root directory.
//!
//! What an image needs of its kernel it needs of the guest's, not of the host's, which it never
//! sees. The guest is not running when that is asked, but what it will be is known: its kernel, its
//! modules, its command line, and a processor that is the host's. So the files that tell it are put
//! where a running guest would have them, and whatever reads the facts of a host reads these.
//!
//! | file | from |
//! |---|---|
//! | `proc/sys/kernel/osrelease` | the kernel's own banner, else the name of its folder of modules |
//! | `proc/config.gz` | the kernel itself, where it carries its configuration uncompressed |
//! | `boot/config-RELEASE` | the file of that name beside the kernel |
//! | `proc/modules` | what the initramfs loads |
//! | `lib/modules/RELEASE/modules.builtin` | the folder of modules; no others can be loaded |
//! | `proc/cmdline` | what the VMM gives the kernel |
//! | `proc/cpuinfo` | the host, where the guest runs on its processor (KVM) |
//! | `sys/bus/pci/devices`, `sys/bus/usb/devices` | empty: machines have neither |
//!
//! What is not in this table (memory, disks, the distribution, …) depends on the workload's spec or
//! on the image itself. Nothing is said about it, so a requirement on it is unknown.

use std::path::{Path, PathBuf};

use portolan_registry::durable::{self, DurableError};

use super::GuestConfig;
use super::modules::{self, ModulesError};
use crate::vmm::{AccelChoice, Kind, VmmConfig};

/// An uncompressed kernel of a distribution has 60 MiB.
const MAX_KERNEL_BYTES: u64 = 256 << 20;
/// A configuration, and a list of modules.
const MAX_LIST_BYTES: u64 = 16 << 20;
/// Hundreds of processors have a megabyte.
const MAX_CPUINFO_BYTES: u64 = 16 << 20;

/// Why a guest cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ViewError {
    /// A file of the guest's cannot be read.
    #[error(
        "a file that tells what guests are cannot be read; check guest.kernel and guest.modules_dir"
    )]
    Read(#[source] DurableError),
    /// The list of modules is not usable.
    #[error("the guest's kernel modules are not usable")]
    Modules(#[source] ModulesError),
    /// The directory cannot be made.
    #[error("cannot write {}", path.display())]
    Write {
        /// What.
        path: PathBuf,
        /// The system's word for it.
        #[source]
        source: std::io::Error,
    },
}

/// A file of the view, below its root.
type File = (String, Vec<u8>);

/// Makes the view of this configuration's guests in `dir`, in the place of whatever was there.
/// `host_root` is where the host's own files are.
pub fn make(
    dir: &Path,
    guest: &GuestConfig,
    vmm: &VmmConfig,
    host_root: &Path,
) -> Result<(), ViewError> {
    let mut files = of_kernel(guest, vmm)?;
    if runs_on_the_host_s_processor(vmm) {
        files.extend(of_processor(host_root)?);
    }
    let write = |path: &Path| {
        let path = path.to_owned();
        move |source| ViewError::Write { path, source }
    };
    match std::fs::remove_dir_all(dir) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            return Err(write(dir)(error));
        }
        _ => {}
    }
    for below in ["sys/bus/pci/devices", "sys/bus/usb/devices", "sys/class/net/lo"] {
        let path = dir.join(below);
        std::fs::create_dir_all(&path).map_err(write(&path))?;
    }
    for (below, bytes) in files {
        let path = dir.join(below);
        let parent = path.parent().unwrap_or(dir);
        std::fs::create_dir_all(parent).map_err(write(parent))?;
        std::fs::write(&path, bytes).map_err(write(&path))?;
    }
    Ok(())
}

/// With TCG a guest has whatever processor QEMU makes up. `auto` is KVM where there is such a
/// device, which is what QEMU then tries first.
fn runs_on_the_host_s_processor(vmm: &VmmConfig) -> bool {
    match (vmm.kind, vmm.accel) {
        (Kind::Firecracker, _) | (Kind::Qemu, AccelChoice::Kvm) => true,
        (Kind::Qemu, AccelChoice::Tcg) => false,
        (Kind::Qemu, AccelChoice::Auto) => Path::new("/dev/kvm").exists(),
    }
}

fn of_processor(host_root: &Path) -> Result<Vec<File>, ViewError> {
    let mut files = Vec::new();
    for (name, limit) in [("proc/cpuinfo", MAX_CPUINFO_BYTES), ("proc/sys/kernel/arch", 256)] {
        let bytes = durable::read_bounded(&host_root.join(name), limit).map_err(ViewError::Read)?;
        files.extend(bytes.map(|bytes| (name.to_owned(), bytes)));
    }
    Ok(files)
}

fn of_kernel(guest: &GuestConfig, vmm: &VmmConfig) -> Result<Vec<File>, ViewError> {
    let cmdline = vmm.kind.boot_args(&guest.kernel_args);
    let mut files: Vec<File> = vec![
        ("proc/cmdline".to_owned(), format!("{cmdline}\n").into_bytes()),
        ("proc/sys/kernel/ostype".to_owned(), b"Linux\n".to_vec()),
        ("proc/modules".to_owned(), loaded(guest, vmm)?),
    ];
    let read = |path: &Path, limit| durable::read_bounded(path, limit).map_err(ViewError::Read);
    let kernel = match &guest.kernel {
        Some(path) => read(path, MAX_KERNEL_BYTES)?.unwrap_or_default(),
        None => Vec::new(),
    };
    files.extend(config_in(&kernel).map(|packed| ("proc/config.gz".to_owned(), packed.to_vec())));
    let folder = guest.modules_dir.as_deref().and_then(Path::file_name);
    let folder = folder.and_then(|name| name.to_str()).filter(|name| is_release(name));
    let Some(release) = release_in(&kernel).or_else(|| folder.map(str::to_owned)) else {
        return Ok(files);
    };
    files.push(("proc/sys/kernel/osrelease".to_owned(), format!("{release}\n").into_bytes()));
    let beside =
        guest.kernel.as_ref().map(|kernel| kernel.with_file_name(format!("config-{release}")));
    if let Some(config) = beside.map(|path| read(&path, MAX_LIST_BYTES)).transpose()?.flatten() {
        files.push((format!("boot/config-{release}"), config));
    }
    if let Some(dir) = &guest.modules_dir {
        let folder = format!("lib/modules/{release}");
        // What the initramfs does not bring, nobody in the guest can load.
        files.push((format!("{folder}/modules.dep"), Vec::new()));
        for name in ["modules.builtin", "modules.builtin.modinfo"] {
            let bytes = read(&dir.join(name), MAX_LIST_BYTES)?;
            files.extend(bytes.map(|bytes| (format!("{folder}/{name}"), bytes)));
        }
    }
    Ok(files)
}

/// `/proc/modules` once the initramfs has done its work.
fn loaded(guest: &GuestConfig, vmm: &VmmConfig) -> Result<Vec<u8>, ViewError> {
    let Some(dir) = &guest.modules_dir else { return Ok(Vec::new()) };
    let names = modules::names(dir, &guest.wanted(&vmm.kind.modules()));
    let names = names.map_err(ViewError::Modules)?;
    let lines = names.iter().map(|name| format!("{name} 0 0 - Live 0x0\n"));
    Ok(lines.collect::<String>().into_bytes())
}

/// Whether a text can be a kernel's release, and so a part of a path.
fn is_release(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'-' | b'_' | b'+' | b'~');
    text.bytes().next().is_some_and(|b| b.is_ascii_digit())
        && text.len() <= 128
        && text.bytes().all(plain)
}

/// The release that a kernel says it is: a `bzImage` in its header, any that is not compressed in
/// the banner that it prints when it boots.
fn release_in(kernel: &[u8]) -> Option<String> {
    let word = |at: &[u8]| {
        let end = at.iter().position(|byte| matches!(byte, b' ' | 0 | b'\n'))?;
        let text = std::str::from_utf8(&at[..end.min(200)]).ok()?;
        is_release(text).then(|| text.to_owned())
    };
    const SETUP: usize = 0x200;
    if kernel.get(SETUP + 2..SETUP + 6) == Some(b"HdrS") {
        let pointer = kernel.get(SETUP + 14..SETUP + 16)?;
        let at = SETUP + usize::from(u16::from_le_bytes([pointer[0], pointer[1]]));
        return word(kernel.get(at..)?);
    }
    const BANNER: &[u8] = b"Linux version ";
    let mut rest = kernel;
    while let Some(at) = find(rest, BANNER) {
        rest = &rest[at + BANNER.len()..];
        // The same words stand in messages of other parts of a kernel, with no version behind them.
        if let Some(release) = word(rest) {
            return Some(release);
        }
    }
    None
}

/// The packed configuration that a kernel with `CONFIG_IKCONFIG` carries between two marks.
fn config_in(kernel: &[u8]) -> Option<&[u8]> {
    const START: &[u8] = b"IKCFG_ST\x1f\x8b";
    let start = find(kernel, START)? + START.len() - 2;
    let end = find(&kernel[start..], b"IKCFG_ED")?;
    Some(&kernel[start..start + end])
}

/// Where `what` first is. A kernel has tens of megabytes, so only places that begin right are
/// compared.
fn find(bytes: &[u8], what: &[u8]) -> Option<usize> {
    let first = *what.first()?;
    let mut from = 0;
    while let Some(at) = bytes[from..].iter().position(|byte| *byte == first) {
        if bytes[from + at..].starts_with(what) {
            return Some(from + at);
        }
        from += at + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use portolan_host::facts::{Facts, Found, Wanted};

    use super::*;

    fn banner(release: &str) -> Vec<u8> {
        let mut kernel = b"\x7fELF Linux version of this is not told\0".to_vec();
        kernel.extend_from_slice(format!("Linux version {release} (gcc) #1\0").as_bytes());
        kernel
    }

    fn bz_image(release: &str) -> Vec<u8> {
        let mut kernel = vec![0; 0x400];
        kernel[0x202..0x206].copy_from_slice(b"HdrS");
        kernel[0x20e..0x210].copy_from_slice(&0x100_u16.to_le_bytes());
        let text = format!("{release} (debian) #1 SMP\0");
        kernel[0x300..0x300 + text.len()].copy_from_slice(text.as_bytes());
        kernel
    }

    #[test]
    fn a_kernel_says_which_release_it_is() {
        for kernel in [banner("6.1.0-54-cloud-amd64"), bz_image("6.1.0-54-cloud-amd64")] {
            assert_eq!(release_in(&kernel).as_deref(), Some("6.1.0-54-cloud-amd64"));
        }
        // Cut, empty, or with something else where the release should be.
        for kernel in [
            Vec::new(),
            b"Linux version ".to_vec(),
            banner("../../etc/passwd"),
            bz_image("/x"),
            bz_image("6.1")[..0x300].to_vec(),
            bz_image("6.1")[..0x20f].to_vec(),
        ] {
            assert_eq!(release_in(&kernel), None);
        }
        let mut with_config = banner("6.1.0");
        with_config.extend_from_slice(b"IKCFG_ST\x1f\x8bpackedIKCFG_ED");
        assert_eq!(config_in(&with_config), Some(&b"\x1f\x8bpacked"[..]));
        assert_eq!(config_in(b"IKCFG_ST\x1f\x8bno end"), None);
    }

    #[test]
    fn facts_of_a_guest_are_its_own_and_its_processor_is_the_host_s() {
        let dir = tempfile::tempdir().unwrap();
        let write = |path: &str, bytes: &[u8]| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, bytes).unwrap();
        };
        write("boot/vmlinuz-6.1.0", &bz_image("6.1.0"));
        write("boot/config-6.1.0", b"CONFIG_VFIO=m\n# CONFIG_KVM is not set\n");
        write("modules/6.1.0/modules.builtin", b"kernel/fs/ext4/ext4.ko\nkernel/fs/fuse/fuse.ko\n");
        let dep = "kernel/a/virtio_mmio.ko:\nkernel/b/virtio_blk.ko:\nkernel/c/overlay.ko:\n\
                   kernel/d/vfio.ko:\nkernel/d/vfio-pci.ko: kernel/d/vfio.ko\n";
        write("modules/6.1.0/modules.dep", dep.as_bytes());
        write(
            "host/proc/cpuinfo",
            b"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: fpu avx2\n",
        );
        write("host/proc/sys/kernel/arch", b"x86_64\n");
        write("host/proc/sys/kernel/osrelease", b"5.4.0\n");
        let guest = GuestConfig {
            kernel: Some(dir.path().join("boot/vmlinuz-6.1.0")),
            modules_dir: Some(dir.path().join("modules/6.1.0")),
            modules: vec!["vfio".to_owned()],
            kernel_args: "mitigations=off".to_owned(),
            ..GuestConfig::default()
        };
        let vmm = VmmConfig::default();
        let view = dir.path().join("view");
        // What an earlier agent left is gone.
        write("view/proc/swaps", b"old");
        make(&view, &guest, &vmm, &dir.path().join("host")).unwrap();
        let wanted = [
            "kernel.version",
            "kernel.config",
            "kernel.loadedmodule",
            "kernel.builtinmodule",
            "kernel.availablemodule",
            "kernel.cmdline",
            "cpu.cpuid",
            "pci.device",
            "memory.info",
            "system.osrelease",
        ];
        let wanted = wanted.iter().fold(Wanted::default(), |all, name| all.feature(name));
        let facts = Facts::at(&view, &wanted).unwrap();
        let value = |feature: &str, element: &str| match facts.attribute(feature, element) {
            Found::Value { value, .. } => value.to_owned(),
            other => panic!("{feature} {element}: {other:?}"),
        };
        assert_eq!(value("kernel.version", "full"), "6.1.0");
        assert_eq!(value("kernel.config", "VFIO"), "m");
        let flag = |feature: &str, name: &str| facts.flag(feature, name);
        assert!(matches!(flag("kernel.loadedmodule", "vfio"), Found::Present { .. }));
        assert!(matches!(flag("kernel.loadedmodule", "vfio_pci"), Found::Absent { .. }));
        assert!(matches!(flag("kernel.availablemodule", "vfio_pci"), Found::Absent { .. }));
        assert!(matches!(flag("kernel.builtinmodule", "fuse"), Found::Present { .. }));
        assert!(matches!(flag("cpu.cpuid", "AVX2"), Found::Present { .. }));
        assert_eq!(facts.boot_parameter("mitigations").unwrap(), [Some("off")]);
        assert_eq!(facts.feature("pci.device").unwrap().instances.as_deref(), Some(&[][..]));
        assert!(!view.join("proc/swaps").exists());
        for unknown in ["memory.info", "system.osrelease"] {
            assert!(facts.feature(unknown).is_err(), "{unknown}");
        }
        // A processor that QEMU makes up is not the host's.
        let emulated =
            VmmConfig { kind: Kind::Qemu, accel: AccelChoice::Tcg, ..VmmConfig::default() };
        make(&view, &guest, &emulated, &dir.path().join("host")).unwrap();
        let facts = Facts::at(&view, &wanted).unwrap();
        assert!(facts.feature("cpu.cpuid").is_err());
    }

    #[test]
    fn without_a_kernel_nothing_is_known_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let view = dir.path().join("view");
        make(&view, &GuestConfig::default(), &VmmConfig::default(), dir.path()).unwrap();
        let facts = Facts::at(&view, &Wanted::default().feature("kernel.version")).unwrap();
        assert!(facts.feature("kernel.version").is_err());
    }
}
