//! The project's chores, one subcommand each: `cargo xtask --help`.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "chores talk to a person")]

use clap::Parser;

mod e2e;
mod testbed;

#[derive(Debug, Parser)]
#[command(name = "cargo xtask", about = "The project's chores")]
enum Chore {
    /// Install or build the real parts that tests run against, and start or stop a cluster of them
    Testbed(testbed::Args),
    /// Tests on the real cluster, registries and peers
    E2e(e2e::Args),
}

fn main() -> anyhow::Result<()> {
    match Chore::parse() {
        Chore::Testbed(args) => testbed::run(args),
        Chore::E2e(args) => e2e::run(args),
    }
}
