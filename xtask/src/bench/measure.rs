//! Wall time and peak memory of one command.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// One run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Run {
    pub(crate) wall: Duration,
    /// The kernel's own high-water mark, in KiB.
    pub(crate) peak_kib: u64,
}

/// Runs it to the end. Output is kept back unless it fails.
pub(crate) fn run(command: &mut Command) -> Result<Run> {
    run_with_input(command, Stdio::null())
}

/// The same, reading from there.
pub(crate) fn run_with_input(command: &mut Command, input: impl Into<Stdio>) -> Result<Run> {
    let start = Instant::now();
    let mut child = command
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let mut peak_kib = 0;
    let status = loop {
        // The mark only ever rises, so asking often is as good as asking last.
        peak_kib = peak(&child).unwrap_or(0).max(peak_kib);
        if let Some(status) = child.try_wait()? {
            break status;
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let wall = start.elapsed();
    if !status.success() {
        let said = child.wait_with_output()?.stderr;
        bail!("{command:?} ended with {status}:\n{}", String::from_utf8_lossy(&said));
    }
    Ok(Run { wall, peak_kib })
}

fn peak(child: &Child) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", child.id())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// The middle value.
pub(crate) fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_ignores_the_outlier() {
        let times = [5, 1, 900, 2, 3].map(Duration::from_millis).to_vec();
        assert_eq!(median(times), Duration::from_millis(3));
    }

    #[test]
    fn a_failing_command_is_an_error_with_its_words() {
        let error = run(Command::new("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("why"));
    }
}
