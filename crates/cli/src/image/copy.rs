//! `portolan image copy SRC DST`

use std::num::NonZeroUsize;

use portolan_core::{Platform, Reference};
use portolan_registry::copy::{CopyError, CopyOptions, CopyReport, Narrowed, copy};
use portolan_registry::progress::BlobOutcome;
use serde::Serialize;

use super::wanted;
use crate::cli::Global;
use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, size};
use crate::progress;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan image copy 127.0.0.1:5000/app:1 oci:./app:1\n  \
    portolan image copy oci:./app:1 registry.example/team/app:1 --referrers\n  \
    portolan image copy SRC DST --platform linux/arm64    the manifest itself, under its own digest")]
pub(crate) struct Args {
    /// From: registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "SRC")]
    source: Reference,
    /// To: the same forms
    #[arg(value_name = "DST")]
    destination: Reference,
    /// Only this platform (repeatable). One: its manifest alone, keeping its digest. Several: a
    /// new index with just those, which has a digest of its own
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = wanted::platform)]
    platforms: Vec<Platform>,
    /// Also what refers to the image: signatures, attestations, compatibility artifacts
    #[arg(long)]
    referrers: bool,
    /// Blobs in flight at a time
    #[arg(long, value_name = "N", default_value = "6")]
    parallel: NonZeroUsize,
    /// How to print what was done
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// What was done, for programs.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    source: String,
    destination: String,
    source_digest: String,
    digest: String,
    media_type: String,
    whole: bool,
    manifests: usize,
    referrers: usize,
    blobs_copied: usize,
    blobs_present: usize,
    blobs_mounted: usize,
    blobs_linked: usize,
    bytes_copied: u64,
    foreign_layers: Vec<String>,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    args.platforms.iter().for_each(wanted::warn);
    let client = context::client(global)?;
    let options = CopyOptions {
        platforms: args.platforms,
        referrers: args.referrers,
        parallel: args.parallel,
    };
    let listener = progress::listener(global.progress);
    let report = copy(&args.source, &args.destination, &client, &options, listener)
        .await
        .map_err(failure)?;
    for layer in &report.foreign {
        format::tell(&format!(
            "warning: layer {} may not be distributed and was left where it is",
            layer.digest
        ));
    }
    if report.narrowed == Narrowed::NewIndex {
        format::tell(&format!(
            "note: the index was narrowed, so its digest changed from {} and signatures of the old one do not cover it",
            report.source.digest
        ));
    }
    let answer = answer(&args.source, &args.destination, &report);
    args.format.print(&answer, |answer| {
        let Answer { digest, destination, .. } = answer;
        format!("{destination}\n{digest}\n{}\n", counts(answer))
    })?;
    Ok(Exit::Ok)
}

/// `3 blobs copied (1.2 MiB), 2 mounted`: what there was none of is left out.
fn counts(answer: &Answer) -> String {
    let copied = format!("copied ({})", size(answer.bytes_copied));
    let rows = [
        (answer.blobs_copied, copied.as_str()),
        (answer.blobs_present, "present"),
        (answer.blobs_mounted, "mounted"),
        (answer.blobs_linked, "linked"),
    ];
    let words: Vec<_> = rows
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, word)| format!("{count} {word}"))
        .collect();
    if words.is_empty() { "no blobs".to_owned() } else { format!("blobs: {}", words.join(", ")) }
}

fn answer(source: &Reference, destination: &Reference, report: &CopyReport) -> Answer {
    let count = |outcome| report.blobs.get(&outcome).copied().unwrap_or(0);
    Answer {
        source: source.to_string(),
        destination: destination.to_string(),
        source_digest: report.source.digest.to_string(),
        digest: report.copied.digest.to_string(),
        media_type: report.copied.media_type.clone(),
        whole: report.narrowed == Narrowed::Whole,
        manifests: report.manifests,
        referrers: report.referrers,
        blobs_copied: count(BlobOutcome::Copied),
        blobs_present: count(BlobOutcome::Present),
        blobs_mounted: count(BlobOutcome::Mounted),
        blobs_linked: count(BlobOutcome::Linked),
        bytes_copied: report.bytes,
        foreign_layers: report.foreign.iter().map(|layer| layer.digest.to_string()).collect(),
    }
}

pub(super) fn failure(error: CopyError) -> Failure {
    match error.class() {
        Some(class) => classed(class, error),
        None => Failure::new(Exit::No, error),
    }
}
