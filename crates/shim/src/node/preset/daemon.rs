//! containerd as it runs, from `/proc`.

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

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
    /// Its program, as it names it.
    pub program: String,
    /// When it was started.
    pub started: Option<SystemTime>,
}

/// The containerd processes of a host, by their numbers. Docker keeps one of its own, which runs no pods.
#[must_use]
pub fn daemons(root: &Path) -> Vec<Daemon> {
    let proc = root.join("proc");
    let entries = fs::read_dir(&proc).into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let mut pids: Vec<u32> = pids.collect();
    pids.sort_unstable();
    pids.into_iter().filter_map(|pid| read(&proc, pid)).collect()
}

fn read(proc: &Path, pid: u32) -> Option<Daemon> {
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
    Some(Daemon {
        pid,
        config,
        address: flag(args, &["--address", "-a"]),
        program: (*program).to_owned(),
        started: started(proc, pid),
    })
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

fn started(proc: &Path, pid: u32) -> Option<SystemTime> {
    let stat = fs::read_to_string(proc.join(pid.to_string()).join("stat")).ok()?;
    // The name may have spaces and brackets in it: fields are counted from behind the last of them.
    let ticks: u64 = stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()?;
    let all = fs::read_to_string(proc.join("stat")).ok()?;
    let boot: u64 =
        all.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(
        SystemTime::UNIX_EPOCH
            + Duration::from_secs(boot)
            + Duration::from_millis(ticks * 1000 / TICKS),
    )
}
