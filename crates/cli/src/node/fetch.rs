//! `portolan node fetch --assets DIR`

use std::path::PathBuf;

use portolan_shim::node::install::{Outcome, fetch_stage, leave_refusal};
use portolan_shim::node::request::Options;
use portolan_shim::report::{MAX_PARTS, Operation};

use super::Telling;
use super::source::{Fetching, Naming};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  SHIM_NAME=spin-v2 SHIM_LOCATION=https://example.com/spin.tar.gz portolan node fetch --assets /assets\n\n\
    The stage that needs no privilege: `portolan node install --assets DIR` takes what it leaves."
)]
pub(crate) struct Args {
    /// Where the program is left
    #[arg(long, value_name = "DIR", default_value = "/assets")]
    assets: PathBuf,
    /// Where nothing can be fetched, leave word of it in the place of the program and end well: who installs tells it
    #[arg(long)]
    leave_refusal: bool,
    #[command(flatten)]
    naming: Naming,
    #[command(flatten)]
    fetching: Fetching,
    #[command(flatten)]
    telling: Telling,
}

pub(super) async fn run(args: Args) -> Result<Exit, Failure> {
    let Some(location) = args.fetching.location.as_deref() else {
        let missing = anyhow::anyhow!("nothing to fetch: give --location, or SHIM_LOCATION");
        return Err(Failure::usage(missing));
    };
    let asked = args.naming.wanted(None, Options::default());
    let digest = args.fetching.sha256.as_deref();
    let asked = asked.and_then(|wanted| Ok((wanted, args.fetching.location(location, digest)?)));
    let outcome = match asked {
        Ok((wanted, location)) => {
            let transport = args.fetching.transport();
            fetch_stage(&wanted, &location, &transport, &args.assets).await
        }
        Err(error) => Outcome::refused(Operation::Fetch, error),
    };
    if !args.leave_refusal {
        return args.telling.finish(outcome, 1);
    }
    let left = outcome.error.is_some() && leave_refusal(&args.assets, &outcome.report).is_ok();
    // Of the others of its Job it has not heard, and they may be as many as there can be. Where no word could be left, this is
    // all that tells of it, and it fails them all: it says whose trouble it is.
    match args.telling.finish(outcome.of_one(&args.naming.name), MAX_PARTS) {
        Err(failure) if left => {
            format::tell(&format!("left to `node install`: {:#}", failure.error));
            Ok(Exit::Ok)
        }
        told => told,
    }
}
