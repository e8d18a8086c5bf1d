//! What microVMs need: KVM, a program that runs them, a kernel.

use std::path::Path;

use super::super::finding::{Finding, missing, ok, wrong};

/// Whether KVM can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in super::super) enum Kvm {
    Absent,
    Denied,
    Usable,
}

#[derive(Debug)]
pub(in super::super) struct Facts {
    pub(super) kvm: Kvm,
    /// Names of the programs that were found.
    pub(super) programs: Vec<&'static str>,
    /// Files that look like kernels.
    pub(super) kernels: Vec<String>,
}

/// Programs that the agent knows to run.
const PROGRAMS: [&str; 3] = ["firecracker", "qemu-system-x86_64", "qemu-system-aarch64"];
/// Where programs are, on every machine that we know.
const FOLDERS: [&str; 5] = ["usr/local/bin", "usr/bin", "bin", "usr/local/sbin", "opt/bin"];

pub(in super::super) fn gather(root: &Path) -> Facts {
    let device = root.join("dev/kvm");
    let kvm = match std::fs::File::options().read(true).write(true).open(&device) {
        Ok(_) => Kvm::Usable,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Kvm::Absent,
        Err(_) => Kvm::Denied,
    };
    let there = |name: &str| FOLDERS.iter().any(|folder| root.join(folder).join(name).is_file());
    let listed = std::fs::read_dir(root.join("boot")).into_iter().flatten().flatten();
    let names = listed.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut kernels: Vec<_> = names.filter(|name| name.starts_with("vmlinu")).collect();
    kernels.sort();
    Facts { kvm, programs: PROGRAMS.into_iter().filter(|name| there(name)).collect(), kernels }
}

pub(in super::super) fn check(facts: &Facts) -> Vec<Finding> {
    let kvm = match facts.kvm {
        Kvm::Usable => {
            ok("kvm", "/dev/kvm can be opened; whether a guest boots on it is tried by the agent")
        }
        Kvm::Absent => missing(
            "kvm",
            "there is no /dev/kvm: microVMs run by emulation, an order of magnitude slower",
            "load kvm_intel or kvm_amd, or let the machine's own hypervisor pass virtualisation on",
        ),
        Kvm::Denied => wrong(
            "kvm",
            "/dev/kvm is there and not for this user",
            "add the user to the group that owns /dev/kvm, or run the agent as root",
        ),
    };
    let program = match facts.programs.as_slice() {
        [] => missing(
            "vmm",
            "neither firecracker nor qemu is installed",
            "install one of them to run microVMs (docs/microvm.md)",
        ),
        found => ok("vmm", found.join(", ")),
    };
    let kernel = match facts.kernels.last() {
        None => missing(
            "guest kernel",
            "there is no kernel in /boot",
            "unpack one and name it in guest.kernel of the agent's configuration (docs/microvm.md)",
        ),
        Some(newest) => {
            ok("guest kernel", format!("/boot/{newest}; guest.kernel says which is used"))
        }
    };
    vec![kvm, program, kernel]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::State;

    #[test]
    fn a_machine_without_anything_is_told_what_to_get_and_one_with_all_is_well() {
        let root = tempfile::tempdir().unwrap();
        let states =
            |root: &Path| check(&gather(root)).iter().map(|one| one.state).collect::<Vec<_>>();
        assert_eq!(states(root.path()), [State::Missing; 3]);
        for file in ["dev/kvm", "usr/bin/qemu-system-x86_64", "boot/vmlinuz-6.1.0"] {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        assert_eq!(states(root.path()), [State::Ok; 3]);
    }

    #[test]
    fn a_device_of_somebody_else_is_wrong() {
        let facts = Facts { kvm: Kvm::Denied, programs: vec![], kernels: vec![] };
        assert_eq!(check(&facts)[0].state, State::Wrong);
    }
}
