//! Processes of the testbed: started in a group of their own, remembered by pid *and* start time,
//! ended by a handle that cannot mean another process.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::{Deserialize, Serialize};

/// Set in the environment of everything the testbed starts. It finds what was started in the
/// moment before a crash, and the container shims, which containerd starts and outlives.
pub(crate) const MARK: &str = "PORTOLAN_TESTBED_RUN";

/// A process as it was when we started it. The kernel hands out a pid again, but not with the same
/// start time (in clock ticks since boot).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Identity {
    pub(crate) pid: i32,
    pub(crate) started: u64,
}

/// What to start.
#[derive(Debug, Clone)]
pub(crate) struct Daemon {
    pub(crate) name: &'static str,
    pub(crate) program: PathBuf,
    pub(crate) args: Vec<String>,
    /// Its whole environment, but for the mark.
    pub(crate) env: BTreeMap<&'static str, String>,
}

impl Identity {
    /// Of a running process; `None` when there is none with that pid (a zombie has ended).
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (state, started) = parse_stat(&stat)?;
        (state != 'Z' && state != 'X').then_some(Self { pid, started })
    }

    pub(crate) fn is_alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// Sends the signal to this process and no other: the handle is opened first, then the
    /// identity is checked, so the pid cannot change hands in between.
    fn signal(self, signal: Signal) {
        let Some(pid) = Pid::from_raw(self.pid) else { return };
        let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return };
        if self.is_alive() {
            // It may have ended this instant, which is what we want.
            let _ = pidfd_send_signal(&handle, signal);
        }
    }
}

/// State and start time: fields 3 and 22 of proc_pid_stat(5). The name before them is in
/// parentheses and may hold spaces and parentheses itself.
fn parse_stat(stat: &str) -> Option<(char, u64)> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ');
    let state = fields.next()?.chars().next()?;
    let started = fields.nth(18)?.parse().ok()?;
    Some((state, started))
}

/// Starts a daemon that outlives us; both its streams go to `log`.
pub(crate) fn start(daemon: &Daemon, run_dir: &Path, log: &Path) -> Result<Identity> {
    use std::os::unix::process::CommandExt as _;
    let out = File::create(log).with_context(|| format!("create {}", log.display()))?;
    let child = Command::new(&daemon.program)
        .args(&daemon.args)
        .env_clear()
        .envs(&daemon.env)
        .env(MARK, run_dir)
        .current_dir(run_dir)
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        // Ctrl-C is for us: we decide when and in which order daemons end.
        .process_group(0)
        .spawn()
        .with_context(|| format!("start {} ({})", daemon.name, daemon.program.display()))?;
    let pid = i32::try_from(child.id()).context("pid")?;
    Identity::of(pid)
        .with_context(|| format!("{} ended at once: see {}", daemon.name, log.display()))
}

/// Asks politely, waits, insists.
pub(crate) fn stop(processes: &[Identity], grace: Duration) {
    for process in processes {
        process.signal(Signal::TERM);
    }
    if wait_gone(processes, grace) {
        return;
    }
    for process in processes {
        process.signal(Signal::KILL);
    }
    wait_gone(processes, Duration::from_secs(5));
}

fn wait_gone(processes: &[Identity], limit: Duration) -> bool {
    let end = Instant::now() + limit;
    while processes.iter().any(|process| process.is_alive()) {
        if Instant::now() > end {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Everything that still runs and was started for `run_dir`, ourselves excepted.
pub(crate) fn marked(run_dir: &Path) -> Vec<Identity> {
    let mark = format!("{MARK}={}", run_dir.display());
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok())
        .filter(|pid| u32::try_from(*pid) != Ok(std::process::id()))
        .filter(|pid| {
            fs::read(format!("/proc/{pid}/environ")).is_ok_and(|env| has_mark(&env, &mark))
        })
        .filter_map(Identity::of)
        .collect()
}

fn has_mark(environ: &[u8], mark: &str) -> bool {
    environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
}

/// The last lines of a log, to show why its process failed.
pub(crate) fn tail(log: &Path, lines: usize) -> String {
    let text = fs::read(log).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a) S (b) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(parse_stat(stat), Some(('S', 4242)));
        assert_eq!(parse_stat("7 (cut"), None);
    }

    #[test]
    fn a_recycled_pid_is_another_process() {
        let me = Identity::of(i32::try_from(std::process::id()).unwrap()).unwrap();
        assert!(me.is_alive());
        let earlier = Identity { started: me.started - 1, ..me };
        assert!(!earlier.is_alive());
        // Would end this very test if it trusted the pid alone.
        earlier.signal(Signal::KILL);
    }

    #[test]
    fn a_mark_is_a_whole_variable() {
        let mark = "PORTOLAN_TESTBED_RUN=/a";
        assert!(has_mark(b"PATH=/bin\0PORTOLAN_TESTBED_RUN=/a\0", mark));
        assert!(!has_mark(b"PORTOLAN_TESTBED_RUN=/a/b\0", mark));
        assert!(!has_mark(b"X=PORTOLAN_TESTBED_RUN=/a\0", mark));
    }

    #[test]
    fn stop_ends_a_process_that_ignores_the_polite_signal() {
        let dir = tempfile::tempdir().unwrap();
        let daemon = Daemon {
            name: "stubborn",
            program: "sh".into(),
            args: vec!["-c".into(), "trap '' TERM; echo up; while :; do sleep 0.1; done".into()],
            env: BTreeMap::from([("PATH", "/usr/bin:/bin".to_owned())]),
        };
        let log = dir.path().join("log");
        let identity = start(&daemon, dir.path(), &log).unwrap();
        while tail(&log, 1).is_empty() {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(marked(dir.path()).first(), Some(&identity));
        stop(&[identity], Duration::from_millis(200));
        assert!(!identity.is_alive());
        stop(&marked(dir.path()), Duration::from_secs(1)); // its last `sleep`
    }
}
