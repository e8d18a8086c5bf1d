//! `cargo xtask test`: unit and integration tests of the whole workspace, no cluster.

use std::process::Command;

use anyhow::{Result, bail};

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
    let missing: Vec<_> =
        testbed::names(Use::Test).filter(|name| !parts.contains_key(name)).collect();

    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["test", "--locked", "--workspace", "--exclude", "portolan-e2e", "--no-fail-fast"]);
    // Integration tests that need a part look here before they say that it is missing.
    cargo.env("PORTOLAN_MISSING_PARTS", missing.join(","));
    for (name, path) in &parts {
        cargo.env(testbed::variable(name), path);
    }
    if !args.filter.is_empty() {
        cargo.arg("--").args(&args.filter);
    }
    let outcome = suite::run(&mut cargo)?;

    println!("\ncargo xtask test: {:.0?}", outcome.took);
    if !missing.is_empty() {
        println!(
            "SKIPPED: what needs {}; install it and run again to have everything checked",
            missing.join(", ")
        );
    }
    println!("{}", outcome.closing_line());
    if !outcome.green() {
        bail!("cargo xtask test failed; the failures are listed above");
    }
    Ok(())
}
