//! `portolan agent gc`

use portolan_agent::api::{GcReport, GcRequest};

use super::{Agent, failure};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, size};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan agent gc --dry-run\n  portolan agent gc --target-bytes 0\n\nWhat an instance holds is never evicted."
)]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// Evict until the cache takes at most this; the configured target when not given
    #[arg(long, value_name = "BYTES")]
    target_bytes: Option<u64>,
    /// Only say what would go
    #[arg(long)]
    dry_run: bool,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let request = GcRequest { target_bytes: args.target_bytes, dry_run: args.dry_run };
    let report = args.agent.client().gc(&request).await.map_err(failure)?;
    args.format.print(&report, table)?;
    Ok(Exit::Ok)
}

fn table(report: &GcReport) -> String {
    let kinds = [
        ("root disks", report.rootdisks),
        ("blobs", report.blobs),
        ("temporary files", report.temporary),
    ];
    let rows = kinds.into_iter().map(|(kind, gone)| {
        vec![kind.to_owned(), gone.entries.to_string(), size(gone.allocated_bytes)]
    });
    let gone = if report.dry_run { "WOULD GO" } else { "GONE" };
    let table = format::table(&["KIND", gone, "BYTES"], rows.collect());
    let reached = match report.reached {
        true => "",
        false => "; the target was not reached: the rest is in use, or was a short while ago",
    };
    format!("{table}{} remain{reached}\n", size(report.remaining_bytes))
}
