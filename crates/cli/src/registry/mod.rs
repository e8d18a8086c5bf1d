//! `portolan registry …`: the embedded registry, and credentials for others.

use crate::cli::Global;
use crate::exit::{Exit, Failure};

mod gc;
mod login;
mod logout;
pub(crate) mod serve;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Serve images from a directory
    Serve(serve::Args),
    /// Remove what no image of a directory needs any more
    Gc(gc::Args),
    /// Check and keep a login for a registry
    Login(login::Args),
    /// Forget a login
    Logout(logout::Args),
}

pub(crate) async fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Serve(args) => serve::run(args).await,
        Command::Gc(args) => gc::run(args).await,
        Command::Login(args) => login::run(args, global).await,
        Command::Logout(args) => logout::run(&args).await,
    }
}
