//! `portolan-agent`: fetch, verify, cache, boot.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use portolan_agent::run;
use portolan_registry::serving::program::{LogFormat, end, end_on_signals, start_logging};
use tokio_util::sync::CancellationToken;

/// Run digest-pinned images in microVMs from a verified cache
#[derive(Debug, Parser)]
#[command(name = "portolan-agent", version, max_term_width = 100)]
#[command(
    after_help = "Examples:\n  portolan-agent --config /etc/portolan/agent.toml\n  portolan-agent --root ./data --socket ./agent.sock\n\nPORTOLAN_LOG sets what is logged, such as portolan_agent=debug. Machines outlive the agent:\nending it ends none of them, and the next one takes them over."
)]
struct Args {
    /// Everything the agent keeps; /var/lib/portolan, or a user's own data directory
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Where the API listens; agent.sock in the root
    #[arg(long, value_name = "PATH")]
    socket: Option<PathBuf>,
    /// The configuration; all defaults when not given
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CONFIG")]
    config: Option<PathBuf>,
    /// How a line of the log looks
    #[arg(long, value_enum, default_value_t, env = "PORTOLAN_LOG_FORMAT")]
    log_format: LogFormat,
}

fn main() -> ExitCode {
    // First of all: neither a machine's shim nor what becomes a plugin has threads, a runtime or a log.
    let asked = portolan_agent::vmm::shim::run_if_asked()
        .or_else(portolan_compat::external::sandbox::run_if_asked);
    if let Some(code) = asked {
        return code;
    }
    // What is written here is nobody else's business; what others may use says so itself.
    rustix::process::umask(rustix::fs::Mode::RWXG | rustix::fs::Mode::RWXO);
    end(start(Args::parse()))
}

fn start(args: Args) -> anyhow::Result<()> {
    start_logging("portolan_agent", args.log_format)?;
    let config = run::configure(args.config.as_deref(), args.root, args.socket)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start the async runtime")?.block_on(async {
        let shutdown = CancellationToken::new();
        end_on_signals(shutdown.clone())?;
        run::run(config, shutdown).await.map_err(anyhow::Error::new)
    })
}

#[cfg(test)]
#[path = "../../../xtask/tests/reference/commands.rs"]
mod reference;
