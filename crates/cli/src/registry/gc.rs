//! `portolan registry gc`

use std::path::PathBuf;
use std::time::Duration;

use portolan_core::Repository;
use portolan_registry::layout::{Collected, GarbageOptions};
use portolan_registry::server::{RepositoryGarbage, collect_garbage};
use serde::Serialize;

use crate::context::classed;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, size};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan registry gc --root ./data --dry-run\n\nA running server may go on serving that directory."
)]
pub(crate) struct Args {
    /// The directory that `registry serve` serves
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// Also images without a tag that no tagged index contains
    #[arg(long)]
    untagged: bool,
    /// Spare what is younger than this many minutes: a push may still be on its way to it
    #[arg(long, value_name = "MINUTES", default_value_t = 24 * 60)]
    grace: u64,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    repository: String,
    removed: Vec<String>,
    bytes: u64,
    live: usize,
    spared: usize,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    if !args.root.is_dir() {
        let error = anyhow::anyhow!("{} is not a directory", args.root.display());
        return Err(Failure::new(Exit::NotFound, error));
    }
    let options = GarbageOptions {
        grace: Duration::from_secs(args.grace.saturating_mul(60)),
        untagged: args.untagged,
        dry_run: args.dry_run,
    };
    let root = args.root;
    let found = tokio::task::spawn_blocking(move || collect_garbage(&root, &options))
        .await
        .map_err(|error| Failure::new(Exit::Transport, error))?
        .map_err(|error| classed(error.class(), error))?;
    let mut exit = Exit::Ok;
    let mut rows = Vec::new();
    for RepositoryGarbage { repository, outcome } in found {
        match outcome {
            Ok(collected) => rows.push(row(&repository, collected)),
            // One that cannot be collected does not hide what was done to the others.
            Err(error) => {
                exit = Exit::from(error.class());
                format::tell(&format!("error: {repository}: {:#}", anyhow::Error::new(error)));
            }
        }
    }
    args.format.print(&rows, |rows| {
        let rows = rows.iter().map(|row| {
            let Row { repository, removed, bytes, live, spared } = row;
            let removed = removed.len().to_string();
            vec![repository.clone(), removed, size(*bytes), live.to_string(), spared.to_string()]
        });
        let gone = if args.dry_run { "WOULD GO" } else { "GONE" };
        format::table(&["REPOSITORY", gone, "BYTES", "LIVE", "TOO YOUNG"], rows.collect())
    })?;
    Ok(exit)
}

fn row(repository: &Repository, collected: Collected) -> Row {
    Row {
        repository: repository.to_string(),
        bytes: collected.bytes(),
        live: collected.live,
        spared: collected.spared,
        removed: collected.removed.into_iter().map(|garbage| garbage.digest.to_string()).collect(),
    }
}
