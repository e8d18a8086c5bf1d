//! `portolan node install --host-root DIR --name NAME --location URL`

use std::path::PathBuf;

use portolan_shim::node::install::{Source, install};
use portolan_shim::node::request::{Options, Wanted};
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
    match asked(&args) {
        Ok((wanted, source)) => {
            let node = args.place.node(Some(&args.restarting));
            let outcome = install(&node, &wanted, &source, &Quiet).await;
            args.telling.finish(outcome)
        }
        Err(error) => args.telling.refuse(Operation::Install, error),
    }
}

fn asked(args: &Args) -> Result<(Wanted, Source), NodeError> {
    let json = std::env::var("RUNTIME_OPTIONS").unwrap_or_default();
    let mut options = Options::from_json(&json)?;
    for option in &args.option {
        options.add(option)?;
    }
    let wanted = args.naming.wanted(args.handler.as_deref(), options)?;
    let source = match (&args.assets, &args.fetching.location) {
        (None, Some(location)) => {
            Source::Location(Box::new(args.fetching.location(location)?), args.fetching.transport())
        }
        (assets, _) => Source::Assets(assets.clone().unwrap_or_default()),
    };
    Ok((wanted, source))
}
