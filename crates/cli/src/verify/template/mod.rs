//! `portolan verify template …`: what Gatekeeper is given, and whether it does what it should.

use crate::cli::Global;
use crate::exit::{Exit, Failure};

mod render;
mod test;

#[derive(Debug, clap::Subcommand)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Print the template, a constraint and the provider for one cluster
    Render(render::Args),
    /// Say what a template makes of an object, without a cluster
    Test(test::Args),
}

pub(crate) fn run(command: &Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Render(args) => render::run(args),
        Command::Test(args) => test::run(args, global),
    }
}
