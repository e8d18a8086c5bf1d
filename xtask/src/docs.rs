//! `cargo xtask docs`: writes `docs/reference`, through the tests that compare it.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};

/// Asks those tests to write first. They know commands, metrics and resources; this program must not.
const UPDATE: &str = "PORTOLAN_UPDATE_REFERENCE";

/// Where pages are rendered: commands in the programs, metrics where they are counted. What lists them comes last.
const STEPS: [&[&str]; 2] =
    [&["--bins", "--lib", "--test", "guide", "--test", "server"], &["--test", "papers"]];

pub(crate) fn run() -> Result<()> {
    // The whole workspace, as `cargo xtask test` has it: parts of it would have features of libraries of their own, and
    // so libraries of their own.
    for targets in STEPS {
        let status = Command::new(env!("CARGO"))
            .args(["test", "--workspace", "--exclude", "portolan-e2e"])
            .args(targets)
            .args(["--", "checked_in_reference"])
            .current_dir(crate::root())
            .env(UPDATE, "1")
            .status()
            .context("start cargo")?;
        ensure!(status.success(), "docs/reference could not be written; see above");
    }
    Ok(())
}
