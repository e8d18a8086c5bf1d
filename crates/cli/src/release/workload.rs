//! `portolan release workload NAME --platform P | --host-facts F`

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use portolan_agent::spec::{ImageSpec, WorkloadSpec};
use portolan_api::release::Release;
use portolan_core::Platform;
use portolan_core::platform::HostPlatform;
use portolan_release::choose::{ChooseError, Chosen, choose};
use serde_json::json;

use super::{exit, find};
use crate::cluster::Flags;
use crate::compat::hosts;
use crate::exit::{Exit, Failure};
use crate::format;
use crate::image::wanted;

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan release workload app-1 --platform linux/arm64 | portolan agent run -f - --wait\n  \
    portolan host facts -o json > host.json\n  \
    portolan release workload -f release.yaml --host-facts host.json -o yaml\n\n\
    Exit codes: 0 printed, 1 refused or nothing of it runs there, 2 bad input, 3 not known yet, 4 not found, 5 transport, \
    6 no policy."
)]
pub(crate) struct Args {
    /// Which
    #[arg(value_name = "NAME", required_unless_present = "file")]
    name: Option<String>,
    /// One that was recorded in a file instead of a cluster; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// For a host of this platform
    #[arg(
        long,
        value_name = "PLATFORM",
        required_unless_present = "host_facts",
        conflicts_with = "host_facts"
    )]
    platform: Option<Platform>,
    /// For the host whose facts were recorded with `host facts -o json`
    #[arg(long, value_name = "FILE")]
    host_facts: Option<PathBuf>,
    #[command(flatten)]
    cluster: Flags,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Output::Json)]
    format: Output,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Output {
    /// As agents take it
    Json,
    /// For people, and agents take it too
    Yaml,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let host = host(&args)?;
    let release = find(args.name.as_deref(), args.file.as_deref(), &args.cluster).await?;
    let chosen = choose(&release, &host).map_err(|error| {
        let exit = match &error {
            ChooseError::NoStatus { .. } | ChooseError::Stale { .. } => Exit::CannotTell,
            ChooseError::NotReady { .. } => exit(&release),
            ChooseError::NoMatch { .. } => Exit::No,
            ChooseError::Incomplete { .. }
            | ChooseError::Digest { .. }
            | ChooseError::Platform { .. } => Exit::Usage,
        };
        Failure::new(exit, error)
    })?;
    let spec = workload(&chosen, release.metadata.name.as_deref())?;
    // What an agent would refuse is told here.
    spec.check().map_err(|error| Failure::new(Exit::No, error))?;
    if let Some(note) =
        args.host_facts.as_deref().and_then(|facts| unasked(&release, &chosen, facts))
    {
        format::tell(&note);
    }
    match args.format {
        Output::Json => format::write(&format::json(&spec)?)?,
        Output::Yaml => format::write(&format::yaml(&spec)?)?,
    }
    Ok(Exit::Ok)
}

fn host(args: &Args) -> Result<HostPlatform, Failure> {
    match (&args.platform, &args.host_facts) {
        (Some(platform), _) => {
            wanted::warn(platform);
            Ok(HostPlatform::named(platform))
        }
        (None, Some(file)) => hosts::recorded(file)?.platform(),
        (None, None) => {
            Err(Failure::usage(anyhow::anyhow!("say for which host: --platform or --host-facts")))
        }
    }
}

/// What facts were not held against: the record says which artifact speaks of the image, and not what is in it. An agent that
/// asks may refuse what is printed here, where another image of the same Release would have run.
fn unasked(release: &Release, chosen: &Chosen, facts: &Path) -> Option<String> {
    let own = chosen.resolved_digest.to_string();
    let image = release.status.as_ref()?.resolved.iter().find(|image| image.digest == own)?;
    let artifact = image.compatibility.as_ref()?.digest.as_ref()?;
    let Chosen { repository, platform, .. } = chosen;
    Some(format!(
        "warning: the image for {platform} says what it needs of its host, and this command does not ask whether \
         {facts} meets it: portolan compat check {repository}@{own} --artifact {artifact} --facts {facts}; \
         where it does not, agents that check refuse it: name another image's platform with --platform",
        facts = facts.display()
    ))
}

/// The rest is as agents have it where nothing is said.
fn workload(chosen: &Chosen, release: Option<&str>) -> Result<WorkloadSpec, Failure> {
    let image = ImageSpec::from(chosen);
    let spec = serde_json::from_value(json!({ "image": image, "release": release }));
    spec.context("make the WorkloadSpec").map_err(Failure::usage)
}
