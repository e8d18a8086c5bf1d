//! From two disks to one tree that is `/`.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};

use crate::config::Config;
use crate::step::{Failed, Step as _};
use crate::superblock;

/// Disks of a microVM are there before process 1, or as soon as their driver was loaded.
const DISK_WAIT: Duration = Duration::from_secs(15);

/// The device files of the two disks.
#[derive(Debug)]
pub(crate) struct Disks {
    root: PathBuf,
    scratch: PathBuf,
}

/// What even reading the configuration and finding disks needs.
pub(crate) fn first() -> Result<(), Failed> {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    attach("proc", "proc", "/proc", quiet, None)?;
    attach("sysfs", "sysfs", "/sys", quiet, None)?;
    attach("devtmpfs", "devtmpfs", "/dev", MountFlags::NOSUID, Some(c"mode=0755"))?;
    crate::console::plain();
    Ok(())
}

/// Waits until both disks are there.
pub(crate) fn find_disks(config: &Config) -> Result<Disks, Failed> {
    let until = Instant::now() + DISK_WAIT;
    loop {
        let found = disks_by_uuid();
        let find = |uuid: &str| {
            found.iter().find(|(known, _)| known == uuid).map(|(_, device)| device.clone())
        };
        match (find(&config.root_uuid), find(&config.scratch_uuid)) {
            (Some(root), Some(scratch)) => return Ok(Disks { root, scratch }),
            _ if Instant::now() < until => std::thread::sleep(Duration::from_millis(10)),
            (root, scratch) => {
                let which = match (root, scratch) {
                    (None, None) => "root and scratch disk",
                    (None, _) => "root disk",
                    _ => "scratch disk",
                };
                return Err(Failed::new(
                    format!("find the {which}"),
                    format!(
                        "not there after {} s; block devices: {:?}; is the driver (virtio_blk, virtio_mmio) in the kernel or among the modules?",
                        DISK_WAIT.as_secs(),
                        found.iter().map(|(_, device)| device).collect::<Vec<_>>(),
                    ),
                ));
            }
        }
    }
}

fn disks_by_uuid() -> Vec<(String, PathBuf)> {
    let Ok(entries) = fs::read_dir("/sys/block") else { return vec![] };
    entries
        .filter_map(|entry| {
            let device = Path::new("/dev").join(entry.ok()?.file_name());
            let uuid = read_uuid(&device).ok().flatten()?;
            Some((uuid, device))
        })
        .collect()
}

fn read_uuid(device: &Path) -> io::Result<Option<String>> {
    let mut file = File::open(device)?;
    file.seek(SeekFrom::Start(superblock::OFFSET))?;
    let mut bytes = [0; superblock::LENGTH];
    file.read_exact(&mut bytes)?;
    Ok(superblock::uuid(&bytes))
}

/// The root disk below, the scratch disk above, both as one tree at `/newroot`.
pub(crate) fn compose(disks: &Disks) -> Result<(), Failed> {
    // `noload`: the disk is read-only and has no journal to replay.
    attach(&disks.root, "ext4", "/lower", MountFlags::RDONLY, Some(c"noload"))?;
    attach(&disks.scratch, "ext4", "/scratch", MountFlags::NOATIME, None)?;
    // The tree's root directory is the upper one once there is an upper one.
    let lower = fs::metadata("/lower").step("look at", "/lower")?;
    let upper = "/scratch/upper";
    fs::set_permissions(upper, fs::Permissions::from_mode(lower.mode() & 0o7777))
        .and_then(|()| std::os::unix::fs::chown(upper, Some(lower.uid()), Some(lower.gid())))
        .step("give the image's root directory its mode and owner in", upper)?;
    attach(
        "overlay",
        "overlay",
        "/newroot",
        MountFlags::empty(),
        Some(c"lowerdir=/lower,upperdir=/scratch/upper,workdir=/scratch/work"),
    )
}

/// Makes `/newroot` the root. An initramfs cannot be pivoted away from; it is covered instead.
pub(crate) fn enter() -> Result<(), Failed> {
    std::env::set_current_dir("/newroot").step("go to", "/newroot")?;
    mount_move(".", "/").step("move", "/newroot to /")?;
    rustix::process::chroot(".").step("change root to", "/newroot")?;
    std::env::set_current_dir("/").step("go to", "/")
}

/// What every runtime gives a container beside the image: kernel file systems, the usual links, a
/// name. From here on paths are the image's, links in them included.
pub(crate) fn furnish(hostname: &str) -> Result<(), Failed> {
    let quiet = MountFlags::NOSUID | MountFlags::NOEXEC | MountFlags::NODEV;
    attach("proc", "proc", "/proc", quiet, None)?;
    attach("sysfs", "sysfs", "/sys", quiet, None)?;
    attach("devtmpfs", "devtmpfs", "/dev", MountFlags::NOSUID, Some(c"mode=0755"))?;
    let terminals = MountFlags::NOSUID | MountFlags::NOEXEC;
    attach(
        "devpts",
        "devpts",
        "/dev/pts",
        terminals,
        Some(c"newinstance,ptmxmode=0666,mode=0620"),
    )?;
    let memory = MountFlags::NOSUID | MountFlags::NODEV;
    attach("shm", "tmpfs", "/dev/shm", memory, Some(c"mode=1777,size=64m"))?;
    for (link, target) in [
        ("/dev/fd", "/proc/self/fd"),
        ("/dev/stdin", "/proc/self/fd/0"),
        ("/dev/stdout", "/proc/self/fd/1"),
        ("/dev/stderr", "/proc/self/fd/2"),
    ] {
        std::os::unix::fs::symlink(target, link).or_else(there_is_fine).step("link", link)?;
    }
    // Not every kernel has control groups; workloads that want them will say so themselves.
    let _ = attach("cgroup2", "cgroup2", "/sys/fs/cgroup", quiet, None);
    rustix::system::sethostname(hostname.as_bytes()).step("set the host name", hostname)?;
    let hosts = format!("127.0.0.1\tlocalhost {hostname}\n::1\tlocalhost\n");
    for (path, text) in [("/etc/hosts", hosts), ("/etc/hostname", format!("{hostname}\n"))] {
        // Only where the image has none, and an image without /etc does not get one.
        match File::options().write(true).create_new(true).open(path) {
            Ok(mut file) => io::Write::write_all(&mut file, text.as_bytes()).step("write", path)?,
            Err(_) => continue,
        }
    }
    Ok(())
}

fn attach(
    source: impl AsRef<Path>,
    kind: &str,
    target: &str,
    flags: MountFlags,
    options: Option<&std::ffi::CStr>,
) -> Result<(), Failed> {
    fs::create_dir_all(target).step("create the directory", target)?;
    let source = source.as_ref();
    mount(source, target, kind, flags, options)
        .map_err(io::Error::from)
        .step("mount", format_args!("{} ({kind}) at {target}", source.display()))
}

pub(crate) fn missing_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(error) }
}

fn there_is_fine(error: io::Error) -> io::Result<()> {
    if error.kind() == io::ErrorKind::AlreadyExists { Ok(()) } else { Err(error) }
}
