//! `portolan buildrun cancel NAME`

use kube::api::{Patch, PatchParams};
use portolan_api::build::BuildRun;
use portolan_build::request::progress::{self, Outcome};
use serde_json::json;

use crate::cluster::{self, Cluster, FIELD_MANAGER};
use crate::exit::{Exit, Failure};
use crate::format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan buildrun cancel sample-go-x7k2p")]
pub(crate) struct Args {
    /// Which run
    name: String,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let run: BuildRun = cluster.get(&cluster.here(), &args.name).await?;
    if progress::outcome(&run) != Outcome::Going {
        let error =
            anyhow::anyhow!("cannot cancel BuildRun {}: it has already finished", args.name);
        return Err(Failure::new(Exit::No, error));
    }
    cancel(&cluster, &args.name).await?;
    Ok(Exit::Ok)
}

/// Asks for a run to end.
pub(crate) async fn cancel(cluster: &Cluster, name: &str) -> Result<(), Failure> {
    let patch = Patch::Merge(json!({ "spec": { "state": "BuildRunCanceled" } }));
    let params =
        PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
    let runs = cluster.here::<BuildRun>();
    cluster.ask(&format!("cancel the BuildRun {name}"), runs.patch(name, &params, &patch)).await?;
    format::write(&format!("BuildRun successfully canceled {name:?}\n"))
}
