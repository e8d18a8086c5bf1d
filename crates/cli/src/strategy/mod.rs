//! `portolan strategy …`: how images are built.

use portolan_api::ResourceExt as _;
use portolan_api::build::{BuildStrategy, ClusterBuildStrategy, StrategySpec};
use portolan_api::k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde::Serialize;

use crate::cluster::tables::{age, now};
use crate::cluster::{self, Cluster, tidy};
use crate::context;
use crate::exit::{Exit, Failure};
use crate::format::{self, Format};

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// List the strategies of the cluster and of the namespace
    List(Args),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  portolan strategy list")]
pub(crate) struct Args {
    /// Leave the header out
    #[arg(long)]
    no_header: bool,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
    #[command(flatten)]
    cluster: cluster::Flags,
}

/// Both kinds, for programs.
#[derive(Serialize)]
#[serde(untagged)]
enum Either {
    Cluster(Box<ClusterBuildStrategy>),
    Namespace(Box<BuildStrategy>),
}

pub(crate) fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::List(args) => context::wait(list(args)),
    }
}

async fn list(args: Args) -> Result<Exit, Failure> {
    let cluster = Cluster::connect(&args.cluster).await?;
    let wide: Vec<ClusterBuildStrategy> = cluster.list(&cluster.wide(), None).await?;
    let here: Vec<BuildStrategy> = cluster.list(&cluster.here(), None).await?;
    let all = wide.into_iter().map(|strategy| Either::Cluster(Box::new(tidy(strategy))));
    let all: Vec<Either> =
        all.chain(here.into_iter().map(|s| Either::Namespace(Box::new(tidy(s))))).collect();
    if all.is_empty() && args.format == Format::Table {
        format::tell("there are no strategies in the cluster and in the namespace");
        return Ok(Exit::Ok);
    }
    let now = now();
    args.format.print(&all, |all| {
        let text = format::table(&HEADER, all.iter().map(|one| either(one, now)).collect());
        match args.no_header {
            false => text,
            true => text.split_once('\n').map(|(_, rows)| rows.to_owned()).unwrap_or_default(),
        }
    })?;
    Ok(Exit::Ok)
}

const HEADER: [&str; 5] = ["NAME", "KIND", "STEPS", "PARAMETERS", "AGE"];

fn either(one: &Either, now: i64) -> Vec<String> {
    match one {
        Either::Cluster(s) => {
            let since = s.metadata.creation_timestamp.as_ref();
            row(&s.name_any(), "ClusterBuildStrategy", &s.spec.0, since, now)
        }
        Either::Namespace(s) => {
            let since = s.metadata.creation_timestamp.as_ref();
            row(&s.name_any(), "BuildStrategy", &s.spec.0, since, now)
        }
    }
}

fn row(name: &str, kind: &str, spec: &StrategySpec, since: Option<&Time>, now: i64) -> Vec<String> {
    let steps: Vec<&str> = spec.steps.iter().map(|step| step.name.as_str()).collect();
    let params: Vec<&str> = spec.parameters.iter().map(|param| param.name.as_str()).collect();
    let cells = [name, kind, &steps.join(","), &params.join(","), &age(since, now)];
    cells.iter().map(|cell| format::safe(cell)).collect()
}
