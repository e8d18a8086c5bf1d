//! `portolan buildrun create NAME --buildref-name BUILD`

use portolan_api::build::Build;
use portolan_build::request;

use crate::cluster::wishes::{Becomes, Wished};
use crate::cluster::{self, Cluster, created};
use crate::exit::{Exit, Failure};
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  portolan buildrun create sample-go-1 --buildref-name sample-go --platform linux/arm64\n\n\
    What is said here counts for this run alone, in place of what the Build says."
)]
pub(crate) struct Args {
    /// What it is called
    name: String,
    /// The Build that is run
    #[arg(long, value_name = "BUILD")]
    buildref_name: String,
    #[command(flatten)]
    wished: Wished,
    #[command(flatten)]
    becomes: Becomes,
    /// Who runs it: a service account, or .generate for one of its own
    #[arg(long, value_name = "NAME")]
    sa_name: Option<String>,
    /// Only print what would be made
    #[arg(long)]
    dry_run: bool,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let wishes = args.wished.wishes();
    let cluster = Cluster::connect(&args.cluster).await?;
    let build: Build = cluster.get(&cluster.here(), &args.buildref_name).await?;
    let run = request::run(&build, Some(&args.name), &wishes, args.sa_name.as_deref());
    let mut run = run.map_err(Failure::usage)?;
    args.becomes.say(&mut run);
    created::check(&run)?;
    let (name, of) = (&args.name, &args.buildref_name);
    if args.dry_run {
        created::print(
            &run,
            args.format,
            &format!("Would create BuildRun {name:?} for Build {of:?}"),
        )?;
        return Ok(Exit::Ok);
    }
    let made = cluster.create(&cluster.here(), &run).await?;
    created::print(&made, args.format, &format!("BuildRun created {name:?} for Build {of:?}"))?;
    Ok(Exit::Ok)
}
