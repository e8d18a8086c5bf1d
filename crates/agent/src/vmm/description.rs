//! A machine, in the words of Firecracker's own configuration file (`vm.json`). It is written for
//! every machine, whatever runs it: `firecracker --config-file vm.json` starts the same by hand.

use std::path::PathBuf;

use serde::Serialize;

/// The whole file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub struct MachineDescription {
    /// What it boots.
    pub boot_source: BootSource,
    /// Its disks, the root disk first.
    pub drives: Vec<Drive>,
    /// Processors and memory.
    pub machine_config: MachineConfig,
    /// Where the VMM writes what it has to say itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logger: Option<Logger>,
}

/// Kernel, initramfs and command line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BootSource {
    /// The kernel's file.
    pub kernel_image_path: PathBuf,
    /// The initramfs.
    pub initrd_path: PathBuf,
    /// The kernel's command line.
    pub boot_args: String,
}

/// A disk.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Drive {
    /// Its name within the machine.
    pub drive_id: String,
    /// Its file.
    pub path_on_host: PathBuf,
    /// Never here: with an initramfs it is not the VMM that names the root.
    pub is_root_device: bool,
    /// Whether the machine may write to it.
    pub is_read_only: bool,
}

/// Processors and memory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MachineConfig {
    /// Processors.
    pub vcpu_count: u8,
    /// Memory in MiB.
    pub mem_size_mib: u32,
    /// Off: two machines must not share a core's secrets.
    pub smt: bool,
}

/// The VMM's own log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Logger {
    /// A named pipe, so that what comes out is bounded by who reads it.
    pub log_path: PathBuf,
    /// From which level on.
    pub level: &'static str,
}

/// The name of the read-only root disk among the drives.
pub const ROOT_DRIVE: &str = "rootfs";
/// The name of the scratch disk.
pub const SCRATCH_DRIVE: &str = "scratch";

impl Drive {
    /// The root disk, which many machines share and none may change.
    pub fn root(path: PathBuf) -> Self {
        Self {
            drive_id: ROOT_DRIVE.to_owned(),
            path_on_host: path,
            is_root_device: false,
            is_read_only: true,
        }
    }

    /// The scratch disk of one machine.
    pub fn scratch(path: PathBuf) -> Self {
        Self {
            drive_id: SCRATCH_DRIVE.to_owned(),
            path_on_host: path,
            is_root_device: false,
            is_read_only: false,
        }
    }
}
