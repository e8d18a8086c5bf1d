//! `portolan image resolve REF`

use portolan_core::Reference;
use portolan_registry::images::{self, ResolveError, Resolved, resolve_platform};
use serde::Serialize;

use super::wanted::Wanted;
use crate::cli::Global;
use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan image resolve 127.0.0.1:5000/app:1 --platform linux/arm64\n  \
    docker run 127.0.0.1:5000/app@$(portolan image resolve 127.0.0.1:5000/app:1)"
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    wanted: Wanted,
    /// How to print it: `table` is the digest alone
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Answer<'a> {
    reference: String,
    index_digest: String,
    #[serde(flatten)]
    selection: &'a portolan_core::select::Selection,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let host = args.wanted.host()?;
    let place = super::open(&args.reference, &context::client(global)?)?;
    let target = images::target(&args.reference);
    let resolved = resolve_platform(&place, target.as_ref(), &host).await.map_err(failure)?;
    let Resolved { top, selection } = &resolved;
    let answer = Answer {
        reference: args.reference.to_string(),
        index_digest: top.digest.to_string(),
        selection,
    };
    args.format.print(&answer, |answer| format!("{}\n", answer.selection.chosen.digest))?;
    Ok(Exit::Ok)
}

/// A refusal is the answer "no", the rest is trouble.
pub(crate) fn failure(error: ResolveError) -> Failure {
    match error.class() {
        Some(class) => classed(class, error),
        None => Failure::new(Exit::No, error),
    }
}
