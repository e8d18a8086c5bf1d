//! The host's namespaces, as its `/proc` shows them to a pod.

use std::fs;
use std::path::{Path, PathBuf};

/// The host's first process.
const FIRST: u32 = 1;
/// The kernel's own, which starts all its others.
const KERNELS: u32 = 2;
/// In the flags of a process: it is one of the kernel's.
const IS_KERNELS: u64 = 0x0020_0000;

/// A namespace of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Namespace {
    /// Where it is entered by.
    pub(crate) file: PathBuf,
    /// What tells it from others.
    pub(crate) id: PathBuf,
}

/// The host's namespace of a kind (`mnt`, `pid`): the one of its first process. Some systems hide that even from
/// root; the kernel's first thread was started in the same. In a container that stands for a host, number 2 is
/// anybody: only a thread of the kernel counts.
pub(crate) fn of_host(root: &Path, kind: &str) -> Option<Namespace> {
    let proc = root.join("proc");
    let of = |pid: u32| {
        let file = proc.join(pid.to_string()).join("ns").join(kind);
        let id = fs::read_link(&file).ok()?;
        Some(Namespace { file, id })
    };
    of(FIRST).or_else(|| is_kernels(&proc, KERNELS).then(|| of(KERNELS)).flatten())
}

/// Our own of that kind.
pub(crate) fn own(kind: &str) -> Option<PathBuf> {
    fs::read_link(Path::new("/proc/self/ns").join(kind)).ok()
}

/// From field 9 of proc_pid_stat(5), counted from behind the name.
fn is_kernels(proc: &Path, pid: u32) -> bool {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).unwrap_or_default();
    let flags = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(6));
    flags.and_then(|flags| flags.parse::<u64>().ok()).is_some_and(|flags| flags & IS_KERNELS != 0)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    /// Where the first process is hidden, even root reads nothing of it: no host could be entered, and no
    /// runtime was believed to be the host's.
    #[test]
    fn a_host_whose_first_process_is_hidden_is_known_by_the_kernels() {
        let dir = tempfile::tempdir().unwrap();
        let proc = dir.path().join("proc");
        let process = |pid: u32, flags: u64, namespace: &str| {
            let dir = proc.join(pid.to_string());
            fs::create_dir_all(dir.join("ns")).unwrap();
            let stat = format!("{pid} (a) b) S 0 0 0 0 -1 {flags} 0 0 0");
            fs::write(dir.join("stat"), stat).unwrap();
            symlink(namespace, dir.join("ns/mnt")).unwrap();
        };
        fs::create_dir_all(proc.join("1/ns")).unwrap();
        assert_eq!(of_host(dir.path(), "mnt"), None);
        process(2, 0x0020_8040, "mnt:[7]");
        let found = of_host(dir.path(), "mnt").unwrap();
        assert_eq!(found, Namespace { file: proc.join("2/ns/mnt"), id: PathBuf::from("mnt:[7]") });
        // Anybody may be number 2 where there is no kernel of one's own.
        fs::remove_dir_all(proc.join("2")).unwrap();
        process(2, 0x0040_0100, "mnt:[8]");
        assert_eq!(of_host(dir.path(), "mnt"), None);
        symlink("mnt:[9]", proc.join("1/ns/mnt")).unwrap();
        assert_eq!(of_host(dir.path(), "mnt").unwrap().id, PathBuf::from("mnt:[9]"));
    }
}
