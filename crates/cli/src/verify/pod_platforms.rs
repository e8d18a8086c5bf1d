//! `portolan verify pod-platforms -f pod.yaml`

use std::path::PathBuf;

use portolan_core::platform::PartialPlatform;
use portolan_verify::pod::{self, Default, MAX_NODES, MAX_POD, PodSpec, Settings, nodes_from_yaml};
use serde::Serialize;

use super::labels::{LabelArgs, listed};
use super::{in_file, read, this_host};
use crate::exit::{Exit, Failure};
use crate::format::Format;

#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  portolan verify pod-platforms -f pod.yaml\n  \
    kubectl get nodes -o yaml > nodes.yaml\n  \
    portolan verify pod-platforms -f deployment.yaml --default nodes --nodes nodes.yaml -o json\n  \
    portolan verify pod-platforms -f pod.yaml --arch-label example.com/cpu \\\n    \
    --pool example.com/pool=arm-pool=linux/arm64\n\n\
    The answer is every platform that the pod might run on, and perhaps more: what is not \
    understood restricts nothing, and a toleration only adds.")]
pub(crate) struct Args {
    /// A Pod, a workload or a CronJob, in YAML or JSON
    #[arg(short = 'f', long = "file", value_name = "FILE")]
    file: PathBuf,
    /// For a pod that says nothing: host, nodes, all, or platforms with commas between
    #[arg(long, value_name = "DEFAULT", default_value = "host")]
    default: String,
    /// The cluster's nodes, as `kubectl get nodes -o yaml` prints them
    #[arg(long, value_name = "FILE")]
    nodes: Option<PathBuf>,
    #[command(flatten)]
    labels: LabelArgs,
    /// How to print them
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Serialize)]
struct Found {
    platforms: Vec<Row>,
}

/// The members are those of the key contract; one that is not there may be anything.
#[derive(Serialize)]
struct Row {
    platform: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    os: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    arch: Option<String>,
}

pub(crate) fn run(args: &Args) -> Result<Exit, Failure> {
    let pod = PodSpec::from_yaml(&read(&args.file, MAX_POD as u64)?)
        .map_err(|error| in_file(&args.file, error))?;
    let wanted = pod::platforms(&pod, &settings(args)?);
    let row = |one: &PartialPlatform| Row {
        platform: one.to_string(),
        os: one.os().map(str::to_owned),
        arch: one.architecture().map(str::to_owned),
    };
    let found = Found { platforms: wanted.platforms().map(row).collect() };
    args.format.print(&found, |found| {
        found.platforms.iter().map(|row| row.platform.clone() + "\n").collect()
    })?;
    Ok(Exit::Ok)
}

fn settings(args: &Args) -> Result<Settings, Failure> {
    let default = match args.default.as_str() {
        "host" => Default::Host,
        "nodes" if args.nodes.is_none() => {
            let what = "--default nodes needs --nodes FILE: kubectl get nodes -o yaml";
            return Err(Failure::usage(anyhow::anyhow!(what)));
        }
        "nodes" => Default::Nodes,
        "all" => Default::All,
        list => Default::List(listed(list, "host, nodes, all")?),
    };
    let mut settings = Settings::new(default, this_host()?);
    if let Some(file) = &args.nodes {
        settings.nodes = nodes_from_yaml(&read(file, MAX_NODES as u64)?)
            .map_err(|error| in_file(file, error))?;
    }
    args.labels.add_to(&mut settings)?;
    Ok(settings)
}
