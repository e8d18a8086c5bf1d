//! Where a kernel, its modules and our init may be on a machine, for who names none.

use std::path::{Path, PathBuf};

use super::GuestConfig;
use crate::vmm::Kind;

/// Nothing to boot was found, and nothing was named.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotFound {
    /// No kernel.
    #[error(
        "no guest kernel was found: {} holds none that {kind} boots; install one ({advice}) or name it \
         with --kernel FILE and --modules DIR",
        boot.display()
    )]
    Kernel {
        /// Where it was looked for.
        boot: PathBuf,
        /// What was to boot it.
        kind: &'static str,
        /// Where one is to be had.
        advice: &'static str,
    },
    /// A kernel that was named.
    #[error("there is no guest kernel {}; name another with --kernel FILE", path.display())]
    Named {
        /// Where it should be.
        path: PathBuf,
    },
    /// No init.
    #[error(
        "no portolan-init was found; build it (rustup target add {target}; cargo build --release -p \
         portolan-init --target {target}) or name it with --init FILE"
    )]
    Init {
        /// What it is built for.
        target: String,
    },
}

/// Fills in what `given` leaves open: the kernel of the machine whose root directory is `host`, with
/// its modules, and the init beside the program `own` or where cargo puts it.
pub fn complete(
    given: &GuestConfig,
    kind: Kind,
    host: &Path,
    own: &Path,
) -> Result<GuestConfig, NotFound> {
    let mut config = given.clone();
    if let Some(path) = config.kernel.clone().filter(|path| !path.is_file()) {
        return Err(NotFound::Named { path });
    }
    if config.kernel.is_none() {
        let (kernel, modules) = kernel(kind, host)?;
        config.kernel = Some(kernel);
        config.modules_dir = config.modules_dir.or(modules);
    }
    if config.init.is_none() {
        config.init = Some(init(own)?);
    }
    Ok(config)
}

/// The init of guests beside the program `own`, or where cargo puts it.
pub fn init(own: &Path) -> Result<PathBuf, NotFound> {
    let target = format!("{}-unknown-linux-musl", std::env::consts::ARCH);
    let found = inits(own, &target).into_iter().find(|path| path.is_file());
    found.ok_or(NotFound::Init { target })
}

/// The newest by its name, and the folder of its modules where that is there. What Firecracker boots
/// is not compressed, and what it needs is built in.
fn kernel(kind: Kind, host: &Path) -> Result<(PathBuf, Option<PathBuf>), NotFound> {
    let boot = host.join("boot");
    let (prefix, name, advice) = match kind {
        Kind::Firecracker => ("vmlinux", "Firecracker", "docs/microvm.md says where one is"),
        Kind::Qemu => ("vmlinuz", "QEMU", "Debian: linux-image-cloud-amd64"),
    };
    let listed = std::fs::read_dir(&boot).into_iter().flatten().flatten();
    let mut kernels: Vec<(Vec<u64>, String)> = listed
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| name.starts_with(prefix) && boot.join(name).is_file())
        .map(|name| (numbers(&name), name))
        .collect();
    kernels.sort();
    let modules = |name: &str| {
        let version = name.strip_prefix(prefix)?.strip_prefix('-')?;
        Some(host.join("lib/modules").join(version)).filter(|dir| dir.is_dir())
    };
    // One with modules goes before a newer one without: most need them.
    let with = kernels.iter().rev().find(|(_, name)| modules(name).is_some());
    match with.or_else(|| kernels.last()) {
        Some((_, name)) => Ok((boot.join(name), modules(name))),
        None => Err(NotFound::Kernel { boot, kind: name, advice }),
    }
}

/// The numbers in a name: 6.10 is newer than 6.9.
fn numbers(name: &str) -> Vec<u64> {
    name.split(|c: char| !c.is_ascii_digit()).filter_map(|word| word.parse().ok()).collect()
}

/// Beside the program, and in the folders of the same `target/`.
fn inits(own: &Path, target: &str) -> Vec<PathBuf> {
    let beside = own.with_file_name("portolan-init");
    let cargo = own.parent().and_then(Path::parent).map(|dir| dir.join(target));
    let built = cargo.into_iter().flat_map(|dir| {
        ["release", "debug"].map(|profile| dir.join(profile).join("portolan-init"))
    });
    built.chain([beside]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(path: &Path) {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "").unwrap();
    }

    #[test]
    fn the_newest_kernel_with_modules_is_taken_and_what_is_named_stays() {
        let dir = tempfile::tempdir().unwrap();
        let (host, own) = (dir.path(), dir.path().join("target/release/portolan"));
        let find = |given: &GuestConfig, kind| complete(given, kind, host, &own);
        let nothing = GuestConfig::default();
        let missing = find(&nothing, Kind::Qemu).unwrap_err().to_string();
        assert!(missing.contains("--kernel") && missing.contains("boot"), "{missing}");
        for name in ["vmlinuz-6.9.1-a", "vmlinuz-6.10.2-a", "vmlinuz-6.12.0-a"] {
            touch(&host.join("boot").join(name));
        }
        touch(&host.join("lib/modules/6.9.1-a/modules.dep"));
        touch(&host.join("lib/modules/6.10.2-a/modules.dep"));
        let missing = find(&nothing, Kind::Qemu).unwrap_err().to_string();
        assert!(missing.contains("--init") && missing.contains("musl"), "{missing}");
        let target = format!("target/{}-unknown-linux-musl", std::env::consts::ARCH);
        touch(&host.join(&target).join("debug/portolan-init"));
        let found = find(&nothing, Kind::Qemu).unwrap();
        assert_eq!(found.kernel, Some(host.join("boot/vmlinuz-6.10.2-a")));
        assert_eq!(found.modules_dir, Some(host.join("lib/modules/6.10.2-a")));
        assert_eq!(found.init, Some(host.join(&target).join("debug/portolan-init")));
        touch(&host.join(&target).join("release/portolan-init"));
        let found = find(&nothing, Kind::Qemu).unwrap();
        assert_eq!(found.init, Some(host.join(&target).join("release/portolan-init")));
        let given = GuestConfig {
            kernel: Some(host.join("boot/vmlinuz-6.9.1-a")),
            init: Some("/i".into()),
            ..GuestConfig::default()
        };
        assert_eq!(find(&given, Kind::Firecracker).unwrap(), given, "no modules of another kernel");
        let gone = GuestConfig { kernel: Some(host.join("gone")), ..given };
        assert!(matches!(find(&gone, Kind::Qemu), Err(NotFound::Named { .. })));
        let missing = find(&nothing, Kind::Firecracker).unwrap_err().to_string();
        assert!(missing.contains("Firecracker"), "{missing}");
    }
}
