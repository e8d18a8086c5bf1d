//! Whether KVM works here: on some machines `/dev/kvm` is there and a guest's kernel hangs on it, so
//! it is believed only when a guest has booted.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncReadExt as _;
use tokio::process::Command;

use super::console::{Scanner, Word};
use super::description::{BootSource, MachineConfig, MachineDescription};
use super::qemu::{self, Accel};
use crate::guest::Guest;
use crate::guest::start::End;

/// What executes a guest's instructions, as the operator says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AccelChoice {
    /// KVM where a guest boots on it, else TCG.
    #[default]
    Auto,
    /// KVM, or nothing.
    Kvm,
    /// Software emulation.
    Tcg,
}

/// Boots a guest that only says so, on KVM; false where it does not, for whatever reason, within
/// the time. `dir` is an empty folder for its files.
pub(super) async fn kvm_works(
    program: &Path,
    guest: &Guest,
    boot_args: &str,
    dir: &Path,
    patience: Duration,
) -> bool {
    let usable = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if !usable {
        tracing::info!("machines run without KVM: /dev/kvm is not there or not for this user");
        return false;
    }
    let works = tokio::time::timeout(patience, boots(program, guest, boot_args, dir)).await;
    let works = matches!(works, Ok(Ok(true)));
    if works {
        tracing::info!("machines run on KVM: a guest booted on it");
    } else {
        tracing::warn!(
            seconds = patience.as_secs(),
            "machines run without KVM, an order of magnitude slower: a guest did not boot on it; \
             set vmm.accel to skip this probe"
        );
    }
    works
}

async fn boots(
    program: &Path,
    guest: &Guest,
    boot_args: &str,
    dir: &Path,
) -> std::io::Result<bool> {
    const TOKEN: &str = "probe";
    let initramfs = dir.join("initramfs.img");
    let image = guest.probe(TOKEN, End::PowerOff).map_err(std::io::Error::other)?;
    std::fs::write(&initramfs, image)?;
    let machine = MachineDescription {
        boot_source: BootSource {
            kernel_image_path: guest.kernel.clone(),
            initrd_path: initramfs,
            boot_args: boot_args.to_owned(),
        },
        drives: vec![],
        machine_config: MachineConfig { vcpu_count: 1, mem_size_mib: 128, smt: false },
        logger: None,
    };
    let mut child = Command::new(program)
        .args(qemu::args("probe", &machine, Accel::Kvm, None))
        .current_dir(dir)
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut console = child.stdout.take().expect("it is piped");
    let mut scanner = Scanner::new(TOKEN);
    let mut booted = false;
    let mut buffer = vec![0; 4096];
    while let read @ 1.. = console.read(&mut buffer).await? {
        scanner.push(&buffer[..read], |word| booted |= word == Word::Boots);
    }
    child.wait().await?;
    Ok(booted)
}
