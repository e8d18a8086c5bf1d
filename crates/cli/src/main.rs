//! `portolan`: the right bits to the right machine, from build to boot.
//!
//! Only a doorway: parse, call the libraries, print, turn the outcome into an exit code.
#![allow(clippy::print_stderr, reason = "this is where people are talked to")]

use std::process::ExitCode;

use clap::Parser as _;

mod cli;
mod completions;
mod context;
mod exit;
mod format;
mod image;
mod progress;
mod registry;
mod version;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    context::start_logging(cli.global.verbose);
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("error: start the async runtime: {error}");
            return exit::Exit::Transport.into();
        }
    };
    match runtime.block_on(cli.run()) {
        Ok(exit) => exit.into(),
        Err(failure) => {
            eprintln!("error: {:#}", failure.error);
            failure.exit.into()
        }
    }
}
