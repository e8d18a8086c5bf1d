//! `portolan-controller`: what makes builds of a cluster run, brings shims to its nodes and records releases.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;
use portolan_controller::Options;
use portolan_registry::serving::program::{self, LogFormat, end, end_on_signals, start_logging};
use tokio_util::sync::CancellationToken;

/// Run the Builds of a cluster on Tekton, bring Shims to its nodes, record its Releases
#[derive(Debug, Parser)]
#[command(name = "portolan-controller", version, max_term_width = 100)]
#[command(
    after_help = "Examples:\n  portolan-controller --step-image registry.example/portolan:1\n  portolan-controller --config /etc/portolan/controller.toml\n\nPORTOLAN_LOG sets what is logged, such as portolan_controller=debug. docs/controller.md says more."
)]
struct Args {
    /// The configuration; what a flag or its variable says is heard before it
    #[arg(long, value_name = "FILE", env = "PORTOLAN_CONFIG")]
    config: Option<PathBuf>,
    /// How a line of the log looks
    #[arg(long, value_enum, default_value_t, env = "PORTOLAN_LOG_FORMAT")]
    log_format: LogFormat,
    #[command(flatten)]
    options: Options,
}

fn main() -> ExitCode {
    end(start(Args::parse()))
}

fn start(args: Args) -> anyhow::Result<()> {
    start_logging("portolan_controller", args.log_format)?;
    let file: Options = args.config.as_deref().map(program::load).transpose()?.unwrap_or_default();
    let settings = args.options.or(file).settings().map_err(anyhow::Error::msg)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.context("start the async runtime")?.block_on(async {
        let ending = CancellationToken::new();
        end_on_signals(ending.clone())?;
        Ok(portolan_controller::run(settings, ending).await?)
    })
}

#[cfg(test)]
#[path = "../../../xtask/tests/reference/commands.rs"]
mod reference;
