//! `portolan image resolve REF`

use portolan_core::Reference;
use portolan_registry::images::{self, ResolveError, Resolved, resolve_platform};
use serde::Serialize;

use super::compatible::{self, PassedOver};
use super::wanted::Wanted;
use crate::cli::Global;
use crate::compat::external::PluginArgs;
use crate::compat::hosts::Machine;
use crate::compat::images::{ArtifactArgs, Looked};
use crate::context::{self, classed};
use crate::exit::{Exit, Failure};
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan image resolve 127.0.0.1:5000/app:1 --platform linux/arm64\n  \
    docker run 127.0.0.1:5000/app@$(portolan image resolve 127.0.0.1:5000/app:1)\n  \
    portolan image resolve 127.0.0.1:5000/app:1 --compatible     the best whose needs this host meets"
)]
pub(crate) struct Args {
    /// registry/repository[:tag][@digest] or oci:DIR[:tag]
    #[arg(value_name = "REF")]
    reference: Reference,
    #[command(flatten)]
    wanted: Wanted,
    /// Pass over what the host does not meet the needs of (see `compat attach`)
    #[arg(long)]
    compatible: bool,
    #[command(flatten)]
    plugins: PluginArgs,
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
    #[serde(skip_serializing_if = "Option::is_none")]
    passed_over: Option<Vec<PassedOver>>,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let host = args.wanted.host()?;
    let client = context::client(global)?;
    let (top, selection, passed_over) = if args.compatible {
        let mut looked = Looked::up(&args.reference, &ArtifactArgs::default(), &client).await?;
        let machine = Machine::of(args.wanted.host.as_deref());
        let (selection, passed_over) =
            compatible::choose(&mut looked, &host, &machine, &args.plugins, global).await?;
        (looked.top(), selection, Some(passed_over))
    } else {
        let place = super::open(&args.reference, &client)?;
        let target = images::target(&args.reference);
        let resolved = resolve_platform(&place, target.as_ref(), &host).await.map_err(failure)?;
        let Resolved { top, selection } = resolved;
        (top.digest, selection, None)
    };
    let answer = Answer {
        reference: args.reference.to_string(),
        index_digest: top.to_string(),
        selection: &selection,
        passed_over,
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
