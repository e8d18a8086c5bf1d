//! What one start is, and its files in the instance's folder.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use portolan_registry::durable;

use super::description::{BootSource, Drive, Logger, MachineConfig, MachineDescription};
use super::files::{self, Orders};
use super::launch::{Launch, LaunchError, step};
use super::lock::MachineLock;
use super::{Kind, scratch};
use crate::guest::start::{Start, argv, env};
use crate::guest::{Guest, disk_uuid};
use crate::id::InstanceId;

/// What one start is, before anything is written.
pub(super) struct Prepared {
    pub(super) start: Start,
    pub(super) machine: MachineDescription,
    pub(super) scratch_uuid: [u8; 16],
}

pub(super) struct Prepare<'a> {
    pub(super) launch: Launch<'a>,
    pub(super) guest: &'a Guest,
    pub(super) kind: Kind,
    pub(super) run: &'a str,
}

impl Prepare<'_> {
    pub(super) fn describe(&self) -> Result<Prepared, LaunchError> {
        let Launch { id, dir, spec, image, root_disk, .. } = self.launch;
        let root_uuid = disk_uuid(root_disk)
            .and_then(|uuid| uuid.ok_or_else(|| io::Error::other("it has no ext4 superblock")))
            .map_err(|source| LaunchError::RootDisk { path: root_disk.to_owned(), source })?;
        let draw = || durable::random_hex().map_err(step("draw random bytes"));
        let scratch_hex = draw()?;
        let scratch_uuid = uuid_bytes(&scratch_hex);
        let start = Start {
            token: draw()?,
            modules: vec![],
            end: self.kind.end(),
            probe: false,
            root_uuid,
            scratch_uuid: scratch_hex,
            hostname: id.as_str().to_owned(),
            argv: argv(image, spec).map_err(LaunchError::NoProgram)?,
            env: env(image, spec),
            cwd: image.working_dir.clone(),
            user: image.user.clone(),
            stop_signal: image.stop_signal.clone(),
        };
        let dir = std::path::absolute(dir).map_err(step("find the instance's folder"))?;
        let machine = MachineDescription {
            boot_source: BootSource {
                kernel_image_path: self.guest.kernel.clone(),
                initrd_path: dir.join(files::INITRAMFS),
                boot_args: self.kind.boot_args(&self.guest.kernel_args),
            },
            drives: vec![
                Drive::root(root_disk.to_owned()),
                Drive::scratch(dir.join(files::SCRATCH)),
            ],
            machine_config: MachineConfig {
                vcpu_count: spec.vcpus,
                mem_size_mib: spec.memory_mib,
                smt: false,
            },
            logger: (self.kind == Kind::Firecracker)
                .then(|| Logger { log_path: dir.join(files::VMM_PIPE), level: "Warning" }),
        };
        tracing::debug!(instance_id = %id, run = self.run, "a machine is laid out");
        Ok(Prepared { start, machine, scratch_uuid })
    }
}

/// 16 bytes from their 32 hex digits.
fn uuid_bytes(hex: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (byte, pair) in bytes.iter_mut().zip(hex.as_bytes().chunks(2)) {
        let digit = |c: u8| u8::try_from(char::from(c).to_digit(16).unwrap_or(0)).unwrap_or(0);
        *byte = pair.iter().fold(0, |sum, c| sum << 4 | digit(*c));
    }
    bytes
}

pub(super) fn firecracker_args(id: &InstanceId) -> Vec<String> {
    // Firecracker takes fewer characters in an id than we do.
    let id: String =
        id.as_str().chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '-' }).collect();
    ["--api-sock", files::SOCKET, "--id", &id].map(str::to_owned).to_vec()
}

/// Removes what the last run left and writes everything for the next, while no machine lives and
/// none can begin.
pub(super) fn lay_out(
    dir: &Path,
    orders: &Orders,
    machine: &MachineDescription,
    initramfs: &[u8],
    scratch: (u64, [u8; 16]),
) -> Result<(), LaunchError> {
    let _lock = MachineLock::take(dir)
        .map_err(step("look at the machine's lock"))?
        .ok_or(LaunchError::Runs)?;
    for name in files::OF_A_RUN {
        remove(&dir.join(name)).map_err(step("remove what an earlier start left"))?;
    }
    scratch::create(&dir.join(files::SCRATCH), scratch.0, scratch.1)
        .map_err(LaunchError::Scratch)?;
    // Not for everybody: it holds the workload's environment.
    File::options()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(dir.join(files::INITRAMFS))
        .and_then(|mut file| file.write_all(initramfs))
        .map_err(step("write the initramfs"))?;
    files::write(dir, files::DESCRIPTION, machine).map_err(LaunchError::Orders)?;
    files::write(dir, files::ORDERS, orders).map_err(LaunchError::Orders)
}

/// Removes what has a name of ours, whatever somebody made of it.
pub(crate) fn remove(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(file) if file.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_the_same_in_both_forms() {
        let hex = "00ff10203040506070809a0b0c0d0e0f";
        let back = portolan_core::hex(&uuid_bytes(hex));
        assert_eq!(back, hex);
    }

    #[test]
    fn an_id_is_one_that_firecracker_takes() {
        let args = firecracker_args(&"a.b_c-1".parse().unwrap());
        assert_eq!(args, ["--api-sock", "vmm.sock", "--id", "a-b-c-1"]);
    }
}
