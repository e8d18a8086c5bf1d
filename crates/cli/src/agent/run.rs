//! `portolan agent run -f FILE`

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use portolan_agent::api::{InstanceStatus, Phase};
use portolan_agent::client::Client;
use portolan_agent::id::InstanceId;
use portolan_agent::spec::WorkloadSpec;
use portolan_core::yaml::{self, MAX_FLOW_DEPTH};
use portolan_registry::durable;

use super::{Agent, failure, status};
use crate::exit::{Exit, Failure};
use crate::format::{Format, safe, tell};

/// A WorkloadSpec is far smaller; the agent takes no more.
const MAX_FILE: u64 = 1024 * 1024;
/// How often `--wait` looks.
const LOOK: Duration = Duration::from_millis(200);

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan agent run -f workload.json --wait\n  portolan release workload app --platform linux/arm64 | portolan agent run -f - --id web-1\n\nThe file is a WorkloadSpec; docs/schemas/workload-spec.schema.json describes it."
)]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// The WorkloadSpec as JSON, or YAML where the name ends in .yaml; - reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// The instance's name; made of the repository's when not given
    #[arg(long)]
    id: Option<InstanceId>,
    /// Wait until it runs, or failed
    #[arg(long)]
    wait: bool,
    /// With --wait: for at most this many seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 600, requires = "wait")]
    timeout: u64,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let spec = read(&args.file)?;
    let id = args.id.map_or_else(|| name(&spec), Ok)?;
    let client = args.agent.client();
    let mut now = client.put(&id, &spec).await.map_err(failure)?;
    if args.wait {
        now = wait(&client, now, Duration::from_secs(args.timeout), settled).await?;
    }
    args.format.print(&now, status::instance)?;
    Ok(outcome(&now))
}

/// It runs, or has run to its end, or never will.
fn settled(now: &InstanceStatus) -> bool {
    matches!(now.phase, Phase::Running | Phase::Stopped | Phase::Failed)
}

/// Looks until `done`, and says each change of phase.
pub(super) async fn wait(
    client: &Client,
    mut now: InstanceStatus,
    limit: Duration,
    done: fn(&InstanceStatus) -> bool,
) -> Result<InstanceStatus, Failure> {
    // Held against what went by: somebody may say a limit that no clock reaches.
    let began = tokio::time::Instant::now();
    let mut phase = None;
    loop {
        if phase.replace(now.phase) != Some(now.phase) {
            tell(&format!("{}: {}", now.id, now.phase));
        }
        if done(&now) {
            return Ok(now);
        }
        if began.elapsed() >= limit {
            let error = anyhow::anyhow!(
                "{} is still {} after {} s; look again with `portolan agent status {}`",
                now.id,
                now.phase,
                limit.as_secs(),
                now.id
            );
            return Err(Failure::new(Exit::CannotTell, error));
        }
        tokio::time::sleep(LOOK).await;
        now = client.get(&now.id).await.map_err(failure)?;
    }
}

/// What the exit code says of an instance.
fn outcome(now: &InstanceStatus) -> Exit {
    if now.phase != Phase::Failed {
        return Exit::Ok;
    }
    let reason = now.reason.map_or("failed", |reason| reason.as_str());
    let message = now.message.as_deref().unwrap_or("it failed");
    tell(&format!("error: {} ({reason}): {message}", now.id));
    Exit::No
}

fn read(file: &Path) -> Result<WorkloadSpec, Failure> {
    let shown = file.display();
    let bytes = if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().take(MAX_FILE + 1).read_to_end(&mut bytes);
        read.context("read standard input").map_err(Failure::usage)?;
        bytes
    } else {
        let bytes = durable::read_bounded(file, MAX_FILE).map_err(Failure::usage)?;
        let missing = || Failure::new(Exit::NotFound, anyhow::anyhow!("there is no {shown}"));
        bytes.ok_or_else(missing)?
    };
    let spec: WorkloadSpec = match file.extension().and_then(|e| e.to_str()) {
        Some("yaml" | "yml") => {
            if yaml::is_too_deep(&bytes) {
                let error = anyhow::anyhow!("{shown} nests deeper than {MAX_FLOW_DEPTH} levels");
                return Err(Failure::usage(error));
            }
            serde_yaml_ng::from_slice(&bytes).with_context(|| format!("{shown} is no WorkloadSpec"))
        }
        _ => serde_json::from_slice(&bytes).with_context(|| format!("{shown} is no WorkloadSpec")),
    }
    .map_err(Failure::usage)?;
    // The agent checks again; here the mistake can be told without one.
    spec.check().map_err(|error| {
        let exit = if super::is_answer(error.reason().as_str()) { Exit::No } else { Exit::Usage };
        Failure::new(exit, error)
    })?;
    Ok(spec)
}

/// The last part of the repository and a few random digits.
fn name(spec: &WorkloadSpec) -> Result<InstanceId, Failure> {
    let random = durable::random_hex().context("make a name").map_err(Failure::usage)?;
    let last = spec.image.repository.rsplit('/').next().unwrap_or_default();
    let base: String = last.chars().take(50).collect();
    let name = format!("{base}-{}", &random[..8.min(random.len())]);
    let parsed = name.parse().or_else(|_| format!("instance-{random}").parse::<InstanceId>());
    parsed
        .with_context(|| format!("no name can be made of {}; give one with --id", safe(&base)))
        .map_err(Failure::usage)
}
