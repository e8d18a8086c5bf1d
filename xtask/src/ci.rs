//! `cargo xtask ci`: everything that must be green, one step after the other.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::tools::CARGO_DENY;

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Only {
    /// fmt, clippy, deny, docs
    Checks,
    /// The two test suites
    Suites,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only a part of it
    #[arg(long)]
    only: Option<Only>,
}

struct Step {
    name: &'static str,
    of: Only,
    run: fn() -> Result<()>,
}

const STEPS: &[Step] = &[
    Step { name: "fmt", of: Only::Checks, run: fmt },
    Step { name: "clippy", of: Only::Checks, run: clippy },
    Step { name: "deny", of: Only::Checks, run: deny },
    Step { name: "docs", of: Only::Checks, run: docs },
    Step { name: "test", of: Only::Suites, run: || xtask(&["test"]) },
    Step { name: "e2e", of: Only::Suites, run: || xtask(&["e2e"]) },
    // The same node on the next containerd; only what has to do with it.
    Step {
        name: "e2e on 2",
        of: Only::Suites,
        run: || xtask(&["e2e", "--containerd=2", "shim_jobs"]),
    },
    // The other half of the image: every library is compiled once more for it.
    Step {
        name: "e2e arm64",
        of: Only::Suites,
        run: || xtask(&["e2e", "--platform=linux/arm64", "every_program_of_the_image"]),
    },
];

/// Runs every step even after one failed: one run tells everything.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut rows: Vec<(&str, Duration, Result<()>)> = Vec::new();
    for step in STEPS.iter().filter(|step| args.only.is_none_or(|only| only == step.of)) {
        println!("== {}", step.name);
        let start = Instant::now();
        let result = (step.run)();
        rows.push((step.name, start.elapsed(), result));
    }
    println!();
    for (name, took, result) in &rows {
        match result {
            Ok(()) => println!("ok      {name:9} {took:.1?}"),
            Err(error) => println!("FAILED  {name:9} {took:.1?}  {error:#}"),
        }
    }
    if rows.iter().any(|(_, _, result)| result.is_err()) {
        bail!("cargo xtask ci failed");
    }
    Ok(())
}

fn fmt() -> Result<()> {
    cargo(&["fmt", "--all", "--check"], &[])
}

fn clippy() -> Result<()> {
    // Warnings are errors here and only here: a new compiler must not break an old tag.
    let args = ["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"];
    cargo(&args, &[])
}

fn docs() -> Result<()> {
    cargo(&["doc", "--locked", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

fn deny() -> Result<()> {
    let program = CARGO_DENY.ensure()?;
    // Told, not decided upon: one that appears overnight must not stop an unrelated change, and
    // the database has to be fetched, which not every machine may.
    if let Err(error) = call(Command::new(&program).args(["check", "advisories"])) {
        println!("deny: look at the advisories above ({error:#})");
    }
    call(Command::new(program).args(["check", "bans", "licenses", "sources"]))
}

fn xtask(chore: &[&str]) -> Result<()> {
    call(Command::new(std::env::current_exe().context("where am I")?).args(chore))
}

fn cargo(args: &[&str], env: &[(&str, &str)]) -> Result<()> {
    call(Command::new(env!("CARGO")).args(args).envs(env.iter().copied()))
}

fn call(command: &mut Command) -> Result<()> {
    command.current_dir(crate::root());
    let status = command.status().with_context(|| format!("start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} ended with {status}");
    }
    Ok(())
}
