//! `portolan build …`: one Build, every platform, one index.

use crate::exit::{Exit, Failure};

mod plan;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Print what a cluster would run for a BuildRun, or why it would refuse it
    Plan(plan::Args),
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Plan(args) => plan::run(&args),
    }
}
