//! `portolan host …`: what this machine is.

use crate::exit::{Exit, Failure};

mod facts;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Print what is known of a machine, and from which files
    Facts(facts::Args),
}

pub(crate) fn run(command: &Command) -> Result<Exit, Failure> {
    match command {
        Command::Facts(args) => facts::run(args),
    }
}
