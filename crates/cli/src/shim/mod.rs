//! `portolan shim …`: runtime binaries for the nodes of a cluster.

use std::path::PathBuf;

use portolan_api::document::Resource;
use portolan_api::shim::Shim;

use crate::build::files;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format;

mod lint;
mod nodes;
mod pin;
pub(crate) mod plan;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Which artifact would each node get, and why?
    Plan(plan::Args),
    /// Look for what cannot work in a Shim, and for what is not safe
    Lint(lint::Args),
    /// Fill in missing digests by downloading each archive once
    Pin(pin::Args),
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Plan(args) => context::wait(plan::run(args)),
        Command::Lint(args) => lint::run(&args),
        Command::Pin(args) => context::work(pin::run(args)),
    }
}

/// The Shims of these files; at least one.
fn read(paths: &[PathBuf]) -> Result<Vec<Shim>, Failure> {
    let mut shims = Vec::new();
    for resource in files::read_all(paths)? {
        match resource {
            Resource::Shim(shim) => shims.push(shim),
            Resource::Other { api_version, kind } => {
                format::tell(&format!("note: {kind} of {api_version} is not looked at"));
            }
            _ => format::tell("note: resources of builds and Releases are not looked at"),
        }
    }
    match shims.is_empty() {
        true => Err(Failure::usage(anyhow::anyhow!("the files have no Shim"))),
        false => Ok(shims),
    }
}
