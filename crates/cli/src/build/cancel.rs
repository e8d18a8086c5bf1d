//! `portolan build cancel NAME`

use portolan_api::ResourceExt as _;
use portolan_build::request::progress::{self, Outcome};

use crate::buildrun::{cancel, of_build};
use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan build cancel sample-go")]
pub(crate) struct Args {
    /// The Build whose runs are to end, all that have not yet
    name: String,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let runs = of_build(&cluster, &args.name).await?;
    let going = runs.iter().filter(|run| progress::outcome(run) == Outcome::Going);
    let names: Vec<String> = going.map(|run| run.name_any()).collect();
    if names.is_empty() {
        let error = anyhow::anyhow!("no run of the Build {} is at work", args.name);
        return Err(Failure::new(Exit::No, error));
    }
    for name in &names {
        cancel::cancel(&cluster, name).await?;
    }
    Ok(Exit::Ok)
}
