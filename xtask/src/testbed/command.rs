//! Short-lived commands: the error names the command and shows what it said.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Its standard output.
pub(crate) fn output(program: impl AsRef<Path>, args: &[&str]) -> Result<String> {
    let program = program.as_ref();
    let shown = || format!("{} {}", program.display(), args.join(" "));
    let out = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("start {}", shown()))?;
    if !out.status.success() {
        let said = String::from_utf8_lossy(&out.stderr);
        bail!("{} failed ({}): {}", shown(), out.status, said.trim());
    }
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

pub(crate) fn run(program: impl AsRef<Path>, args: &[&str]) -> Result<()> {
    output(program, args).map(drop)
}

/// A line for the person at the terminal. There may be none any more, when `down` cleans up after a
/// run that was cut off, and that must not stop it.
pub(crate) fn say(line: &str) {
    let _ = writeln!(std::io::stderr(), "testbed: {line}");
}

/// Tries until it succeeds; the error is that of the last try.
pub(crate) fn wait(
    what: &str,
    limit: Duration,
    mut attempt: impl FnMut() -> Result<()>,
) -> Result<()> {
    let end = Instant::now() + limit;
    loop {
        match attempt() {
            Ok(()) => return Ok(()),
            Err(error) if Instant::now() > end => {
                return Err(error.context(format!("waited {limit:?} for {what}")));
            }
            Err(_) => std::thread::sleep(Duration::from_millis(200)),
        }
    }
}
