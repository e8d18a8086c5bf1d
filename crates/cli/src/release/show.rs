//! `portolan release show [NAME]`

use std::path::PathBuf;

use portolan_api::ResourceExt as _;
use portolan_api::condition::{self, Status};
use portolan_api::release::{READY, RESOLVED, Release, ResolvedImage, Signer, VERIFIED};

use super::{exit, find};
use crate::cluster::{Cluster, Flags, tables, tidy};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe};

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan release show\n  portolan release show app-1\n  \
    portolan release show -f release.yaml -o json\n\n\
    Exit codes of one: 0 ready, 1 refused, 2 bad input, 3 not known yet, 4 not found, 5 transport, 6 no policy.")]
pub(crate) struct Args {
    /// Which; all of the namespace where none is named
    #[arg(value_name = "NAME")]
    name: Option<String>,
    /// One that was recorded in a file instead of a cluster; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    #[command(flatten)]
    cluster: Flags,
    #[command(flatten)]
    listing: tables::Listing,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    if args.name.is_none() && args.file.is_none() {
        let cluster = Cluster::connect(&args.cluster).await?;
        let mut all: Vec<Release> = cluster.list(&cluster.here(), None).await?;
        all.sort_by_key(|one| one.name_any());
        let header = ["NAME", "IMAGE", "VERIFIED", "READY", "REASON"];
        return args.listing.print(all, &header, "Releases", row);
    }
    let release = find(args.name.as_deref(), args.file.as_deref(), &args.cluster).await?;
    let format: Format = args.listing.format;
    format.print(&tidy(release.clone()), table)?;
    Ok(exit(&release))
}

fn row(release: &Release) -> Vec<String> {
    let (_, verified) = holds(release, VERIFIED);
    let (reason, ready) = holds(release, READY);
    vec![release.name_any(), release.spec.image.clone(), verified, ready, reason]
}

/// The reason of a condition, and whether it holds.
fn holds(release: &Release, kind: &str) -> (String, String) {
    let conditions = release.status.as_ref().map(|status| status.conditions.as_slice());
    match condition::find(conditions.unwrap_or_default(), kind) {
        None => (String::new(), "–".to_owned()),
        Some(one) => {
            let holds = match one.status {
                Status::True => "yes",
                Status::False => "no",
                Status::Unknown => "not known",
            };
            (one.reason.clone(), holds.to_owned())
        }
    }
}

/// A Release for people.
pub(super) fn table(release: &Release) -> String {
    let mut lines = vec![vec!["image".to_owned(), safe(&release.spec.image)]];
    let mut line = |what: &str, text: String| lines.push(vec![what.to_owned(), text]);
    let status = release.status.clone().unwrap_or_default();
    if let Some(digest) = &status.digest {
        line("digest", safe(digest));
    }
    for kind in [RESOLVED, VERIFIED, READY] {
        let (reason, holds) = holds(release, kind);
        let message = condition::find(&status.conditions, kind).map(|one| one.message.clone());
        let text = format!("{holds}  {reason}: {}", message.unwrap_or_default());
        line(&kind.to_lowercase(), safe(&text));
    }
    if let Some(policy) = &status.policy {
        line("policy", safe(&policy.name));
    }
    if !status.verified_by.is_empty() {
        line("signed by", signers(&status.verified_by));
    }
    if let Some(candidate) = &status.candidate {
        let digest = candidate.digest.as_deref().unwrap_or("nothing");
        line("the tag is", safe(&format!("{digest}, not followed: {}", candidate.message)));
    }
    for past in &status.history {
        line("before", safe(&past.digest));
    }
    let mut text = String::new();
    for line in &lines {
        text.push_str(&format!("{:<11}{}\n", line[0], line[1]));
    }
    if !status.resolved.is_empty() {
        text.push('\n');
        let header = ["PLATFORM", "DIGEST", "SIZE", "SIGNED BY", "NEEDS"];
        text.push_str(&format::table(&header, status.resolved.iter().map(image).collect()));
    }
    text
}

fn image(image: &ResolvedImage) -> Vec<String> {
    let needs = match &image.compatibility {
        None => "–".to_owned(),
        Some(one) => match (&one.problem, &one.digest) {
            (Some(problem), _) => format!("unusable: {problem}"),
            (None, digest) => digest.clone().unwrap_or_default(),
        },
    };
    let size = format::size(u64::try_from(image.size).unwrap_or_default());
    vec![
        safe(&image.platform),
        safe(&image.digest),
        size,
        signers(&image.verified_by),
        safe(&needs),
    ]
}

fn signers(signers: &[Signer]) -> String {
    match signers {
        [] => "–".to_owned(),
        all => all.iter().map(|one| safe(&one.name)).collect::<Vec<_>>().join(", "),
    }
}
