//! containerd as it runs, from `/proc`.
//!
//! Any process may call itself containerd, and what is found here is run as root: only a process of root in
//! the host's mount namespace is believed, and its program is the file that it runs.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::node::namespace;
use crate::node::root::HostRoot;

/// Of a command line.
const MAX_LINE: usize = 64 << 10;
/// How the kernel counts time for programs, on every architecture.
const TICKS: u64 = 100;

/// A running daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Daemon {
    /// Its process, in the host's numbers.
    pub pid: u32,
    /// What it was started with, where it says so.
    pub config: Option<String>,
    /// Where it answers, where it says so.
    pub address: Option<String>,
    /// Its program, as the host names it, where that can be told.
    pub program: Option<String>,
    /// When it was started.
    pub started: Option<SystemTime>,
    /// The same as the kernel counts it, which no clock that is set changes.
    pub ticks: Option<u64>,
}

/// The containerd processes of a host, by their numbers. Docker keeps one of its own, which runs no pods.
#[must_use]
pub fn daemons(root: &Path) -> Vec<Daemon> {
    let proc = root.join("proc");
    let entries = fs::read_dir(&proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    // Where the host's own namespace cannot be seen, nobody can be told apart from a pod's process; on the host
    // itself it is ours.
    let own = || (root == Path::new("/")).then(|| namespace::own("mnt")).flatten();
    let hosts = namespace::of_host(root, "mnt").map(|namespace| namespace.id);
    let Some(hosts) = hosts.or_else(own) else { return Vec::new() };
    pids.into_iter().filter_map(|pid| read(root, &hosts, pid)).collect()
}

fn read(root: &Path, hosts: &Path, pid: u32) -> Option<Daemon> {
    let proc = root.join("proc");
    let dir = proc.join(pid.to_string());
    let line = fs::read(dir.join("cmdline")).ok()?;
    let line = String::from_utf8_lossy(&line[..line.len().min(MAX_LINE)]).into_owned();
    let words: Vec<&str> = line.split('\0').filter(|word| !word.is_empty()).collect();
    let (program, args) = words.split_first()?;
    if program.rsplit('/').next() != Some("containerd") {
        return None;
    }
    let config = flag(args, &["--config", "-c"]);
    if config.as_deref().is_some_and(|path| path.contains("/docker/")) {
        return None;
    }
    if fs::read_link(dir.join("ns/mnt")).ok()? != hosts || real_user(&dir)? != 0 {
        tracing::warn!(pid, "a process calls itself containerd and is not the host's");
        return None;
    }
    Some(Daemon {
        pid,
        config,
        address: flag(args, &["--address", "-a"]),
        program: program_of(root, &dir, program),
        started: started(&proc, pid),
        ticks: ticks(&proc, pid),
    })
}

/// Who started a process.
fn real_user(dir: &Path) -> Option<u32> {
    let status = fs::read_to_string(dir.join("status")).ok()?;
    let users = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    users.split_whitespace().next()?.parse().ok()
}

/// The file that a process runs. Some programs go by the name they are called by, so the one that it was
/// called by counts where it is the same file.
fn program_of(root: &Path, dir: &Path, called: &str) -> Option<String> {
    let runs = fs::metadata(dir.join("exe")).ok()?;
    let is_same = |path: &str| {
        let there = HostRoot::open(root).and_then(|root| root.locate(path));
        there.and_then(fs::metadata).is_ok_and(|m| (m.dev(), m.ino()) == (runs.dev(), runs.ino()))
    };
    let link = fs::read_link(dir.join("exe")).ok();
    let link = link.and_then(|path| path.to_str().map(str::to_owned));
    let named = [Some(called.to_owned()), link].into_iter().flatten();
    named.filter(|path| path.starts_with('/')).find(|path| is_same(path))
}

/// The value of a flag, `--flag value` or `--flag=value`.
fn flag(args: &[&str], names: &[&str]) -> Option<String> {
    let mut args = args.iter();
    while let Some(arg) = args.next() {
        if names.contains(arg) {
            return args.next().map(|value| (*value).to_owned());
        }
        let (name, value) = arg.split_once('=').unwrap_or((arg, ""));
        if names.contains(&name) {
            return Some(value.to_owned());
        }
    }
    None
}

fn ticks(proc: &Path, pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name may have spaces and brackets in it: fields are counted from behind the last of them.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

fn started(proc: &Path, pid: u32) -> Option<SystemTime> {
    let ticks = ticks(proc, pid)?;
    let all = fs::read_to_string(proc.join("stat")).ok()?;
    let boot: u64 =
        all.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(
        SystemTime::UNIX_EPOCH
            + Duration::from_secs(boot)
            + Duration::from_millis(ticks * 1000 / TICKS),
    )
}
