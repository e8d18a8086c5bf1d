//! `portolan completions SHELL`

use clap::CommandFactory as _;

use crate::cli::Cli;
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan completions bash > ~/.local/share/bash-completion/completions/portolan"
)]
pub(crate) struct Args {
    /// Which shell
    #[arg(value_enum)]
    shell: clap_complete::Shell,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "portolan", &mut script);
    format::write(&String::from_utf8_lossy(&script))?;
    Ok(Exit::Ok)
}
