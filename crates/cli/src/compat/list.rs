//! `portolan compat list IMAGE`

use portolan_compat::artifact::{self, Choice, Listed};
use portolan_core::{Platform, Reference};
use serde::Serialize;

use super::subjects::{self, failure};
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};
use crate::image::wanted;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan compat list 127.0.0.1:5000/app:1\n  \
    portolan compat list oci:./layout:1 --platform linux/amd64/v3 -o json\n\n\
    The artifact marked with * is the one that `compat check` takes.")]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "IMAGE")]
    reference: Reference,
    /// Only of the image for this platform (repeatable)
    #[arg(long = "platform", value_name = "PLATFORM", value_parser = wanted::platform)]
    platforms: Vec<Platform>,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    platform: String,
    #[serde(flatten)]
    artifact: Listed,
    chosen: bool,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let client = context::client(global)?;
    let (place, spoken) = subjects::of(&args.reference, &args.platforms, &client).await?;
    let mut rows = Vec::new();
    for one in spoken {
        let listed = artifact::list(&place, &one.descriptor.digest).await.map_err(failure)?;
        let Some(Choice { chosen, skipped }) = artifact::choose(listed) else { continue };
        let row = |artifact, chosen| Row { platform: one.name(), artifact, chosen };
        rows.push(row(chosen, true));
        rows.extend(skipped.into_iter().map(|artifact| row(artifact, false)));
    }
    args.format.print(&rows, |rows| {
        let rows = rows.iter().map(|row| {
            let Listed { digest, kind, created, subject } = &row.artifact;
            let created = created.map_or_else(|| "-".to_owned(), |time| time.to_string());
            let mark = if row.chosen { "*" } else { "" };
            vec![
                mark.to_owned(),
                row.platform.clone(),
                digest.to_string(),
                kind_word(*kind).to_owned(),
                created,
                subject.short(),
            ]
        });
        let header = ["", "PLATFORM", "ARTIFACT", "KIND", "CREATED", "SUBJECT"];
        format::table(&header, rows.collect())
    })?;
    Ok(Exit::Ok)
}

pub(super) fn kind_word(kind: artifact::Kind) -> &'static str {
    match kind {
        artifact::Kind::Spec => "spec",
        artifact::Kind::Nfd => "nfd",
    }
}
