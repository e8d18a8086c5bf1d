//! `portolan node fetch --assets DIR`

use std::path::PathBuf;

use portolan_shim::node::install::fetch_stage;
use portolan_shim::node::request::Options;
use portolan_shim::report::Operation;

use super::Telling;
use super::source::{Fetching, Naming};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  SHIM_NAME=spin-v2 SHIM_LOCATION=https://example.com/spin.tar.gz portolan node fetch --assets /assets\n\n\
    The stage that needs no privilege: `portolan node install --assets DIR` takes what it leaves."
)]
pub(crate) struct Args {
    /// Where the program is left
    #[arg(long, value_name = "DIR", default_value = "/assets")]
    assets: PathBuf,
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
    let asked = asked.and_then(|wanted| Ok((wanted, args.fetching.location(location)?)));
    match asked {
        Ok((wanted, location)) => {
            let transport = args.fetching.transport();
            let outcome = fetch_stage(&wanted, &location, &transport, &args.assets).await;
            args.telling.finish(outcome)
        }
        Err(error) => args.telling.refuse(Operation::Fetch, error),
    }
}
