//! `portolan node install --host-root DIR --name NAME --location URL`

use std::path::PathBuf;

use portolan_shim::node::install::{Asked, Outcome, Source, install, install_all};
use portolan_shim::node::request::{Also, Options, RequestError, Wanted};
use portolan_shim::node::{NodeError, Quiet};
use portolan_shim::report::Operation;

use super::source::{Fetching, Naming};
use super::{Restarting, Telling, Where};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan node install --host-root / --name spin-v2 \\\n    --location https://example.com/spin-v2.tar.gz --sha256 64HEXDIGITS\n\n\
    Options for the runtime also come from RUNTIME_OPTIONS, a JSON object of TOML values. A run that was\n\
    ended anywhere is finished by the next one. See docs/node-install.md."
)]
pub(crate) struct Args {
    #[command(flatten)]
    naming: Naming,
    /// What pods ask for; NAME where nothing is said
    #[arg(long, value_name = "HANDLER")]
    handler: Option<String>,
    /// Take what `portolan node fetch` left, whatever the location was
    #[arg(long, value_name = "DIR")]
    assets: Option<PathBuf>,
    /// What the runtime is told, as a TOML value: SystemdCgroup=true
    #[arg(long, value_name = "KEY=VALUE")]
    option: Vec<String>,
    /// Another shim, installed with it for one restart: {"name":"slight-v1","location":"https://…"}, and what else the flags say
    #[arg(long, value_name = "JSON")]
    also: Vec<String>,
    #[command(flatten)]
    fetching: Fetching,
    #[command(flatten)]
    place: Where,
    #[command(flatten)]
    restarting: Restarting,
    #[command(flatten)]
    telling: Telling,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    if args.assets.is_none() && args.fetching.location.is_none() {
        let missing = anyhow::anyhow!("nothing to install: give --location or --assets");
        return Err(Failure::usage(missing));
    }
    let node = args.place.node(Some(&args.restarting));
    let outcome = match (asked(&args), others(&args)) {
        (Ok((wanted, source)), Ok(others)) if others.is_empty() => {
            install(&node, &wanted, &source, &Quiet).await
        }
        (Err(error), Ok(others)) if others.is_empty() => {
            Outcome::refused(Operation::Install, error)
        }
        (shim, Ok(others)) => {
            let first = Asked { name: args.naming.name.clone(), shim };
            let all = std::iter::once(first).chain(others).collect();
            install_all(&node, all, &Quiet).await
        }
        // Whose it is that cannot be read, nobody knows.
        (_, Err(error)) => Outcome::refused(Operation::Install, error.into()),
    };
    args.telling.finish(outcome, 1 + args.also.len())
}

fn asked(args: &Args) -> Result<(Wanted, Source), NodeError> {
    let json = std::env::var("RUNTIME_OPTIONS").unwrap_or_default();
    let mut options = Options::from_json(&json)?;
    for option in &args.option {
        options.add(option)?;
    }
    let wanted = args.naming.wanted(args.handler.as_deref(), options)?;
    let digest = args.fetching.sha256.as_deref();
    let from = (args.assets.as_ref(), args.fetching.location.as_deref(), digest);
    let source = source(args, &wanted, from)?;
    Ok((wanted, source))
}

/// The others, each with what is wrong with it: that is no trouble of the rest.
fn others(args: &Args) -> Result<Vec<Asked>, RequestError> {
    let other = |text: &String| {
        let also: Also = text.parse()?;
        let shim = described(args, &also);
        Ok(Asked { name: also.name, shim })
    };
    args.also.iter().map(other).collect()
}

fn described(args: &Args, also: &Also) -> Result<(Wanted, Source), NodeError> {
    let wanted = also.wanted()?;
    let from = (also.assets.as_ref(), also.location.as_deref(), also.sha256.as_deref());
    let source = source(args, &wanted, from)?;
    Ok((wanted, source))
}

fn source(
    args: &Args,
    wanted: &Wanted,
    (assets, location, digest): (Option<&PathBuf>, Option<&str>, Option<&str>),
) -> Result<Source, NodeError> {
    match (assets, location) {
        (Some(assets), _) => Ok(Source::Assets(assets.clone())),
        (None, Some(location)) => {
            let location = args.fetching.location(location, digest)?;
            Ok(Source::Location(Box::new(location), args.fetching.transport()))
        }
        // The working directory is nobody's answer.
        (None, None) => Err(RequestError::NoSource { name: wanted.name.to_string() }.into()),
    }
}
