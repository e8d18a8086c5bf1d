//! `portolan ship` with bad input and full disks: a clear word, and nothing lost.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod support;

#[path = "../../registry/tests/common/busy.rs"]
#[allow(unreachable_pub, reason = "it is a library's elsewhere")]
mod busy;
#[path = "../../registry/tests/support/disk.rs"]
#[allow(unreachable_pub, dead_code, reason = "it is a library's elsewhere")]
mod disk;
#[path = "../../registry/tests/common/skip.rs"]
mod skip;

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;
use support::{HELLO, Said, Server, portolan, run};

struct Site {
    home: tempfile::TempDir,
}

impl Site {
    fn new(containerfile: &str) -> Self {
        let site = Self { home: tempfile::tempdir().unwrap() };
        std::fs::create_dir_all(site.dir()).unwrap();
        std::fs::create_dir(site.temp()).unwrap();
        std::fs::write(site.dir().join("Containerfile"), containerfile).unwrap();
        std::fs::write(site.dir().join("app"), "x".repeat(100_000)).unwrap();
        site
    }

    fn dir(&self) -> PathBuf {
        self.home.path().join("app")
    }

    fn temp(&self) -> PathBuf {
        self.home.path().join("tmp")
    }

    fn command(&self, root: &Path, more: &[&str]) -> Command {
        let mut command = portolan(self.home.path());
        command.env("TMPDIR", self.temp()).arg("ship").arg(self.dir());
        command.arg("--root").arg(root).args(more);
        command
    }

    fn ship(&self, more: &[&str]) -> Said {
        self.command(&self.home.path().join("root"), more).output().unwrap().into()
    }
}

const APP: &str = "FROM scratch\nCOPY app /app\nENTRYPOINT [\"/app\"]\n";

#[test]
fn what_cannot_be_built_is_told_with_what_to_do() {
    let site = Site::new(APP);
    let home = site.home.path();
    let missing = run(home, &["ship", "no-such-directory"]);
    assert_eq!(missing.code, 4, "{}", missing.err);
    assert!(missing.err.contains("no-such-directory"), "{}", missing.err);
    let inside = site.dir().join("data").display().to_string();
    let said = run(home, &["ship", site.dir().to_str().unwrap(), "--root", &inside]);
    assert_eq!(said.code, 2, "{}", said.err);
    assert!(said.err.contains("choose another --root"), "{}", said.err);
    let twice = site.ship(&["--platform", "linux/amd64", "--platform", "linux/x86_64"]);
    assert_eq!(twice.code, 2, "{}", twice.err);
    std::fs::remove_file(site.dir().join("Containerfile")).unwrap();
    let none = site.ship(&[]);
    assert_eq!(none.code, 4, "{}", none.err);
    assert!(none.err.contains("has no Containerfile and no Dockerfile"), "{}", none.err);
    assert!(none.err.contains("--dockerfile"), "{}", none.err);
    std::fs::write(home.join("Other"), APP).unwrap();
    site.ship(&["--dockerfile", home.join("Other").to_str().unwrap()]).ok();
}

#[test]
fn a_platform_that_the_base_image_lacks_is_named_with_those_it_has() {
    let base = tempfile::tempdir().unwrap();
    let server = Server::start(base.path(), &base.path().join("data"), &[]);
    let image = format!("{}/base:1", server.address);
    run(base.path(), &["image", "copy", HELLO, &image]).ok();
    let site = Site::new(&format!("FROM {image}\nCOPY app /app\n"));
    let said = site.ship(&["--platform", "linux/amd64", "--platform", "linux/s390x"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("linux/s390x") && said.err.contains("--platform"), "{}", said.err);
    assert!(said.err.contains("riscv64"), "what there is: {}", said.err);
    // What stands on another image is put together each time: its tag may have moved.
    site.ship(&["--platform", "linux/amd64"]).ok();
    let again = site.ship(&["--platform", "linux/amd64", "-o", "json"]).json();
    assert_eq!(again["stages"][0]["state"], "done", "{again:#}");
    assert_eq!(again["stages"][1]["state"], "unchanged", "{again:#}");
}

#[test]
fn a_host_that_runs_none_of_the_platforms_is_told_which_to_add() {
    let site = Site::new(APP);
    let said = site.ship(&["--platform", "linux/s390x", "-o", "json"]);
    assert_eq!(said.code, 1, "{}", said.err);
    assert!(said.err.contains("add --platform linux/"), "{}", said.err);
    let report: Value = serde_json::from_str(&said.out).unwrap();
    let last = report["stages"].as_array().unwrap().last().unwrap().clone();
    assert_eq!((last["stage"].as_str(), last["state"].as_str()), (Some("check"), Some("failed")));
    assert!(report["indexDigest"].is_string(), "what is pushed is pushed: {report:#}");
}

#[test]
fn a_port_that_is_taken_is_left_to_its_owner() {
    let site = Site::new(APP);
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let said = site.ship(&["--listen", &address]);
    assert_eq!(said.code, 5, "{}", said.err);
    assert!(said.err.contains(&address) && said.err.contains("port 0"), "{}", said.err);
    site.ship(&["--listen", "127.0.0.1:0"]).ok();
    // Whoever has the usual port keeps it, and this goes on at another.
    let usual = std::net::TcpListener::bind("127.0.0.1:5000");
    site.ship(&[]).ok();
    drop(usual);
    let open = site.ship(&["--listen", "0.0.0.0:0"]);
    assert_eq!(open.code, 2, "{}", open.err);
    assert!(open.err.contains("loopback"), "{}", open.err);
}

#[test]
fn a_disk_that_is_full_is_named_and_more_room_is_all_it_takes() {
    let Some(disk) = disk::Mount::tmpfs(8 * 1024 * 1024) else { return };
    let site = Site::new(APP);
    let mut noise = vec![0_u8; 12 * 1024 * 1024];
    let mut state = 7_u32;
    for byte in &mut noise {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        *byte = state.to_be_bytes()[0];
    }
    std::fs::write(site.dir().join("app"), &noise).unwrap();
    let said: Said = site.command(&disk.join("root"), &["-o", "json"]).output().unwrap().into();
    assert_eq!(said.code, 5, "{}", said.err);
    assert!(said.err.contains("a disk is full") && said.err.contains("--root"), "{}", said.err);
    // Where images are put together there is no room either.
    let temp: Said = site
        .command(&site.home.path().join("root"), &[])
        .env("TMPDIR", disk.join(""))
        .output()
        .unwrap()
        .into();
    assert_eq!(temp.code, 5, "{}", temp.err);
    assert!(temp.err.contains("TMPDIR"), "{}", temp.err);
    std::fs::write(site.dir().join("app"), "small").unwrap();
    let small: Said = site.command(&disk.join("root"), &[]).output().unwrap().into();
    small.ok();
}

#[test]
fn what_a_machine_needs_and_is_not_there_is_told_before_anything_is_done() {
    let site = Site::new(APP);
    let bin = site.home.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    let boot = |more: &[&str]| -> Said {
        let args = [&["--boot"], more].concat();
        let mut command = site.command(&site.home.path().join("root"), &args);
        command.env("PATH", &bin).output().unwrap().into()
    };
    let none = boot(&[]);
    assert_eq!(none.code, 4, "{}", none.err);
    assert!(none.err.contains("qemu-system-x86"), "{}", none.err);
    for name in ["qemu-system-x86_64", "firecracker"] {
        std::fs::write(bin.join(name), "").unwrap();
        std::fs::set_permissions(bin.join(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let kernel = boot(&["--vmm", "qemu", "--kernel", "/no/such/vmlinuz"]);
    assert_eq!(kernel.code, 4, "{}", kernel.err);
    assert!(kernel.err.contains("/no/such/vmlinuz"), "{}", kernel.err);
    // Firecracker is taken where KVM is, else QEMU: whichever, nothing but the kernel is missing.
    let either = boot(&["--kernel", "/no/such/vmlinux"]);
    assert_eq!(either.code, 4, "{}", either.err);
    assert!(either.err.contains("/no/such/vmlinux"), "{}", either.err);
    assert!(!either.err.contains("/dev/kvm"), "{}", either.err);
    // Who names it is told without KVM that there is none, and so is who has no other; with KVM nothing but the kernel is missing.
    let kvm = std::fs::File::options().read(true).write(true).open("/dev/kvm").is_ok();
    let missing = if kvm { "/no/such/vmlinux" } else { "/dev/kvm is not there or not open" };
    let named = boot(&["--vmm", "firecracker", "--kernel", "/no/such/vmlinux"]);
    std::fs::remove_file(bin.join("qemu-system-x86_64")).unwrap();
    let only = boot(&["--kernel", "/no/such/vmlinux"]);
    for said in [named, only] {
        assert_eq!(said.code, 4, "{}", said.err);
        assert!(said.err.contains(missing), "{}", said.err);
    }
    assert!(!site.home.path().join("root").exists());
}

#[test]
fn two_at_once_wait_for_each_other() {
    let site = Site::new(APP);
    let root = site.home.path().join("root");
    let all: Vec<Child> = (0..3)
        .map(|_| {
            let mut command = site.command(&root, &["-o", "json", "--progress", "none"]);
            command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
        })
        .collect();
    let reports: Vec<Value> =
        all.into_iter().map(|child| Said::from(child.wait_with_output().unwrap()).json()).collect();
    let built = reports.iter().filter(|report| report["stages"][0]["state"] == "done").count();
    assert_eq!(built, 1, "{reports:#?}");
}
