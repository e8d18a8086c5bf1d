//! What microVMs need: KVM, a program that runs them, a kernel.

use std::path::{Path, PathBuf};

use portolan_agent::guest::find;
use portolan_agent::vmm::Kind;

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
    /// What could be there, on this processor.
    pub(super) could: &'static [Kind],
    /// Files that look like kernels.
    pub(super) kernels: Vec<String>,
    /// The first program of every guest; or why there is none.
    pub(super) init: Result<PathBuf, String>,
}

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
    let could = Kind::on(std::env::consts::ARCH);
    let programs = could.iter().map(|kind| kind.program()).filter(|name| there(name)).collect();
    Facts { kvm, programs, could, kernels, init: init(root) }
}

/// Where programs are, or beside this one, which is where `ship --boot` takes it from.
fn init(root: &Path) -> Result<PathBuf, String> {
    let mut installed = FOLDERS.iter().map(|folder| root.join(folder).join("portolan-init"));
    if let Some(path) = installed.find(|path| path.is_file()) {
        return Ok(path);
    }
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    find::init(&own).map_err(|error| error.to_string())
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
            format!("there is no {}", names(facts.could).join(" and no ")),
            format!(
                "install {} to run microVMs (docs/microvm.md)",
                names(facts.could).join(" or ")
            ),
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
    let init = match &facts.init {
        Ok(path) => ok(
            "portolan-init",
            format!("{}; an agent takes the one that guest.init names", path.display()),
        ),
        Err(why) => missing(
            "portolan-init",
            why.clone(),
            "without it no guest boots; agents are told of it by guest.init (docs/microvm.md)",
        ),
    };
    vec![kvm, program, kernel, init]
}

fn names(kinds: &[Kind]) -> Vec<&'static str> {
    kinds.iter().map(|kind| kind.program()).collect()
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
        // Whether there is an init beside this very program is not the machine's doing.
        assert_eq!(states(root.path())[..3], [State::Missing; 3]);
        for file in
            ["dev/kvm", "usr/bin/firecracker", "boot/vmlinuz-6.1.0", "usr/bin/portolan-init"]
        {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, "").unwrap();
        }
        assert_eq!(states(root.path()), [State::Ok; 4]);
    }

    #[test]
    fn a_device_of_somebody_else_is_wrong() {
        let facts = facts("x86_64");
        assert_eq!(check(&facts)[0].state, State::Wrong);
    }

    fn facts(architecture: &str) -> Facts {
        let (programs, kernels) = (vec![], vec![]);
        let could = Kind::on(architecture);
        Facts { kvm: Kvm::Denied, programs, could, kernels, init: Err("none".to_owned()) }
    }

    #[test]
    fn only_what_an_agent_runs_on_this_processor_is_advised() {
        for (architecture, qemu) in [("x86_64", true), ("aarch64", false)] {
            let findings = check(&facts(architecture));
            let advice = findings[1].advice.clone().unwrap();
            assert!(advice.contains("firecracker"), "{advice}");
            assert_eq!(advice.contains("qemu"), qemu, "{advice}");
            assert_eq!((findings[3].check, findings[3].state), ("portolan-init", State::Missing));
        }
    }
}
