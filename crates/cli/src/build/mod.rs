//! `portolan build …`: one Build, every platform, one index.

use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};

mod cancel;
mod create;
mod delete;
pub(crate) mod files;
mod list;
pub(crate) mod local;
mod logs;
mod origin;
mod plan;
mod run;
mod told;
mod upload;

pub(crate) use plan::settings as plan_settings;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
#[allow(clippy::large_enum_variant, reason = "one per run")]
pub(crate) enum Command {
    /// Make a Build in a cluster
    Create(create::Args),
    /// Run a Build in a cluster, or build on this machine
    Run(run::Args),
    /// Print what a cluster would run for a BuildRun, or why it would refuse it
    Plan(plan::Args),
    /// Run a Build with the source of this machine
    Upload(upload::Args),
    /// List Builds
    List(list::Args),
    /// Print what the newest run of a Build has written
    Logs(logs::Args),
    /// End the runs of a Build that are at work
    Cancel(cancel::Args),
    /// Delete a Build
    Delete(delete::Args),
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Create(args) => context::wait(create::run(args)),
        Command::Run(args) => tidied(context::work(run::run(args, global))),
        Command::Plan(args) => plan::run(&args),
        Command::Upload(args) => tidied(context::work(upload::run(args, global))),
        Command::List(args) => context::wait(list::run(args)),
        Command::Logs(args) => context::wait(logs::run(args, global)),
        Command::Cancel(args) => context::wait(cancel::run(args)),
        Command::Delete(args) => context::wait(delete::run(args)),
    }
}

/// Given up, by somebody or because its time was over: what was still being written goes.
fn tidied(ended: Result<Exit, Failure>) -> Result<Exit, Failure> {
    if let Ok(Exit::Interrupted) | Err(_) = ended {
        local::tidy_up();
    }
    ended
}
