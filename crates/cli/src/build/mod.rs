//! `portolan build …`: one Build, every platform, one index.

use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};

mod plan;
mod run;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Print what a cluster would run for a BuildRun, or why it would refuse it
    Plan(plan::Args),
    /// Build a directory for many platforms, and publish one index over them
    Run(run::Args),
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Plan(args) => plan::run(&args),
        Command::Run(args) => context::work(run::run(args, global)),
    }
}
