//! `portolan buildrun delete NAME`

use kube::api::DeleteParams;
use portolan_api::build::BuildRun;

use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan buildrun delete sample-go-x7k2p")]
pub(crate) struct Args {
    /// Which run
    name: String,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let (name, runs) = (&args.name, cluster.here::<BuildRun>());
    let params = DeleteParams::default();
    let deleted = runs.delete(name, &params);
    cluster.ask(&format!("delete the BuildRun {name}"), deleted).await?;
    format::write(&format!("BuildRun deleted {name:?}\n"))?;
    Ok(Exit::Ok)
}
