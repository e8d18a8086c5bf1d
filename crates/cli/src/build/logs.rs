//! `portolan build logs NAME`

use crate::buildrun::{logs, newest};
use crate::cli::Global;
use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan build logs sample-go --follow")]
pub(crate) struct Args {
    /// The Build whose newest run is meant
    name: String,
    /// Go on until the run has ended
    #[arg(short = 'F', long)]
    follow: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let run = newest(&cluster, &args.name).await?;
    logs::show(&cluster, &run, args.follow, global).await
}
