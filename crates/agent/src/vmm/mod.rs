//! Machines: started, watched, stopped and found again.
//!
//! | module | what it holds |
//! |---|---|
//! | `description` | a machine in Firecracker's words: `vm.json` |
//! | `firecracker`, `qemu` | the two programs that run machines |
//! | `shim` | the parent of a VMM, which outlives the agent |
//! | `lock`, `files`, `process` | how agent and shim find each other again |
//! | `machine` | one machine: found, watched, stopped |
//! | `launch`, `layout`, `scratch` | from a root disk to a started machine |
//! | `console` | what comes out of a guest |
//! | `console_files` | reading it, from any line on |
//! | `accel` | whether KVM works here |

pub mod accel;
pub mod console;
pub mod console_files;
pub mod description;
pub mod files;
pub mod firecracker;
mod launch;
mod layout;
mod lock;
pub mod machine;
pub mod process;
pub mod qemu;
mod scratch;
pub mod shim;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::OnceCell;

pub use accel::AccelChoice;
pub use launch::{Launch, LaunchError};
pub(crate) use layout::remove;
pub use lock::MachineLock;
pub use machine::{Found, Machine, look};

use crate::config::{Size, Span};
use crate::guest::modules::Wanted;
use crate::guest::start::End;
use crate::guest::{Guest, GuestConfig, GuestError};
use qemu::Accel;

/// What runs machines: `[vmm]`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VmmConfig {
    /// `"firecracker"` or `"qemu"`.
    pub kind: Kind,
    /// Its program; not set: `firecracker` or `qemu-system-x86_64` in `PATH`.
    pub binary: Option<PathBuf>,
    /// QEMU only: `"auto"` (KVM where a guest boots on it), `"kvm"` or `"tcg"`.
    pub accel: AccelChoice,
    /// How long a guest may take until it starts its workload: `"60s"`.
    pub boot_timeout: Span,
    /// How often a guest that did not start its workload in time is started again: 1.
    pub boot_retries: u32,
    /// How long a workload may take to end when asked; then its machine is switched off: `"10s"`.
    pub stop_timeout: Span,
    /// How much of a guest's console is kept: `"16MiB"`. The last half to whole of it.
    pub console_max_bytes: Size,
    /// QEMU only: how long the probe of KVM may take: `"20s"`.
    pub kvm_probe_timeout: Span,
}

impl Default for VmmConfig {
    fn default() -> Self {
        Self {
            kind: Kind::Firecracker,
            binary: None,
            accel: AccelChoice::Auto,
            boot_timeout: Span::seconds(60),
            boot_retries: 1,
            stop_timeout: Span::seconds(10),
            console_max_bytes: Size(16 << 20),
            kvm_probe_timeout: Span::seconds(20),
        }
    }
}

/// Which program runs machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Firecracker.
    #[default]
    Firecracker,
    /// QEMU's microvm machine. On x86-64 only.
    Qemu,
}

impl Kind {
    /// Firecracker where its program is in `path` (the variable `PATH`), else QEMU.
    pub fn found_in(path: Option<std::ffi::OsString>) -> Self {
        match Self::Firecracker.is_in(path) {
            true => Self::Firecracker,
            false => Self::Qemu,
        }
    }

    /// Whether its program is in `path`.
    pub fn is_in(self, path: Option<std::ffi::OsString>) -> bool {
        find_program(self.program().as_ref(), path).is_some()
    }

    /// Every kind that runs machines on hosts of an architecture, as `std::env::consts::ARCH` calls it.
    pub fn on(architecture: &str) -> &'static [Self] {
        match architecture {
            "x86_64" => &[Self::Firecracker, Self::Qemu],
            _ => &[Self::Firecracker],
        }
    }

    /// What its program is called.
    pub fn program(self) -> &'static str {
        match self {
            Self::Firecracker => "firecracker",
            Self::Qemu => "qemu-system-x86_64",
        }
    }

    /// What the guest's kernel needs for this machine's devices.
    pub(crate) fn modules(self) -> Vec<Wanted> {
        let wanted = |name: &str, optional| Wanted { name: name.to_owned(), optional };
        let mut all: Vec<Wanted> = ["virtio_mmio", "virtio_blk", "ext4", "overlay"]
            .map(|name| wanted(name, false))
            .to_vec();
        if self == Self::Qemu {
            // The power button. Without it a guest is not asked to end, only ended.
            all.extend(["button", "evdev"].map(|name| wanted(name, true)));
        }
        all
    }

    /// The kernel's command line; what the operator adds comes last and wins.
    pub(crate) fn boot_args(self, extra: &str) -> String {
        // `panic=1`: a guest that cannot go on ends its machine instead of standing still.
        let own = match self {
            // As the guide of Firecracker has it: a reset is the end.
            Self::Firecracker => "console=ttyS0 quiet panic=1 reboot=k pci=off",
            Self::Qemu => "console=ttyS0 quiet panic=1 reboot=t pci=off",
        };
        format!("{own} {extra}").trim_end().to_owned()
    }

    fn end(self) -> End {
        match self {
            Self::Firecracker => End::Restart,
            Self::Qemu => End::PowerOff,
        }
    }
}

/// Runs machines as the configuration says. Cheap to copy.
#[derive(Debug, Clone)]
pub struct Vmm {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    config: VmmConfig,
    guest_config: GuestConfig,
    guest: OnceCell<Guest>,
    accel: OnceCell<Accel>,
    /// For the probe's files.
    tmp: PathBuf,
    /// The program that is a shim when told so.
    shim: PathBuf,
}

impl Vmm {
    /// Reads nothing yet: an agent without a kernel still fetches, serves its cache and says at each
    /// start what is missing.
    pub fn new(config: VmmConfig, guest_config: GuestConfig, tmp: &Path) -> Self {
        // This very program, also when its file was replaced by a newer one since.
        Self::with_shim(config, guest_config, tmp, Path::new("/proc/self/exe"))
    }

    /// The same with another program for the shims, which calls [`shim::run_if_asked`] first.
    pub fn with_shim(
        config: VmmConfig,
        guest_config: GuestConfig,
        tmp: &Path,
        shim: &Path,
    ) -> Self {
        let (tmp, shim) = (tmp.to_owned(), shim.to_owned());
        let (guest, accel) = (OnceCell::new(), OnceCell::new());
        Self { inner: Arc::new(Inner { config, guest_config, guest, accel, tmp, shim }) }
    }

    /// The configuration.
    pub fn config(&self) -> &VmmConfig {
        &self.inner.config
    }

    /// Init and modules, read at the first start. What failed is tried again at the next.
    async fn guest(&self) -> Result<&Guest, GuestError> {
        self.inner
            .guest
            .get_or_try_init(|| async {
                let inner = Arc::clone(&self.inner);
                let open = move || Guest::open(&inner.guest_config, &inner.config.kind.modules());
                tokio::task::spawn_blocking(open).await.expect("it does not panic")
            })
            .await
    }

    /// KVM or not, found out at the first start.
    async fn accel(&self, guest: &Guest, program: &Path) -> Accel {
        let config = &self.inner.config;
        let found = self.inner.accel.get_or_init(|| async {
            match config.accel {
                AccelChoice::Kvm => Accel::Kvm,
                AccelChoice::Tcg => Accel::Tcg,
                AccelChoice::Auto => match probe_dir(&self.inner.tmp) {
                    Ok(dir) => {
                        let boot_args = config.kind.boot_args(&guest.kernel_args);
                        let patience = config.kvm_probe_timeout.0;
                        let works =
                            accel::kvm_works(program, guest, &boot_args, &dir, patience).await;
                        let _ = std::fs::remove_dir_all(&dir);
                        if works { Accel::Kvm } else { Accel::Tcg }
                    }
                    Err(error) => {
                        tracing::warn!(%error, "KVM cannot be probed, machines run without it");
                        Accel::Tcg
                    }
                },
            }
        });
        *found.await
    }
}

fn probe_dir(tmp: &Path) -> std::io::Result<PathBuf> {
    let dir = tmp.join(format!("kvm-{}", portolan_registry::durable::random_hex()?));
    std::fs::create_dir_all(&dir)?;
    Ok(dir)
}

/// Finds a program as a shell would: a path as it is, a name in `PATH`.
fn find_program(name: &Path, path: Option<std::ffi::OsString>) -> Option<PathBuf> {
    use std::os::unix::fs::PermissionsExt as _;
    let executable = |file: &PathBuf| {
        file.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if name.components().count() > 1 {
        return Some(name.to_owned()).filter(executable);
    }
    std::env::split_paths(&path?).map(|dir| dir.join(name)).find(executable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_by_path_and_by_name() {
        let path = || std::env::var_os("PATH");
        let sh = find_program(Path::new("sh"), path()).unwrap();
        assert_eq!(find_program(&sh, None), Some(sh));
        assert_eq!(find_program(Path::new("sh"), None), None);
        assert_eq!(find_program(Path::new("no-such-program"), path()), None);
        assert_eq!(find_program(Path::new("/"), path()), None, "a folder is no program");
    }

    #[test]
    fn firecracker_is_taken_where_it_is() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = || Some(dir.path().as_os_str().to_owned());
        assert_eq!((Kind::found_in(path()), Kind::found_in(None)), (Kind::Qemu, Kind::Qemu));
        let program = dir.path().join("firecracker");
        std::fs::write(&program, "").unwrap();
        assert_eq!(Kind::found_in(path()), Kind::Qemu, "it cannot be executed");
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(Kind::found_in(path()), Kind::Firecracker);
    }

    #[test]
    fn every_default_is_the_one_that_is_written_down() {
        let read: VmmConfig = toml::from_str(
            "kind = 'firecracker'\naccel = 'auto'\nboot_timeout = '60s'\nboot_retries = 1\n\
             stop_timeout = '10s'\nconsole_max_bytes = '16MiB'\nkvm_probe_timeout = '20s'",
        )
        .unwrap();
        assert_eq!(read, VmmConfig::default());
        assert!(toml::from_str::<VmmConfig>("knd = 'qemu'").is_err());
    }

    #[test]
    fn what_the_operator_adds_to_the_command_line_comes_last() {
        assert!(Kind::Qemu.boot_args("loglevel=7").ends_with("pci=off loglevel=7"));
        assert!(Kind::Firecracker.boot_args("").ends_with("pci=off"));
    }
}
