//! `portolan buildrun logs NAME`

use portolan_api::ResourceExt as _;
use portolan_api::build::BuildRun;

use crate::cli::Global;
use crate::cluster::screen::{Lines, Screen};
use crate::cluster::{self, Cluster, follow, logs};
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan buildrun logs sample-go-x7k2p --follow")]
pub(crate) struct Args {
    /// Which run
    name: String,
    /// Go on until the run has ended
    #[arg(short = 'F', long)]
    follow: bool,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args, global: &Global) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let run: BuildRun = cluster.get(&cluster.here(), &args.name).await?;
    show(&cluster, &run, args.follow, global).await
}

/// Prints what the pods of a run have written, phase by phase, each line behind its platform and
/// step.
pub(crate) async fn show(
    cluster: &Cluster,
    run: &BuildRun,
    follow: bool,
    global: &Global,
) -> Result<Exit, Failure> {
    if follow {
        return follow::follow(cluster, run, global.progress, Format::Table).await;
    }
    let screen = Screen::new(crate::progress::Mode::None, Lines::Stdout);
    if logs::print(cluster, run, &screen).await? == 0 {
        format::tell(&format!(
            "BuildRun {:?} has no pod that has written anything",
            run.name_any()
        ));
    }
    Ok(Exit::Ok)
}
