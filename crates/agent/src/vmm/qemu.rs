//! QEMU's microvm machine.

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::UnixStream;

use super::description::MachineDescription;
use super::files;

/// QEMU's monitor sends an event or an answer at a time, none near this size.
const MAX_LINE: u64 = 1 << 20;

/// What executes a guest's instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Accel {
    /// The processor, by way of the kernel.
    Kvm,
    /// QEMU itself, an order of magnitude slower.
    Tcg,
}

/// Why QEMU did not do what its monitor was told.
#[derive(Debug, thiserror::Error)]
pub enum QmpError {
    /// No monitor.
    #[error("QEMU's monitor cannot be reached")]
    Connect(#[source] std::io::Error),
    /// It broke off.
    #[error("QEMU's monitor broke off")]
    Talk(#[source] std::io::Error),
    /// It did not answer in time.
    #[error("QEMU's monitor did not answer within {} s", .0.as_secs())]
    Timeout(Duration),
    /// It refused.
    #[error("QEMU refused {command}: {answer}")]
    Refused {
        /// What it was told.
        command: &'static str,
        /// Its words.
        answer: String,
    },
}

/// QEMU's arguments for a machine. Pure.
///
/// `host_tsc_khz` is only of use without KVM: QEMU passes the host's time stamp counter on, a
/// kernel on a machine of this kind has nothing but the PIT to measure it with, that measurement
/// fails when the host is busy, and then the kernel waits for ever for its first tick.
pub fn args(
    id: &str,
    machine: &MachineDescription,
    accel: Accel,
    host_tsc_khz: Option<u64>,
) -> Vec<String> {
    let (kind, cpu) = match accel {
        Accel::Kvm => ("microvm,accel=kvm,acpi=on,rtc=on", "host"),
        // Without the kernel's interrupt controllers, timer and PIC must be QEMU's.
        Accel::Tcg => ("microvm,accel=tcg,acpi=on,rtc=on,pit=on,pic=on", "max"),
    };
    let mut boot_args = machine.boot_source.boot_args.clone();
    if let (Accel::Tcg, Some(khz)) = (accel, host_tsc_khz) {
        boot_args.push_str(&format!(" tsc_early_khz={khz}"));
    }
    let path = |path: &Path| path.to_string_lossy().into_owned();
    let mut args: Vec<String> = [
        "-name",
        &format!("guest={id}"),
        "-machine",
        kind,
        "-cpu",
        cpu,
        "-m",
        &machine.machine_config.mem_size_mib.to_string(),
        "-smp",
        &machine.machine_config.vcpu_count.to_string(),
        "-nodefaults",
        "-no-user-config",
        "-no-reboot",
        "-display",
        "none",
        // What a guest breaks out into should not be able to start programs.
        "-sandbox",
        "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny",
        "-chardev",
        "stdio,id=console,signal=off",
        "-serial",
        "chardev:console",
        "-qmp",
        &format!("unix:{},server=on,wait=off", files::SOCKET),
        "-kernel",
        &path(&machine.boot_source.kernel_image_path),
        "-initrd",
        &path(&machine.boot_source.initrd_path),
        "-append",
        &boot_args,
    ]
    .map(str::to_owned)
    .to_vec();
    for drive in &machine.drives {
        // As JSON: in the short form a comma in a path would begin another option.
        let disk = json!({
            "driver": "raw",
            "node-name": drive.drive_id,
            "read-only": drive.is_read_only,
            "discard": "unmap",
            "file": {"driver": "file", "filename": path(&drive.path_on_host)},
        });
        args.extend(["-blockdev".to_owned(), disk.to_string(), "-device".to_owned()]);
        args.push(format!("virtio-blk-device,drive={}", drive.drive_id));
    }
    args
}

/// Presses the power button: the guest's init asks the workload to end.
pub async fn power_down(socket: &Path, patience: Duration) -> Result<(), QmpError> {
    let talk = async {
        let stream = UnixStream::connect(socket).await.map_err(QmpError::Connect)?;
        let (reading, mut writing) = stream.into_split();
        let mut lines = BufReader::new(tokio::io::AsyncReadExt::take(reading, MAX_LINE));
        // The greeting.
        next(&mut lines).await?;
        for command in ["qmp_capabilities", "system_powerdown"] {
            let line = json!({"execute": command}).to_string() + "\n";
            writing.write_all(line.as_bytes()).await.map_err(QmpError::Talk)?;
            loop {
                let answer = next(&mut lines).await?;
                if let Some(error) = answer.get("error") {
                    return Err(QmpError::Refused { command, answer: error.to_string() });
                }
                // Events may come in between.
                if answer.get("return").is_some() {
                    break;
                }
            }
        }
        Ok(())
    };
    tokio::time::timeout(patience, talk).await.map_err(|_| QmpError::Timeout(patience))?
}

async fn next(
    lines: &mut BufReader<tokio::io::Take<tokio::net::unix::OwnedReadHalf>>,
) -> Result<Value, QmpError> {
    let mut line = String::new();
    let read = lines.read_line(&mut line).await.map_err(QmpError::Talk)?;
    if read == 0 {
        return Err(QmpError::Talk(std::io::ErrorKind::UnexpectedEof.into()));
    }
    serde_json::from_str(&line).map_err(|error| QmpError::Talk(error.into()))
}

/// The frequency of the host's time stamp counter, from the text of `/proc/cpuinfo`: known only
/// where the machine is virtual itself, so that "cpu MHz" is the counter's and not the momentary
/// clock of a core.
pub fn tsc_khz(cpuinfo: &str) -> Option<u64> {
    let value = |name: &str| {
        let line = cpuinfo.lines().find(|line| line.starts_with(name))?;
        Some(line.split_once(':')?.1.trim())
    };
    let flags = value("flags")?;
    let has = |flag: &str| flags.split_whitespace().any(|known| known == flag);
    let (whole, part) = value("cpu MHz")?.split_once('.')?;
    let thousandths: u64 = format!("{part:0<3}").get(..3)?.parse().ok()?;
    let khz = whole.parse::<u64>().ok()?.checked_mul(1000)? + thousandths;
    (has("hypervisor") && has("constant_tsc") && khz > 0).then_some(khz)
}

#[cfg(test)]
mod tests {
    use super::super::description::{BootSource, Drive, MachineConfig};
    use super::*;

    fn machine() -> MachineDescription {
        MachineDescription {
            boot_source: BootSource {
                kernel_image_path: "/k".into(),
                initrd_path: "/i".into(),
                boot_args: "quiet".into(),
            },
            drives: vec![Drive::root("/a,b.ext4".into()), Drive::scratch("/s".into())],
            machine_config: MachineConfig { vcpu_count: 2, mem_size_mib: 256, smt: false },
            logger: None,
        }
    }

    #[test]
    fn the_root_disk_is_read_only_and_no_path_is_an_option() {
        let args = args("web-1", &machine(), Accel::Kvm, Some(1));
        let disks: Vec<Value> = args
            .windows(2)
            .filter(|pair| pair[0] == "-blockdev")
            .map(|pair| serde_json::from_str(&pair[1]).unwrap())
            .collect();
        assert_eq!(disks[0]["read-only"], true);
        assert_eq!(disks[0]["file"]["filename"], "/a,b.ext4");
        assert_eq!(disks[1]["read-only"], false);
        for flag in ["-nodefaults", "-no-reboot", "-sandbox"] {
            assert!(args.iter().any(|arg| arg == flag), "{flag}");
        }
    }

    #[test]
    fn software_emulation_gets_a_timer_and_is_told_the_counters_speed() {
        let tcg = args("a", &machine(), Accel::Tcg, Some(2_793_438)).join(" ");
        assert!(tcg.contains("pit=on,pic=on") && tcg.contains("quiet tsc_early_khz=2793438"));
        let unknown = args("a", &machine(), Accel::Tcg, None).join(" ");
        assert!(!unknown.contains("tsc_early_khz"));
        assert!(!args("a", &machine(), Accel::Kvm, Some(1)).join(" ").contains("tsc_early_khz"));
    }

    #[test]
    fn the_counters_speed_is_only_known_on_a_virtual_machine() {
        let virtual_ =
            "processor\t: 0\ncpu MHz\t\t: 2793.438\nflags\t\t: fpu constant_tsc hypervisor\n";
        assert_eq!(tsc_khz(virtual_), Some(2_793_438));
        assert_eq!(tsc_khz(&virtual_.replace("2793.438", "2600.0")), Some(2_600_000));
        assert_eq!(tsc_khz(&virtual_.replace(" hypervisor", "")), None);
        assert_eq!(tsc_khz(&virtual_.replace("2793.438", "x.y")), None);
        assert_eq!(tsc_khz(""), None);
    }
}
