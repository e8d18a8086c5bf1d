//! `portolan agent stop ID`

use std::time::Duration;

use portolan_agent::api::{InstanceStatus, Phase};
use portolan_agent::id::InstanceId;
use portolan_agent::spec::DesiredState;

use super::run::wait;
use super::{Agent, failure, status};
use crate::exit::{Exit, Failure};
use crate::format::{Format, tell};

#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  portolan agent stop web-1\n  portolan agent stop web-1 --delete\n\nA stopped instance keeps its scratch disk and its place; `agent run` with the same --id starts it\nagain. A deleted one is gone with its scratch disk."
)]
pub(crate) struct Args {
    #[command(flatten)]
    agent: Agent,
    /// The instance's name
    id: InstanceId,
    /// Forget it, too, with its scratch disk
    #[arg(long)]
    delete: bool,
    /// Wait until its machine has ended
    #[arg(long)]
    wait: bool,
    /// How to print it
    #[arg(short = 'o', long, value_enum, default_value_t = Format::Table)]
    format: Format,
}

/// A guest has a minute to end by itself.
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(args: Args) -> Result<Exit, Failure> {
    let client = args.agent.client();
    // Deleting what is not there is fine for programs; a person mistyped a name.
    let now = client.get(&args.id).await.map_err(failure)?;
    if args.delete {
        client.delete(&args.id).await.map_err(failure)?;
        tell(&format!("{} is gone", args.id));
        return Ok(Exit::Ok);
    }
    let mut spec = now.spec;
    spec.desired_state = DesiredState::Stopped;
    let mut now = client.put(&args.id, &spec).await.map_err(failure)?;
    if args.wait {
        now = wait(&client, now, PATIENCE, ended).await?;
    }
    args.format.print(&now, status::instance)?;
    Ok(Exit::Ok)
}

fn ended(now: &InstanceStatus) -> bool {
    matches!(now.phase, Phase::Stopped | Phase::Failed)
}
