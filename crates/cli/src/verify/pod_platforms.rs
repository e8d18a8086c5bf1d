//! `portolan verify pod-platforms -f pod.yaml`

use std::path::{Path, PathBuf};

use portolan_core::platform::PartialPlatform;
use portolan_verify::pod::{self, Default, MAX_POD, PodSpec, Settings, nodes_from_yaml};
use portolan_verify::policy::PartialMeaning;
use portolan_verify::subjects::Wanted;
use serde::Serialize;

use super::{read, this_host};
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
    /// What half a platform means
    #[arg(long, value_enum, default_value_t = Partial::Wildcard)]
    partial: Partial,
    /// Another label that names the operating system (repeatable)
    #[arg(long = "os-label", value_name = "LABEL")]
    os_labels: Vec<String>,
    /// Another label that names the architecture (repeatable)
    #[arg(long = "arch-label", value_name = "LABEL")]
    arch_labels: Vec<String>,
    /// What a value of those labels means, as graviton=arm64 (repeatable)
    #[arg(long = "value", value_name = "VALUE=NAME")]
    values: Vec<String>,
    /// A label's value that tells a platform, as example.com/pool=arm-pool=linux/arm64 (repeatable)
    #[arg(long = "pool", value_name = "LABEL=VALUE=PLATFORM")]
    pools: Vec<String>,
    /// How to print them
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Partial {
    /// Every platform with that half
    Wildcard,
    /// The other half is that of this machine
    Host,
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
        list => Default::List(listed(list)?),
    };
    let mut settings = Settings::new(default, this_host()?);
    settings.partial = match args.partial {
        Partial::Wildcard => PartialMeaning::Wildcard,
        Partial::Host => PartialMeaning::Host,
    };
    if let Some(file) = &args.nodes {
        settings.nodes =
            nodes_from_yaml(&read(file, MAX_POD as u64)?).map_err(|error| in_file(file, error))?;
    }
    settings.os_labels.extend(args.os_labels.iter().cloned());
    settings.arch_labels.extend(args.arch_labels.iter().cloned());
    for text in &args.values {
        let wrong = || Failure::usage(anyhow::anyhow!("{text:?} is not VALUE=NAME"));
        let (value, name) = text.split_once('=').ok_or_else(wrong)?;
        settings.values.insert(value.to_owned(), name.to_owned());
    }
    for text in &args.pools {
        let wrong = || Failure::usage(anyhow::anyhow!("{text:?} is not LABEL=VALUE=PLATFORM"));
        let (label, rest) = text.split_once('=').ok_or_else(wrong)?;
        let (value, platform) = rest.split_once('=').ok_or_else(wrong)?;
        let platform = platform.parse().map_err(Failure::usage)?;
        let told = settings.labels.entry(label.to_owned()).or_default();
        told.insert(value.to_owned(), platform);
    }
    Ok(settings)
}

fn listed(text: &str) -> Result<Wanted, Failure> {
    let platforms: Result<Vec<PartialPlatform>, _> = text.split(',').map(str::parse).collect();
    let platforms = platforms.map_err(|error| {
        let what = "--default is host, nodes, all, or platforms with commas between";
        Failure::usage(anyhow::Error::new(error).context(what))
    })?;
    Ok(Wanted::of(platforms).unwrap_or_else(Wanted::all))
}

fn in_file(file: &Path, error: impl Into<anyhow::Error>) -> Failure {
    Failure::usage(error.into().context(file.display().to_string()))
}
