//! `portolan agent cache …`

use portolan_agent::api::{CacheReport, VerifyOutcome, VerifyReport};

use super::{Agent, failure, short, status::TIME};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe, size};

#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    /// List root disks
    Ls(Ls),
    /// Compare a root disk with its checksum
    Verify(Verify),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan agent cache ls -o yaml")]
pub(crate) struct Ls {
    #[command(flatten)]
    agent: Agent,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan agent cache verify $(portolan agent cache ls -o json | jq -r '.rootdisks[0].key')\n\nA disk that is not what was built is replaced; one that a running instance has stays until that\ninstance stops. Exit code 1 says that a disk was not what was built."
)]
pub(crate) struct Verify {
    #[command(flatten)]
    agent: Agent,
    /// The rootdisk_key, as `agent cache ls -o json` gives it
    key: String,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Ls(args) => {
            let report = args.agent.client().cache().await.map_err(failure)?;
            args.format.print(&report, list)?;
            Ok(Exit::Ok)
        }
        Command::Verify(args) => {
            if !args.key.bytes().all(|b| b.is_ascii_hexdigit()) || args.key.len() != 64 {
                let error =
                    anyhow::anyhow!("{} is no rootdisk_key: it has 64 hex digits", safe(&args.key));
                return Err(Failure::usage(error));
            }
            let report = args.agent.client().verify(&args.key).await.map_err(failure)?;
            args.format.print(&report, verified)?;
            Ok(if report.outcome == VerifyOutcome::Ok { Exit::Ok } else { Exit::No })
        }
    }
}

fn list(report: &CacheReport) -> String {
    let rows = report.rootdisks.iter().map(|disk| {
        vec![
            short(Some(&disk.key)),
            short(Some(&disk.resolved_digest)),
            safe(&disk.format_version),
            size(disk.size_bytes),
            size(disk.allocated_bytes),
            disk.pins.to_string(),
            disk.last_used_at.strftime(TIME).to_string(),
        ]
    });
    let header = ["ROOT DISK", "DIGEST", "FORMAT", "SIZE", "ON DISK", "PINS", "LAST USED"];
    let table = format::table(&header, rows.collect());
    let blobs = report.blobs;
    format!(
        "{table}{} root disks, {} blobs of {}; {} in all, {} of {} free\n",
        report.rootdisks.len(),
        blobs.entries,
        size(blobs.allocated_bytes),
        size(report.allocated_bytes),
        size(report.disk.free_bytes),
        size(report.disk.size_bytes)
    )
}

fn verified(report: &VerifyReport) -> String {
    let words = match report.outcome {
        VerifyOutcome::Ok => "is what was built",
        VerifyOutcome::Rebuilt => "was not what was built, and was built again",
        VerifyOutcome::Removed => "was not what was built, and is gone",
        VerifyOutcome::CorruptInUse => {
            "is not what was built, and an instance has it: stop that one"
        }
    };
    format!("{} {words}\n", safe(&report.key))
}
