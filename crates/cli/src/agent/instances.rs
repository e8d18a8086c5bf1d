//! `portolan agent instances`

use super::{Agent, failure, short, status::TIME};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan agent instances\n  portolan agent instances -o json | jq '.[] | select(.phase == \"failed\")'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let all = args.agent.client().instances().await.map_err(failure)?;
    args.format.print(&all, |all| {
        let rows = all.iter().map(|one| {
            let started =
                one.started_at.map_or_else(|| "-".to_owned(), |t| t.strftime(TIME).to_string());
            vec![
                one.id.to_string(),
                one.phase.to_string(),
                short(one.resolved_digest.as_deref()),
                started,
                one.release.as_deref().map_or_else(|| "-".to_owned(), safe),
                one.reason.map_or("-", |reason| reason.as_str()).to_owned(),
            ]
        });
        let header = ["INSTANCE", "PHASE", "DIGEST", "STARTED", "RELEASE", "REASON"];
        format::table(&header, rows.collect())
    })?;
    Ok(Exit::Ok)
}
