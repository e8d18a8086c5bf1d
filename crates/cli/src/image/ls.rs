//! `portolan image ls REPOSITORY`

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use portolan_core::{Digest, Reference, Target, media_type};
use serde::Serialize;

use super::failure;
use crate::cli::Global;
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format, safe};

/// How many tags are looked up at a time.
const AT_ONCE: usize = 8;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan image ls 127.0.0.1:5000/team/app\n  portolan image ls oci:./layout -o json"
)]
pub(crate) struct Args {
    /// registry/repository or oci:DIR
    #[arg(value_name = "REPOSITORY")]
    reference: Reference,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Row {
    tag: String,
    digest: Digest,
    media_type: String,
    size: u64,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    if args.reference.tag().is_some() || args.reference.digest().is_some() {
        let error = anyhow::anyhow!(
            "{} names one image; leave the tag and the digest out to list all",
            args.reference
        );
        return Err(Failure::usage(error));
    }
    let place = super::open(&args.reference, &context::client(global)?)?;
    let tags = place.tags().await.map_err(failure)?;
    let rows: Vec<Row> = stream::iter(tags)
        .map(|tag| {
            let place = &place;
            async move {
                let found = place.resolve(Some(&Target::Tag(tag.clone()))).await?;
                let tag = tag.to_string();
                Ok(Row {
                    tag,
                    digest: found.digest,
                    media_type: found.media_type,
                    size: found.size,
                })
            }
        })
        .buffered(AT_ONCE)
        .try_collect()
        .await
        .map_err(failure)?;
    args.format.print(&rows, |rows| {
        let rows = rows
            .iter()
            .map(|row| vec![row.tag.clone(), row.digest.to_string(), kind(&row.media_type)]);
        format::table(&["TAG", "DIGEST", "KIND"], rows.collect())
    })?;
    Ok(Exit::Ok)
}

/// A word for people.
pub(super) fn kind(media_type: &str) -> String {
    if media_type::is_index(media_type) {
        "index".to_owned()
    } else if media_type::is_manifest(media_type) {
        "image".to_owned()
    } else {
        safe(media_type)
    }
}
