//! `portolan agent …`: talk to the `portolan-agent` of this machine.

use std::path::PathBuf;

use portolan_agent::client::{CallError, Client};
use portolan_agent::config::Config;
use portolan_agent::reason::Reason;

use crate::exit::{Exit, Failure};

mod cache;
mod gc;
mod instances;
mod logs;
pub(crate) mod prefetch;
mod run;
mod status;
mod stop;

#[derive(Debug, clap::Subcommand)]
#[command(defer = true)]
pub(crate) enum Command {
    /// Run a workload, or change one that runs
    Run(run::Args),
    /// Stop an instance
    Stop(stop::Args),
    /// Print what an instance wrote to its console
    Logs(logs::Args),
    /// Say how the agent is, or one instance
    Status(status::Args),
    /// List instances
    Instances(instances::Args),
    /// Fetch images and build their root disks before anybody needs them
    Prefetch(prefetch::Args),
    /// Look at the cache of root disks
    #[command(subcommand)]
    Cache(cache::Command),
    /// Evict root disks and blobs that nobody holds
    Gc(gc::Args),
}

// Which agent. This is no doc comment: of flags that several commands share, it would become the
// help of each.
#[derive(Debug, clap::Args)]
pub(crate) struct Agent {
    /// The agent's socket; where the agent puts it when it is not told otherwise
    #[arg(long, value_name = "PATH", env = "PORTOLAN_AGENT_SOCKET")]
    pub(crate) socket: Option<PathBuf>,
}

impl Agent {
    fn client(&self) -> Client {
        Client::new(self.socket.clone().unwrap_or_else(|| Config::default().socket()))
    }
}

pub(crate) async fn run(command: Command) -> Result<Exit, Failure> {
    match command {
        Command::Run(args) => run::run(args).await,
        Command::Stop(args) => stop::run(args).await,
        Command::Logs(args) => logs::run(args).await,
        Command::Status(args) => status::run(args).await,
        Command::Instances(args) => instances::run(args).await,
        Command::Prefetch(args) => prefetch::run(args).await,
        Command::Cache(command) => cache::run(command).await,
        Command::Gc(args) => gc::run(args).await,
    }
}

/// The exit code that a failed call deserves.
pub(crate) fn failure(error: CallError) -> Failure {
    let exit = match &error {
        CallError::Refused { status, body } => match status.as_u16() {
            _ if is_answer(&body.reason) => Exit::No,
            404 => Exit::NotFound,
            400 | 413 | 415 | 422 => Exit::Usage,
            _ => Exit::Transport,
        },
        _ => Exit::Transport,
    };
    Failure::new(exit, error)
}

/// The agent understood, and this image does not run here.
pub(crate) fn is_answer(reason: &str) -> bool {
    [Reason::PlatformMismatch, Reason::VerificationFailed, Reason::HostIncompatible]
        .iter()
        .any(|answer| answer.as_str() == reason)
}

/// The first digits of a digest or a key, for tables.
fn short(text: Option<&str>) -> String {
    let text = text.unwrap_or("-");
    text.strip_prefix("sha256:").unwrap_or(text).chars().take(12).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use portolan_agent::api::ErrorBody;

    #[test]
    fn a_refusal_s_exit_code_says_whose_turn_it_is() {
        for (status, reason, exit) in [
            (404, "not_found", Exit::NotFound),
            (422, "resolved_digest_missing", Exit::Usage),
            (422, "platform_mismatch", Exit::No),
            (400, "invalid_request", Exit::Usage),
            (507, "disk_full", Exit::Transport),
            (503, "busy", Exit::Transport),
        ] {
            let body = ErrorBody { reason: reason.to_owned(), message: "m".to_owned(), hint: None };
            let status = status.try_into().unwrap();
            assert_eq!(failure(CallError::Refused { status, body }).exit, exit, "{reason}");
        }
    }
}
