//! Commands that are over in milliseconds: many in a row, each waited for.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::idle;
use super::measure::median;
use super::report::{Report, Row, millis};

/// Commands of one measurement; `--runs` multiplies it.
const COMMANDS: u32 = 20;

/// A copy, as an installation makes one. What a linker wrote stays in the page cache in the small
/// pieces in which it was written, and such a program takes a third more CPU to start than the same
/// bytes copied, or read from disk: that would be measured as ours.
pub(crate) fn installed(program: &Path, directory: &Path, name: &str) -> Result<PathBuf> {
    let copy = directory.join(name);
    std::fs::copy(program, &copy).with_context(|| format!("copy {}", program.display()))?;
    Ok(copy)
}

/// What one command took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) wall: Duration,
    pub(crate) cpu: Duration,
}

/// Measures a command that is over in milliseconds: many in a row, each waited for.
pub(crate) fn commands(
    report: &mut Report,
    what: &str,
    runs: usize,
    command: &dyn Fn() -> Command,
) -> Result<Cost> {
    println!("bench: {what}");
    // The first one reads the program from disk.
    once(&mut command())?;
    let idle = idle::wait_for_quiet()?;
    let number = COMMANDS * u32::try_from(runs)?;
    let before = cpu_of_children()?;
    let mut walls = Vec::new();
    for _ in 0..number {
        walls.push(once(&mut command())?);
    }
    let cpu = (cpu_of_children()? - before) / number;
    let runs_ms = walls.iter().map(|wall| millis(*wall)).collect();
    let wall = median(walls);
    let row = |what: String, time: Duration, runs_ms| Row {
        what,
        median_ms: millis(time),
        runs_ms,
        peak_mib: None,
        idle: Some(idle),
    };
    report.rows.push(row(what.to_owned(), wall, runs_ms));
    report.rows.push(row(format!("{what}, CPU (mean)"), cpu, Vec::new()));
    Ok(Cost { wall, cpu })
}

/// One run. "No" and "unknown" are answers too.
fn once(command: &mut Command) -> Result<Duration> {
    let began = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let status = child.wait()?;
    let wall = began.elapsed();
    let mut said = String::new();
    child.stderr.take().context("its words")?.read_to_string(&mut said)?;
    ensure!(matches!(status.code(), Some(0 | 1 | 3)), "{command:?} ended with {status}: {said}");
    Ok(wall)
}

/// What a command that must succeed prints.
pub(crate) fn said(command: &mut Command) -> Result<String> {
    let out =
        command.stdin(Stdio::null()).output().with_context(|| format!("start {command:?}"))?;
    let words = String::from_utf8_lossy(&out.stderr).into_owned();
    ensure!(out.status.success(), "{command:?} ended with {}: {words}", out.status);
    Ok(String::from_utf8(out.stdout)?)
}

/// What all children that ended have used, to the tick.
fn cpu_of_children() -> Result<Duration> {
    let stat = std::fs::read_to_string("/proc/self/stat").context("read /proc/self/stat")?;
    children(&stat).context("/proc/self/stat has no times")
}

/// Fields 16 and 17, counted after the name in parentheses, which is the second.
fn children(stat: &str) -> Option<Duration> {
    let (_, rest) = stat.rsplit_once(')')?;
    let mut words = rest.split_whitespace().skip(13);
    let mut ticks = || words.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    // A hundred ticks a second, on every architecture that Linux still runs on.
    Some(Duration::from_millis((user + system) * 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_children_are_read_past_a_name_with_spaces() {
        let stat = "1 (a b) c) S 1 1 1 0 -1 4194304 1 2 3 4 11 12 150 50 20 0 1 0 5";
        assert_eq!(children(stat), Some(Duration::from_millis(2_000)));
        assert_eq!(children("1 (x) S 1"), None);
    }
}
