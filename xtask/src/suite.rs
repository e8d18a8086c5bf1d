//! Runs `cargo test`, shows what it prints as it comes, and adds up the closing lines.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

/// What the test programs of one run said together.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) ignored: u64,
}

impl Tally {
    /// Counts as skipped so many tests that said themselves that they could not run.
    pub(crate) fn take_out_skipped(&mut self, skipped: u64) {
        self.passed = self.passed.saturating_sub(skipped);
        self.ignored += skipped;
    }

    /// Adds a line such as `test result: ok. 5 passed; 0 failed; 1 ignored; …`; other lines
    /// are none of its business.
    fn add_line(&mut self, line: &str) {
        let Some(rest) = line.trim_start().strip_prefix("test result: ") else { return };
        for part in rest.split([';', '.']) {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else { continue };
            let Ok(number) = number.parse::<u64>() else { continue };
            match what {
                "passed" => self.passed += number,
                "failed" => self.failed += number,
                "ignored" => self.ignored += number,
                _ => {}
            }
        }
    }
}

/// One suite, ended.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) tally: Tally,
    /// Whether cargo itself was content: false too when something did not compile.
    pub(crate) success: bool,
    pub(crate) took: Duration,
}

impl Outcome {
    /// Green means that something ran and nothing failed.
    pub(crate) fn green(&self) -> bool {
        self.success && self.tally.failed == 0 && self.tally.passed > 0
    }

    /// The closing line that other tools read; alone on its line.
    pub(crate) fn closing_line(&self) -> String {
        // A suite that did not compile has run nothing, and must not look like one that passed.
        let failed = if self.success { self.tally.failed } else { self.tally.failed.max(1) };
        format!("{} passed, {} failed, {} skipped", self.tally.passed, failed, self.tally.ignored)
    }
}

/// Runs the command and passes its output through.
pub(crate) fn run(command: &mut Command) -> Result<Outcome> {
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {}", command.get_program().display()))?;
    let stdout = child.stdout.take().context("the pipe to cargo is missing")?;
    let mut tally = Tally::default();
    for line in BufReader::new(stdout).split(b'\n') {
        let line = line.context("read what cargo test prints")?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.add_line(&line);
    }
    let status = child.wait().context("wait for cargo test")?;
    Ok(Outcome { tally, success: status.success(), took: start.elapsed() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adds_up_what_several_programs_say() {
        let mut tally = Tally::default();
        for line in [
            "running 3 tests",
            "test result: ok. 3 passed; 0 failed; 0 ignored; 0 measured; 2 filtered out; finished in 0.01s",
            "test a ... ok",
            "test result: FAILED. 1 passed; 2 failed; 4 ignored; 0 measured; 0 filtered out; finished in 1.00s",
        ] {
            tally.add_line(line);
        }
        assert_eq!(tally, Tally { passed: 4, failed: 2, ignored: 4 });
    }

    #[test]
    fn what_did_not_compile_is_not_green() {
        let took = Duration::ZERO;
        let broken = Outcome { tally: Tally::default(), success: false, took };
        assert!(!broken.green());
        assert_eq!(broken.closing_line(), "0 passed, 1 failed, 0 skipped");
        let nothing = Outcome { tally: Tally::default(), success: true, took };
        assert!(!nothing.green());
    }
}
