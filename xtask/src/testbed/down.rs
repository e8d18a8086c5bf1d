//! `testbed down`: everything that `up` made is taken away, and nothing else.
//!
//! It needs no running containerd or API server, so the same path cleans up after a crash. Order:
//! those who restart things first, then containers, then what they were mounted on and hung from.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::mount::{UnmountFlags, unmount};

use super::cache::{Cache, remove_dir};
use super::command::{output, run, say};
use super::state::State;
use super::{binfmt, config, find, net, parts, process, up};

/// Nothing here has data worth waiting for.
const GRACE: Duration = Duration::from_secs(2);

pub(crate) fn down(cache: &Cache) -> Result<()> {
    let _lock = cache.lock("run")?;
    clear(cache)
}

/// Takes away whatever the last cluster left, running or not; its logs are kept. The caller holds
/// the lock.
pub(crate) fn clear(cache: &Cache) -> Result<()> {
    let run_dir = &cache.run_dir();
    // A state we cannot read is of another version of us: the marks and the folder say the rest.
    let state = State::load(run_dir).unwrap_or_else(|error| {
        say(&format!("{error:#}; going by the marks of its processes"));
        None
    });
    if let Some(state) = &state {
        // The kubelet first, which would start again what we end; the others do not mind the order.
        let (kubelet, others): (Vec<_>, Vec<_>) =
            state.processes.iter().partition(|process| process.name == "kubelet");
        for group in [kubelet, others] {
            let identities: Vec<_> = group.iter().map(|process| process.identity).collect();
            process::stop(&identities, GRACE);
        }
    }
    remove_containers(run_dir)?;
    // Container shims, and daemons that `up` had no time to write down.
    process::stop(&process::marked(run_dir), GRACE);
    remove_leftovers(run_dir);
    unmount_below(run_dir)?;
    if let Some(ip) = find::installed("ip", None, parts::Accepts::Any) {
        net::remove_bridge(&ip, run_dir, state.is_some())?;
    }
    keep_logs(&run_dir.join("logs"), &cache.kept_logs())?;
    if let Some(state) = &state {
        restore_kernel(state);
        binfmt::disable(&state.binfmt);
        for path in &state.absent {
            // Refused if someone else has put something there since, and rightly so.
            let _ = if path.is_dir() { fs::remove_dir(path) } else { fs::remove_file(path) };
        }
    }
    remove_dir(run_dir)
}

fn keep_logs(from: &Path, to: &Path) -> Result<()> {
    if from.is_dir() {
        remove_dir(to)?;
        fs::rename(from, to)
            .with_context(|| format!("keep {} as {}", from.display(), to.display()))?;
    }
    Ok(())
}

/// runc knows its containers from its own folder, ends all their processes and removes their
/// control groups.
fn remove_containers(run_dir: &Path) -> Result<()> {
    for root in [run_dir.join("runc/k8s.io"), PathBuf::from(OTHERS_RUNC)] {
        if !root.is_dir() {
            continue;
        }
        let runc = find::installed("runc", None, parts::Accepts::Any)
            .context("runc is gone, and containers it started may still run: install it again")?;
        let root = format!("--root={}", root.display());
        for id in containers(&output(&runc, &[&root, "list", "--format=json"])?, run_dir)? {
            run(&runc, &[&root, "delete", "--force", &id])?;
        }
    }
    Ok(())
}

/// Where runc has the containers of runtimes that say nothing of it, as those that shims bring; others may have
/// theirs there.
const OTHERS_RUNC: &str = "/run/containerd/runc/k8s.io";

/// Which of the containers that runc lists are of our pods: those whose bundle is in our folder.
fn containers(listed: &str, run_dir: &Path) -> Result<Vec<String>> {
    let all: Option<Vec<serde_json::Value>> =
        serde_json::from_str(listed).context("what runc lists")?;
    let is_ours = |one: &&serde_json::Value| {
        one["bundle"].as_str().is_some_and(|b| Path::new(b).starts_with(run_dir))
    };
    let ids = all.iter().flatten().filter(is_ours).filter_map(|one| one["id"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

/// Files outside the run folder whose places containerd, libcni and the kubelet do not let us
/// choose.
fn remove_leftovers(run_dir: &Path) {
    let bundles = list(&run_dir.join("containerd/state/io.containerd.runtime.v2.task/k8s.io"));
    for bundle in &bundles {
        // The socket of its shim.
        if let Some(socket) = shim_address(bundle).trim().strip_prefix("unix://") {
            let _ = fs::remove_file(socket);
        }
    }
    let results = list(Path::new("/var/lib/cni/results"));
    let names: Vec<_> = results.iter().filter_map(|path| path.file_name()?.to_str()).collect();
    for name in cni_results(&names) {
        let _ = fs::remove_file(Path::new("/var/lib/cni/results").join(name));
    }
    for link in list(Path::new("/var/log/containers")) {
        if fs::read_link(&link).is_ok_and(|target| target.starts_with(run_dir)) {
            let _ = fs::remove_file(link);
        }
    }
    // Left by a kubelet that was not given the time; a living one is not ours.
    let refused = UnixStream::connect(up::DEVICE_SOCKET)
        .is_err_and(|error| error.kind() == std::io::ErrorKind::ConnectionRefused);
    if refused {
        let _ = fs::remove_file(up::DEVICE_SOCKET);
    }
}

/// Where a shim answers: containerd 1 writes it down as it is, containerd 2 among other things.
fn shim_address(bundle: &Path) -> String {
    let plain = fs::read_to_string(bundle.join("address"));
    plain.unwrap_or_else(|_| {
        let text = fs::read(bundle.join("bootstrap.json")).unwrap_or_default();
        let told: serde_json::Value = serde_json::from_slice(&text).unwrap_or_default();
        told["address"].as_str().unwrap_or_default().to_owned()
    })
}

/// Which of libcni's files, `NETWORK-CONTAINER-INTERFACE`, are of our pods: those of our network,
/// and those of the loopback network for the same containers.
fn cni_results<'a>(names: &[&'a str]) -> Vec<&'a str> {
    let ours: Vec<_> =
        names.iter().filter_map(|name| container_of(name, config::CNI_NETWORK)).collect();
    let is_ours = |name: &str| {
        [config::CNI_NETWORK, "cni-loopback"]
            .iter()
            .filter_map(|network| container_of(name, network))
            .any(|id| ours.contains(&id))
    };
    names.iter().copied().filter(|name| is_ours(name)).collect()
}

fn container_of<'a>(name: &'a str, network: &str) -> Option<&'a str> {
    Some(name.strip_prefix(network)?.strip_prefix('-')?.split_once('-')?.0)
}

pub(super) fn list(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
}

fn unmount_below(run_dir: &Path) -> Result<()> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").context("read mountinfo")?;
    for target in mounts_below(&mounts, run_dir) {
        unmount(&target, UnmountFlags::DETACH)
            .with_context(|| format!("unmount {}", target.display()))?;
    }
    Ok(())
}

/// Mount points inside `dir`, the last mounted first.
fn mounts_below(mountinfo: &str, dir: &Path) -> Vec<PathBuf> {
    let points = mountinfo.lines().filter_map(|line| line.split(' ').nth(4));
    let mut below: Vec<_> = points
        // The kernel writes a space as \040; no other character it escapes is in our paths.
        .map(|point| PathBuf::from(point.replace("\\040", " ")))
        .filter(|point| point.starts_with(dir) && point != dir)
        .collect();
    below.reverse();
    below
}

fn restore_kernel(state: &State) {
    for (path, value) in &state.kernel {
        let now = fs::read_to_string(path).unwrap_or_default();
        if now.trim() != value
            && let Err(error) = fs::write(path, value)
        {
            say(&format!("{} was {value} and could not be put back: {error}", path.display()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_results_of_our_containers_are_taken() {
        let names = [
            "portolan-testbed-aa-eth0",
            "cni-loopback-aa-lo",
            "cni-loopback-bb-lo",
            "other-aa-eth0",
            "portolan-testbed",
        ];
        assert_eq!(cni_results(&names), ["portolan-testbed-aa-eth0", "cni-loopback-aa-lo"]);
    }

    #[test]
    fn only_containers_of_our_pods_are_taken() {
        let listed =
            r#"[{"id":"a","bundle":"/c/run/x/a"},{"id":"b","bundle":"/c/runner/b"},{"id":"c"}]"#;
        assert_eq!(containers(listed, Path::new("/c/run")).unwrap(), ["a"]);
        assert!(containers("null", Path::new("/c/run")).unwrap().is_empty());
    }

    #[test]
    fn the_socket_of_a_shim_is_found_in_either_form() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(shim_address(dir.path()), "");
        fs::write(dir.path().join("bootstrap.json"), r#"{"version":3,"address":"unix:///s/1"}"#)
            .unwrap();
        assert_eq!(shim_address(dir.path()), "unix:///s/1");
        fs::write(dir.path().join("address"), "unix:///s/2").unwrap();
        assert_eq!(shim_address(dir.path()), "unix:///s/2");
    }

    #[test]
    fn only_mounts_inside_the_folder_are_taken_and_the_inner_ones_first() {
        let text = "1 0 8:1 / / rw - ext4 /dev/vda rw\n\
                    2 1 0:1 / /c/run/a rw - tmpfs tmpfs rw\n\
                    3 2 0:2 / /c/run/a/b\\040c rw - tmpfs tmpfs rw\n\
                    4 1 0:3 / /c/runner rw - tmpfs tmpfs rw\n";
        assert_eq!(
            mounts_below(text, Path::new("/c/run")),
            [PathBuf::from("/c/run/a/b c"), PathBuf::from("/c/run/a")]
        );
    }
}
