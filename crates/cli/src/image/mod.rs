//! `portolan image …`: look at and move images.

use portolan_core::Reference;
use portolan_registry::client::Client;
use portolan_registry::images::{ImageError, Place};

use crate::cli::Global;
use crate::context::classed;
use crate::exit::{Exit, Failure};

pub(crate) mod compatible;
mod copy;
mod index;
mod inspect;
mod ls;
pub(crate) mod resolve;
pub(crate) mod wanted;

pub(crate) use index::key_value;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Show what a reference is: platforms, digests, sizes, and what this host would run
    Inspect(inspect::Args),
    /// Print the digest of the one manifest a platform runs
    Resolve(resolve::Args),
    /// Copy an image with everything in it
    Copy(copy::Args),
    /// Make indexes
    #[command(subcommand)]
    Index(index::Command),
    /// List the tags of a repository or layout
    Ls(ls::Args),
}

impl Command {
    /// Whether it only asks a few questions.
    pub(crate) fn is_brief(&self) -> bool {
        matches!(self, Self::Inspect(_) | Self::Resolve(_) | Self::Ls(_))
    }
}

pub(crate) async fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Inspect(args) => inspect::run(args, global).await,
        Command::Resolve(args) => resolve::run(args, global).await,
        Command::Copy(args) => copy::run(args, global).await,
        Command::Index(index::Command::Create(args)) => index::create(args, global).await,
        Command::Ls(args) => ls::run(args, global).await,
    }
}

pub(crate) fn open(reference: &Reference, client: &Client) -> Result<Place, Failure> {
    Place::open(reference, client).map_err(failure)
}

fn create(reference: &Reference, client: &Client) -> Result<Place, Failure> {
    Place::create(reference, client).map_err(failure)
}

pub(crate) fn failure(error: ImageError) -> Failure {
    classed(error.class(), error)
}
