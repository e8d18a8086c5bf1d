//! What the kernel says of a process that is measured.

use std::fs;
use std::process::Child;
use std::time::Duration;

use anyhow::{Context as _, Result};

/// A process of ours alone, ended when dropped.
#[derive(Debug)]
pub(crate) struct Process(pub(crate) Child);

impl Process {
    /// Processor time it took so far, its kernel's included.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id()))?;
        let ticks = ticks(&stat).context("/proc/PID/stat has no times")?;
        let per_second = rustix::param::clock_ticks_per_second();
        Ok(Duration::from_millis(ticks * 1000 / per_second))
    }

    /// Memory that it has now, in MiB.
    pub(crate) fn memory(&self) -> Result<f64> {
        self.status("VmRSS:")
    }

    /// The most that it ever had, in MiB.
    pub(crate) fn peak_memory(&self) -> Result<f64> {
        self.status("VmHWM:")
    }

    #[allow(clippy::cast_precision_loss, reason = "kibibytes of a process fit")]
    fn status(&self, name: &str) -> Result<f64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.0.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        let line = line.with_context(|| format!("/proc/PID/status has no {name}"))?;
        let kib: u64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kib as f64 / 1024.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// User and system time: fields 14 and 15 of proc_pid_stat(5).
fn ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(") ")?;
    let mut fields = after_name.split(' ').skip(11);
    Some(fields.next()?.parse::<u64>().ok()? + fields.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_time_are_counted() {
        let stat = "7 (a b) S 1 7 7 0 -1 4194560 1 2 3 4 50 6 7 8 20 0 1 0 4242 9 9";
        assert_eq!(ticks(stat), Some(56));
    }
}
