//! Instances with a fake Firecracker below and a fake cache beside them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::BoxFuture;
use portolan_agent::api::{InstanceStatus, Phase, Progress};
use portolan_agent::config::{Size, Span};
use portolan_agent::guest::GuestConfig;
use portolan_agent::id::InstanceId;
use portolan_agent::image::ResolvedImage;
use portolan_agent::instances::{Instances, NoRootDisk, RootDisk, RootDisks};
use portolan_agent::metrics::Metrics;
use portolan_agent::paths::Paths;
use portolan_agent::reason::Reason;
use portolan_agent::spec::WorkloadSpec;
use portolan_agent::vmm::{Vmm, VmmConfig};
use portolan_core::Digest;
use portolan_core::manifest::ImageConfig;
use tokio_util::sync::CancellationToken;

use crate::firecracker;

/// Long enough for the slowest machine; nothing waits for its end when all is well.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A cache that gives everybody the same disk and keeps its pins as files.
pub(crate) struct Disks {
    root: PathBuf,
}

impl Disks {
    fn pin(&self, id: &InstanceId) -> PathBuf {
        self.root.join("pins").join(id.as_str())
    }
}

impl RootDisks for Disks {
    fn acquire<'a>(
        &'a self,
        id: &'a InstanceId,
        image: &'a ResolvedImage,
        cancel: &'a CancellationToken,
    ) -> BoxFuture<'a, Result<RootDisk, NoRootDisk>> {
        Box::pin(async move {
            std::fs::write(self.pin(id), "").unwrap();
            match image.repository.as_str() {
                "never" => {
                    cancel.cancelled().await;
                    std::fs::remove_file(self.pin(id)).unwrap();
                    return Err(NoRootDisk::Cancelled);
                }
                "refused" => {
                    let message = "no such manifest".to_owned();
                    return Err(NoRootDisk::Failed { reason: Reason::ImagePullFailed, message });
                }
                _ => {}
            }
            let config = ImageConfig::parse(b"{}").unwrap();
            let path = self.root.join("root.ext4");
            Ok(RootDisk { path, key: "0".repeat(64), cached: true, config })
        })
    }

    fn progress(&self, _: &Digest) -> Option<Progress> {
        Some(Progress { bytes_done: 7, bytes_total: 9 })
    }

    fn release<'a>(&'a self, id: &'a InstanceId) -> BoxFuture<'a, Result<(), String>> {
        let _ = std::fs::remove_file(self.pin(id));
        Box::pin(std::future::ready(Ok(())))
    }
}

/// A host's folder.
pub(crate) struct Host {
    pub(crate) root: PathBuf,
}

impl Host {
    pub(crate) fn new(root: &Path) -> Self {
        let root = root.to_owned();
        std::fs::create_dir_all(root.join("pins")).unwrap();
        if !root.join("root.ext4").exists() {
            write_root_disk(&root.join("root.ext4"));
            std::fs::write(root.join("vmlinux"), "kernel").unwrap();
            std::fs::write(root.join("init"), static_elf()).unwrap();
            firecracker::program(&root);
        }
        Self { root }
    }

    /// The agent's part on this host, at work. `change` what the configuration should differ in.
    pub(crate) fn open(&self, change: impl FnOnce(&mut VmmConfig)) -> Instances {
        let mut config = VmmConfig {
            binary: Some(self.root.join("firecracker")),
            boot_timeout: Span(PATIENCE),
            boot_retries: 0,
            stop_timeout: Span(PATIENCE),
            console_max_bytes: Size(64 << 10),
            ..VmmConfig::default()
        };
        change(&mut config);
        let guest = GuestConfig {
            kernel: Some(self.root.join("vmlinux")),
            init: Some(self.root.join("init")),
            ..GuestConfig::default()
        };
        let paths = Paths::new(&self.root);
        let shim = Path::new(env!("CARGO_BIN_EXE_portolan-agent"));
        let vmm = Vmm::with_shim(config, guest, &paths.tmp(), shim);
        let disks = Arc::new(Disks { root: self.root.clone() });
        let instances = Instances::open(paths, vmm, disks, Arc::new(Metrics::new())).unwrap();
        instances.run();
        instances
    }

    pub(crate) fn dir(&self, id: &str) -> PathBuf {
        self.root.join("instances").join(id)
    }

    pub(crate) fn pins(&self) -> BTreeSet<String> {
        names(&self.root.join("pins"))
    }

    /// Waits until nobody holds a disk: that is let go a moment after the end was told.
    pub(crate) async fn wait_unpinned(&self) {
        let until = Instant::now() + PATIENCE;
        while !self.pins().is_empty() {
            assert!(Instant::now() < until, "{:?} are still held", self.pins());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// The machine's process, by its report.
    pub(crate) fn vmm(&self, id: &str) -> i32 {
        self.report(id)["vmm"]["pid"].as_i64().and_then(|pid| pid.try_into().ok()).unwrap()
    }

    pub(crate) fn report(&self, id: &str) -> serde_json::Value {
        let text = std::fs::read(self.dir(id).join("running.json")).unwrap();
        serde_json::from_slice(&text).unwrap()
    }

    /// Every process that runs in a folder of this host: shims and machines.
    pub(crate) fn processes(&self) -> Vec<i32> {
        let root = self.root.canonicalize().unwrap();
        let inside = |entry: std::fs::DirEntry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            // A deleted folder still has its path, with a remark behind it.
            let cwd = std::fs::read_link(entry.path().join("cwd")).ok()?;
            (cwd.starts_with(&root) && cwd != root).then_some(pid)
        };
        std::fs::read_dir("/proc").unwrap().flatten().filter_map(inside).collect()
    }

    /// Whatever a failed test leaves must not outlive it.
    fn clean(&self) {
        for pid in self.processes() {
            if let Some(pid) = rustix::process::Pid::from_raw(pid) {
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.clean();
    }
}

pub(crate) fn names(dir: &Path) -> BTreeSet<String> {
    let entries = std::fs::read_dir(dir).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

fn write_root_disk(path: &Path) {
    // All that is looked at from outside is the superblock.
    let mut disk = vec![0; 4096];
    disk[1024 + 56..1024 + 58].copy_from_slice(&[0x53, 0xef]);
    disk[1024 + 104..1024 + 120].copy_from_slice(&[7; 16]);
    std::fs::write(path, disk).unwrap();
}

fn static_elf() -> Vec<u8> {
    let mut elf = vec![0; 64];
    elf[..6].copy_from_slice(b"\x7fELF\x02\x01");
    elf
}

pub(crate) fn spec(argv: &[&str], desired: &str) -> WorkloadSpec {
    spec_of("app", argv, desired)
}

pub(crate) fn spec_of(repository: &str, argv: &[&str], desired: &str) -> WorkloadSpec {
    serde_json::from_value(serde_json::json!({
        "image": {
            "repository": format!("registry.example/{repository}"),
            "resolved_digest": format!("sha256:{}", "ab".repeat(32)),
            "os": "linux",
            "arch": "amd64",
        },
        "ephemeral_disk_bytes": 32 << 20,
        "command": argv,
        "desired_state": desired,
    }))
    .unwrap()
}

pub(crate) fn id(text: &str) -> InstanceId {
    text.parse().unwrap()
}

/// Waits until an instance is so.
pub(crate) async fn wait(
    instances: &Instances,
    name: &str,
    so: impl Fn(&InstanceStatus) -> bool,
) -> InstanceStatus {
    let until = Instant::now() + PATIENCE;
    loop {
        let status = instances.get(&id(name)).expect("the instance is there");
        if so(&status) {
            return status;
        }
        assert!(Instant::now() < until, "{status:#?}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) async fn wait_phase(instances: &Instances, name: &str, phase: Phase) -> InstanceStatus {
    wait(instances, name, |status| status.phase == phase).await
}

/// Waits until no process of this host is left.
pub(crate) async fn wait_quiet(host: &Host) {
    let until = Instant::now() + PATIENCE;
    while !host.processes().is_empty() {
        assert!(Instant::now() < until, "{:?} still run", host.processes());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
