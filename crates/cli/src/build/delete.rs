//! `portolan build delete NAME`

use kube::api::DeleteParams;
use portolan_api::ResourceExt as _;
use portolan_api::build::{Build, BuildRun};

use crate::buildrun::of_build;
use crate::cluster::{self, Cluster};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan build delete sample-go --delete-runs")]
pub(crate) struct Args {
    /// Which
    name: String,
    /// Also delete its runs
    #[arg(short = 'r', long)]
    delete_runs: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let name = &args.name;
    let params = DeleteParams::default();
    let builds = cluster.here::<Build>();
    cluster.ask(&format!("delete the Build {name}"), builds.delete(name, &params)).await?;
    format::write(&format!("Build deleted {name:?}\n"))?;
    if args.delete_runs {
        let api = cluster.here::<BuildRun>();
        for run in of_build(&cluster, name).await? {
            let run = run.name_any();
            match cluster
                .ask(&format!("delete the BuildRun {run}"), api.delete(&run, &params))
                .await
            {
                Ok(_) => format::write(&format!("BuildRun deleted {run:?}\n"))?,
                // It may go with its Build by itself.
                Err(failure) if failure.exit == Exit::NotFound => {}
                Err(failure) => return Err(failure),
            }
        }
    }
    Ok(Exit::Ok)
}
