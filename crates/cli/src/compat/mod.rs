//! `portolan compat …`: does this host fit this image?

use std::path::Path;

use portolan_compat::Report;
use portolan_compat::artifact::MAX_SPEC_BYTES;
use portolan_compat::requirements::Question;
use portolan_registry::durable;
use serde::Serialize;

use self::external::{PluginArgs, Plugins};
use self::hosts::Machine;
use self::images::Needs;
use self::matrix::Matrix;
use crate::cli::Global;
use crate::exit::{Exit, Failure};
use crate::{context, format};

mod affinity;
pub(crate) mod attach;
mod check;
pub(crate) mod external;
pub(crate) mod hosts;
pub(crate) mod images;
mod lint;
mod list;
mod matrix;
mod remove;
mod show;
mod subjects;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Say whether hosts meet what images need
    Check(check::Args),
    /// Say what is wrong with a compatibility spec, and where
    Lint(lint::Args),
    /// Show what a compatibility spec asks for, as a tree or a picture
    Show(show::Args),
    /// Attach what an image needs to it
    Attach(attach::Args),
    /// List the artifacts that say what an image needs
    List(list::Args),
    /// Take artifacts away
    Remove(remove::Args),
    /// Print the node affinity that an image's needs mean for a cluster
    Affinity(affinity::Args),
}

pub(crate) fn run(command: Command, global: &Global) -> Result<Exit, Failure> {
    match command {
        Command::Check(args) => check::run(&args, global),
        Command::Lint(args) => lint::run(&args),
        Command::Show(args) => show::run(&args, global),
        Command::Attach(args) => context::wait(attach::run(args, global)),
        Command::List(args) => context::wait(list::run(args, global)),
        Command::Remove(args) => context::wait(remove::run(args, global)),
        Command::Affinity(args) => context::wait(affinity::run(args, global)),
    }
}

/// How to print a report.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Output {
    /// For people
    Table,
    /// For programs
    Json,
    /// For Graphviz
    Dot,
}

impl Output {
    fn print(self, report: &Report) -> Result<(), Failure> {
        match self {
            Self::Table => format::write(&report.table()),
            Self::Json => json(report),
            Self::Dot => format::write(&report.dot()),
        }
    }

    fn print_matrix(self, matrix: &Matrix) -> Result<(), Failure> {
        match self {
            Self::Table => format::write(&matrix.table()),
            Self::Json => json(matrix),
            Self::Dot => {
                let error =
                    anyhow::anyhow!("-o dot draws one host and one image; name one of each");
                Err(Failure::usage(error))
            }
        }
    }
}

fn json(data: &impl Serialize) -> Result<(), Failure> {
    format::write(&format::json(data)?)
}

/// Asks what an image needs of a machine, with nothing said about how.
pub(crate) async fn judge(
    needs: &Needs,
    machine: &Machine,
    plugins: &PluginArgs,
    global: &Global,
) -> Result<Report, Failure> {
    let question = Question::default();
    let (requirements, origin) = (&needs.requirements, needs.origin());
    let mut plugins = Plugins::of(requirements, &question, &origin, plugins, global).await?;
    check::ask(requirements, machine, &question, &mut plugins)
}

/// A spec or rules, which are no longer than what an artifact may hold.
fn read_spec(path: &Path) -> Result<Vec<u8>, Failure> {
    read_file(path, MAX_SPEC_BYTES)
}

/// A file as a whole, up to `limit`.
fn read_file(path: &Path, limit: u64) -> Result<Vec<u8>, Failure> {
    match durable::read_bounded(path, limit) {
        Ok(Some(bytes)) => Ok(bytes),
        Ok(None) => {
            let error = anyhow::anyhow!("there is no {}", path.display());
            Err(Failure::new(Exit::NotFound, error))
        }
        Err(error) => Err(Failure::usage(error)),
    }
}
