//! `cargo xtask test`: unit and integration tests of the whole workspace, no cluster.

use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::testbed::build::{Missing, ensure};
use crate::testbed::parts::Use;
use crate::{suite, testbed};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only tests whose name contains one of these
    filter: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let parts = ensure(Use::Test, Missing::IsSkipped)?;

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--locked", "--workspace", "--exclude", "portolan-e2e", "--no-fail-fast"]);
    // A test that cannot run here notes it in this file; libtest itself would count it as passed.
    let skips = tempfile::NamedTempFile::new().context("make the list of skipped tests")?;
    cargo.env("PORTOLAN_TEST_SKIPS", skips.path());
    for (name, path) in &parts {
        cargo.env(testbed::variable(name), path);
    }
    if !args.filter.is_empty() {
        cargo.arg("--").args(&args.filter);
    }
    let mut outcome = suite::run(&mut cargo)?;
    let skipped =
        std::fs::read_to_string(skips.path()).context("read the list of skipped tests")?;
    outcome.tally.take_out_skipped(skipped.lines().count() as u64);

    println!("\ncargo xtask test: {:.0?}", outcome.took);
    for line in skipped.lines() {
        println!("SKIPPED: {line}");
    }
    println!("{}", outcome.closing_line());
    if !outcome.green() {
        bail!("cargo xtask test failed; the failures are listed above");
    }
    Ok(())
}
